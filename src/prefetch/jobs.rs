//! Whose job a process reads for, as a number; remembered, because it is asked at every open.

use std::hash::{Hash, Hasher};

use crate::observe::readers::{Job, READERS_MAX, Rank, Readers};
use crate::types::QuickMap;

/// Nobody can be told from anybody.
pub(super) const NOBODY: u64 = 0;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Jobs(QuickMap<u32, u64>);

impl Jobs {
    /// More is known of the readers.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    /// The job of a process; none as long as nothing is known of it.
    pub(super) fn of(&mut self, readers: &Readers, process: u32) -> Option<u64> {
        if let Some(&job) = self.0.get(&process) {
            return Some(job);
        }
        let job = match readers.job(readers.of_thread(process)?) {
            Job::Alone(Rank::Alone(_)) => return None,
            Job::Alone(Rank::Nobody) => NOBODY,
            job => number(&job),
        };
        if self.0.len() >= READERS_MAX {
            self.0.clear();
        }
        self.0.insert(process, job);
        Some(job)
    }
}

/// Never [`NOBODY`].
pub(super) fn number(job: &Job) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    job.hash(&mut hasher);
    hasher.finish() | 1
}
