//! belady: a bucket mounted as a read-only directory that knows in which order a training run will read it.
//! `src/README.md` is the map; the modules stand here in reading order, lowest layer first.

pub mod types;

pub mod dataset;
pub mod order;
pub mod plan;

pub mod infer;

pub mod stats;

pub mod observe;
pub mod store;

pub mod cache;
pub mod fetch;
pub mod prefetch;

pub mod control;
pub mod fs;
pub mod fuse;

pub mod commands;
pub mod config;
pub mod daemon;
pub mod daemonize;
pub mod demo;
pub mod logging;
