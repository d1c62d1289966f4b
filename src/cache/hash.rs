//! Names of cached versions. A name is the 128-bit hash of key and version; a second, independent hash is kept with the file so that a file
//! of another version is never taken for this one. No I/O.

use std::fmt;

use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

use crate::types::ObjectId;

/// Seed of the second hash. Any value but 0 makes it independent of the first.
const PROOF_SEED: u64 = 0x6265_6c61_6479; // "belady"

/// The name of one object version in every tier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileHash(pub u128);

impl fmt::Display for FileHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for FileHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FileHash {
    /// The hash a file name stands for; `None` for any name this cache would not have written.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let lower_hex = name.len() == 32 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if lower_hex { u128::from_str_radix(name, 16).ok().map(Self) } else { None }
    }

    /// Sixty-four well mixed bits, for shards and samples.
    #[must_use]
    pub(super) fn low(self) -> u64 {
        (self.0 & u128::from(u64::MAX)) as u64
    }
}

/// Key NUL etag: no key holds a NUL (the namespace hides such keys), so two identities never give one text.
fn text(id: &ObjectId) -> Vec<u8> {
    let mut text = Vec::with_capacity(id.key.len() + 1 + id.etag.len());
    text.extend_from_slice(id.key.as_bytes());
    text.push(0);
    text.extend_from_slice(id.etag.as_bytes());
    text
}

/// The name of this version.
#[must_use]
pub fn hash_of(id: &ObjectId) -> FileHash {
    FileHash(xxh3_128(&text(id)))
}

/// The second hash of this version, kept beside the file.
#[must_use]
pub(super) fn proof_of(id: &ObjectId) -> u64 {
    xxh3_64_with_seed(&text(id), PROOF_SEED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(key: &str, etag: &str) -> ObjectId {
        ObjectId { key: key.into(), etag: etag.into() }
    }

    #[test]
    fn names_are_stable_across_releases() {
        // A change here makes every existing cache directory worthless: it needs a new format stamp.
        let id = id("train/n01440764/n01440764_10026.JPEG", "\"d41d8cd98f00b204e9800998ecf8427e\"");
        assert_eq!(hash_of(&id).to_string(), "9d4b28b0fc4469e672c823a23c5933ba");
        assert_eq!(format!("{:016x}", proof_of(&id)), "5cf0aa2de6e8718b");
    }

    #[test]
    fn key_and_etag_do_not_run_together() {
        assert_ne!(hash_of(&id("ab", "c")), hash_of(&id("a", "bc")));
        assert_ne!(proof_of(&id("ab", "c")), proof_of(&id("a", "bc")));
    }

    #[test]
    fn only_our_own_names_are_read_back() {
        let hash = hash_of(&id("a", "b"));
        assert_eq!(FileHash::from_name(&hash.to_string()), Some(hash));
        for name in ["", ".t-1", "belady.lock", &"f".repeat(31), &"F".repeat(32), &"+".repeat(32), &"f".repeat(33)] {
            assert_eq!(FileHash::from_name(name), None, "{name}");
        }
    }
}
