//! Orders that nobody declared: found in what readers open, proved, and given to the planner. Pure: no I/O, no clock, no threads.
//!
//! [`Engine`] is the planner and [`Inference`] as one state machine. `inference` tells readers apart, `segment` remembers the front and the last
//! opens of each pass, `group` decides which rung of the ladder is due, `cost` whether it is paid for and `walks` whether it makes sense. `job` is
//! a search (run elsewhere), `rungs` what it tries, `maps` the numberings it tries it in, `proof` says whether an order explains the opens and
//! `batches` to whom batches are dealt, `doubles` who reads what another reads. `kept` is what is remembered across runs, `roots` which part of the dataset a file belongs to, `torch`
//! the dictionary of torch's seeds, `strides` how its default generator may go on, `ways` how any order may, `told` what environments say; `verify` does it all
//! offline.
//!
//! Right or silent: nothing is followed that is not proved by a likelihood ratio of 10^6 times the orders tried, in order along each stream.
//!
//! Not here: who the readers are (`observe`), the exhaustive searches (`order/infer`), belief while an order is followed (`plan`).

mod again;
mod batches;
mod cost;
mod doubles;
mod engine;
mod group;
mod inference;
mod job;
mod kept;
mod maps;
mod proof;
#[cfg(test)]
mod resume_tests;
mod roots;
mod rungs;
mod segment;
mod sequential;
#[cfg(test)]
mod strays_tests;
mod strides;
#[cfg(test)]
mod sweep_tests;
mod told;
mod torch;
pub mod verify;
#[cfg(test)]
mod walk_tests;
mod walks;
mod ways;

pub use engine::{Engine, Followed};
pub use inference::{InferConfig, Inference, Proposal};
pub use job::{Clue, Found, Job, JobResult, Rung};
pub use kept::{Kept, Memo, PASSES_MAX};
pub use told::Told;
