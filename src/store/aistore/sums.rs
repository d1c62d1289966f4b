//! The cluster's own checksums of cloud objects, as far as listings and answers have told them: what a batch's bytes are checked against where the
//! identity is the cloud's ETag. (It can't be the identity itself: it is known only once the object is in the cluster.)
//!
//! Two 64-bit numbers per object. The first stands for key and ETag; should two collide, a right body is taken for a wrong one and read again.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use xxhash_rust::xxh3::Xxh3;

use super::checksum::{Kind, Verifier};
use crate::types::ObjectId;

/// About 50 MiB; objects beyond it are read singly.
const OBJECTS_MAX: usize = 2 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Sums(RwLock<HashMap<u64, u64>>);

fn place(id: &ObjectId) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(id.key.as_bytes());
    hash.update(b"\0");
    hash.update(id.etag.as_bytes());
    hash.digest()
}

impl Sums {
    /// Takes the checksum (a value of any kind; only xxhash2 is kept) that was told together with this identity.
    pub(super) fn learn(&self, id: &ObjectId, checksum: &str) {
        let value = u64::from_str_radix(checksum, 16).ok().filter(|_| checksum.len() == Kind::Xxhash2.length());
        let Some(value) = value else { return };
        let mut sums = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if sums.len() < OBJECTS_MAX {
            sums.insert(place(id), value);
        }
    }

    /// How the bytes of this version are checked, if that was told.
    pub(super) fn verifier(&self, id: &ObjectId) -> Option<Verifier> {
        let sums = self.0.read().unwrap_or_else(PoisonError::into_inner);
        sums.get(&place(id)).map(|value| Verifier::new(Kind::Xxhash2, &format!("{value:016x}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_belongs_to_one_version_and_only_our_kind_is_kept() {
        let id = |etag: &str| ObjectId { key: "k".into(), etag: etag.into() };
        let sums = Sums::default();
        sums.learn(&id("etag:1"), "00bc2cf5ad770999");
        sums.learn(&id("etag:2"), "900150983cd24fb0d6963f7d28e17f72");
        sums.learn(&id("etag:3"), "no hexadecimal!!");
        let wanted = format!("{:?}", sums.verifier(&id("etag:1")).expect("told"));
        assert!(wanted.contains("00bc2cf5ad770999"), "{wanted}");
        assert!(sums.verifier(&id("etag:2")).is_none() && sums.verifier(&id("etag:3")).is_none());
    }
}
