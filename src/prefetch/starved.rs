//! Starvation: time in which all reader processes wait for us at once. Summed waits of 64 workers mean nothing: a loader with one
//! worker waiting and seven busy feeds its GPU; with all eight waiting it does not. Pure; time is an argument.

use std::time::Duration;

use crate::types::QuickMap;

/// A process that has opened nothing for this long is no reader at present (it decodes, validates, or is gone).
const ACTIVE_FOR: Duration = Duration::from_secs(2);
/// Processes remembered at most: readers of one node; beyond it the oldest are dropped.
const PROCESSES_MAX: usize = 4096;

#[derive(Debug)]
struct Process {
    seen: Duration,
    waits: u32,
}

/// Adds up starved time from events in time order.
#[derive(Debug, Default)]
pub struct Starvation {
    processes: QuickMap<u32, Process>,
    /// Waits that go on: while there are none, no process needs to be looked at.
    waits: u32,
    last: Duration,
    total: Duration,
}

impl Starvation {
    /// Lets time pass to `now`, and gives the starved time so far.
    pub fn at(&mut self, now: Duration) -> Duration {
        let since = self.last;
        let is_busy = |process: &Process| process.waits == 0 && process.seen + ACTIVE_FOR > since;
        if self.waits > 0 && now > since && !self.processes.values().any(is_busy) {
            self.total += now - since;
        }
        self.last = self.last.max(now);
        self.total
    }

    /// The process did something that did not wait.
    pub fn active(&mut self, now: Duration, process: u32) {
        self.at(now);
        self.entry(now, process).seen = now;
    }

    /// The process began to wait.
    pub fn wait_began(&mut self, now: Duration, process: u32) {
        self.at(now);
        self.entry(now, process).waits += 1;
        self.waits += 1;
    }

    /// The process got what it waited for.
    pub fn wait_ended(&mut self, now: Duration, process: u32) {
        self.at(now);
        let entry = self.entry(now, process);
        let ended = entry.waits.min(1); // the matching begin may have been dropped by a full queue
        entry.waits -= ended;
        entry.seen = now;
        self.waits -= ended;
    }

    fn entry(&mut self, now: Duration, process: u32) -> &mut Process {
        if self.processes.len() >= PROCESSES_MAX {
            self.processes.retain(|_, p| p.waits > 0 || p.seen + ACTIVE_FOR > now);
        }
        self.processes.entry(process).or_insert(Process { seen: now, waits: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn only_when_all_wait() {
        let mut starvation = Starvation::default();
        starvation.active(s(0), 1);
        starvation.active(s(0), 2);
        starvation.wait_began(s(1), 1); // 2 is busy
        starvation.wait_began(s(2), 2); // both wait from here
        starvation.wait_ended(s(5), 1);
        assert_eq!(starvation.at(s(6)), s(3));
        starvation.wait_ended(s(6), 2);
        assert_eq!(starvation.at(s(100)), s(3), "idle is not starved");
    }

    #[test]
    fn a_process_that_is_gone_does_not_hide_starvation() {
        let mut starvation = Starvation::default();
        starvation.active(s(0), 1);
        starvation.wait_began(s(10), 2);
        assert_eq!(starvation.at(s(15)), s(5));
    }
}
