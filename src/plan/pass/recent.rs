//! Where the slowest of one rank's readers is, by its recent opens.

use std::collections::VecDeque;

/// Opens that `front` looks back over: eight of each of 32 workers.
const RECENT: u64 = 256;

/// One rank's recent opens. By rank, because a rank that is behind must not be overlooked for one that opens a burst.
#[derive(Debug, Default)]
pub(super) struct Recent {
    pub(super) opens: u64,
    /// Ascending places of the last [`RECENT`] opens, the smallest in front (a monotone queue).
    pub(super) places: VecDeque<(u64, u32)>,
}

impl Recent {
    pub(super) fn push(&mut self, place: u32) {
        self.opens += 1;
        while self.places.back().is_some_and(|&(_, other)| other >= place) {
            self.places.pop_back();
        }
        self.places.push_back((self.opens, place));
        while self.places.front().is_some_and(|&(at, _)| at + RECENT <= self.opens) {
            self.places.pop_front();
        }
    }
}
