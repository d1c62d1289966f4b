//! Searches run on threads beside the task, long ones of the lowest priority: a few at once, stopped when the mount goes.
//!
//! Among many busy readers the lowest priority is a thousandth of a core: what takes milliseconds would come when an epoch is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::sync::mpsc;

use crate::infer::{Job, JobResult};
use crate::order::infer::Control;
use crate::stats::Stats;

/// Searches at once, of either kind: one does not wait behind another's.
const EACH_MAX: usize = 2;
pub(super) const SEARCHES_MAX: usize = 2 * EACH_MAX;
/// The weakest claim on a core that Linux knows among normal threads.
const NICEST: i32 = 19;
/// ... and that of brief searches: beside a hundred processes that start, a thread of the usual claim has a core for 10 ms in a second.
const BRIEF: i32 = -10;

/// What runs.
#[derive(Debug)]
pub(super) struct Searching {
    threads: usize,
    /// Whose searches run, a long and a brief one each, and how they are stopped.
    running: Vec<(u64, bool, Arc<AtomicBool>)>,
    /// What is told of long ones while they run.
    told: Vec<(u64, String)>,
    stats: Arc<Stats>,
    searched: mpsc::Sender<(JobResult, f64)>,
}

impl Searching {
    pub(super) fn new(threads: usize, stats: Arc<Stats>, searched: mpsc::Sender<(JobResult, f64)>) -> Self {
        Self { threads, running: Vec::new(), told: Vec::new(), stats, searched }
    }

    pub(super) fn may_start(&self, brief: bool) -> bool {
        self.running.iter().filter(|running| running.1 == brief).count() < EACH_MAX
    }

    /// Runs a search; its result comes through the channel.
    pub(super) fn start(&mut self, job: Job) {
        let (stop, searched, threads) = (job.stop(), self.searched.clone(), self.threads);
        let brief = job.rung().is_brief();
        let running = (job.group(), brief, Arc::clone(&stop));
        if let Some(budget) = job.budget() {
            let budget = format!("{budget} at the lowest priority (--search-exhaustive=false does without)");
            tracing::info!(threads, "{budget}");
            self.stats.note(budget.clone());
            self.told.push((job.group(), budget));
        }
        // A thread of its own: a priority that was lowered cannot be raised again, so it must not be one of the runtime's. The threads that it
        // starts have the priority it has then.
        let search = move || {
            // A stronger claim is refused where the mount is not root's; then it runs as others do.
            let nice = if brief { BRIEF } else { NICEST };
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), nice);
            let began = Instant::now();
            let result = job.run(Control { stop: &stop, threads });
            // fails only when the task is gone
            drop(searched.blocking_send((result, began.elapsed().as_secs_f64())));
        };
        match std::thread::Builder::new().name("belady-search".to_owned()).spawn(search) {
            Ok(_) => self.running.push(running),
            Err(error) => tracing::warn!("no thread for a search: {error}"),
        }
    }

    pub(super) fn ended(&mut self, group: u64, brief: bool) {
        self.running.retain(|running| (running.0, running.1) != (group, brief));
        if !brief {
            self.told.iter().filter(|told| told.0 == group).for_each(|(_, told)| self.stats.unnote(told));
            self.told.retain(|told| told.0 != group);
        }
    }

    pub(super) fn stop(&self) {
        self.running.iter().for_each(|(_, _, stop)| stop.store(true, Ordering::Relaxed));
    }
}
