//! The planner decides what to fetch next and what to let go.
//!
//! It is a state machine: [`Planner::handle`] takes the time and one [`Event`] and returns [`Action`]s. It does no I/O, reads no clock,
//! spawns nothing and cannot fail, so a whole epoch runs in a unit test in milliseconds and a bug replays from its seed. `prefetch.rs`
//! is the task that feeds it.
//!
//! Reading order: `cursor.rs` (where are the readers of one order; `pass.rs`, `belief.rs`), `next_use.rs` and `residency.rs` (what is worth
//! keeping), `lookahead.rs` (how far ahead), `bounds.rs` (what would be best), `simulate.rs` (all of it against a store of virtual time).
//!
//! **Invariant:** a wrong prediction costs throughput, never correctness. Readers do not wait for the planner.

use std::sync::Arc;
use std::time::Duration;

use crate::order::EpochOrder;
use crate::types::{Epoch, ErrorKind, FileIndex, Outcome};

pub(crate) mod belief;
mod bounds;
mod count;
#[cfg(test)]
mod count_tests;
mod cursor;
mod key;
mod lookahead;
mod next_use;
pub(crate) mod pass;
mod planner;
mod residency;
pub mod simulate;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod together_tests;
#[cfg(test)]
mod turns_tests;
#[cfg(test)]
mod way_tests;

pub use count::EpochCount;
pub use planner::Planner;
pub use residency::Wasted;

/// Number of an order of this mount, in the sequence they were added.
pub type OrderIndex = usize;

/// How an order goes on from epoch to epoch: a number that its maker gives a meaning (outputs of a generator between two epochs). 0: as it was
/// going when it was added.
pub type Way = u64;

/// A way on other than the one supposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WayOn {
    pub way: Way,
    /// Likely enough that the front of the epoch it leads to is fetched before anybody has opened a file of it.
    pub likely: bool,
}

/// Which way an order goes, as far as opens have told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Going {
    pub way: Way,
    /// An epoch reached by it was read.
    pub proven: bool,
    /// The epoch being read.
    pub epoch: Epoch,
    /// The first epoch reached by it.
    pub reached: Epoch,
    /// When it began.
    pub began: Option<Duration>,
}

/// What the planner learns.
#[derive(Clone, Debug)]
pub enum Event {
    /// A process (pid, in truth the thread id; 0 = unknown) opened a file.
    Opened { file: FileIndex, process: u32, outcome: Outcome },
    /// The last handle of a file was closed.
    Released { file: FileIndex },
    /// A file is complete in the cache, in `tier`; fetched ahead or by demand.
    Fetched { file: FileIndex, tier: usize, ahead: bool },
    /// A fetch the planner asked for did not happen.
    Failed { file: FileIndex, kind: ErrorKind },
    /// Files found in the cache at start: (file, tier).
    Present(Vec<(FileIndex, usize)>),
    /// The cache let go of a file by itself (damaged, tier lost, evicted as unplanned).
    Gone { file: FileIndex },
    /// The order of an epoch, asked for with [`Action::Compute`]: files at each place, and the number of local ranks.
    Order { order: OrderIndex, epoch: Epoch, way: Way, files: Arc<EpochFiles> },
    /// A tier may hold this much from now on.
    Capacity { tier: usize, bytes: u64 },
    /// What the door measured lately. `latency_p999`: of a request, or of a whole batch; `in_flight_max`: fetches at once, the entries of batches
    /// counted each.
    Measured { bytes_per_second: f64, latency_p999: Duration, requests_per_second: f64, in_flight_max: u32 },
    /// The store gives objects by batches of at least so many; 0: it does not.
    Batches { least: u32 },
    /// Nothing happened for a moment (sent every 100 ms).
    Tick,
}

/// One epoch's order in files.
#[derive(Clone, Debug)]
pub struct EpochFiles {
    /// File at each place.
    pub files: Vec<FileIndex>,
    /// Local ranks; see [`EpochOrder::stride`].
    pub stride: u32,
}

impl EpochFiles {
    /// Maps samples to files.
    #[must_use]
    pub fn new(order: &EpochOrder, samples: &[FileIndex]) -> Self {
        Self { files: order.places.iter().map(|&s| samples[s as usize]).collect(), stride: order.stride }
    }
}

/// What the planner wants. Earlier actions are more urgent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Fetch a file ahead, into this tier (spill to a slower one is the cache's business).
    Fetch { file: FileIndex, tier: usize },
    /// Let go of a file.
    Retire { file: FileIndex },
    /// Compute the order of an epoch, reached from the one before it by this way, and send it as [`Event::Order`].
    Compute { order: OrderIndex, epoch: Epoch, way: Way },
}

/// What the planner must know of the mount.
#[derive(Clone, Debug)]
pub struct PlannerConfig {
    /// Capacity of each tier in bytes, fastest first.
    pub tiers: Vec<u64>,
    /// Bytes a file of so many bytes takes in a tier: what the cache charges its budget with.
    pub room: fn(u64) -> u64,
    /// Concurrent fetches of the store until [`Event::Measured`] says how many it bears.
    pub in_flight_max: u32,
}

impl PlannerConfig {
    /// Tiers that charge a file its length, and a modest concurrency.
    #[must_use]
    pub fn new(tiers: Vec<u64>) -> Self {
        Self { tiers, room: std::convert::identity, in_flight_max: 32 }
    }
}

/// How far an order is believed before its first open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The user, or a proof, says so: prefetch begins at once, at its first epoch and place.
    Declared,
    /// A guess: nothing is fetched on its word before opens confirm it, at whatever place.
    Guess,
    /// Proved by opens that are played back to it ([`Planner::adopt`]). When it is lost, whoever inferred it looks for the next: it tries no
    /// other epochs by itself.
    Inferred,
}

/// An open that was seen before its order was known, to be played back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub now: Duration,
    pub file: FileIndex,
    pub process: u32,
    pub outcome: Outcome,
}

/// What a DataLoader opens at once on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderHint {
    pub ranks: u32,
    pub workers: u32,
    pub prefetch_factor: u32,
    pub batch: u32,
}

impl LoaderHint {
    /// Files that may be opened before the first of them is used: ranks · workers · (prefetch factor + 1) · batch.
    #[must_use]
    pub const fn burst(&self) -> u64 {
        self.ranks as u64 * self.workers as u64 * (self.prefetch_factor as u64 + 1) * self.batch as u64
    }
}

/// One order, as added to the planner.
#[derive(Clone, Debug)]
pub struct OrderConfig {
    /// Epoch the run begins with.
    pub first_epoch: Epoch,
    /// Place in that epoch (of this node's merged stream) the run begins at: a resume in mid-epoch.
    pub start_place: u64,
    /// Number of epochs of the run, counted from `first_epoch`; `None`: unknown.
    pub epochs: Option<u64>,
    pub trust: Trust,
    pub loader: Option<LoaderHint>,
}

impl Default for OrderConfig {
    fn default() -> Self {
        Self { first_epoch: 0, start_place: 0, epochs: None, trust: Trust::Declared, loader: None }
    }
}

/// Whether an order's readers are being followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderState {
    /// Not found in the opens yet.
    Searching,
    /// Followed: its word is acted on.
    Locked,
    /// Refuted: nothing is fetched on its word until it is found again.
    Lost,
}

impl OrderState {
    /// As `stats.json` has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Searching => "searching",
            Self::Locked => "locked",
            Self::Lost => "lost",
        }
    }
}

/// One order, as the planner sees it now.
#[derive(Clone, Debug)]
pub struct OrderView<'a> {
    pub state: OrderState,
    pub epoch: Epoch,
    /// Places opened in this epoch.
    pub position: u64,
    /// Places of this epoch.
    pub length: u64,
    /// Probability of the order against uniform opens.
    pub confidence: f64,
    pub observed: u64,
    pub predicted: u64,
    /// Why it was dropped or changed last; empty if never.
    pub note: &'a str,
}

/// Figures of the planner over all orders.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlannerView {
    /// The look-ahead in force: bytes kept free of retained files.
    pub window_bytes: u64,
    /// The look-ahead that the measurements ask for.
    pub window_wanted_bytes: u64,
    /// Bytes that may be ahead of the readers now, in flight and ready.
    pub ahead_limit_bytes: u64,
    /// Complete, their use still to come.
    pub ready_bytes: u64,
    pub in_flight_files: u64,
    pub kept_bytes: u64,
    /// Fetches asked for.
    pub issued: u64,
    /// Of these, opened since.
    pub useful: u64,
    /// Fetched ahead and let go of unread.
    pub wasted: Wasted,
    /// All accesses, as they came. Rows of epochs come and go (a pass that is given up, an epoch long past); this only grows.
    pub accesses: EpochCount,
    /// Those of them of files in no order: each open is one.
    pub unassigned: EpochCount,
}
