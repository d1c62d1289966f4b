//! What the integration tests share.

pub(crate) mod ais;
pub(crate) mod ais_http;
pub(crate) mod belady;
pub(crate) mod bucket;
pub(crate) mod campaign;
pub(crate) mod mount;
pub(crate) mod opens;
pub(crate) mod sha256;
