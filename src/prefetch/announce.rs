//! Which files a store is told of long before they are fetched, so that it can bring them near (a cluster before a cold bucket). Pure; time is an
//! argument. Off unless the store asks for it ([`Door::announce_max`](crate::fetch::Door::announce_max)).
//!
//! **Who announces**: each node only its own ranks' stream. Under a sampler with a world size the streams of the nodes are parts of one epoch, so that
//! together they announce each file once. Where the order has no world size the whole of it is this node's stream, and its to announce: several
//! nodes that read the same in full announce the same, each file once in the life of a mount, spread by the jitter, and a cluster passes over what
//! it has.
//!
//! **How much**: one announcement a second or so, of what lies within [`DEPTH`] files ahead and is not asked for yet; each file once, because a
//! cluster that throws away what a job reads every epoch is short of room, and announcing again would make it worse.

use std::time::Duration;

use crate::types::FileIndex;

/// How far ahead: a cluster fetches some hundred objects a second from its backend, so this is ten seconds or so.
pub(super) const DEPTH: usize = 2048;
/// Between two announcements, before jitter: a cluster that is busy bringing objects near must not be asked faster (upstream issue 316: heavy prefetch
/// starved its keep-alives).
const EVERY: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(super) struct Announcer {
    /// A bit per file.
    told: Vec<u64>,
    due: Duration,
}

impl Announcer {
    pub(super) fn new(files: usize) -> Self {
        Self { told: vec![0; files.div_ceil(64)], due: Duration::ZERO }
    }

    /// Whether it is time again.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        now >= self.due
    }

    /// What to announce now of the files that come next, at most `most`. `near`: here, or asked for. `jitter` is uniform in 0..1.
    pub(super) fn next(
        &mut self,
        now: Duration,
        upcoming: impl IntoIterator<Item = FileIndex>,
        near: impl Fn(FileIndex) -> bool,
        most: usize,
        jitter: f64,
    ) -> Vec<FileIndex> {
        self.due = now + EVERY.mul_f64(0.5 + jitter.clamp(0.0, 1.0));
        let mut files = Vec::new();
        for file in upcoming {
            if files.len() >= most {
                break;
            }
            let Some(word) = self.told.get_mut(file.at() / 64) else { continue };
            let bit = 1 << (file.at() % 64);
            if *word & bit == 0 && !near(file) {
                *word |= bit;
                files.push(file);
            }
        }
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_far_file_is_announced_once_a_second_or_so_in_order() {
        let mut announcer = Announcer::new(1000);
        let order = || (0..1000u32).map(|n| FileIndex(n * 7 % 1000));
        let near = |file: FileIndex| order().take(100).any(|f| f == file);
        let (mut now, mut all, mut calls) = (Duration::ZERO, Vec::new(), 0);
        loop {
            assert!(announcer.is_due(now));
            let files = announcer.next(now, order(), near, 256, f64::from(calls % 2));
            assert!(!announcer.is_due(now + Duration::from_millis(499)));
            if files.is_empty() {
                break;
            }
            assert!(files.len() <= 256);
            all.extend(files);
            now += Duration::from_millis(1500);
            calls += 1;
        }
        assert_eq!(all, order().skip(100).collect::<Vec<_>>());
        assert_eq!(calls, 4);
    }
}
