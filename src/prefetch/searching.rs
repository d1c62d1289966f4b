//! Searches run on threads of the lowest priority, beside the task: a few at once, stopped when the mount goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::sync::mpsc;

use crate::infer::{Job, JobResult};
use crate::order::infer::Control;

/// Searches at once: a short one does not wait behind a long one.
pub(super) const SEARCHES_MAX: usize = 2;
/// The weakest claim on a core that Linux knows among normal threads.
const NICEST: i32 = 19;

/// What runs.
#[derive(Debug)]
pub(super) struct Searching {
    threads: usize,
    running: usize,
    stop: Arc<AtomicBool>,
    searched: mpsc::Sender<(JobResult, f64)>,
}

impl Searching {
    pub(super) fn new(threads: usize, searched: mpsc::Sender<(JobResult, f64)>) -> Self {
        Self { threads, running: 0, stop: Arc::new(AtomicBool::new(false)), searched }
    }

    pub(super) const fn may_start(&self) -> bool {
        self.running < SEARCHES_MAX
    }

    /// Runs a search; its result comes through the channel.
    pub(super) fn start(&mut self, job: Job) {
        let (stop, searched, threads) = (Arc::clone(&self.stop), self.searched.clone(), self.threads);
        // A thread of its own: a priority that was lowered cannot be raised again, so it must not be one of the runtime's.
        let search = move || {
            // refused only where the thread is gone; then it runs as others do
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICEST);
            let began = Instant::now();
            let result = job.run(Control { stop: &stop, threads });
            // fails only when the task is gone
            drop(searched.blocking_send((result, began.elapsed().as_secs_f64())));
        };
        match std::thread::Builder::new().name("belady-search".to_owned()).spawn(search) {
            Ok(_) => self.running += 1,
            Err(error) => tracing::warn!("no thread for a search: {error}"),
        }
    }

    pub(super) const fn ended(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
