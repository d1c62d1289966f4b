//! When is a file used next? One bit per file and round, so the answer is one rotate and one count of zeros.
//!
//! A *round* is one pass of an order through an epoch, numbered on without gaps over epochs; the rounds of all orders of a mount are
//! aligned when an order is locked, so that keys compare. A bit means "a use of this file in this round is still to come". Eight bytes a
//! file hold 64 rounds, which is further than any capacity below 80 % needs at 64 nodes (field: clairvoyance §3.2).

use crate::types::FileIndex;

/// Number of a pass; grows by one per pass.
pub(crate) type Round = u32;

/// Key round of a file whose next use is not known: the first to go.
pub(crate) const FAR: Round = Round::MAX;

/// Rounds that fit.
pub(crate) const HORIZON: u32 = 64;

/// Next uses of one order.
#[derive(Debug)]
pub(crate) struct NextUse {
    masks: Vec<u64>,
    /// Rounds `first..end` may have bits.
    first: Round,
    end: Round,
}

impl NextUse {
    pub(crate) fn new(files: usize) -> Self {
        Self { masks: vec![0; files], first: 0, end: 0 }
    }

    /// Forgets everything and begins at `round`.
    pub(crate) fn reset(&mut self, round: Round) {
        self.masks.fill(0);
        self.first = round;
        self.end = round;
    }

    /// First round not loaded.
    pub(crate) const fn end(&self) -> Round {
        self.end
    }

    /// Loads the next round, which must be [`Self::end`]; false when the horizon is full.
    pub(crate) fn push(&mut self, files: &[FileIndex]) -> bool {
        if self.end - self.first >= HORIZON {
            return false;
        }
        let bit = 1u64 << (self.end % HORIZON);
        for file in files {
            self.masks[file.at()] |= bit;
        }
        self.end += 1;
        true
    }

    /// Forgets `round` and everything after it.
    pub(crate) fn truncate(&mut self, round: Round) {
        while self.end > round.max(self.first) {
            self.end -= 1;
            self.clear(self.end);
        }
    }

    /// Forgets all rounds before `round`.
    pub(crate) fn drop_before(&mut self, round: Round) {
        while self.first < round && self.first < self.end {
            self.clear(self.first);
            self.first += 1;
        }
        if self.first >= self.end {
            self.first = self.first.max(round);
            self.end = self.end.max(self.first);
        }
    }

    fn clear(&mut self, round: Round) {
        let keep = !(1u64 << (round % HORIZON));
        self.masks.iter_mut().for_each(|mask| *mask &= keep);
    }

    /// The use in `round` has happened, or will not.
    pub(crate) fn take(&mut self, file: FileIndex, round: Round) {
        if (self.first..self.end).contains(&round) {
            self.masks[file.at()] &= !(1u64 << (round % HORIZON));
        }
    }

    /// Round of the next use at or after `from`.
    pub(crate) fn next(&self, file: FileIndex, from: Round) -> Option<Round> {
        let from = from.max(self.first);
        if from >= self.end {
            return None;
        }
        let ahead = self.masks[file.at()].rotate_right(from % HORIZON);
        let gap = ahead.trailing_zeros();
        (gap < self.end - from).then(|| from + gap)
    }
}

/// How many epochs must be known ahead so that a cache of fraction `c` of the data, on one of `w` nodes, can be filled by next use:
/// the first k with c_k = 1 − (1 + k/w)·(1 − 1/w)^k ≥ c, and one more (field: clairvoyance §3.2 B). One when a node reads everything.
pub(crate) fn epochs_needed(w: f64, c: f64) -> u32 {
    if w < 1.05 {
        return 1;
    }
    let q = 1.0 - 1.0 / w;
    let mut power = 1.0;
    for k in 0..HORIZON - 4 {
        if 1.0 - (1.0 + f64::from(k) / w) * power >= c {
            return k + 1;
        }
        power *= q;
    }
    HORIZON - 4 // two passes and the successor live beside it
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[u32]) -> Vec<FileIndex> {
        list.iter().map(|&f| FileIndex(f)).collect()
    }

    #[test]
    fn next_is_the_first_round_with_a_use_to_come() {
        let mut uses = NextUse::new(4);
        uses.reset(60);
        for round in 60..70 {
            assert!(uses.push(&files(if round % 3 == 0 { &[0, 1] } else { &[1] })));
        }
        assert_eq!(uses.next(FileIndex(0), 0), Some(60));
        uses.take(FileIndex(0), 60);
        assert_eq!(uses.next(FileIndex(0), 60), Some(63));
        assert_eq!(uses.next(FileIndex(0), 64), Some(66));
        assert_eq!(uses.next(FileIndex(2), 60), None);
        uses.truncate(63);
        assert_eq!(uses.next(FileIndex(0), 60), None);
        uses.drop_before(62);
        assert_eq!(uses.next(FileIndex(1), 0), Some(62));
        uses.drop_before(200);
        assert_eq!((uses.next(FileIndex(1), 0), uses.end()), (None, 200));
    }

    #[test]
    fn the_horizon_is_bounded() {
        let mut uses = NextUse::new(1);
        uses.reset(5);
        assert_eq!((0..100).filter(|_| uses.push(&files(&[0]))).count(), 64);
    }

    #[test]
    fn epochs_needed_agree_with_the_table_of_the_field_notes() {
        for (w, c, k) in [(16.0, 0.05, 6), (16.0, 0.2, 13), (16.0, 0.5, 26), (4.0, 0.1, 2), (4.0, 0.5, 6), (1.0, 0.5, 0)] {
            assert_eq!(epochs_needed(w, c), k + 1, "w={w} c={c}");
        }
    }
}
