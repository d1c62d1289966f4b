//! The memory tier gives way when others need the memory: one task looks at the figures and tells cache, planner and people what follows.
//!
//! What follows is decided in `policy.rs`. A look costs a read of /proc/meminfo and of a few files per control group; it is made on a blocking
//! thread, because a kernel that is short of memory may take its time. Nothing runs where there is no memory tier.

mod policy;

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use crate::config::machine::{self, Headroom};
use crate::fetch::Door;
use crate::stats::Stats;
use crate::types::ByteSize;

pub use policy::Pace;
use policy::Policy;

/// Where the figures come from, and how often they are looked at.
#[derive(Clone)]
pub struct Watch {
    /// What is left in each place whose memory may run out; called on a blocking thread.
    pub figures: Arc<dyn Fn() -> Vec<Headroom> + Send + Sync>,
    pub pace: Pace,
}

impl Watch {
    /// This machine and the control groups around this process.
    #[must_use]
    pub fn here() -> Self {
        Self { figures: Arc::new(machine::headrooms), pace: Pace::default() }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("pace", &self.pace).finish_non_exhaustive()
    }
}

/// What the task works with.
pub(super) struct Parts {
    pub(super) watch: Watch,
    pub(super) door: Arc<Door>,
    pub(super) stats: Arc<Stats>,
    /// Bytes of the memory tier as configured, which is the first tier of the stats.
    pub(super) configured: u64,
    pub(super) mean_file: u64,
    /// Where the planner hears of it.
    pub(super) limit: watch::Sender<u64>,
}

/// Runs until told to stop.
pub(super) async fn run(parts: Parts, mut stop: watch::Receiver<bool>) {
    let mut policy = Policy::new(parts.configured, parts.mean_file, parts.watch.pace);
    let mut told = Told::default();
    let began = Instant::now();
    let mut ticks = tokio::time::interval(parts.watch.pace.look_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            _ = ticks.tick() => {}
        }
        let figures = Arc::clone(&parts.watch.figures);
        let Ok(places) = tokio::task::spawn_blocking(move || figures()).await else { continue };
        let Some(used) = parts.stats.tiers.first().map(|tier| tier.used_bytes.get()) else { return };
        let (before, limit) = (policy.limit(), policy.look(began.elapsed(), &places, used));
        // The planner first: it chooses what to let go of, and nothing is fetched into what is to be emptied.
        parts.limit.send_if_modified(|last| std::mem::replace(last, limit) != limit);
        if limit != before || used > limit {
            let door = Arc::clone(&parts.door);
            let above = tokio::task::spawn_blocking(move || door.limit_memory(limit)).await;
            tracing::debug!(limit, above = above.unwrap_or(0), "memory tier");
        }
        let free = places.iter().map(|place| place.available).min().unwrap_or(0);
        told.say(before, limit, parts.configured, free, &parts.stats);
    }
}

/// What people were told last.
#[derive(Debug, Default)]
struct Told {
    note: String,
}

impl Told {
    fn say(&mut self, before: u64, limit: u64, configured: u64, free: u64, stats: &Stats) {
        if limit == before {
            return;
        }
        if !self.note.is_empty() {
            stats.unnote(&self.note);
            self.note.clear();
        }
        let (now, of, left) = (ByteSize(limit), ByteSize(configured), ByteSize(free));
        if limit == configured {
            tracing::info!("memory tier has all of its {of} again: the machine has {left} free");
            return;
        }
        self.note = format!("memory tier is shrunk to {now} of {of}: the machine has {left} free");
        stats.note(self.note.clone());
        if limit < before {
            tracing::info!("{}", self.note);
        } else {
            tracing::info!("memory tier grows back: {now} of {of}, the machine has {left} free");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_says_what_holds_now_and_goes_with_it() {
        let (stats, mut told) = (Stats::default(), Told::default());
        let notes = || stats.notes.lock().unwrap().clone();
        stats.note("another");
        told.say(8 << 30, 8 << 30, 8 << 30, 1, &stats);
        assert_eq!(notes(), ["another"]);
        told.say(8 << 30, 1 << 30, 8 << 30, 3 << 30, &stats);
        assert_eq!(notes(), ["another", "memory tier is shrunk to 1GiB of 8GiB: the machine has 3GiB free"]);
        told.say(1 << 30, 2 << 30, 8 << 30, 9 << 30, &stats);
        assert_eq!(notes(), ["another", "memory tier is shrunk to 2GiB of 8GiB: the machine has 9GiB free"]);
        told.say(2 << 30, 8 << 30, 8 << 30, 9 << 30, &stats);
        assert_eq!(notes(), ["another"]);
    }
}
