//! Threads → streams, rank processes and jobs. Pure: facts about threads are handed in ([`Readers::learn`]), time too.
//!
//! A *reader* is one life of one thread id; its number never changes and is not reused. A *stream* is what reads in order: a process, or a
//! thread of a pool. A *rank process* is the parent of a DataLoader's workers, or the reader itself when it has none. A *job* is what runs
//! one order: rank processes of one command below one launcher.

use std::collections::HashSet;
use std::time::Duration;

use crate::observe::process::{Launch, ProcFacts, Process};
use crate::types::QuickMap;

/// Readers remembered: 8 ranks of 32 workers with new processes every epoch, for a dozen epochs. About 250 B each.
pub const READERS_MAX: usize = 4096;
/// A thread id that was silent for so long may be another thread now: it is looked at again. No kernel reuses ids faster than this at the usual
/// `pid_max` of 4 M; with 32,768 it would take 3,000 new processes a second.
pub const SILENT_FOR: Duration = Duration::from_secs(10);

/// Number of a reader, in the order they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReaderId(pub u32);

/// A process in its lifetime: id and start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Life {
    pub process: u32,
    pub start: u64,
}

impl From<&Process> for Life {
    fn from(process: &Process) -> Self {
        Self { process: process.id, start: process.start }
    }
}

/// A rank process, or what stands in for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rank {
    /// Of a process that is known.
    Of(Life),
    /// Nothing is known of the reader: each is its own.
    Alone(ReaderId),
    /// Thread id 0: nobody can be told from anybody.
    Nobody,
}

/// A job: its launcher and its command but for the numbers of ranks, or a rank process for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Job {
    Below(Life, u64),
    Alone(Rank),
}

/// What an open's thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub reader: ReaderId,
    /// Whether facts of the thread are wanted: call [`Readers::learn`] when they are there.
    pub look: bool,
}

#[derive(Clone, Debug)]
struct Reader {
    thread: u32,
    facts: Option<ProcFacts>,
    seen: Duration,
    /// When facts were last asked for.
    asked: Duration,
}

/// Everybody who opened something.
#[derive(Debug, Default)]
pub struct Readers {
    readers: QuickMap<ReaderId, Reader>,
    by_thread: QuickMap<u32, ReaderId>,
    /// Processes that have workers: where a spawned one is among them, it is a rank process itself (`torch.multiprocessing.spawn`).
    with_workers: HashSet<Life>,
    next: u32,
}

impl Readers {
    /// A thread opened something at `now`.
    pub fn opened(&mut self, now: Duration, thread: u32) -> Seen {
        if let Some(reader) = self.by_thread.get(&thread).and_then(|id| Some((*id, self.readers.get_mut(id)?))) {
            let (id, known) = reader;
            let look = thread != 0 && now.saturating_sub(known.seen) >= SILENT_FOR && now.saturating_sub(known.asked) >= SILENT_FOR;
            known.seen = now;
            if look {
                known.asked = now;
            }
            return Seen { reader: id, look };
        }
        Seen { reader: self.add(now, thread), look: thread != 0 }
    }

    /// What is known of a thread now. When its id was another thread's before, later opens are a new reader's (given back); those since the
    /// thread was asked about, at most some milliseconds of them, stay with the old one.
    pub fn learn(&mut self, facts: ProcFacts) -> Option<ReaderId> {
        let id = *self.by_thread.get(&facts.thread)?;
        let reader = self.readers.get_mut(&id)?;
        if facts.line.is_empty() {
            return None;
        }
        if let Some(at) = rank(&facts.line, &HashSet::new()).filter(|at| *at > own(&facts.line)) {
            if self.with_workers.len() >= READERS_MAX {
                self.with_workers.clear();
            }
            self.with_workers.insert((&facts.line[at]).into());
        }
        match &reader.facts {
            Some(known)
                if known.line.first().map(Life::from) != facts.line.first().map(Life::from) || known.thread_start != facts.thread_start =>
            {
                let (now, thread) = (reader.seen, reader.thread);
                let fresh = self.add(now, thread);
                if let Some(reader) = self.readers.get_mut(&fresh) {
                    reader.facts = Some(facts);
                }
                Some(fresh)
            }
            // A parent that ended is replaced by init: what was known first is right.
            Some(_) => None,
            None => {
                reader.facts = Some(facts);
                None
            }
        }
    }

    /// Who a thread is now.
    #[must_use]
    pub fn of_thread(&self, thread: u32) -> Option<ReaderId> {
        self.by_thread.get(&thread).copied()
    }

    /// Readers remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.readers.len()
    }

    /// Whether nobody is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.readers.is_empty()
    }

    /// The rank process of a reader.
    #[must_use]
    pub fn rank(&self, reader: ReaderId) -> Rank {
        match self.readers.get(&reader) {
            Some(known) if known.thread == 0 => Rank::Nobody,
            Some(Reader { facts: Some(facts), .. }) => {
                self.rank_in(&facts.line).map_or(Rank::Alone(reader), |at| Rank::Of((&facts.line[at]).into()))
            }
            _ => Rank::Alone(reader),
        }
    }

    /// The job of a reader.
    #[must_use]
    pub fn job(&self, reader: ReaderId) -> Job {
        let Some(Reader { facts: Some(facts), .. }) = self.readers.get(&reader) else { return Job::Alone(self.rank(reader)) };
        let Some(at) = self.rank_in(&facts.line) else { return Job::Alone(self.rank(reader)) };
        let (rank, above) = (&facts.line[at], &facts.line[at + 1..]);
        // A shell, or the like, for each rank: what is above it is the same for all of them.
        let wraps = |process: &&Process| matches!(process.launch, Launch::Wrapper | Launch::Mover);
        let is_ranked = facts.ranked || rank.ranked || above.iter().take_while(wraps).any(|process| process.ranked);
        let launcher = above.iter().find(|process| !is_ranked || !wraps(process)).or(above.last());
        match launcher {
            // Every spawned process has another command line.
            Some(launcher) if rank.launch == Launch::Spawned => Job::Below(launcher.into(), 0),
            Some(launcher) if rank.command != 0 => Job::Below(launcher.into(), rank.program),
            _ => Job::Alone(self.rank(reader)),
        }
    }

    fn rank_in(&self, line: &[Process]) -> Option<usize> {
        rank(line, &self.with_workers)
    }

    fn add(&mut self, now: Duration, thread: u32) -> ReaderId {
        if self.readers.len() >= READERS_MAX {
            self.forget();
        }
        let id = ReaderId(self.next);
        self.next = self.next.wrapping_add(1);
        self.readers.insert(id, Reader { thread, facts: None, seen: now, asked: now });
        self.by_thread.insert(thread, id);
        id
    }

    /// Forgets the eighth that was silent longest: so that it is seldom looked for.
    fn forget(&mut self) {
        let mut silent: Vec<(Duration, ReaderId)> = self.readers.iter().map(|(id, reader)| (reader.seen, *id)).collect();
        silent.sort_unstable();
        for (_, id) in silent.into_iter().take(READERS_MAX / 8) {
            if let Some(reader) = self.readers.remove(&id)
                && self.by_thread.get(&reader.thread) == Some(&id)
            {
                self.by_thread.remove(&reader.thread);
            }
        }
    }
}

/// The process that reads in order: the first one that is no mover.
fn own(line: &[Process]) -> usize {
    line.iter().position(|process| process.launch != Launch::Mover).unwrap_or(0)
}

/// The rank process of a line: one hop up from a worker. A fork has its parent's command line; a spawned worker says so, unless it has
/// workers of its own; a fork server's children hop over it.
fn rank(line: &[Process], with_workers: &HashSet<Life>) -> Option<usize> {
    let at = own(line);
    let process = line.get(at)?;
    let Some(parent) = line.get(at + 1) else { return Some(at) };
    if parent.launch == Launch::ForkServer {
        return Some(if at + 2 < line.len() { at + 2 } else { at });
    }
    let forked = process.command != 0 && process.command == parent.command;
    let spawned = process.launch == Launch::Spawned && !with_workers.contains(&process.into());
    Some(if forked || spawned { at + 1 } else { at })
}

#[cfg(test)]
mod tests;
