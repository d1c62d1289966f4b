//! Orders kept from one run to the next, beside the cache: read once at the mount, written when one is proved, when a pass nobody could explain
//! is over, and at the end. All on blocking threads; a full or failing disk costs the next run's head start and nothing else.
//!
//! Not here: the files (`observe/recorded`), what is worth keeping (`infer/kept`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::dataset::Manifest;
use crate::dataset::maps::CandidateMap;
use crate::dataset::samples::samples;
use crate::infer::{Kept, Memo, PASSES_MAX};
use crate::observe::recorded::{Content, Folder, Found, Recorded, load as load_file};
use crate::stats::Stats;
use crate::types::{FileIndex, SampleRule};

/// Orders read that wait for the task.
const QUEUE: usize = 4;
/// Specifications read for each part of a dataset: an order of each epoch of a run at most.
const SPECS_MAX: usize = 16;
/// Bytes of passes read: what the task holds in memory.
const PASS_BYTES_MAX: u64 = 128 << 20;

/// The folder, and what its places mean.
#[derive(Clone, Debug)]
pub struct Keeper(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: Folder,
    manifest: Arc<Manifest>,
    stats: Arc<Stats>,
    /// One writer at a time: the folder's budget is counted before and after. Holds whether a failure was told.
    writing: Mutex<bool>,
}

impl Keeper {
    #[must_use]
    pub fn new(folder: Folder, manifest: Arc<Manifest>, stats: Arc<Stats>) -> Self {
        Self(Arc::new(Inner { folder, manifest, stats, writing: Mutex::new(false) }))
    }

    /// Writes them, in the background.
    pub(super) fn save(&self, memos: Vec<Memo>) -> JoinHandle<()> {
        let inner = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || {
            let mut failed = inner.writing.lock().unwrap_or_else(PoisonError::into_inner);
            for memo in memos {
                let Some(recorded) = inner.recorded(memo) else { continue };
                match inner.folder.save(&recorded) {
                    Ok(file) => tracing::debug!(file = %file.display(), "an order is kept for later runs"),
                    Err(error) if !*failed => {
                        *failed = true;
                        inner.tell(format!("an order is not kept for later runs: {error}"));
                    }
                    Err(_) => {}
                }
            }
        })
    }
}

impl Inner {
    fn tell(&self, note: String) {
        tracing::warn!("{note}");
        self.stats.note(note);
    }

    fn recorded(&self, memo: Memo) -> Option<Recorded> {
        let manifest_id = self.manifest.id().to_owned();
        match memo {
            Memo::Order(spec) => {
                let n = u32::try_from(self.manifest.len()).ok()?;
                let (root, rule, epoch) = (spec.root.clone(), spec.files.clone(), spec.epoch);
                Some(Recorded { manifest_id, root, rule, n, epoch, content: Content::Spec(spec) })
            }
            Memo::Pass(kept) => {
                let rule = SampleRule::sorted();
                let map = self.numbering(&kept.root, &rule)?;
                let places = kept.files.iter().map(|&file| map.index_of(file)).collect::<Option<Vec<u32>>>()?;
                Some(Recorded { manifest_id, n: map.len(), root: kept.root, rule, epoch: kept.epoch, content: Content::Places(places) })
            }
        }
    }

    fn numbering(&self, root: &str, rule: &SampleRule) -> Option<CandidateMap> {
        Some(CandidateMap::new(root, rule.clone(), samples(&self.manifest, root, rule, None).ok()?))
    }

    /// What is kept of this manifest, bounded: the specifications first, which are small.
    fn load(&self, give: &mpsc::Sender<Memo>) {
        let (found, notes) = self.folder.of_manifest(self.manifest.id());
        for note in notes {
            self.tell(note);
        }
        let (specs, passes): (Vec<Found>, Vec<Found>) = found.into_iter().partition(|found| found.is_spec);
        let mut count: HashMap<&str, usize> = HashMap::new();
        for found in &specs {
            let count = count.entry(&found.root).or_default();
            *count += 1;
            if *count <= SPECS_MAX && !self.give(found, give) {
                return;
            }
        }
        let (mut bytes, mut count) = (0, HashMap::<&str, usize>::new());
        for found in &passes {
            let count = count.entry(&found.root).or_default();
            *count += 1;
            bytes += found.bytes;
            if *count <= PASSES_MAX && bytes <= PASS_BYTES_MAX && !self.give(found, give) {
                return;
            }
        }
    }

    /// False: nobody listens any more.
    fn give(&self, found: &Found, give: &mpsc::Sender<Memo>) -> bool {
        let memo = match load_file(&found.file) {
            Ok(recorded) => self.memo(recorded),
            Err(error) => {
                self.tell(format!("the recorded order {} is not used: {error}", found.file.display()));
                None
            }
        };
        memo.is_none_or(|memo| give.blocking_send(memo).is_ok())
    }

    fn memo(&self, recorded: Recorded) -> Option<Memo> {
        if recorded.manifest_id != self.manifest.id() {
            return None;
        }
        match recorded.content {
            Content::Spec(spec) => Some(Memo::Order(spec)),
            Content::Places(places) => {
                let map = self.numbering(&recorded.root, &recorded.rule).filter(|map| map.len() == recorded.n)?;
                let files: Vec<FileIndex> = places.iter().map(|&place| map.samples[place as usize]).collect();
                Some(Memo::Pass(Kept { root: recorded.root, epoch: recorded.epoch, files: Arc::new(files) }))
            }
        }
    }
}

/// Reads what is kept, in the background. Nothing without a keeper.
pub(super) fn load(keeper: Option<Keeper>) -> mpsc::Receiver<Memo> {
    let (give, taken) = mpsc::channel(QUEUE);
    if let Some(keeper) = keeper {
        tokio::task::spawn_blocking(move || keeper.0.load(&give));
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::spec::OrderSpec;
    use crate::types::ObjectMeta;

    fn manifest(files: u32) -> Arc<Manifest> {
        let key = |n: u32| format!("train/c{}/{n:05}.jpg", n % 7);
        let object = |n| ObjectMeta { key: key(n).into(), size: 1, etag: "".into(), mtime_seconds: 0 };
        Arc::new(Manifest::build("", (0..files).map(object).collect()))
    }

    fn keeper(dir: &std::path::Path, files: u32) -> Keeper {
        Keeper::new(Folder::new(dir.join("orders"), 1 << 20), manifest(files), Arc::default())
    }

    async fn all(keeper: &Keeper) -> Vec<Memo> {
        let mut taken = load(Some(keeper.clone()));
        let mut all = Vec::new();
        while let Some(memo) = taken.recv().await {
            all.push(memo);
        }
        all
    }

    #[tokio::test]
    async fn what_is_kept_comes_back_for_the_same_listing_only() {
        let dir = tempfile::tempdir().unwrap();
        let kept = keeper(dir.path(), 500);
        let spec: OrderSpec = "torch-random:seed=5:root=train:epoch=2".parse().unwrap();
        let files = Arc::new((0..500).rev().map(FileIndex).collect::<Vec<_>>());
        let memos = vec![Memo::Order(Box::new(spec)), Memo::Pass(Kept { root: "train".into(), epoch: 3, files })];
        kept.save(memos.clone()).await.unwrap();
        assert_eq!(all(&kept).await, memos);
        assert_eq!(all(&keeper(dir.path(), 501)).await, []);
    }

    #[tokio::test]
    async fn damage_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let kept = keeper(dir.path(), 500);
        let pass = |epoch| Memo::Pass(Kept { root: "train".into(), epoch, files: Arc::new((0..500).map(FileIndex).collect()) });
        kept.save(vec![pass(0), pass(1)]).await.unwrap();
        let mut files: Vec<_> = std::fs::read_dir(dir.path().join("orders")).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let mut bytes = std::fs::read(&files[0]).unwrap();
        bytes[700] ^= 1;
        std::fs::write(&files[0], bytes).unwrap();
        assert_eq!(all(&kept).await, [pass(1)]);
    }
}
