//! Readers that come after a silence: the same run goes on, or one that was started anew reads something else, or the same from elsewhere on.
//!
//! Of an order that was right for an hour belief goes slowly, and a file opened again says nothing against it; but a program that is started anew begins
//! anywhere, and what it opens where the order has it is opened there by chance.

use std::time::Duration;

use super::super::Trust;
use super::{Choice, Cursor};

/// A program that is started again takes this long before its first open: an interpreter starts, libraries are loaded.
const SILENCE: Duration = Duration::from_secs(2);
/// Opens that tell: of a run that goes on nearly all are where the order has them.
const TELL: usize = 8;
/// So many opens after them it is nothing new any more.
const NEW: usize = 64;

/// What newcomers have opened.
#[derive(Debug, Default)]
pub(super) struct Newcomers {
    /// The process of each open since they came; empty: nobody is new.
    opens: Vec<u32>,
    /// Those that were not where the order has them.
    astray: usize,
}

impl Newcomers {
    fn opened(&mut self, process: u32, predicted: bool) {
        self.opens.push(process);
        self.astray += usize::from(!predicted);
        if self.opens.len() == NEW {
            *self = Self::default();
        }
    }

    /// Whether they read something else.
    pub(super) fn are_others(&self) -> bool {
        self.opens.len() >= TELL && self.astray * 2 > self.opens.len()
    }
}

impl Cursor {
    /// Looks at an open of a reader that may be new.
    pub(super) fn greet(&mut self, now: Duration, process: u32, choice: &Choice) {
        let silence = self.rate.has_begun() && self.rate.silence(now) > SILENCE;
        let is_new = self.newcomers.opens.contains(&process) || !self.knows(process);
        if !is_new {
            // Those before are still there: whoever reads beside them is no run that was started anew.
            self.newcomers = Newcomers::default();
        // After the end of a pass readers may do whatever they like.
        } else if !self.newcomers.opens.is_empty() || silence && !self.is_read() {
            self.newcomers.opened(process, choice.is_predicted());
        }
    }

    /// They read something else. In another world what they open first is in this order, too: where it was inferred, whoever did that looks for it, and
    /// it is followed again only when nothing is left out.
    pub(super) fn lose_to_newcomers(&mut self) {
        self.lose("new readers, after a while, read something else", self.config.trust == Trust::Inferred);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_opens_tell_and_after_many_nobody_is_new() {
        let mut newcomers = Newcomers::default();
        for open in 0..8 {
            assert!(!newcomers.are_others());
            newcomers.opened(open, open % 3 == 0);
        }
        assert!(newcomers.are_others());
        let mut newcomers = Newcomers::default();
        for open in 0..64 {
            newcomers.opened(open, open % 8 != 0);
            assert!(!newcomers.are_others());
        }
        assert!(newcomers.opens.is_empty());
    }
}
