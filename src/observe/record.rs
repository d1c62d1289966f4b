//! `--record-opens FILE`: a line `seconds<TAB>thread<TAB>path` for each open, in the order the planner's task hears of them. Read by
//! [`crate::observe::log`].
//!
//! A thread of its own writes, from a bounded queue; what the queue or the disk does not take is counted and lost. Readers never wait for it:
//! it hangs on the planner's task, behind that task's own bounded queue.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use crate::dataset::Manifest;
use crate::observe::log::escape;
use crate::stats::Stats;
use crate::types::FileIndex;

/// Opens that wait to be written: a second of them at 64,000 a second; 32 B each.
const QUEUE_MAX: usize = 1 << 16;
/// The end of a mount waits so long for the rest to be written, and not longer: the disk may hang.
const LAST_WORDS: Duration = Duration::from_secs(2);

type Opened = (Duration, u32, FileIndex);

/// Writes opens to a file until it is dropped.
#[derive(Debug)]
pub struct Recorder {
    queue: Option<SyncSender<Opened>>,
    ended: Receiver<()>,
    stats: Arc<Stats>,
}

impl Recorder {
    /// Appends to `path`: a file that is there may be another run's record. Seconds count from the mount's start, so a run begins where they fall.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn start(path: &Path, manifest: Arc<Manifest>, stats: Arc<Stats>) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        let (queue, opens) = sync_channel(QUEUE_MAX);
        let (tell, ended) = sync_channel(1);
        let counted = Arc::clone(&stats);
        let name = path.display().to_string();
        std::thread::Builder::new().name("record-opens".into()).spawn(move || {
            if let Err(error) = write(file, &opens, &manifest) {
                let note = format!("--record-opens {name}: {error}; opens are no longer recorded");
                tracing::warn!("{note}");
                counted.note(note);
                // Counted as lost until the mount ends.
                while opens.recv().is_ok() {
                    counted.reads.opens_unrecorded.add(1);
                }
            }
            // nobody may wait for it
            let _ = tell.try_send(());
        })?;
        Ok(Self { queue: Some(queue), ended, stats })
    }

    /// An open, `since` the mount's start. Never waits.
    pub fn record(&self, since: Duration, thread: u32, file: FileIndex) {
        if self.queue.as_ref().is_none_or(|queue| queue.try_send((since, thread, file)).is_err()) {
            self.stats.reads.opens_unrecorded.add(1);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.queue = None;
        if self.ended.recv_timeout(LAST_WORDS).is_err() {
            tracing::warn!("the record of opens is not written to its end: its disk does not answer");
        }
    }
}

/// Until the senders are gone. Whole lines are on their way to the disk whenever the queue is empty.
fn write(file: File, opens: &Receiver<Opened>, manifest: &Manifest) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, file);
    while let Ok(first) = opens.recv() {
        for (since, thread, file) in std::iter::once(first).chain(opens.try_iter()) {
            writeln!(out, "{:.6}\t{thread}\t{}", since.as_secs_f64(), escape(manifest.path(file)))?;
        }
        out.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::log;
    use crate::types::ObjectMeta;

    fn manifest() -> Arc<Manifest> {
        let object = |path: &str| ObjectMeta { key: path.into(), size: 1, etag: "".into(), mtime_seconds: 0 };
        Arc::new(Manifest::build("", ["a/1.jpg", "a/x\ny.jpg"].map(object).into()))
    }

    #[test]
    fn what_is_recorded_parses_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("opens.tsv");
        for _ in 0..2 {
            let recorder = Recorder::start(&path, manifest(), Arc::default()).unwrap();
            for at in 0..1000 {
                recorder.record(Duration::from_millis(at), 7, FileIndex(u32::from(at % 2 == 1)));
            }
            drop(recorder);
        }
        let log = log::parse(std::fs::read(&path).unwrap().as_slice()).unwrap();
        assert_eq!((log.opens.len(), log.skipped), (2000, 0), "a second run is added");
        assert_eq!((log.opens[1].path.as_str(), log.opens[1].thread), ("a/x\ny.jpg", 7));
        assert_eq!(log::files(&log, &manifest(), "").len(), 2000);
    }

    #[test]
    fn a_full_disk_is_told_once_and_counted() {
        let stats: Arc<Stats> = Arc::default();
        let recorder = Recorder::start(Path::new("/dev/full"), manifest(), Arc::clone(&stats)).unwrap();
        recorder.record(Duration::ZERO, 7, FileIndex(0));
        let began = std::time::Instant::now();
        while stats.notes.lock().unwrap().is_empty() && began.elapsed().as_secs() < 30 {
            std::thread::yield_now();
        }
        assert!(stats.notes.lock().unwrap()[0].contains("/dev/full"));
        recorder.record(Duration::ZERO, 7, FileIndex(0));
        drop(recorder);
        assert!(stats.reads.opens_unrecorded.get() >= 1);
    }

    #[test]
    fn what_cannot_be_opened_is_an_error() {
        assert!(Recorder::start(Path::new("/no/such/dir/x"), manifest(), Arc::default()).is_err());
    }
}
