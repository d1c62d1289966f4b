//! What readers did, counted and told to the planner. Never waits: a full queue costs an event, not a read.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::stats::Stats;
use crate::types::{FileIndex, Outcome, ReadEvent};

/// Counters and the planner's queue.
#[derive(Debug)]
pub(crate) struct Accounts {
    pub(crate) stats: Arc<Stats>,
    events: Option<mpsc::Sender<ReadEvent>>,
    /// Without an order nobody else counts accesses: then one open is one.
    count_accesses: bool,
}

impl Accounts {
    pub(crate) fn new(stats: Arc<Stats>, events: Option<mpsc::Sender<ReadEvent>>, count_accesses: bool) -> Self {
        Self { stats, events, count_accesses }
    }

    /// An open found its bytes so. Sent once per successful open, at the latest when the handle is closed.
    pub(crate) fn opened(&self, file: FileIndex, process: u32, outcome: Outcome, size: u64) {
        self.stats.reads.opened_bytes.add(size);
        if self.count_accesses {
            self.stats.reads.accesses.count(outcome, size);
        }
        self.send(ReadEvent::Opened { file, process, outcome, at: Instant::now().into_std() });
    }

    /// The last handle of a file was closed.
    pub(crate) fn released(&self, file: FileIndex) {
        self.send(ReadEvent::Released { file });
    }

    /// An open or a read failed, and it was the store's or our doing.
    pub(crate) fn failed(&self) {
        self.stats.reads.errors.add(1);
    }

    /// A wait for the store begins; it ends when the guard is dropped.
    pub(crate) fn wait(&self, process: u32) -> Wait<'_> {
        let began = Instant::now();
        Wait { accounts: self, began, process, end: self.send_wait_began(process, began) }
    }

    /// Began and ended come in pairs: room for the second is taken before the first is sent.
    fn send_wait_began(&self, process: u32, at: Instant) -> Option<mpsc::OwnedPermit<ReadEvent>> {
        let events = self.events.clone()?;
        let began = ReadEvent::WaitBegan { process, at: at.into_std() };
        let sent = events.clone().try_reserve_owned().ok().filter(|_| events.try_send(began).is_ok());
        if sent.is_none() {
            self.stats.reads.events_dropped.add(2);
        }
        sent
    }

    fn send(&self, event: ReadEvent) {
        if let Some(events) = &self.events
            && events.try_send(event).is_err()
        {
            self.stats.reads.events_dropped.add(1);
        }
    }
}

/// A reader is waiting.
#[must_use]
pub(crate) struct Wait<'a> {
    accounts: &'a Accounts,
    began: Instant,
    process: u32,
    end: Option<mpsc::OwnedPermit<ReadEvent>>,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let micros = u64::try_from((now - self.began).as_micros()).unwrap_or(u64::MAX);
        self.accounts.stats.reads.wait_micros.add(micros);
        if let Some(permit) = self.end.take() {
            permit.send(ReadEvent::WaitEnded { process: self.process, at: now.into_std() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_told_in_pairs_or_not_at_all() {
        let (tx, mut rx) = mpsc::channel(3);
        let accounts = Accounts::new(Arc::default(), Some(tx), false);
        let first = accounts.wait(1); // takes 2 of 3 places
        let second = accounts.wait(2); // only 1 left: not told
        drop(second);
        drop(first);
        let mut seen = Vec::new();
        while let Ok(event) = rx.try_recv() {
            seen.push(event);
        }
        let [ReadEvent::WaitBegan { process: 1, at: began }, ReadEvent::WaitEnded { process: 1, at: ended }] = seen[..] else {
            panic!("{seen:?}")
        };
        assert!(began <= ended);
        assert_eq!(accounts.stats.reads.events_dropped.get(), 2);
    }

    #[test]
    fn an_open_is_an_access_only_where_no_order_counts_them() {
        for (count_accesses, expected) in [(true, 1), (false, 0)] {
            let accounts = Accounts::new(Arc::default(), None, count_accesses);
            accounts.opened(FileIndex(3), 7, Outcome::InTime, 100);
            assert_eq!(accounts.stats.reads.accesses.in_time.get(), expected);
            assert_eq!(accounts.stats.reads.opened_bytes.get(), 100);
        }
    }
}
