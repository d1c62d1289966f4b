//! The retention key: which of two files is worth its room more.

use super::next_use::Round;
use crate::types::FileIndex;

/// Retention key: the largest goes first. Round of next use, size, hash of the file. (Clairvoyance §3.3, "sticky Bélády".)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    round: Round,
    size: u64,
    hash: u32,
    file: u32,
}

impl Key {
    pub(crate) fn new(file: FileIndex, round: Round, size: u64) -> Self {
        Self { round, size, hash: spread(file.0), file: file.0 }
    }
    pub(crate) const fn round(&self) -> Round {
        self.round
    }
    pub(crate) const fn size(&self) -> u64 {
        self.size
    }
    pub(crate) const fn file(&self) -> FileIndex {
        FileIndex(self.file)
    }
}

/// A fixed mixer (the finalizer of MurmurHash3): ties between equal sizes must not follow the listing, or whole directories go together.
const fn spread(x: u32) -> u32 {
    let x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
    let x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sooner_use_comes_first_then_the_smaller_file() {
        let key = |file: u32, round, size| Key::new(FileIndex(file), round, size);
        assert!(key(1, 2, 900) < key(2, 3, 1));
        assert!(key(2, 3, 1) < key(1, 3, 900));
        assert_ne!(key(1, 3, 1).cmp(&key(2, 3, 1)), std::cmp::Ordering::Equal);
    }
}
