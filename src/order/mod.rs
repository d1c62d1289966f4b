//! Orders: in which sequence a framework reads its samples, bit for bit. Pure: no I/O, no clock, no async.
//!
//! [`spec::OrderSpec`] is what a user declares; it gives a [`Sampler`], which knows every epoch. A file each holds the rule of one library
//! ([`Shuffle`]: the order of the whole job); `shard` deals it to ranks; `mt19937`, `mt19937_64` and `pcg64` are the generators below.
//!
//! Not here: which file a sample is (`dataset::samples`), and where in its order a run is (`plan`).

use std::fmt::Debug;
use std::sync::Arc;

use crate::order::shard::Shard;
use crate::types::{Epoch, SampleIndex};

pub mod again;
pub mod dali;
pub mod dlio;
pub mod grain;
pub mod infer;
pub mod mosaic;
pub mod mt19937;
pub mod mt19937_64;
pub mod numpy;
pub mod pcg64;
pub mod plain;
pub mod python;
pub mod repeat_aug;
pub mod shard;
pub mod spec;
pub mod subset;
pub mod torch;
pub mod webdataset;
pub mod wids;

/// One epoch as this node reads it: the streams of its local ranks, merged step by step.
///
/// `places[k * stride + r]` is what local rank `r` reads `k`-th: ranks advance together, so this is also the order of deadlines. A sample
/// may come several times (sampling with replacement, repeated augmentation).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochOrder {
    /// Sample at each place.
    pub places: Vec<SampleIndex>,
    /// Number of local ranks (≥ 1). Where ranks are not equally long the last steps lack the ranks that have ended.
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

/// Knows the order in which a whole job reads its samples, before it is dealt to ranks.
pub trait Shuffle: Send + Sync + Debug {
    /// All places of `epoch`. Costs O(n).
    fn epoch(&self, epoch: Epoch) -> Vec<SampleIndex>;
    /// How many places an epoch has.
    fn len(&self) -> u32;
    /// Whether it has none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A [`Shuffle`] dealt to ranks: what most loaders are.
#[derive(Clone, Debug)]
pub struct Dealt {
    pub shuffle: Arc<dyn Shuffle>,
    /// Sample behind each number that the shuffle yields; `None`: the number itself.
    pub subset: Option<Arc<[SampleIndex]>>,
    pub shard: Shard,
}

impl Sampler for Dealt {
    fn order(&self, epoch: Epoch) -> EpochOrder {
        let whole = self.shuffle.epoch(epoch);
        let n = self.shuffle.len();
        match &self.subset {
            None => self.shard.deal(n, |place| whole[place]),
            Some(subset) => self.shard.deal(n, |place| subset[whole[place] as usize]),
        }
    }

    fn len(&self) -> u64 {
        self.shard.len(self.shuffle.len())
    }
}
