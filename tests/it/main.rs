//! The integration tests: one binary, because linking is what they cost.

mod store_contract;
