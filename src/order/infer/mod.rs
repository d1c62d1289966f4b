//! Inference: which order readers follow, worked out from what they open. Pure: no I/O, no clock, no threads of its own; long searches are
//! functions that a caller runs where it likes and stops through [`Control`].
//!
//! Source of all algorithms: field notes «orders» §3–6 (torch's `aten/src/ATen/native/TensorFactories.cpp`, `ATen/core/MT19937RNGEngine.h`).
//!
//! Not here: which sample is which file (`dataset`), who the readers are (`observe`), whether a hypothesis is believed (`plan/belief`).

use std::sync::atomic::{AtomicBool, Ordering};

use crate::types::SampleIndex;

pub mod backward;
pub mod default_generator;
pub mod dictionary;
pub mod exhaustive;
pub mod fit;
pub mod lanes;
pub mod linear;
pub mod meet;
pub mod needed;
pub mod numbers;
pub mod outputs;
pub mod replay;
pub mod rewind;
mod sieve;
pub mod target;
pub mod turns;
mod words;

#[cfg(test)]
mod tests;

/// What readers opened, as sample indices of one candidate map. What was set aside (probes, other jobs' files) is not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sighting {
    /// Samples of the map.
    pub n: u32,
    /// Each open in the order it came: its stream and its sample. Streams are numbered from 0 as they appear: one per reading process
    /// or thread, each of which reads in order.
    pub opens: Vec<(u32, SampleIndex)>,
    /// Whether streams are known. Otherwise (process ids 0, pools of threads) all opens have stream 0 and come roughly in order only.
    pub streams_known: bool,
}

/// How a long search is run and stopped.
#[derive(Clone, Copy, Debug)]
pub struct Control<'a> {
    /// Set by anybody: the search ends soon, with what it has.
    pub stop: &'a AtomicBool,
    /// Threads it may use, ≥ 1.
    pub threads: usize,
}

impl Control<'_> {
    /// Whether to end now. Cheap enough for every few thousand seeds.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Runs `work` on each of the threads, this one among them, until all are done. They share out the work themselves.
    fn on_all_threads(&self, work: impl Fn() + Copy + Send) {
        std::thread::scope(|scope| {
            for _ in 1..self.threads {
                scope.spawn(work);
            }
            work();
        });
    }
}
