//! The demo.
pub mod dataset;
pub mod server;
