//! Inode numbers that stay the same across remounts: a hash of the path, and the table that leads back.
//!
//! Numbers have the top bit clear (those with it set are for files that no key backs) and are never 0 (none) or 1 (the root). Two
//! paths with one hash get different numbers; which of them keeps the hash depends only on the set of paths.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Inode number of the mount's root.
pub const ROOT_INO: u64 = 1;

/// Numbers below this one may be given to paths.
const INO_END: u64 = 1 << 63;

/// No node in this slot.
const FREE: u32 = u32::MAX;

/// Number → node, open addressing with linear probing: two cache lines a lookup and 8 to 16 bytes a node. The numbers themselves are
/// kept by node, not here.
#[derive(Debug)]
pub(crate) struct InodeTable {
    slots: Vec<u32>,
}

impl InodeTable {
    /// A table for at most `nodes` nodes.
    pub(crate) fn with_capacity(nodes: usize) -> Self {
        Self { slots: vec![FREE; (nodes * 2).next_power_of_two()] }
    }

    /// Gives `node` a number: the hash of its path, or the next seed's where that is taken.
    pub(crate) fn assign(&mut self, path: &str, node: u32, number_of: impl Fn(u32) -> u64) -> u64 {
        self.assign_by(|seed| xxh3_64_with_seed(path.as_bytes(), seed), node, number_of)
    }

    fn assign_by(&mut self, hash: impl Fn(u64) -> u64, node: u32, number_of: impl Fn(u32) -> u64) -> u64 {
        let mut seed = 0;
        loop {
            let ino = hash(seed) % INO_END;
            if ino > ROOT_INO {
                let (slot, taken) = self.probe(ino, &number_of);
                if !taken {
                    self.slots[slot] = node;
                    return ino;
                }
            }
            seed += 1;
        }
    }

    /// The node with this number.
    pub(crate) fn find(&self, ino: u64, number_of: impl Fn(u32) -> u64) -> Option<u32> {
        let (slot, taken) = self.probe(ino, &number_of);
        taken.then(|| self.slots[slot])
    }

    /// The slot that holds the number, or the free one where it would be put. Half of the slots are free, so the search ends.
    fn probe(&self, ino: u64, number_of: &impl Fn(u32) -> u64) -> (usize, bool) {
        let mask = self.slots.len() - 1;
        // The numbers are hashes: any of their bits will do.
        let mut slot = usize::try_from(ino % self.slots.len() as u64).expect("below the length of a vector");
        while self.slots[slot] != FREE {
            if number_of(self.slots[slot]) == ino {
                return (slot, true);
            }
            slot = (slot + 1) & mask;
        }
        (slot, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every path hashes to the forbidden numbers first and then to few values, so that every rule is needed.
    #[test]
    fn collisions_get_different_numbers() {
        let mut table = InodeTable::with_capacity(40);
        let mut numbers = Vec::new();
        for node in 0..40u32 {
            let ino = table.assign_by(|seed| seed + u64::from(node % 3), node, |n: u32| numbers[n as usize]);
            assert!((2..INO_END).contains(&ino));
            assert!(!numbers.contains(&ino));
            numbers.push(ino);
        }
        for (node, &ino) in (0u32..).zip(&numbers) {
            assert_eq!(table.find(ino, |n| numbers[n as usize]), Some(node));
        }
        for absent in [0, 1, 1000, u64::MAX] {
            assert_eq!(table.find(absent, |n| numbers[n as usize]), None);
        }
    }

    #[test]
    fn an_empty_table_finds_nothing() {
        assert_eq!(InodeTable::with_capacity(0).find(5, |_| 5), None);
    }

    /// The numbers are part of what users see (NFS handles, rsync): a change of the hash would show.
    #[test]
    fn numbers_stay_the_same() {
        let mut table = InodeTable::with_capacity(1);
        assert_eq!(table.assign("train/n01440764/n01440764_18.JPEG", 0, |_| 0), 8_592_186_171_620_280_624);
    }
}
