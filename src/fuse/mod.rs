//! The kernel's side: the only place that says `fuser`. Mounts, translates requests into calls of `fs`, and keeps what only the kernel cares
//! about: open modes, passthrough, invalidation.
//!
//! It promises: session threads never wait; nothing is told to the kernel from a session thread or under a lock; a mount that answers is ready
//! when [`mount`] returns; whoever drops [`Mounted`] unmounts.

mod adapter;
mod error;
mod invalidate;
mod kernel;
mod mounted;
mod mountpoint;
mod open_mode;

pub use error::MountError;
pub use invalidate::Invalidator;
pub use kernel::Feature;
pub use mounted::{MountConfig, Mounted, default_threads, mount};
pub use mountpoint::{Unmount, unmount};
