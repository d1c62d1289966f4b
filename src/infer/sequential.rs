//! When a pass in listing order may be believed. Pure.
//!
//! The first directory of a walk says nothing of the next: a program that goes through directories in an order of its own reads each of them
//! in listing order, too. So the order is certain only once the opens have gone over from one directory to the one that follows it in the
//! listing, or where there is one directory only; and only over a part of the dataset that has no other parts with orders of their own
//! below it (train and validation read in turns are no walk through both).

use std::collections::HashMap;

use super::roots::Roots;
use crate::dataset::Manifest;
use crate::plan::Seen;
use crate::types::{FileIndex, SampleIndex};

/// Samples looked at for parts of the dataset below the root.
const LOOKED_AT: usize = 64;
/// Opens between the last file of a directory and the first of the next: two rounds of a loader's batches; one reader goes straight on, but for a hidden file.
const READERS_APART: usize = 512;
const READER_SKIPS: u32 = 3;
/// Directories gone over before a pass that did not begin with the first file is believed: one is chance once in as many as there are.
const CROSSED_LATE: usize = 3;

/// Whether opens that follow `samples` (all below `root`; `index` is their inverse) can be nothing but a pass through all of them.
pub(super) fn is_certain(
    manifest: &Manifest,
    root: &str,
    samples: &[FileIndex],
    index: impl Fn(FileIndex) -> Option<SampleIndex>,
    opens: &[Seen],
) -> bool {
    let folder = |sample: u32| manifest.path(samples[sample as usize]).rsplit_once('/').map_or("", |(folder, _)| folder);
    let placed: Vec<(u32, SampleIndex)> = opens.iter().filter_map(|seen| Some((seen.process, index(seen.file)?))).collect();
    let (Some(&(process, _)), Some(last)) = (placed.first(), samples.len().checked_sub(1)) else { return false };
    let last = u32::try_from(last).unwrap_or(u32::MAX);
    // One directory: the first and the last file of a listing are in it.
    let flat = folder(0) == folder(last) && folder(0) == folder(last / 2);
    if !flat {
        let mut at: HashMap<SampleIndex, usize> = HashMap::new();
        for (number, &(_, sample)) in placed.iter().enumerate() {
            at.entry(sample).or_insert(number);
        }
        let (first, furthest) = at.keys().fold((u32::MAX, 0), |(low, high), &sample| (low.min(sample), high.max(sample)));
        let alone = placed.iter().all(|open| open.0 == process);
        let strays = |pair: &[(u32, SampleIndex)]| {
            let (from, to) = (pair[0].1, pair[1].1);
            from != to && folder(from) != folder(to) && !(to > from && to - from <= READER_SKIPS)
        };
        if alone && placed.windows(2).any(strays) || (furthest - first) as usize > at.len() * 2 {
            return false;
        }
        let crossed = |(&sample, &number): (&SampleIndex, &usize)| {
            sample < last
                && folder(sample) != folder(sample + 1)
                && at.get(&(sample + 1)).is_some_and(|&next| next.abs_diff(number) <= READERS_APART && (!alone || next > number))
        };
        if at.iter().filter(|&one| crossed(one)).count() < if first == 0 { 1 } else { CROSSED_LATE } {
            return false;
        }
    }
    let roots = Roots::new(manifest);
    samples.iter().step_by((samples.len() / LOOKED_AT).max(1)).all(|&file| roots.of(manifest.path(file)) == root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{ObjectMeta, Outcome};
    use std::time::Duration;

    fn manifest(paths: &[String]) -> Manifest {
        let object = |path: &String| ObjectMeta { key: path.as_str().into(), size: 1, etag: "".into(), mtime_seconds: 0 };
        Manifest::build("", paths.iter().map(object).collect())
    }

    /// Files are numbered as they are listed.
    const fn index(file: FileIndex) -> Option<SampleIndex> {
        if file.0 < 1_000 { Some(file.0) } else { None }
    }

    fn opens(files: impl IntoIterator<Item = u32>) -> Vec<Seen> {
        files.into_iter().map(|file| Seen { now: Duration::ZERO, file: FileIndex(file), process: 1, outcome: Outcome::Miss }).collect()
    }

    #[test]
    fn a_walk_is_certain_once_it_has_gone_over_into_the_next_directory() {
        let paths: Vec<String> = (0..40).map(|k| format!("train/c{}/{k:02}.jpg", k / 10)).chain(["val/c0/1.jpg".to_owned()]).collect();
        let manifest = manifest(&paths);
        let train: Vec<FileIndex> = (0..40).map(FileIndex).collect();
        assert!(!is_certain(&manifest, "train", &train, index, &opens(0..10)));
        assert!(is_certain(&manifest, "train", &train, index, &opens(0..12)));
        assert!(!is_certain(&manifest, "train", &train, index, &opens((0..10).chain(30..40))), "another class comes next");
        let all: Vec<FileIndex> = (0..41).map(FileIndex).collect();
        assert!(!is_certain(&manifest, "", &all, index, &opens(0..41)), "train and validation have orders of their own");
    }

    #[test]
    fn one_directory_is_certain_at_once() {
        let paths: Vec<String> = (0..40).map(|k| format!("{k:02}.jpg")).collect();
        let files: Vec<FileIndex> = (0..40).map(FileIndex).collect();
        assert!(is_certain(&manifest(&paths), "", &files, index, &opens(0..8)));
    }
}
