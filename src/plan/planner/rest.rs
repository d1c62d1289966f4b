//! Whose room is for readers who are there: orders that nobody reads now, beside others that are read, and what lies further ahead than where
//! prefetch had to go back to.
//!
//! A job that was killed, or trains while another dataset is validated, keeps its order, and what prefetch brought for it. Where the window has no
//! room for readers who are there, such an order rests: what was fetched ahead for it is weighed like everything else that is kept, and nothing more is
//! fetched until somebody opens a file of it, or nobody reads any other. One that waits for its next pass keeps the front of it: validation begins
//! with files that are there, and training beside it has the rest.

use std::time::Duration;

use super::Planner;
use crate::plan::OrderIndex;
use crate::plan::cursor::Cursor;

/// Of the window, what an order may hold that waits for its next pass while others are read: the first batches.
const WAITING_SHARE: u64 = 2;

impl Planner {
    /// There is no room for what `order` needs next in a pass. True if something further ahead of it was given up, or another order, which is silent
    /// while this one is read, gave up what it had ahead.
    pub(super) fn make_way(&mut self, order: OrderIndex, pass: usize) -> bool {
        let now = self.now;
        if let Some(file) = self.orders[order].furthest(pass) {
            self.settle(file);
            return true;
        }
        if self.orders[order].is_silent(now) || self.orders[order].waits(now) {
            return false;
        }
        let (front, mut given) = (self.front_of_waiting(), false);
        for number in (0..self.orders.len()).filter(|&number| number != order) {
            let other = &mut self.orders[number];
            if other.is_locked() && (other.is_silent(now) && other.rest() || other.waits(now) && other.let_ahead_go(front)) {
                self.settle_stale(number);
                given = true;
            }
        }
        given
    }

    /// Somebody reads in mid-epoch.
    pub(super) fn is_read(&self) -> bool {
        self.orders.iter().any(|order| order.is_locked() && order.observed > 0 && !order.is_silent(self.now) && !order.waits(self.now))
    }

    /// Places that an order may have ahead which waits while others are read.
    pub(super) fn front_of_waiting(&self) -> u32 {
        u32::try_from(self.window.bytes() / WAITING_SHARE / self.window.mean_size()).unwrap_or(u32::MAX)
    }

    /// Nobody reads anything else: what rests is the next to be read.
    pub(super) fn wake(&mut self, now: Duration) {
        if self.orders.iter().all(|order| !order.is_locked() || order.is_silent(now)) {
            self.orders.iter_mut().for_each(Cursor::wake);
        }
    }

    pub(super) fn settle_stale(&mut self, number: OrderIndex) {
        for file in self.orders[number].take_stale() {
            self.settle(file);
        }
    }
}
