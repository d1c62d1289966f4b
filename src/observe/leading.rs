//! Opens before the first epoch that belong to no order: a program looks at `dataset[0]`, or checks all files, before it trains.
//! Pure. Source: field notes «orders» §6, «extra opens».
//!
//! Not here: other jobs' opens, which are groups of their own (`readers`).

use crate::observe::readers::Group;
use crate::types::FileIndex;

/// Opens of one reader before its workers begin that are still «a look»: a few samples of each of a few datasets.
const LOOKS_MAX: usize = 16;
/// A run in listing order that is shorter happens by chance, or is a class that is read whole.
const RUN_MIN: usize = 16;
/// Steps of a run may pass over so many files: labels between images.
const STEP_MAX: u32 = 2;
/// Steps in 20 that may be others: a directory's end, a hidden file, two checkers side by side.
const OTHERS_IN_20: usize = 2;
/// So many opens after the run show that it is over. Fewer, and it may be all there is: an order of its own, not a check.
const AFTER_MIN: usize = 8;

/// One open as this module needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// As in a [`Group`].
    pub stream: u32,
    /// Whether the stream is a rank process that has workers which are streams of their own.
    pub has_workers: bool,
    pub file: FileIndex,
}

/// [`aside`] for the opens of a group.
#[must_use]
pub fn aside_of(group: &Group<FileIndex>) -> Vec<bool> {
    let open = |&(stream, file): &(u32, FileIndex)| Open { stream, has_workers: group.has_workers[stream as usize], file };
    aside(&group.opens.iter().map(open).collect::<Vec<_>>())
}

/// Which opens belong to no order: one flag for each. What is set aside is at the front of its stream; everything else stays.
#[must_use]
pub fn aside(opens: &[Open]) -> Vec<bool> {
    let mut aside = vec![false; opens.len()];
    let streams = opens.iter().map(|open| open.stream).max().map_or(0, |most| most as usize + 1);
    let mut of_stream: Vec<Vec<usize>> = vec![Vec::new(); streams];
    for (place, open) in opens.iter().enumerate() {
        of_stream[open.stream as usize].push(place);
    }
    for places in of_stream.iter().filter(|places| !places.is_empty()) {
        let looks = looks(opens, places);
        let front = looks.max(checked(opens, places));
        for place in &places[..front] {
            aside[*place] = true;
        }
    }
    aside
}

/// The looks of a process whose workers do the reading: all its opens before the first of a worker, when they are few.
fn looks(opens: &[Open], places: &[usize]) -> usize {
    if !opens[places[0]].has_workers {
        return 0;
    }
    let stream = opens[places[0]].stream;
    let Some(worker) = opens.iter().position(|open| open.stream != stream && !open.has_workers) else { return 0 };
    let before = places.iter().filter(|place| **place < worker).count();
    if before <= LOOKS_MAX { before } else { 0 }
}

/// The length of the leading run in listing order, when it is a check: long, and over.
fn checked(opens: &[Open], places: &[usize]) -> usize {
    let (mut run, mut others) = (1, 0);
    for (steps, pair) in places.windows(2).enumerate() {
        let (from, to) = (opens[pair[0]].file.0, opens[pair[1]].file.0);
        if to > from && to - from <= STEP_MAX {
            run = steps + 2;
        } else {
            others += 1;
            if others * 20 > (steps + 20) * OTHERS_IN_20 {
                break;
            }
        }
    }
    if run >= RUN_MIN && places.len() - run >= AFTER_MIN { run } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn opens(parts: &[(u32, bool, &[u32])]) -> Vec<Open> {
        parts
            .iter()
            .flat_map(|&(stream, has_workers, files)| files.iter().map(move |&file| Open { stream, has_workers, file: FileIndex(file) }))
            .collect()
    }

    fn kept(opens: &[Open]) -> Vec<u32> {
        opens.iter().zip(aside(opens)).filter(|(_, aside)| !aside).map(|(open, _)| open.file.0).collect()
    }

    #[test]
    fn the_parents_look_at_a_sample_is_set_aside() {
        let seen = opens(&[(0, true, &[0, 0]), (1, false, &[77, 5]), (2, false, &[900, 31]), (1, false, &[8])]);
        assert_eq!(kept(&seen), [77, 5, 900, 31, 8]);
        // Without workers it is the reader.
        assert_eq!(kept(&opens(&[(0, false, &[0, 77, 5, 12])])), [0, 77, 5, 12]);
        // A parent that reads on beside its workers (validation in the main process) is not cut.
        let seen = opens(&[(0, true, &[0]), (1, false, &[77]), (0, true, &[31])]);
        assert_eq!(kept(&seen), [77, 31]);
    }

    #[test]
    fn a_check_of_all_files_is_set_aside_and_a_sequential_order_is_not() {
        let check: Vec<u32> = (0..100).filter(|file| file % 10 != 3).collect();
        let order = [42, 17, 99, 3, 64, 28, 71, 5, 50];
        assert_eq!(kept(&opens(&[(0, false, &check), (0, false, &order)])), order);
        assert_eq!(kept(&opens(&[(0, false, &check)])), check);
        let short: Vec<u32> = (0..10).collect();
        assert_eq!(kept(&opens(&[(0, false, &short), (0, false, &order)])).len(), 19);
    }

    proptest! {
        /// A shuffled order has no front that looks like a check.
        #[test]
        fn nothing_of_a_shuffled_order_is_lost(files in proptest::collection::vec(0u32..100_000, 0..300), streams in 1u32..5) {
            let seen: Vec<Open> = files.iter().zip(0..).map(|(file, at)| Open { stream: at % streams, has_workers: false, file: FileIndex(*file) }).collect();
            prop_assert_eq!(kept(&seen), files);
        }

        /// Only fronts of streams are cut.
        #[test]
        fn what_is_kept_is_the_rest_of_each_stream(files in proptest::collection::vec((0u32..3, 0u32..40), 0..200)) {
            let seen: Vec<Open> = files.iter().map(|&(stream, file)| Open { stream, has_workers: stream == 0, file: FileIndex(file) }).collect();
            let aside = aside(&seen);
            for stream in 0..3 {
                let flags: Vec<bool> = seen.iter().zip(&aside).filter(|(open, _)| open.stream == stream).map(|(_, aside)| *aside).collect();
                prop_assert!(flags.windows(2).all(|pair| pair[0] || !pair[1]));
            }
        }
    }
}
