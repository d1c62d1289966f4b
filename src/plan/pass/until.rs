//! Where prefetch is in a pass, and how many opens come before a place is read: a loader's open batches lie apart, and what lies between may have
//! been opened.

use super::Pass;
use crate::types::FileIndex;

impl Pass {
    /// Prefetch has gone past a place of this file that is still to be read: it took it for granted that the file is here.
    pub(crate) fn counts_on(&self, file: FileIndex) -> bool {
        let passed = self.front()..self.scan;
        self.index.places(file).iter().any(|place| passed.contains(place) && !self.is_opened(*place))
    }

    /// Prefetch looks at no place before the front. What it leapt over is looked at when the front comes back: one open in reach of a pass that has
    /// not begun (`dataset[0]`) is no reader.
    pub(crate) fn scan_from(&mut self, front: u32) {
        if let Some((from, to)) = self.leapt
            && front < to
        {
            self.beyond = self.beyond.max(self.scan);
            self.scan = self.scan.min(from.max(front));
            self.leapt = Some((from, front)).filter(|&(from, front)| from < front);
        }
        if self.scan < front {
            let from = self.leapt.map_or(self.scan, |(from, _)| from);
            (self.leapt, self.scan) = (Some((from, front)), front);
        }
    }

    /// The furthest place that prefetch came to before it went back, if it lies beyond where it is now: what is nearer needs its room.
    pub(crate) fn pop_beyond(&mut self) -> Option<u32> {
        while self.beyond > self.scan + 1 {
            self.beyond -= 1;
            if !self.is_opened(self.beyond) {
                return Some(self.beyond);
            }
        }
        None
    }

    /// Places from the front to before `place` that are not opened: so many opens come before it is read.
    pub(crate) fn opens_until(&self, place: u32) -> u32 {
        place.saturating_sub(self.front) - self.opened_between(self.front, place.min(self.high))
    }

    /// Opened places of `from..to`: by words, for loaders of a node may be thousands of places apart, and this is asked with every event.
    fn opened_between(&self, from: u32, to: u32) -> u32 {
        if from >= to {
            return 0;
        }
        let (first, last) = (from / 64, (to - 1) / 64);
        let word = |at: u32| {
            let mut word = self.opened[at as usize];
            if at == first {
                word &= u64::MAX << (from % 64);
            }
            if at == last {
                word &= u64::MAX >> (63 - (to - 1) % 64);
            }
            word.count_ones()
        };
        (first..=last).map(word).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{EpochFiles, EpochIndex, Expected, Pass};
    use crate::types::FileIndex;

    #[test]
    fn opened_places_are_left_out() {
        let order = EpochFiles { files: (0..300).map(FileIndex).collect(), stride: 1 };
        let mut pass = Pass::new(Arc::new(EpochIndex::new(0, Arc::new(order), &[1; 300])), 0, Some(0));
        let opened = [3, 63, 64, 65, 127, 128, 191, 192, 200, 255];
        for place in opened {
            pass.mark(place, 0, Expected::Next);
        }
        for from in 0..300 {
            for to in [0, 1, from, from + 1, 64, 65, 128, 193, 256, 300].into_iter().filter(|&to| to <= 300) {
                let expected = opened.iter().filter(|&&place| (from..to).contains(&place)).count();
                assert_eq!(pass.opened_between(from, to) as usize, expected, "{from}..{to}");
            }
        }
        let unopened = (pass.front()..270).filter(|&place| !pass.is_opened(place)).count();
        assert_eq!(pass.opens_until(270) as usize, unopened);
        assert_eq!(pass.opens_until(0), 0);
    }

    #[test]
    fn what_was_leapt_over_is_looked_at_however_the_front_comes_back() {
        let order = EpochFiles { files: (0..300).map(FileIndex).collect(), stride: 1 };
        let mut pass = Pass::new(Arc::new(EpochIndex::new(0, Arc::new(order), &[1; 300])), 0, Some(0));
        pass.scan = 20;
        for (front, scan) in [(200, 200), (120, 120), (130, 130), (60, 60), (10, 20)] {
            pass.scan_from(front);
            assert_eq!(pass.scan, scan, "front {front}");
        }
    }
}
