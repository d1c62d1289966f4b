//! The planner decides what to fetch next and what to let go.
//!
//! It is a state machine: [`Planner::handle`] takes the time and one [`Event`] and returns [`Action`]s. It does no I/O, reads no clock,
//! spawns nothing and cannot fail, so a whole epoch runs in a unit test in milliseconds and a bug replays from its seed. `prefetch.rs`
//! is the task that feeds it.
//!
//! **Invariant:** a wrong prediction costs throughput, never correctness. Readers do not wait for the planner.

use std::sync::Arc;
use std::time::Duration;

use crate::order::EpochOrder;
use crate::types::{Epoch, ErrorKind, FileIndex, Outcome};

/// Number of an order of this mount, in the sequence they were added.
pub type OrderIndex = usize;

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
    Order { order: OrderIndex, epoch: Epoch, files: Arc<EpochFiles> },
    /// What the door measured lately.
    Measured { bytes_per_second: f64, latency_p999: Duration, requests_per_second: f64, in_flight_max: u32 },
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
    /// Compute the order of an epoch and send it as [`Event::Order`].
    Compute { order: OrderIndex, epoch: Epoch },
}
