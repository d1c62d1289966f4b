//! Who may ask the store next. Pure: demand first, then prefetches in the order they were wanted; at most `limit` at once, and no more bytes at
//! once than [`Queue::new`] is told: on their way to a disk they lie in memory.
//!
//! Its bound: prefetches are bounded by the planner's window, demands by the kernel's 1,024 background requests and the readers' threads.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// How urgent a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// A reader waits for it.
    Demand,
    /// Nobody waits yet.
    Ahead,
}

/// Jobs that wait, and how many run.
#[derive(Debug)]
pub struct Queue<J> {
    demand: VecDeque<J>,
    ahead: VecDeque<J>,
    /// Priority and bytes of each waiting job. A promoted job's old place in `ahead` is skipped when it comes up.
    waiting: HashMap<J, (Priority, u64)>,
    running: usize,
    running_bytes: u64,
    limit: usize,
    bytes_max: u64,
}

impl<J: Clone + Eq + Hash> Queue<J> {
    /// Nothing waits, nothing runs.
    #[must_use]
    pub fn new(limit: usize, bytes_max: u64) -> Self {
        let (demand, ahead) = (VecDeque::new(), VecDeque::new());
        Self { demand, ahead, waiting: HashMap::new(), running: 0, running_bytes: 0, limit: limit.max(1), bytes_max }
    }

    /// Adds a job that fetches so many bytes, or raises a waiting one to demand.
    pub fn push(&mut self, job: J, bytes: u64, priority: Priority) {
        match (self.waiting.get(&job), priority) {
            (None, Priority::Ahead) => self.ahead.push_back(job.clone()),
            (None | Some((Priority::Ahead, _)), Priority::Demand) => self.demand.push_back(job.clone()),
            (Some(_), _) => return,
        }
        self.waiting.insert(job, (priority, bytes));
    }

    /// Raises a job to demand if it still waits.
    pub fn promote(&mut self, job: &J) {
        if let Some(&(Priority::Ahead, bytes)) = self.waiting.get(job) {
            self.push(job.clone(), bytes, Priority::Demand);
        }
    }

    /// The next job that may run now, with its bytes; it counts as running until [`Self::done`]. A job larger than all that may be on
    /// the way runs alone.
    pub fn start_next(&mut self) -> Option<(J, u64)> {
        if self.running >= self.limit {
            return None;
        }
        while self.ahead.front().is_some_and(|job| !matches!(self.waiting.get(job), Some((Priority::Ahead, _)))) {
            self.ahead.pop_front(); // promoted since
        }
        let queue = if self.demand.is_empty() { &mut self.ahead } else { &mut self.demand };
        let (_, bytes) = *self.waiting.get(queue.front()?)?;
        if self.running > 0 && self.running_bytes + bytes > self.bytes_max {
            return None;
        }
        let job = queue.pop_front()?;
        self.waiting.remove(&job);
        self.running += 1;
        self.running_bytes += bytes;
        Some((job, bytes))
    }

    /// A running job of so many bytes ended.
    pub fn done(&mut self, bytes: u64) {
        self.running = self.running.checked_sub(1).expect("every done follows a start");
        self.running_bytes = self.running_bytes.checked_sub(bytes).expect("and gives back what that took");
    }

    /// So many of a running job's bytes are here: others may be on their way instead. Its [`Self::done`] gives back the rest.
    pub fn done_in_part(&mut self, bytes: u64) {
        self.running_bytes = self.running_bytes.checked_sub(bytes).expect("a part of what a start took");
    }

    /// Bytes that may be on their way at once.
    #[must_use]
    pub const fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Changes how many may run at once; those that run go on.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.max(1);
    }

    /// Bytes of the jobs that run.
    #[must_use]
    pub const fn running_bytes(&self) -> u64 {
        self.running_bytes
    }

    /// Jobs that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Jobs that run.
    #[must_use]
    pub const fn running(&self) -> usize {
        self.running
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(queue: &mut Queue<u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.start_next()).map(|(job, _)| job).collect()
    }

    #[test]
    fn demand_goes_first_and_each_job_once() {
        let mut queue = Queue::new(100, 100);
        for job in 0..5 {
            queue.push(job, 1, Priority::Ahead);
        }
        queue.push(9, 1, Priority::Demand);
        queue.promote(&3);
        queue.promote(&3);
        queue.promote(&77); // unknown: nothing
        queue.push(3, 1, Priority::Demand);
        assert_eq!(queue.waiting(), 6);
        assert_eq!(drain(&mut queue), [9, 3, 0, 1, 2, 4]);
        assert_eq!(queue.waiting(), 0);
    }

    #[test]
    fn no_more_than_the_limit_runs() {
        let mut queue = Queue::new(2, 100);
        for job in 0..4 {
            queue.push(job, 1, Priority::Ahead);
        }
        assert_eq!(drain(&mut queue), [0, 1]);
        queue.done(1);
        queue.push(8, 1, Priority::Demand);
        assert_eq!(drain(&mut queue), [8]);
        queue.set_limit(4);
        assert_eq!(drain(&mut queue), [2, 3]);
        assert_eq!(queue.running(), 4);
    }

    #[test]
    fn no_more_than_the_bytes_are_on_their_way_and_nobody_is_overtaken_for_being_large() {
        let mut queue = Queue::new(100, 10);
        for (job, bytes) in [(0, 4), (1, 5), (2, 5), (3, 1), (4, 50)] {
            queue.push(job, bytes, Priority::Ahead);
        }
        assert_eq!(drain(&mut queue), [0, 1]);
        queue.done(4);
        assert_eq!(drain(&mut queue), [2]);
        queue.done(5);
        queue.done(5);
        assert_eq!(drain(&mut queue), [3]);
        queue.done(1);
        assert_eq!(drain(&mut queue), [4], "larger than all of it: alone");
    }

    #[test]
    fn a_job_may_come_again_after_it_ran() {
        let mut queue = Queue::new(1, 100);
        queue.push(1, 1, Priority::Ahead);
        queue.promote(&1);
        assert_eq!(drain(&mut queue), [1]);
        queue.done(1);
        queue.push(1, 1, Priority::Ahead);
        assert_eq!(drain(&mut queue), [1], "the stale place of the promoted job must not swallow or double it");
        queue.done(1);
        assert_eq!(drain(&mut queue), Vec::<u32>::new());
    }
}
