//! Who reads, kept up to date: each new thread is looked at on a thread of its own, once. The planner's task owns a [`Watcher`], tells it of
//! opens and takes in what was found; neither waits.
//!
//! Both queues are bounded. A thread that could not be asked about, because more came than `/proc` answers, stays unknown until it has been
//! silent for a while.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use crate::observe::hints::Hints;
use crate::observe::process::{Peek, Refusal, peek};
use crate::observe::readers::{Job, READERS_MAX, Rank, ReaderId, Readers};
use crate::order::spec::OrderSpec;
use crate::stats::Stats;

/// Threads that wait to be looked at: all workers of a node that start an epoch at once.
const QUEUE_MAX: usize = READERS_MAX;

/// Readers and the hints of their ranks.
#[derive(Debug)]
pub struct Watcher {
    readers: Readers,
    hints: HashMap<Rank, (Job, Hints)>,
    /// Ends the thread when it is dropped.
    ask: SyncSender<u32>,
    found: Receiver<Peek>,
    stats: Arc<Stats>,
    changes: u64,
}

impl Watcher {
    /// Starts the thread that looks into `proc` (`/proc`). `environment`: also for hints (the setting `peek`).
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(proc: impl Into<PathBuf>, environment: bool, stats: Arc<Stats>) -> io::Result<Self> {
        let proc = proc.into();
        let (ask, asked) = sync_channel::<u32>(QUEUE_MAX);
        let (tell, found) = sync_channel(QUEUE_MAX);
        std::thread::Builder::new().name("who-reads".into()).spawn(move || {
            while let Ok(thread) = asked.recv() {
                // Waits while nobody takes in what was found, and ends when nobody will.
                if tell.send(peek(&proc, thread, environment)).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { readers: Readers::default(), hints: HashMap::new(), ask, found, stats, changes: 0 })
    }

    /// A thread opened something at `now`. Its facts, when they are not known yet, are there a moment later ([`Self::settle`]).
    pub fn opened(&mut self, now: Duration, thread: u32) -> ReaderId {
        let seen = self.readers.opened(now, thread);
        if seen.look {
            // full: unknown for the time being
            let _ = self.ask.try_send(thread);
        } else if thread == 0 {
            self.note(Refusal::OtherNamespace);
        }
        seen.reader
    }

    /// Takes in what was found meanwhile; what is refused becomes a note in the stats. Whether anything is new.
    pub fn settle(&mut self) -> bool {
        let before = self.changes;
        while let Ok(Peek { facts, hints, refused }) = self.found.try_recv() {
            self.changes += 1;
            let thread = facts.thread;
            self.readers.learn(facts);
            if let Some(refused) = refused {
                self.note(refused);
            }
            let Some(hints) = hints.filter(|hints| !hints.is_empty()) else { continue };
            for note in &hints.notes {
                self.stats.note(note.clone());
            }
            if let Some(reader) = self.readers.of_thread(thread) {
                if self.hints.len() >= READERS_MAX {
                    self.hints.clear();
                }
                // A worker's environment is its rank process's: the first one is as good as any.
                self.hints.entry(self.readers.rank(reader)).or_insert_with(|| (self.readers.job(reader), hints));
            }
        }
        self.changes > before
    }

    /// Who they are.
    #[must_use]
    pub const fn readers(&self) -> &Readers {
        &self.readers
    }

    /// What the environment of a rank process says.
    #[must_use]
    pub fn hints(&self, rank: Rank) -> Option<&Hints> {
        self.hints.get(&rank).map(|(_, hints)| hints)
    }

    /// The orders that readers' environments declare.
    pub fn declared(&self) -> impl Iterator<Item = &OrderSpec> {
        self.hints.values().flat_map(|(_, hints)| &hints.orders)
    }

    /// What the environments of each job's rank processes say.
    pub fn told(&self) -> impl Iterator<Item = (Job, &Hints)> {
        self.hints.values().map(|(job, hints)| (*job, hints))
    }

    fn note(&self, refused: Refusal) {
        if let Some(note) = refused.note() {
            self.stats.note(note);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes in until `done`, for half a minute at most.
    fn settle_until(watcher: &mut Watcher, done: impl Fn(&Watcher) -> bool) {
        let began = std::time::Instant::now();
        while !done(watcher) {
            watcher.settle();
            assert!(began.elapsed().as_secs() < 30, "nothing came");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_new_thread_is_looked_at_and_known_a_moment_later() {
        let stats: Arc<Stats> = Arc::default();
        let mut watcher = Watcher::start("/proc", true, Arc::clone(&stats)).unwrap();
        let reader = watcher.opened(Duration::ZERO, std::process::id());
        settle_until(&mut watcher, |watcher| matches!(watcher.readers().rank(reader), Rank::Of(_)));
        assert_eq!(watcher.opened(Duration::ZERO, std::process::id()), reader);
        assert!(stats.notes.lock().unwrap().is_empty());
    }

    #[test]
    fn what_is_refused_is_a_note_and_hints_are_of_the_rank() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("77");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("status"), "Tgid:\t77\nPPid:\t0\n").unwrap();
        std::fs::write(folder.join("stat"), format!("77 (x) S{} 900\n", " 0".repeat(18))).unwrap();
        std::fs::write(folder.join("cmdline"), "python\0").unwrap();
        std::fs::write(folder.join("environ"), "RANK=5\0BELADY_ORDER=torch:x\0").unwrap();
        let stats: Arc<Stats> = Arc::default();
        let mut watcher = Watcher::start(dir.path(), true, Arc::clone(&stats)).unwrap();
        let reader = watcher.opened(Duration::ZERO, 77);
        settle_until(&mut watcher, |watcher| matches!(watcher.readers().rank(reader), Rank::Of(_)));
        assert_eq!(watcher.hints(watcher.readers().rank(reader)).unwrap().rank, Some(5));
        watcher.opened(Duration::ZERO, 0);
        let notes = stats.notes.lock().unwrap().join("\n");
        assert!(notes.contains("BELADY_ORDER=torch:x") && notes.contains("pid namespace"), "{notes}");
    }

    #[test]
    fn more_threads_than_proc_answers_are_no_trouble() {
        let dir = tempfile::tempdir().unwrap();
        let mut watcher = Watcher::start(dir.path(), true, Arc::default()).unwrap();
        for thread in 1..30_000 {
            watcher.opened(Duration::ZERO, thread);
        }
        assert!(watcher.readers().len() <= READERS_MAX);
        watcher.settle();
    }
}
