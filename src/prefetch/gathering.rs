//! How long opens gather before they are handled. Each of them alone would wake the task, which costs twice what the planner does with it.
//! Pure.

use std::time::Duration;

/// A look-ahead is tens of milliseconds deep.
const FOLLOWED: Duration = Duration::from_millis(1);
/// While no order is followed nothing is fetched ahead, and readers open a few files while a search takes as long.
const UNFOLLOWED: Duration = Duration::from_millis(10);
/// ... and where nothing was found for long, what is found next is an epoch's order.
const LONG_UNFOLLOWED: Duration = Duration::from_millis(50);
/// The opens at which most orders are found: they come soon, and each millisecond until then is one of plain misses.
const SOON: u32 = 128;
/// Those at which all others are that are found by an epoch's front.
const LONG: u32 = 1_024;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// Opens since an order was followed last.
    opens: u32,
}

impl Gathering {
    pub(super) const fn opened(&mut self) {
        self.opens = self.opens.saturating_add(1);
    }

    /// How long the next ones gather.
    pub(super) const fn time(&mut self, followed: bool) -> Duration {
        if followed {
            self.opens = 0;
        }
        if self.opens <= SOON {
            FOLLOWED
        } else if self.opens <= LONG {
            UNFOLLOWED
        } else {
            LONG_UNFOLLOWED
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_was_found_the_task_is_woken_less_and_less_often() {
        let mut gathering = Gathering::default();
        let mut times = |opens: u32, followed| {
            (0..opens).for_each(|_| gathering.opened());
            gathering.time(followed)
        };
        assert_eq!([times(SOON, false), times(1, false), times(1_000, false)], [FOLLOWED, UNFOLLOWED, LONG_UNFOLLOWED]);
        assert_eq!([times(1, true), times(SOON, false), times(1, false)], [FOLLOWED, FOLLOWED, UNFOLLOWED]);
    }
}
