//! The integration tests, one binary (one link).

mod configs;
mod front;
mod layering;
