//! The words every layer shares: objects, files, sizes, and the kinds of failure.
//!
//! Nothing here does I/O, and this module uses no other one.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

pub mod rule;

pub use rule::SampleRule;

/// A map of small keys that is asked at every open. Its hash is seeded, but no defence against keys made to collide: for process ids and file
/// numbers, not for names.
pub type QuickMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// One version of one object: what a read must return bytes of, and nothing else.
///
/// `etag` is opaque (quotes included, as the store sent it); empty when the store gives none, and then size and
/// modification time stand in for it (see [`ObjectMeta::version`]).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ObjectId {
    /// Full key in the bucket, prefix included; for `file://` the path below the root.
    pub key: Arc<str>,
    /// Opaque version tag of this object.
    pub etag: Arc<str>,
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}@{}", self.key, self.etag)
    }
}

/// What a listing or a HEAD tells about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Full key in the bucket.
    pub key: Arc<str>,
    /// Length in bytes.
    pub size: u64,
    /// As sent by the store, or empty.
    pub etag: Arc<str>,
    /// Last modification, seconds since 1970 (UTC); 0 when the store does not say.
    pub mtime_seconds: i64,
}

impl ObjectMeta {
    /// The identity under which this version is cached: the ETag, or size and time where there is none.
    #[must_use]
    pub fn version(&self) -> ObjectId {
        let etag = if self.etag.is_empty() { Arc::from(format!("~{}-{}", self.size, self.mtime_seconds)) } else { Arc::clone(&self.etag) };
        ObjectId { key: Arc::clone(&self.key), etag }
    }
}

/// Place of a file in the [`crate::dataset::Manifest`]: dense, 0-based, in byte order of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileIndex(pub u32);

impl FileIndex {
    /// The index for slices.
    #[must_use]
    pub const fn at(self) -> usize {
        self.0 as usize
    }
}

/// Index of a sample in a dataset as the framework numbers it (0-based): what a sampler yields.
pub type SampleIndex = u32;

/// Number of an epoch, 0-based, as given to `set_epoch`.
pub type Epoch = u64;

/// Rank of a process in the job, `0..world_size`.
pub type Rank = u32;

/// A number of bytes that a user wrote or reads: `32GiB`, `800GB`, `512`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ByteSize(pub u64);

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        for (unit, bytes) in UNITS {
            if self.0 >= bytes {
                #[expect(clippy::cast_precision_loss, reason = "a figure for people, one decimal")]
                let value = self.0 as f64 / bytes as f64;
                return if self.0.is_multiple_of(bytes) { write!(f, "{value:.0}{unit}") } else { write!(f, "{value:.1}{unit}") };
            }
        }
        write!(f, "{}B", self.0)
    }
}

/// Why a text is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a size: write bytes or a number with B, KB, MB, GB, TB, KiB, MiB, GiB or TiB, e.g. 32GiB (0 = off)")]
pub struct ByteSizeError {
    text: String,
}

impl FromStr for ByteSize {
    type Err = ByteSizeError;

    fn from_str(text: &str) -> Result<Self, ByteSizeError> {
        let refuse = || ByteSizeError { text: text.to_owned() };
        let trimmed = text.trim();
        let digits_end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits_end);
        let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(refuse()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(Self).ok_or_else(refuse);
        }
        let value: f64 = number.parse().map_err(|_| refuse())?;
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "digits and one dot: finite, not negative; a fraction of a unit need not be exact"
        )]
        let bytes = (value * factor as f64) as u64;
        if number.matches('.').count() != 1 || bytes == u64::MAX { Err(refuse()) } else { Ok(Self(bytes)) }
    }
}

/// How an access found its bytes. Exactly one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Its bytes were here since an earlier epoch or run.
    Retained,
    /// Fetched ahead for this use and complete before it was asked for.
    InTime,
    /// Waited for a fetch that was already in flight.
    Late,
    /// Its own demand started the fetch.
    Miss,
}

/// What readers do, told to the planner. Sent with `try_send` on a bounded queue: when it is full the event is counted and dropped,
/// a read never waits for the planner. It says when, because events gather before they are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadEvent {
    /// A process (pid as FUSE gives it, in truth the thread id; 0 = unknown) opened a file and found its bytes so.
    Opened {
        file: FileIndex,
        process: u32,
        outcome: Outcome,
        at: Instant,
    },
    /// The last handle of a file was closed.
    Released {
        file: FileIndex,
    },
    /// An open or read of this process began to wait for the store, and ended to. Sent in pairs, in the order of the waits.
    WaitBegan {
        process: u32,
        at: Instant,
    },
    WaitEnded {
        process: u32,
        at: Instant,
    },
}

/// The kinds of failure a caller may act on. The errno for each is in `fs/error.rs`, and only there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The object or bucket does not exist.
    NotFound,
    /// The object is another version than the one asked for (HTTP 412, or a size that differs).
    Changed,
    /// Credentials or policy refuse it.
    Denied,
    /// The store asks for a slower pace (429, 503).
    Throttled,
    /// No answer, or no further byte, in time.
    Timeout,
    /// The connection failed or the body ended early.
    Network,
    /// The bytes are not what they should be, or the answer makes no sense.
    Corrupt,
    /// No room within the budget.
    NoSpace,
    /// The request itself is wrong: no retry helps.
    Invalid,
    /// A 5xx, or anything else the store did wrong.
    Server,
    /// A local file or directory failed.
    Io,
    /// The mount is going away.
    Shutdown,
}

impl ErrorKind {
    /// Whether the same request may succeed later (everything that is the network's or the server's mood).
    #[must_use]
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Throttled | Self::Timeout | Self::Network | Self::Server | Self::Corrupt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_users_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("32GiB", 32 << 30),
            ("32gib", 32 << 30),
            ("800GB", 800_000_000_000),
            ("1.5MiB", 3 << 19),
            ("64 KiB", 64 << 10),
        ] {
            assert_eq!(text.parse::<ByteSize>(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "x", "-1", "1XB", "1.2.3GB", "99999999999TiB", "GiB"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_print_so_that_they_parse() {
        for bytes in [0, 1, 1023, 1 << 10, 3 << 29, 32 << 30, 1 << 42] {
            assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
        }
    }
}
