//! How long opens gather before the planner hears of them: each of them alone would wake its task, which costs twice what the planner does with it.

use std::time::Duration;

use crate::plan::OrderState;

/// Where an order is followed, or declared: a look-ahead is tens of milliseconds deep.
pub(super) const FOLLOWED: Duration = Duration::from_millis(1);
/// Where none is, so that nothing is fetched ahead: readers may never read in one that can be found, and should not pay for the search. A first
/// batch takes longer.
const UNTIL_FOUND: Duration = Duration::from_millis(5);

/// The pause after some were handled; `states`: of all orders of the mount.
pub(super) fn pause(states: &[OrderState]) -> Duration {
    if states.iter().any(|state| *state != OrderState::Lost) { FOLLOWED } else { UNTIL_FOUND }
}
