//! When a pass in listing order may be believed. Pure.
//!
//! The first directory of a walk says nothing of the next: a program that goes through directories in an order of its own reads each of them
//! in listing order, too. So the order is certain only once the opens have gone over from one directory to the one that follows it in the
//! listing, or where there is one directory only; and only over a part of the dataset that has no other parts with orders of their own
//! below it (train and validation read in turns are no walk through both).

use super::roots::Roots;
use crate::dataset::Manifest;
use crate::plan::Seen;
use crate::types::FileIndex;

/// Samples looked at for parts of the dataset below the root.
const LOOKED_AT: usize = 64;

/// Whether opens that follow `samples` (all below `root`) can be nothing but a pass through all of them.
pub(super) fn is_certain(manifest: &Manifest, root: &str, samples: &[FileIndex], opens: &[Seen]) -> bool {
    let folder = |file: FileIndex| manifest.path(file).rsplit_once('/').map_or("", |(folder, _)| folder);
    let opened: std::collections::HashSet<FileIndex> = opens.iter().map(|seen| seen.file).collect();
    let mut flat = true;
    let mut crossed = false;
    for pair in samples.windows(2) {
        if folder(pair[0]) != folder(pair[1]) {
            flat = false;
            crossed |= opened.contains(&pair[0]) && opened.contains(&pair[1]);
        }
        if crossed {
            break;
        }
    }
    if !flat && !crossed {
        return false;
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

    fn opens(files: impl IntoIterator<Item = u32>) -> Vec<Seen> {
        files.into_iter().map(|file| Seen { now: Duration::ZERO, file: FileIndex(file), process: 1, outcome: Outcome::Miss }).collect()
    }

    #[test]
    fn a_walk_is_certain_once_it_has_gone_over_into_the_next_directory() {
        let paths: Vec<String> = (0..40).map(|k| format!("train/c{}/{k:02}.jpg", k / 10)).chain(["val/c0/1.jpg".to_owned()]).collect();
        let manifest = manifest(&paths);
        let train: Vec<FileIndex> = (0..40).map(FileIndex).collect();
        assert!(!is_certain(&manifest, "train", &train, &opens(0..10)));
        assert!(is_certain(&manifest, "train", &train, &opens(0..12)));
        assert!(!is_certain(&manifest, "train", &train, &opens((0..10).chain(30..40))), "another class comes next");
        let all: Vec<FileIndex> = (0..41).map(FileIndex).collect();
        assert!(!is_certain(&manifest, "", &all, &opens(0..41)), "train and validation have orders of their own");
    }

    #[test]
    fn one_directory_is_certain_at_once() {
        let paths: Vec<String> = (0..40).map(|k| format!("{k:02}.jpg")).collect();
        let files: Vec<FileIndex> = (0..40).map(FileIndex).collect();
        assert!(is_certain(&manifest(&paths), "", &files, &opens(0..8)));
    }
}
