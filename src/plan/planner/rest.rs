//! Orders that nobody reads now, beside others that are read: their room is for those.
//!
//! A job that was killed, or trains while another dataset is validated, keeps its order, and what prefetch brought for it. Where the window has no
//! room for readers who are there, such an order rests: what was fetched ahead for it is weighed like everything else that is kept, and nothing more is
//! fetched until somebody opens a file of it, or nobody reads any other.

use std::time::Duration;

use super::Planner;
use crate::plan::OrderIndex;
use crate::plan::cursor::Cursor;

impl Planner {
    /// There is no room for what `order` needs next. True if another order, which is silent while this one is read, gave up what it had ahead.
    pub(super) fn let_rest(&mut self, order: OrderIndex) -> bool {
        let now = self.now;
        if self.orders[order].is_silent(now) {
            return false;
        }
        let mut given = false;
        for number in (0..self.orders.len()).filter(|&number| number != order) {
            if self.orders[number].is_locked() && self.orders[number].is_silent(now) && self.orders[number].rest() {
                self.settle_stale(number);
                given = true;
            }
        }
        given
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
