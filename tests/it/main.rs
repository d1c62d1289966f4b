//! The integration tests, one binary: each module is one promise of the whole.

#[path = "../support/mod.rs"]
mod support;

mod mount;
