//! Whose room is for readers who are there: orders that nobody reads now, beside others that are read, and what lies further ahead than where
//! prefetch had to go back to.
//!
//! A job that was killed, or trains while another dataset is validated, keeps its order, and what prefetch brought for it. Where the window has no
//! room for readers who are there, such an order rests: what was fetched ahead for it is weighed like everything else that is kept, and nothing more is
//! fetched until somebody opens a file of it, or nobody reads any other. One that waits for its next pass is due when the others have opened as many files
//! as the last time (`cursor/turn`), and gives up, file by file, what is read later than what they need: training and validation have the whole window
//! in turn, and the front of the next pass comes when the end of the other's is in sight. Where that is not known it keeps a share of the window.

use std::time::Duration;

use super::Planner;
use crate::plan::OrderIndex;
use crate::plan::cursor::{Choice, Cursor, PAUSE, Pause};

/// Of the window, what an order may hold that may come any moment while others are read: the first batches.
const WAITING_SHARE: u64 = 2;

/// Of a known pause, by how much longer it may last than before: a validation that stops a few batches later.
const LATE_SHARE: u64 = 8;

impl Planner {
    /// There is no room for what `order` needs next in a pass, `due` in so many seconds. True if something further ahead of it was given up, or
    /// another order, which nobody reads now, gave up what it has ahead.
    pub(super) fn make_way(&mut self, order: OrderIndex, pass: usize, due: f64, pauses: &[Pause]) -> bool {
        let now = self.now;
        if let Some(file) = self.orders[order].furthest(pass) {
            self.settle(file);
            return true;
        }
        if self.orders[order].is_silent(now) || self.orders[order].waits(now) && pauses[order].is_open {
            return false;
        }
        let front = self.front_of_waiting();
        for number in (0..self.orders.len()).filter(|&number| number != order) {
            let other = &mut self.orders[number];
            if !other.is_locked() {
                continue;
            }
            if other.is_silent(now) {
                if other.rest() {
                    self.settle_stale(number);
                    return true;
                }
            } else if other.waits(now) || other.is_between() && pauses[number].left > 0.0 {
                // More than its share, or what is read later than this.
                let least = if pauses[number].is_open && other.ahead_places() > front { f64::NEG_INFINITY } else { due };
                if let Some(file) = other.give_up(now, pauses[number], least, |file| self.books.class(file)) {
                    self.settle(file);
                    return true;
                }
            }
        }
        false
    }

    /// An open was assigned to `order`: it may be the begin of a pass.
    pub(super) fn take_turn(&mut self, order: OrderIndex, choice: &Choice) {
        let opens: u64 = self.orders.iter().map(|order| order.observed).sum();
        let opens_of_others = opens - self.orders[order].observed;
        if self.orders[order].goes_on(opens_of_others, choice) {
            let mut others = self.orders.iter().enumerate().filter(|&(number, _)| number != order);
            let in_turn = others.all(|(_, other)| !self.reads(other) || other.is_near_a_boundary());
            self.orders[order].begins(opens_of_others, in_turn);
        }
    }

    /// How long each order waits for its next pass.
    pub(super) fn pauses(&self) -> Vec<Pause> {
        if self.orders.len() < 2 {
            return vec![Pause::default(); self.orders.len()];
        }
        let opens: u64 = self.orders.iter().map(|order| order.observed).sum();
        let read: Vec<bool> = self.orders.iter().map(|order| self.reads(order)).collect();
        let readers = read.iter().filter(|&&is_read| is_read).count();
        let pace: f64 = self.orders.iter().zip(&read).filter(|&(_, &is_read)| is_read).map(|(order, _)| order.pace()).sum();
        let fastest = self.orders.iter().filter(|order| order.is_locked()).map(Cursor::pace).fold(0.0, f64::max);
        let pauses = self.orders.iter().zip(&read).map(|(order, &is_read)| {
            let pace = match readers - usize::from(is_read) {
                0 => fastest,
                _ if is_read => pace - order.pace(),
                _ => pace,
            };
            let known = order.opens_of_others(self.now, opens - order.observed).filter(|_| order.is_locked() && pace > 0.0);
            let Some((pause, since)) = known else { return self.first_pause(order) };
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let seconds = |opens: u64| opens as f64 / pace;
            let is_open = since > pause + pause / LATE_SHARE + PAUSE;
            Pause { left: seconds(pause.saturating_sub(since)), next: seconds(pause), is_open }
        });
        pauses.collect()
    }

    /// ... of which nothing is known yet: those who took over from it are read to their end first.
    fn first_pause(&self, order: &Cursor) -> Pause {
        let mut left = None;
        if order.is_locked() && order.waits(self.now) {
            for other in self.orders.iter().filter(|other| self.reads(other)) {
                let Some(seconds) = order.is_followed_by(other) else { return Pause::OPEN };
                left = Some(left.map_or(seconds, |least: f64| least.min(seconds)));
            }
        }
        left.map_or(Pause::OPEN, |left| Pause { left, next: 0.0, is_open: false })
    }

    /// Somebody reads it, in mid-epoch or close to it.
    fn reads(&self, order: &Cursor) -> bool {
        order.is_locked() && order.observed > 0 && !order.is_silent(self.now) && !order.waits(self.now)
    }

    /// Somebody reads in mid-epoch.
    pub(super) fn is_read(&self) -> bool {
        self.orders.iter().any(|order| self.reads(order))
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
