//! The integration tests: one binary, because linking is what they cost. `tests/README.md` says what lives where.

#[path = "../support/mod.rs"]
mod support;

mod ais;
mod ais_batches;
mod ais_fake;
mod ais_official;
mod auto;
mod bad_input;
mod cache;
mod campaign;
mod configs;
mod demo;
mod front;
mod golden;
mod infer;
mod kept;
mod layering;
mod mount;
mod observe;
mod pressure;
mod promises;
mod ranks;
mod real_orders;
mod resumed;
mod s3_contract;
mod sequences;
mod server;
mod stats_schema;
mod store_contract;
mod torch;
