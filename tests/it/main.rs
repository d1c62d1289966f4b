//! Integration tests, one binary: each module is one part seen from outside.

mod server;
