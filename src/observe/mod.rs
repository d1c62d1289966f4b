//! Who reads: from the thread ids that FUSE gives to streams, rank processes and jobs; what their environment says; logs of opens; the
//! recorded orders of earlier epochs.
//!
//! - `process`: what `/proc` says of a thread, read once per thread, off the async threads ([`process::peek`]). What cannot be read is unknown.
//! - `ranked`: the numbers of ranks in a command line, pure.
//! - `readers`: grouping, pure ([`readers::Readers`]).
//! - `hints`: the environment's allow-list and the cgroup, pure ([`hints::Hints`]).
//! - `log`: parsing logs of opens, `log_root`: which of them are samples; `record`: writing one (`--record-opens`).
//! - `recorded`: orders kept beside the cache.
//! - `watch`: all of it for the planner's task: asks `/proc` on a thread of its own, keeps readers and hints.
//!
//! Not here: which order it is (`order::infer`), which file is which sample (`dataset::maps`).

pub mod hints;
pub mod log;
pub mod log_root;
pub mod process;
mod ranked;
pub mod readers;
pub mod record;
pub mod recorded;
pub mod watch;
