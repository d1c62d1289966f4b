//! The order of the pass before, read again: `set_epoch` forgotten, a generator seeded anew, a library nobody knows.

use std::sync::Arc;

use super::job::{Found, LOOKED_AT, Search};
use super::proof;
use crate::order::spec::{OrderKind, OrderSpec};
use crate::plan::{EpochFiles, Seen};
use crate::types::{FileIndex, QuickMap, SampleRule};

/// How far opens may be spread over the front of an order: workers read a batch each, ahead of the first that is used. More workers are found when
/// more was opened.
const FRONT_PER_OPEN: usize = 4;
const FRONT_LEAST: usize = 64;
/// Files of a pass before that is worth comparing.
pub(super) const RECORDED_LEAST: usize = 256;
/// Steps of readers by which a pass is known again: of batches, ranges and shards of 64, which may come again in another order, four.
const STEPS: usize = 256;
/// A step over more than such a part of the pass is to another batch: chance steps so short once in eight times.
const FAR: usize = 16;
const FAR_LEAST: usize = 32;
/// One of so many steps may be far: a worker that was held up, a stray.
const FAR_OF: usize = 200;

/// Whether so many opens tell a pass before from others, and those at which it was compared last, 0 for never, told less.
pub(super) fn tells(opens: u32, compared_at: u32) -> bool {
    let looked_at = |opens: u32| (opens as usize).min(LOOKED_AT);
    looked_at(opens) >= least(RECORDED_LEAST) && looked_at(opens) > looked_at(compared_at)
}

/// Opens, at least, by which a pass of so many files is known again.
fn least(files: usize) -> usize {
    STEPS.min(files * 3 / 4)
}

impl Search<'_> {
    /// The order in which files were read before.
    pub(super) fn recorded(&mut self) {
        let goes_on = |recorded: &&Arc<Vec<FileIndex>>| recorded.len() >= RECORDED_LEAST && recorded.len() > self.job.distinct;
        let Some(recorded) = self.job.recorded.as_ref().filter(goes_on) else { return };
        if !goes_on_together(recorded, self.job.opens()) || !begins_again(recorded, self.job.opens()) {
            return;
        }
        // Of all that these readers read, whatever the map is of.
        let root = self.job.root.clone();
        let id = if root.is_empty() { OrderKind::List.to_string() } else { root.clone() };
        let spec = OrderSpec { id, root, files: SampleRule::list("recorded"), ..OrderSpec::of(OrderKind::List) };
        let files = Arc::new(EpochFiles { files: recorded.to_vec(), stride: 1 });
        let evidence = proof::evidence(&files, self.job.opens(), &self.job.sizes);
        // What comes after a part of a pass is not its beginning.
        let epochs = (!self.job.is_pass).then_some(1);
        let samples: Arc<[FileIndex]> = recorded.iter().copied().collect();
        let Ok(sampler) = spec.sampler(u32::try_from(samples.len()).unwrap_or(0)) else { return };
        if evidence.proves(self.tried) {
            let (ln, why) = (evidence.ln - self.tried.ln(), "files come as they were read before".to_owned());
            self.best = Some((evidence.ln, Found { spec, epoch: self.job.pass, sampler, samples, files, epochs, ln, why, wider: None }));
        }
    }
}

/// Whether opens are at the front of the order read before. Its last files, read while the next pass had begun already, would prove it, too.
fn begins_again(recorded: &[FileIndex], opens: &[Seen]) -> bool {
    let front = (opens.len() * FRONT_PER_OPEN + FRONT_LEAST).min(recorded.len() / 2);
    let places = places(recorded, opens);
    let inside = opens.iter().filter(|seen| places[&seen.file].is_some_and(|place| place < front)).count();
    inside * 10 >= opens.len() * 9
}

/// Whether readers go on through the pass without leaps, for long enough. What comes in pieces (ranges of rows, batches of like lengths, shards)
/// has each of its pieces in the order of any pass before, and says nothing of the piece that comes next.
pub(super) fn goes_on_together(recorded: &[FileIndex], opens: &[Seen]) -> bool {
    let least = least(recorded.len());
    if opens.len() < least {
        return false;
    }
    let (places, far) = (places(recorded, opens), (recorded.len() / FAR).max(FAR_LEAST));
    let mut last: QuickMap<u32, usize> = QuickMap::default();
    let (mut steps, mut leaps) = (0, 0);
    for seen in opens {
        let Some(place) = places[&seen.file] else {
            leaps += 1;
            continue;
        };
        if let Some(before) = last.insert(seen.process, place) {
            steps += 1;
            leaps += usize::from(before.abs_diff(place) > far);
        }
    }
    // the first open of each reader is no step
    steps + last.len() + 1 >= least && leaps <= steps / FAR_OF
}

/// Where the opened files are in a pass, if they are.
pub(super) fn places(recorded: &[FileIndex], opens: &[Seen]) -> QuickMap<FileIndex, Option<usize>> {
    let mut places: QuickMap<FileIndex, Option<usize>> = opens.iter().map(|seen| (seen.file, None)).collect();
    // Most files of a long pass are none of them: a bit tells.
    let last = opens.iter().map(|seen| seen.file.at()).max().unwrap_or(0);
    let mut is_opened = vec![0u64; last / 64 + 1];
    opens.iter().for_each(|seen| is_opened[seen.file.at() / 64] |= 1 << (seen.file.0 % 64));
    for (place, file) in recorded.iter().enumerate() {
        if is_opened.get(file.at() / 64).is_some_and(|bits| bits >> (file.0 % 64) & 1 == 1)
            && let Some(at) = places.get_mut(file)
        {
            *at = Some(place);
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::types::Outcome;

    #[test]
    fn the_end_of_a_pass_is_not_its_beginning_again() {
        let recorded: Vec<FileIndex> = (0..750).rev().map(FileIndex).collect();
        let seen = |&file: &FileIndex| Seen { now: Duration::ZERO, file, process: 1, outcome: Outcome::Miss };
        let opens = |from: usize| recorded[from..from + 32].iter().map(seen).collect::<Vec<_>>();
        assert!(begins_again(&recorded, &opens(0)) && begins_again(&recorded, &opens(100)));
        assert!(!begins_again(&recorded, &opens(718)) && !begins_again(&recorded, &opens(400)));
    }

    #[test]
    fn pieces_of_a_pass_in_another_order_are_not_the_pass() {
        let recorded: Vec<FileIndex> = (0..1_000).map(|k| FileIndex(k * 387 % 1_000)).collect();
        let seen = |place: usize, process: u32| Seen { now: Duration::ZERO, file: recorded[place], process, outcome: Outcome::Miss };
        let again: Vec<Seen> = (0..256).map(|place| seen(place, 1)).collect();
        assert!(goes_on_together(&recorded, &again) && !goes_on_together(&recorded, &again[..200]));
        // two workers with batches of 32 each
        let workers: Vec<Seen> = (0..260).map(|k| seen(k / 2 + k % 2 * 32 + k / 64 * 32, 1 + k as u32 % 2)).collect();
        assert!(goes_on_together(&recorded, &workers));
        let pieces: Vec<Seen> = [5, 1, 20, 9, 14, 2, 25, 11, 7]
            .into_iter()
            .flat_map(|piece| (0..32).map(move |k| piece * 32 + k))
            .map(|place| seen(place, 1))
            .collect();
        assert!(!goes_on_together(&recorded, &pieces));
    }
}
