//! What several integration tests need.

pub(crate) mod bucket;
pub(crate) mod mount;
