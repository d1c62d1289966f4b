//! When a pass in listing order may be believed. Pure.
//!
//! The first directory of a walk says nothing of the next: a program that goes through directories in an order of its own reads each of them
//! in listing order, too. And a range of rows, a shard or a sequence that is read in listing order says nothing of what is read after it.
//! So the order is certain only once it began with the first file, or went on for long, and once the opens have gone over from one directory
//! to the one that follows it in the listing, so often that chance does not do it; and only over a part of the dataset that has no other
//! parts with orders of their own below it (train and validation read in turns are no walk through both).

use std::collections::{HashMap, HashSet};

use super::roots::Roots;
use crate::dataset::Manifest;
use crate::dataset::maps::CandidateMap as Map;
use crate::plan::Seen;
use crate::types::rule::Sequence;
use crate::types::{SampleIndex, SampleRule};

/// Samples looked at for parts of the dataset below the root.
const LOOKED_AT: usize = 64;
/// Opens between the last file of a directory and the first of the next: two rounds of a loader's batches; one reader goes straight on, but for a hidden file.
const READERS_APART: usize = 512;
const READER_SKIPS: u32 = 3;
/// A pass begins with one of the first samples: the first may be hidden, and its open may be lost.
const FIRST: SampleIndex = 3;
/// Opens from which on a pass that did not begin there is believed: longer than ranges of rows and sequences of frames are.
const LATE: usize = 256;
/// ... and one through a single directory, which shows nothing else: longer than a block of a shard.
const FLAT: usize = 64;
/// One reader of it goes on by so few: files of other kinds lie between.
const FLAT_SKIPS: u32 = 16;
/// Where there are fewer files than several readers' ranges may fill by chance, only so small a part may be left.
const REST: usize = 16;
/// Directories in the order of the listing are chance less than once in so many.
const CHANCE: usize = 500;
/// So many directories are many: two in their order are less than that chance.
const MANY: usize = 24;

/// Whether these opens are of a pass that began where the listing does.
pub(super) fn begins(map: &Map, opens: &[Seen]) -> bool {
    opens.iter().filter_map(|seen| map.index_of(seen.file)).min().is_some_and(|first| first <= FIRST)
}

/// Whether opens that follow the samples of `map` can be nothing but a pass through all of them.
pub(super) fn is_certain(manifest: &Manifest, map: &Map, opens: &[Seen]) -> bool {
    let samples = &*map.samples;
    let folder = |sample: u32| manifest.path(samples[sample as usize]).rsplit_once('/').map_or("", |(folder, _)| folder);
    let placed: Vec<(u32, SampleIndex)> = opens.iter().filter_map(|seen| Some((seen.process, map.index_of(seen.file)?))).collect();
    let (Some(&(process, _)), Some(last)) = (placed.first(), map.len().checked_sub(1)) else { return false };
    let mut at: HashMap<SampleIndex, usize> = HashMap::new();
    for (number, &(_, sample)) in placed.iter().enumerate() {
        at.entry(sample).or_insert(number);
    }
    let (first, furthest) = at.keys().fold((u32::MAX, 0), |(low, high), &sample| (low.min(sample), high.max(sample)));
    let span = (furthest - first) as usize;
    let from_first = first <= FIRST;
    if !from_first && (at.len() < LATE || span * 4 > at.len() * 5) || falls(&placed) {
        return false;
    }
    let alone = placed.iter().all(|open| open.0 == process);
    let needed = match &map.rule {
        // files of all directories in turns: a shuffle of shards has them so, too
        SampleRule::Files(Sequence::Stem | Sequence::Basename, _) if (0..last).any(|sample| folder(sample) != folder(last)) => {
            return false;
        }
        // a text has its own order: that it is followed is no chance
        SampleRule::Names(..) => 0,
        _ => crossings_needed(folders(last, folder), from_first),
    };
    // Ranges of several readers may touch, and each goes over into other directories on its way.
    let readers = placed.iter().map(|open| open.0).collect::<HashSet<_>>().len();
    let least = match (alone, needed) {
        (true, 0) => FLAT.min(samples.len() / 2),
        (true, _) => 0,
        (false, _) => (FLAT * readers).min(LATE).min(samples.len() - samples.len() / REST),
    };
    if at.len() < least {
        return false;
    }
    if needed == 0 {
        let leaps = alone && placed.windows(2).any(|pair| pair[1].1.abs_diff(pair[0].1) > FLAT_SKIPS);
        if leaps || span > at.len() * 2 {
            return false;
        }
    } else {
        let strays = |pair: &[(u32, SampleIndex)]| {
            let (from, to) = (pair[0].1, pair[1].1);
            from != to && folder(from) != folder(to) && !(to > from && to - from <= READER_SKIPS)
        };
        if alone && placed.windows(2).any(strays) || span > at.len() * 2 {
            return false;
        }
        let crossed = |(&sample, &number): (&SampleIndex, &usize)| {
            sample < last
                && folder(sample) != folder(sample + 1)
                && at.get(&(sample + 1)).is_some_and(|&next| next.abs_diff(number) <= READERS_APART && (!alone || next > number))
        };
        if at.iter().filter(|&one| crossed(one)).count() < needed {
            return false;
        }
    }
    let roots = Roots::new(manifest);
    samples.iter().step_by((samples.len() / LOOKED_AT).max(1)).all(|&file| roots.of(manifest.path(file)) == map.root)
}

/// Whether a reader goes back: whoever goes through a listing does not, but for a probe before.
fn falls(placed: &[(u32, SampleIndex)]) -> bool {
    let mut last: HashMap<u32, SampleIndex> = HashMap::new();
    placed.iter().skip(1).any(|&(process, sample)| last.insert(process, sample).is_some_and(|before| process != 0 && before > sample))
}

/// Directories of the samples 0 to `last`, each of which holds samples that follow each other; [`MANY`]: as many, or more.
fn folders<'a>(last: SampleIndex, folder: impl Fn(SampleIndex) -> &'a str) -> usize {
    let (mut count, mut begin) = (1, 0);
    while count < MANY && folder(begin) != folder(last) {
        // the first sample after this directory
        let (mut inside, mut beyond) = (begin, last);
        while beyond - inside > 1 {
            let middle = inside + (beyond - inside) / 2;
            if folder(middle) == folder(begin) { inside = middle } else { beyond = middle }
        }
        (count, begin) = (count + 1, beyond);
    }
    count
}

/// How often opens must have gone over into the next directory: until a program that takes them in any order does it by chance once in
/// [`CHANCE`] times, or only one is left. The first directory of all is such a chance, too.
fn crossings_needed(folders: usize, from_first: bool) -> usize {
    let mut chance = if from_first { folders } else { 1 };
    let mut crossings = 0;
    while crossings + 1 < folders && (crossings == 0 || chance < CHANCE) {
        crossings += 1;
        chance *= folders - crossings;
    }
    crossings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::rule::Extensions;
    use crate::types::{FileIndex, ObjectMeta, Outcome};
    use std::time::Duration;

    fn manifest(paths: &[String]) -> Manifest {
        let object = |path: &String| ObjectMeta { key: path.as_str().into(), size: 1, etag: "".into(), mtime_seconds: 0 };
        Manifest::build("", paths.iter().map(object).collect())
    }

    /// Files are numbered as they are listed.
    fn map(root: &str, files: u32) -> Map {
        Map::new(root, SampleRule::Files(Sequence::Sorted, Extensions::ALL), (0..files).map(FileIndex).collect::<Vec<_>>())
    }

    fn opens(files: impl IntoIterator<Item = u32>) -> Vec<Seen> {
        files.into_iter().map(|file| Seen { now: Duration::ZERO, file: FileIndex(file), process: 1, outcome: Outcome::Miss }).collect()
    }

    #[test]
    fn a_walk_is_certain_once_its_directories_can_be_no_chance() {
        let paths: Vec<String> = (0..400).map(|k| format!("train/c{:02}/{k:03}.jpg", k / 10)).chain(["val/c00/1.jpg".to_owned()]).collect();
        let listed = manifest(&paths);
        let train = map("train", 400);
        assert!(!is_certain(&listed, &train, &opens(0..10)));
        assert!(is_certain(&listed, &train, &opens(0..12)), "the first two of forty");
        assert!(!is_certain(&listed, &train, &opens((0..10).chain(30..40))), "another class comes next");
        assert!(!is_certain(&listed, &train, &opens(100..140)), "some classes in the middle");
        assert!(is_certain(&listed, &train, &opens(100..360)), "most of them");
        assert!(!is_certain(&listed, &map("", 401), &opens(0..401)), "train and validation have orders of their own");
        // of four classes, the first three come in this order once in 24 times; the last one is known then
        let listed = manifest(&paths[..40]);
        for (opened, certain) in [(12, false), (22, false), (32, true)] {
            assert_eq!(is_certain(&listed, &map("train", 40), &opens(0..opened)), certain, "{opened}");
        }
    }

    #[test]
    fn one_directory_is_certain_once_it_is_long_enough() {
        let paths: Vec<String> = (0..900).map(|k| format!("{k:03}.jpg")).collect();
        let listed = manifest(&paths);
        assert!(!is_certain(&listed, &map("", 900), &opens(0..63)) && is_certain(&listed, &map("", 900), &opens(2..68)));
        assert!(!is_certain(&listed, &map("", 900), &opens((0..60).chain(200..260))), "blocks of shards");
        assert!(!is_certain(&listed, &map("", 900), &opens((40..80).chain(0..40))), "ranges that touch");
        assert!(!is_certain(&listed, &map("", 900), &opens(300..360)), "rows of a range");
        assert!(is_certain(&listed, &map("", 900), &opens(300..600)));
        // three readers: ranges that touch, and a loader's workers
        let of = |files: std::ops::Range<u32>, block: u32| {
            files
                .flat_map(|file| opens([file]).into_iter().map(move |seen| Seen { process: 1 + file / block % 3, ..seen }))
                .collect::<Vec<_>>()
        };
        assert!(!is_certain(&listed, &map("", 900), &of(2..170, 57)) && is_certain(&listed, &map("", 900), &of(0..192, 16)));
        assert!(!is_certain(&manifest(&paths[..200]), &map("", 200), &of(2..115, 57)), "half of a small one");
        let paths: Vec<String> = (0..90).map(|k| format!("c{}/{k:02}.jpg", k / 30)).collect();
        assert!(!is_certain(&manifest(&paths), &map("", 90), &of(2..80, 31)), "ranges go over into other directories");
    }

    #[test]
    fn names_of_all_directories_in_turns_are_no_walk() {
        let paths: Vec<String> = (0..40).map(|k| format!("c{}/{k:02}.jpg", k % 4)).collect();
        let listed = manifest(&paths);
        let mut by_name: Vec<FileIndex> = (0..40).map(FileIndex).collect();
        by_name.sort_by_key(|&file| listed.path(file).rsplit_once('/').map(|(_, name)| name.to_owned()));
        let read: Vec<Seen> = by_name.iter().flat_map(|file| opens([file.0])).collect();
        let map = Map::new("", SampleRule::Files(Sequence::Basename, Extensions::ALL), by_name);
        assert!(!is_certain(&listed, &map, &read));
    }

    #[test]
    fn directories_are_counted() {
        for (sizes, count) in [(vec![5], 1), (vec![1, 1], 2), (vec![3, 1, 7, 2], 4), (vec![2; 50], MANY)] {
            let of: Vec<String> = sizes.iter().enumerate().flat_map(|(k, &size)| vec![format!("c{k}"); size]).collect();
            assert_eq!(folders(u32::try_from(of.len()).unwrap() - 1, |sample| &of[sample as usize]), count, "{sizes:?}");
        }
        let needed = [1, 2, 3, 5, 7, 10, MANY].map(|folders| crossings_needed(folders, true));
        assert_eq!(needed, [0, 1, 2, 4, 3, 2, 1]);
    }
}
