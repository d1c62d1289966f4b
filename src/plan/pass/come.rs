//! Whether the readers of a pass have come: opens that follow one another tell, single ones (`dataset[i]` between two epochs) do not, however many
//! they are. Until then the front stays where reading begins.
//!
//! A running sum of likelihood ratios that never falls below 0 (Page's test): what came before the first reader says nothing against him.

use super::{BEGUN, Pass};

/// ln 10^4: of twenty single reads one in five hundred such groups passes for a reader, at most; of a reader three or four opens tell.
const COME: f64 = 9.210_340_371_976_184;
/// Share of a reader's opens that do not go on from an opened place: workers begin batches, events are lost.
const APART: f64 = 0.25;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Coming {
    sum: f64,
    come: bool,
    /// The last open was the one that began the pass.
    begins: bool,
}

impl Pass {
    /// More than single reads: opens follow one another, or half of it was opened.
    pub(crate) const fn has_come(&self) -> bool {
        self.coming.come
    }

    /// Opened by so many, too, that a loader has begun.
    pub(crate) const fn has_begun(&self) -> bool {
        self.coming.come && self.opened_count >= BEGUN
    }

    /// It has, by the last open.
    pub(crate) const fn begins(&self) -> bool {
        self.coming.begins
    }

    /// Weighs an open before it is marked. `steps`: from the nearest opened place before it.
    pub(super) fn comes(&mut self, steps: Option<u32>) {
        let ratio = steps.map_or(APART, |steps| self.kernel.forward(steps) / f64::from(self.runs.max(1)));
        self.coming.sum = (self.coming.sum + ratio.ln()).clamp(0.0, COME);
    }

    /// After it was marked.
    pub(super) fn has_marked(&mut self, had_begun: bool) {
        self.coming.come |= self.start.is_none() || self.coming.sum >= COME || self.opened_count > self.len() / 2;
        self.coming.begins = !had_begun && self.has_begun();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::super::EpochFiles;
    use super::super::{EpochIndex, Pass};
    use crate::plan::simulate::Dice;
    use crate::types::FileIndex;

    fn pass(n: u32) -> Pass {
        let order = EpochFiles { files: (0..n).map(FileIndex).collect(), stride: 1 };
        Pass::new(Arc::new(EpochIndex::new(0, Arc::new(order), &vec![1; n as usize])), 0, Some(0))
    }

    fn open(pass: &mut Pass, process: u32, place: u32) {
        let sight = pass.sight(FileIndex(place), process);
        pass.mark(place, process, sight.expected());
    }

    #[test]
    fn twenty_single_reads_leave_the_front_where_it_is_and_a_few_opens_in_sequence_move_it() {
        let (mut came, mut late) = (0, 0);
        for seed in 0..1_000 {
            let (mut pass, mut dice) = (pass(1_500), Dice::new(seed * 7_919 + 1));
            for _ in 0..20 {
                open(&mut pass, 1, 100 + u32::try_from((dice.next() >> 33) % 1_400).unwrap());
            }
            if pass.has_come() {
                came += 1;
                continue;
            }
            assert_eq!((pass.front(), pass.has_begun()), (0, false));
            let opens = (500..700).position(|place| {
                open(&mut pass, 1, place);
                pass.has_come()
            });
            late += u32::from(opens.is_none_or(|opens| opens > 16));
            assert!(pass.front() > 0, "{seed}");
        }
        assert!(came <= 2 && late == 0, "{came} came, {late} late");
    }

    #[test]
    fn readers_come_with_their_first_opens_however_many_and_however_few_files_there_are() {
        for (n, workers, batch) in [(1_500, 1, 32), (1_500, 2, 32), (1_500, 16, 32), (100_000, 64, 256), (4, 1, 4), (200, 8, 1)] {
            let mut pass = pass(n);
            let places = (0..batch).flat_map(|at| (0..workers).map(move |worker| (1 + worker, worker * batch + at)));
            let opens = places.filter(|&(_, place)| place < n).take_while(|&(process, place)| {
                open(&mut pass, process, place);
                !pass.has_come()
            });
            let opens = opens.count();
            assert!(pass.has_come() && opens <= 8 + 2 * workers as usize, "{n} {workers} {batch}: {opens}");
        }
    }
}
