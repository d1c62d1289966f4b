//! Orders: in which sequence a framework reads its samples, bit for bit. Pure: no I/O, no clock, no async.
//!
//! [`spec::OrderSpec`] is what a user declares; it gives a [`Sampler`], which knows every epoch. `torch` and `plain` hold the samplers,
//! `shard` deals an order to ranks, `mt19937` is the generator below.
//!
//! Not here: which file a sample is (`dataset::samples`), and where in its order a run is (`plan`).

use std::fmt::Debug;
use std::sync::Arc;

use crate::types::{Epoch, SampleIndex};

pub mod infer;
pub mod mt19937;
pub mod plain;
pub mod shard;
pub mod spec;
pub mod torch;

/// One epoch as this node reads it: the streams of its local ranks, merged step by step.
///
/// `places[k * stride + r]` is what local rank `r` reads `k`-th: ranks advance together, so this is also the order of deadlines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochOrder {
    /// Sample at each place.
    pub places: Vec<SampleIndex>,
    /// Number of local ranks (≥ 1); `places.len()` is a multiple of it.
    pub stride: u32,
}

/// Knows the order of every epoch of one dataset of `n` samples on this node.
pub trait Sampler: Send + Sync + Debug {
    /// The order of `epoch`. Costs O(n): call it off the hot path.
    fn order(&self, epoch: Epoch) -> EpochOrder;
    /// Samples this node reads in one epoch.
    fn len(&self) -> u64;
    /// Whether it reads none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A sampler that can be handed to the task that computes.
pub type SharedSampler = Arc<dyn Sampler>;
