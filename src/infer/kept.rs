//! What is remembered from one run to the next: specifications that were proved, and whole passes whose order nobody could tell (a fixed seed of
//! an unknown generator, DALI, a forgotten `set_epoch`). Both are tried before any search, and proved by opens like everything else.
//!
//! Not here: where they are kept (`observe/recorded`), and when (`prefetch/keeping`).

use std::sync::Arc;

use super::again::{goes_on_together, places};
use super::group::WHOLE_PERCENT;
use super::job::{Clue, Found, Search};
use super::proof;
use super::rungs::epochs;
use crate::dataset::maps::CandidateMap as Map;
use crate::dataset::samples::samples;
use crate::order::spec::{OrderKind, OrderSpec};
use crate::order::{EpochOrder, Sampler};
use crate::plan::EpochFiles;
use crate::types::{Epoch, FileIndex, SampleRule};

/// Passes kept of each part of a dataset: a run that is started again goes through the same ones.
pub const PASSES_MAX: usize = 16;
/// Bytes of all passes in memory: two epochs of the largest datasets (14 M files), or two dozen of ImageNet.
const BYTES_MAX: usize = 128 << 20;
/// Shorter passes are not worth a file.
const FILES_LEAST: usize = 256;
/// A pass has at least this part of the files below its root: one node's share of 512 nodes. Less is somebody looking around.
const SHARE_LEAST: usize = 512;
/// First opens whose places are looked up in a kept pass, before it is compared with care.
const LOOKED_UP: usize = 64;
/// They lie within so many places: what loaders read ahead (64 workers, 2 batches of 256 each).
const WITHIN: usize = 1 << 15;
/// Specifications that are tried in later epochs than the one they were seen in: a run that is resumed.
const RESUMED_MAX: usize = 4;
/// ... up to this epoch.
const RESUMED_UNTIL: Epoch = 64;

/// A pass as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The part of the dataset.
    pub root: String,
    /// Passes of these readers before it.
    pub epoch: Epoch,
    /// Files in the sequence of their first opens.
    pub files: Arc<Vec<FileIndex>>,
}

/// Something to keep for later runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Memo {
    /// A proved order; `epoch` and `epochs` of it say where it holds.
    Order(Box<OrderSpec>),
    /// A pass that no order explains.
    Pass(Kept),
}

impl Kept {
    /// Whether a pass of so many files, below a root with `below`, is worth keeping.
    pub(super) fn is_worth(files: usize, below: u32) -> bool {
        files >= FILES_LEAST && files.saturating_mul(SHARE_LEAST) >= below as usize
    }
}

/// The passes that are known, bounded.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    kept: Vec<Kept>,
}

impl Shelf {
    /// In place of an earlier one of the same root and epoch. What exceeds the bounds is left out: the first epochs are worth most.
    pub(super) fn put(&mut self, kept: Kept) -> bool {
        self.kept.retain(|other| (&other.root, other.epoch) != (&kept.root, kept.epoch));
        let bytes: usize = self.kept.iter().chain([&kept]).map(|kept| kept.files.len() * 4).sum();
        let of_root = self.kept.iter().filter(|other| other.root == kept.root).count();
        if bytes > BYTES_MAX || of_root >= PASSES_MAX {
            return false;
        }
        let at = self.kept.partition_point(|other| (&other.root, other.epoch) < (&kept.root, kept.epoch));
        self.kept.insert(at, kept);
        true
    }

    pub(super) fn of(&self, root: &str) -> Vec<Kept> {
        self.kept.iter().filter(|kept| kept.root == root).cloned().collect()
    }
}

/// Whether an order of one root may be read by readers of the other: one is the other, or lies below it.
pub(super) fn concerns(root: &str, other: &str) -> bool {
    let below = |inner: &str, outer: &str| outer.is_empty() || inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'));
    root == other || below(root, other) || below(other, root)
}

/// Kept passes, one after the other.
#[derive(Debug)]
struct Passes {
    kept: Vec<Kept>,
}

impl Sampler for Passes {
    fn order(&self, epoch: Epoch) -> EpochOrder {
        let at = self.kept.iter().rposition(|kept| kept.epoch <= epoch).unwrap_or(0);
        EpochOrder { places: self.kept[at].files.iter().map(|file| file.0).collect(), stride: 1 }
    }

    fn len(&self) -> u64 {
        self.kept.first().map_or(0, |kept| kept.files.len() as u64)
    }
}

impl Search<'_> {
    /// Orders of other runs and other nodes, each in its own numbering; `all`: even if it has to be made.
    pub(super) fn remembered(&mut self, maps: &[Map], all: bool) {
        let mut own: Vec<Map> = Vec::new();
        // Who says nothing of a root means what is read.
        let own_root = |clue: &Clue| {
            let spec = OrderSpec { root: self.job.root.clone(), id: self.job.root.clone(), ..clue.spec.clone() };
            (clue.spec.root.is_empty() && !self.job.root.is_empty()).then(|| Clue { spec, ..clue.clone() })
        };
        let clues: Vec<Clue> = self.job.remembered.iter().flat_map(|clue| own_root(clue).into_iter().chain([clue.clone()])).collect();
        for clue in &clues {
            let same = |map: &&Map| map.root == clue.spec.root && map.rule == clue.spec.files;
            if !all || maps.iter().chain(&own).any(|map| same(&map)) {
                continue;
            }
            let text = clue.spec.files.names().and_then(|file| file.in_mount()).and_then(|path| self.job.text(path));
            if let Ok(files) = samples(&self.job.manifest, &clue.spec.root, &clue.spec.files, text) {
                own.push(Map::new(clue.spec.root.clone(), clue.spec.files.clone(), files));
            }
        }
        let map_of = |clue: &Clue| {
            let same = |map: &&Map| map.root == clue.spec.root && map.rule == clue.spec.files;
            maps.iter().chain(&own).find(same)
        };
        for clue in &clues {
            let Some(map) = map_of(clue) else { continue };
            // A run begins at its first epoch, and an order that held later may have held then.
            for epoch in if clue.epoch > 0 && clue.epochs.is_none() { vec![0, clue.epoch] } else { vec![clue.epoch] } {
                self.prove_once(map, &clue.spec, epoch, "an order of an earlier run, or of another node");
            }
            if self.best.is_some() || self.control.stopped() {
                return;
            }
        }
        if !self.is_worth_far() {
            return;
        }
        for clue in clues.iter().filter(|clue| clue.epochs.is_none()).take(RESUMED_MAX) {
            let Some(map) = map_of(clue) else { continue };
            if !self.pays(epochs(RESUMED_UNTIL, map)) {
                return;
            }
            for epoch in (1..RESUMED_UNTIL).filter(|&epoch| epoch != clue.epoch) {
                self.prove_once(map, &clue.spec, epoch, "a later epoch of an order of an earlier run");
                if self.best.is_some() || self.control.stopped() {
                    return;
                }
            }
        }
    }

    /// Passes as they were read before.
    pub(super) fn kept(&mut self) {
        let all = &self.job.kept;
        // Who has read as many files is at its end, or past it.
        for kept in all.iter().filter(|kept| kept.files.len() > self.job.distinct) {
            if !goes_on_together(&kept.files, self.job.opens()) || !self.lies_together(kept) {
                continue;
            }
            self.tried += 1.0;
            let files = Arc::new(EpochFiles { files: kept.files.to_vec(), stride: 1 });
            let evidence = proof::evidence(&files, self.job.opens(), &self.job.sizes);
            if !evidence.proves(self.tried) || self.best.as_ref().is_some_and(|(ln, _)| *ln >= evidence.ln) {
                continue;
            }
            let spec = OrderSpec {
                id: if kept.root.is_empty() { OrderKind::List.to_string() } else { kept.root.clone() },
                root: kept.root.clone(),
                files: SampleRule::list("recorded"),
                ..OrderSpec::of(OrderKind::List)
            };
            // Those that follow it without a gap; a whole one alone may be the order of every epoch.
            let follow = all.iter().filter(|next| next.root == kept.root && next.epoch >= kept.epoch);
            let run: Vec<Kept> =
                follow.zip(kept.epoch..).take_while(|(next, epoch)| next.epoch == *epoch).map(|(next, _)| next.clone()).collect();
            let is_whole = kept.files.len() * 100 >= self.job.files as usize * WHOLE_PERCENT;
            let epochs = (run.len() > 1 || !is_whole).then_some(run.len() as u64);
            let all_files = u32::try_from(self.job.manifest.len()).unwrap_or(u32::MAX);
            let found = Found {
                spec,
                epoch: kept.epoch,
                sampler: Arc::new(Passes { kept: run }),
                samples: (0..all_files).map(FileIndex).collect(),
                files,
                epochs,
                ln: evidence.ln - self.tried.ln(),
                why: format!("files come as they were read in pass {} before", kept.epoch),
                wider: None,
            };
            self.best = Some((evidence.ln, found));
        }
    }

    /// Whether most of the first opens lie near each other in a pass.
    fn lies_together(&self, kept: &Kept) -> bool {
        let opens = self.job.opens();
        let places = places(&kept.files, &opens[..opens.len().min(LOOKED_UP)]);
        let opened = places.len();
        let mut places: Vec<usize> = places.into_values().flatten().collect();
        places.sort_unstable();
        let most = places.iter().enumerate().map(|(at, &first)| places.partition_point(|&place| place < first + WITHIN) - at).max();
        most.unwrap_or(0) * 2 > opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(root: &str, epoch: Epoch, files: usize) -> Kept {
        Kept { root: root.to_owned(), epoch, files: Arc::new((0..u32::try_from(files).unwrap()).map(FileIndex).collect()) }
    }

    #[test]
    fn a_shelf_is_bounded_and_sorted() {
        let mut shelf = Shelf::default();
        for epoch in [3, 1, 2, 1] {
            assert!(shelf.put(kept("train", epoch, 300)));
        }
        assert!(shelf.put(kept("val", 0, 300)));
        assert_eq!(shelf.of("train").iter().map(|kept| kept.epoch).collect::<Vec<_>>(), [1, 2, 3]);
        for epoch in 4..40 {
            shelf.put(kept("train", epoch, 300));
        }
        assert_eq!(shelf.of("train").len(), PASSES_MAX);
        assert!(!shelf.put(kept("other", 0, BYTES_MAX / 4)), "too large beside the others");
        assert_eq!(shelf.of("train").len(), PASSES_MAX, "and nothing else is lost");
    }

    #[test]
    fn roots_concern_each_other_when_one_lies_below() {
        for (a, b, said) in
            [("train", "train", true), ("", "train", true), ("d/train", "d", true), ("train", "train2", false), ("a", "b", false)]
        {
            assert_eq!((concerns(a, b), concerns(b, a)), (said, said), "{a} {b}");
        }
    }

    #[test]
    fn looking_around_is_not_kept() {
        assert!(Kept::is_worth(256, 256) && Kept::is_worth(2_503, 1_281_167));
        assert!(!Kept::is_worth(255, 255) && !Kept::is_worth(1_000, 1_281_167));
    }
}
