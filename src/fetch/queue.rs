//! Who may ask the store next. Pure: demand first, then prefetches in the order they were wanted; at most `limit` at once.
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
    /// Priority of each waiting job. A promoted job's old place in `ahead` is skipped when it comes up.
    waiting: HashMap<J, Priority>,
    running: usize,
    limit: usize,
}

impl<J: Clone + Eq + Hash> Queue<J> {
    /// Nothing waits, nothing runs.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { demand: VecDeque::new(), ahead: VecDeque::new(), waiting: HashMap::new(), running: 0, limit: limit.max(1) }
    }

    /// Adds a job, or raises a waiting one to demand.
    pub fn push(&mut self, job: J, priority: Priority) {
        match (self.waiting.get(&job), priority) {
            (None, Priority::Ahead) => self.ahead.push_back(job.clone()),
            (None | Some(Priority::Ahead), Priority::Demand) => self.demand.push_back(job.clone()),
            (Some(_), _) => return,
        }
        self.waiting.insert(job, priority);
    }

    /// Raises a job to demand if it still waits.
    pub fn promote(&mut self, job: &J) {
        if self.waiting.get(job) == Some(&Priority::Ahead) {
            self.push(job.clone(), Priority::Demand);
        }
    }

    /// The next job that may run now; it counts as running until [`Self::done`].
    pub fn start_next(&mut self) -> Option<J> {
        if self.running >= self.limit {
            return None;
        }
        let job = loop {
            if let Some(job) = self.demand.pop_front() {
                break job;
            }
            let job = self.ahead.pop_front()?;
            if self.waiting.get(&job) == Some(&Priority::Ahead) {
                break job;
            }
        };
        self.waiting.remove(&job);
        self.running += 1;
        Some(job)
    }

    /// A running job ended.
    pub fn done(&mut self) {
        self.running = self.running.checked_sub(1).expect("every done follows a start");
    }

    /// Changes how many may run at once; those that run go on.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.max(1);
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
        std::iter::from_fn(|| queue.start_next()).collect()
    }

    #[test]
    fn demand_goes_first_and_each_job_once() {
        let mut queue = Queue::new(100);
        for job in 0..5 {
            queue.push(job, Priority::Ahead);
        }
        queue.push(9, Priority::Demand);
        queue.promote(&3);
        queue.promote(&3);
        queue.promote(&77); // unknown: nothing
        queue.push(3, Priority::Demand);
        assert_eq!(queue.waiting(), 6);
        assert_eq!(drain(&mut queue), [9, 3, 0, 1, 2, 4]);
        assert_eq!(queue.waiting(), 0);
    }

    #[test]
    fn no_more_than_the_limit_runs() {
        let mut queue = Queue::new(2);
        for job in 0..4 {
            queue.push(job, Priority::Ahead);
        }
        assert_eq!(drain(&mut queue), [0, 1]);
        queue.done();
        queue.push(8, Priority::Demand);
        assert_eq!(drain(&mut queue), [8]);
        queue.set_limit(4);
        assert_eq!(drain(&mut queue), [2, 3]);
        assert_eq!(queue.running(), 4);
    }

    #[test]
    fn a_job_may_come_again_after_it_ran() {
        let mut queue = Queue::new(1);
        queue.push(1, Priority::Ahead);
        queue.promote(&1);
        assert_eq!(drain(&mut queue), [1]);
        queue.done();
        queue.push(1, Priority::Ahead);
        assert_eq!(drain(&mut queue), [1], "the stale place of the promoted job must not swallow or double it");
        queue.done();
        assert_eq!(drain(&mut queue), Vec::<u32>::new());
    }
}
