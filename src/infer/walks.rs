//! Whether opens look like a walk through the tree: no shuffle makes those, and to search for one is a waste. Pure; the listing alone is asked.
//!
//! Not here: whether a walk is certain to go on to its end (`sequential`).

use crate::dataset::{Manifest, Node};
use crate::plan::Seen;
use crate::types::{FileIndex, QuickMap};

/// Opens looked at.
const LOOKED_AT: usize = 512;
/// A file that lies so near behind the last one of its directory is the next: labels, hidden files and what another process took lie between.
const NEAR: u32 = 3;
/// Files of a directory of classes at most (ImageNet has 1,300): more are a dataset of their own.
const CLASS_MAX: usize = 2_048;
/// Times as many files as such a directory has are there, at least.
const CORNERS: usize = 8;
/// Opens of a directory, on average, at least, if directories are read one after the other.
const OF_DIRECTORY: usize = 4;

/// What opens look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// File after file of a directory in listing order, or directory after directory in any.
    Walk,
    /// All in one directory, a small one of many: a walk that takes its files in an order of its own (`cp -r` goes by inodes), or a small dataset.
    Corner,
    Anywhere,
}

/// What the first opens look like, where so many files are below the readers' root; and whether more than one directory is read, or the only one.
pub(super) fn reads(manifest: &Manifest, files: u32, opens: &[Seen]) -> (Reads, bool) {
    let opens = &opens[..opens.len().min(LOOKED_AT)];
    // Of each directory and of each process the file opened last.
    let mut last: QuickMap<&str, FileIndex> = QuickMap::default();
    let mut own: QuickMap<u32, FileIndex> = QuickMap::default();
    // Workers of webdataset draw the same numbers, so files that lie side by side are opened together; each of them goes back as often as on.
    let mut there_by_it: QuickMap<(u32, &str), FileIndex> = QuickMap::default();
    let (mut steps, mut falls) = (0, 0);
    let (mut next, mut changes, mut before) = (0, 0, None);
    for seen in opens {
        let folder = folder(manifest, seen.file);
        let follows = |before: Option<FileIndex>| before.is_some_and(|before| (1..=NEAR).contains(&seen.file.0.wrapping_sub(before.0)));
        let (there, by_it) = (follows(last.insert(folder, seen.file)), follows(own.insert(seen.process, seen.file)));
        next += usize::from(there || by_it);
        if let Some(before) = there_by_it.insert((seen.process, folder), seen.file) {
            steps += 1;
            falls += usize::from(seen.file < before);
        }
        changes += usize::from(before.is_some_and(|before| before != folder));
        before = Some(folder);
    }
    let folders = last.len();
    let goes_back = steps * 2 >= opens.len() && falls * 4 >= steps;
    let listed = next * 4 >= (opens.len() - folders) * 3 && folders * 2 <= opens.len() && !goes_back;
    let in_turn = folders > 1 && changes < folders + folders / 8 && opens.len() >= folders * OF_DIRECTORY;
    let only = before.map_or(0, |folder| match manifest.find(folder) {
        Some(Node::Dir(dir)) => manifest.child_count(dir),
        _ => 0,
    });
    let reads = if listed || in_turn {
        Reads::Walk
    } else if folders == 1 && only <= CLASS_MAX && only * CORNERS <= files as usize {
        Reads::Corner
    } else {
        Reads::Anywhere
    };
    (reads, folders > 1 || only * 2 >= files as usize)
}

fn folder(manifest: &Manifest, file: FileIndex) -> &str {
    manifest.path(file).rsplit_once('/').map_or("", |(folder, _)| folder)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::order::mt19937::Mt19937;
    use crate::order::torch::randperm;
    use crate::types::{ObjectMeta, Outcome};

    const FILES: u32 = 2_000;

    /// So many directories of the same size.
    fn manifest(folders: u32) -> Manifest {
        let of_folder = FILES / folders;
        let path = |file: u32| format!("train/n{:04}/{file:05}.jpg", file / of_folder);
        let object = |file: u32| ObjectMeta { key: path(file).into(), size: 1, etag: "".into(), mtime_seconds: 0 };
        Manifest::build("", (0..FILES).map(object).collect())
    }

    fn reads_of(folders: u32, files: impl IntoIterator<Item = (u32, u32)>) -> (Reads, bool) {
        let seen = |(process, file)| Seen { now: Duration::ZERO, file: FileIndex(file), process, outcome: Outcome::Miss };
        reads(&manifest(folders), FILES, &files.into_iter().map(seen).collect::<Vec<_>>())
    }

    fn shuffled(n: u32) -> Vec<u32> {
        randperm(n, &mut Mt19937::new(5))
    }

    #[test]
    fn shuffles_over_small_directories_are_no_walks() {
        for (files, folders) in [(200, 40), (200, 100), (500, 100), (2_000, 1_000)] {
            let path = |file: u32| format!("train/n{:04}/{file:05}.jpg", file / (files / folders));
            let object = |file: u32| ObjectMeta { key: path(file).into(), size: 1, etag: "".into(), mtime_seconds: 0 };
            let manifest = Manifest::build("", (0..files).map(object).collect());
            for opens in [24, 64, 128, files as usize] {
                let seen = |file| Seen { now: Duration::ZERO, file: FileIndex(file), process: 1, outcome: Outcome::Miss };
                let opens: Vec<Seen> = shuffled(files).into_iter().take(opens).map(seen).collect();
                assert_eq!(reads(&manifest, files, &opens).0, Reads::Anywhere, "{files} {folders} {}", opens.len());
            }
        }
    }

    #[test]
    fn walks_are_told_from_shuffles() {
        for folders in [1, 20, 200] {
            let of_folder = FILES / folders;
            assert_eq!(reads_of(folders, (0..24).map(|file| (1, file))).0, Reads::Walk, "{folders}");
            // two workers that read batches of 8 in turn, and a process for each file
            assert_eq!(reads_of(folders, (0..64).map(|k| (k % 2, k / 2 % 8 + k / 16 * 16 + k % 2 * 8))).0, Reads::Walk, "{folders}");
            assert_eq!(reads_of(folders, (0..64).map(|k| (k, k))).0, Reads::Walk, "{folders}");
            // labels beside images: another directory each time
            if folders > 1 {
                assert_eq!(reads_of(folders, (0..60).map(|k| (1, k / 2 % of_folder + k % 2 * of_folder))).0, Reads::Walk, "{folders}");
            }
            for opens in [24, 64, 128, 512, 1_500] {
                let shuffled = shuffled(FILES).into_iter().take(opens);
                assert_eq!(reads_of(folders, shuffled.map(|file| (1, file))), (Reads::Anywhere, true), "{folders} {opens}");
            }
        }
    }

    #[test]
    fn workers_that_draw_the_same_numbers_are_no_walk() {
        for workers in [4, 8] {
            let drawn =
                shuffled(FILES / workers).into_iter().flat_map(|k| (0..workers).map(move |worker| (1 + worker, k * workers + worker)));
            assert_eq!(reads_of(1, drawn.take(128)).0, Reads::Anywhere, "{workers}");
        }
    }

    #[test]
    fn directories_read_one_after_the_other_are_a_walk_whatever_comes_first_in_them() {
        let opens =
            |opens: usize| (0..20).rev().flat_map(|folder| shuffled(100).into_iter().map(move |k| (1, folder * 100 + k))).take(opens);
        assert_eq!(reads_of(20, opens(24)), (Reads::Corner, false), "it may be a small dataset");
        assert_eq!(reads_of(20, opens(128)), (Reads::Walk, true));
        // a dataset in one directory
        assert_eq!(reads_of(1, shuffled(FILES).into_iter().take(24).map(|file| (1, file))), (Reads::Anywhere, true));
    }
}
