//! Streams of workers put back in order: which of them is whose, and how large a batch is, are supposed.
//!
//! Source: field notes «orders» §4: batch b goes to worker b mod W, and each worker reads its batches one after the other. A supposition is a batch
//! size and a sequence of the workers; what tells them apart is `linear`'s business.
//!
//! Not here: lost opens (no order without a gap can be made of the rest), and ranks of a distributed run.

use super::meet::BATCHES;
use super::needed::LINEAR_PLACES;
use crate::types::SampleIndex;

/// Places of a supposed order: what the search needs, and a few to refute what is wrong.
const PLACES: usize = LINEAR_PLACES + 512;
/// Up to so many workers every sequence of them is supposed; of more that they began in order, or that two neighbours changed places.
const ALL_SEQUENCES: usize = 4;
/// More workers than one process has: threads of a pool, which no turns explain.
const WORKERS_MAX: usize = 64;
/// A stream of less is no worker's: a probe, another program.
const OPENS_LEAST: usize = 64;

/// What may have been the order.
#[derive(Clone, Debug)]
pub struct Turns {
    streams: Vec<Vec<SampleIndex>>,
    /// Sequence of the streams, batch size, and samples that one process opened before the first (a probe).
    supposed: Vec<(Vec<usize>, usize, usize)>,
}

impl Turns {
    /// Suppositions that leave enough places without a gap; none if there are none. Streams are in the sequence in which they appeared.
    #[must_use]
    pub fn new(streams: Vec<Vec<SampleIndex>>) -> Self {
        let streams: Vec<_> = streams.into_iter().filter(|stream| stream.len() >= OPENS_LEAST).collect();
        let mut turns = Self { streams, supposed: Vec::new() };
        match turns.streams.len() {
            1 => turns.supposed = (0..3).map(|before| (vec![0], 1, before)).collect(),
            workers @ 2..=WORKERS_MAX => {
                for sequence in sequences(workers) {
                    turns.supposed.extend(BATCHES.map(|batch| (sequence.clone(), batch as usize, 0)));
                }
            }
            _ => {}
        }
        let enough: Vec<_> = turns.supposed.iter().filter(|supposed| turns.places(supposed) >= LINEAR_PLACES).cloned().collect();
        Self { supposed: enough, ..turns }
    }

    #[must_use]
    pub const fn len(&self) -> usize {
        self.supposed.len()
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.supposed.is_empty()
    }

    /// The front under a supposition.
    ///
    /// # Panics
    /// When there is no such one.
    #[must_use]
    pub fn order(&self, which: usize) -> Vec<SampleIndex> {
        let supposed = &self.supposed[which];
        (0..self.places(supposed)).filter_map(|place| self.at(supposed, place)).collect()
    }

    fn at(&self, (sequence, batch, before): &(Vec<usize>, usize, usize), place: usize) -> Option<SampleIndex> {
        let number = place / batch;
        let worker = sequence[number % sequence.len()];
        self.streams[worker].get(before + number / sequence.len() * batch + place % batch).copied()
    }

    /// Places without a gap.
    fn places(&self, (sequence, batch, before): &(Vec<usize>, usize, usize)) -> usize {
        let ends = sequence.iter().enumerate().map(|(turn, &worker)| {
            let opens = self.streams[worker].len() - before.min(&self.streams[worker].len());
            (opens / batch * sequence.len() + turn) * batch + opens % batch
        });
        ends.min().unwrap_or(0).min(PLACES)
    }
}

/// Sequences of so many workers, the likeliest first.
fn sequences(workers: usize) -> Vec<Vec<usize>> {
    let in_order: Vec<usize> = (0..workers).collect();
    if workers > ALL_SEQUENCES {
        let exchanged = (1..workers).map(|at| {
            let mut sequence = in_order.clone();
            sequence.swap(at - 1, at);
            sequence
        });
        return std::iter::once(in_order.clone()).chain(exchanged).collect();
    }
    let mut all = vec![Vec::new()];
    for _ in 0..workers {
        let longer = |sequence: &Vec<usize>| {
            let left = in_order.iter().filter(|worker| !sequence.contains(worker));
            left.map(|&worker| sequence.iter().copied().chain([worker]).collect()).collect::<Vec<Vec<usize>>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: u32 = 24_000;

    fn dealt(batch: usize, workers: &[usize]) -> Vec<Vec<SampleIndex>> {
        let order: Vec<SampleIndex> = (0..N).collect();
        let of = |&worker: &usize| order.chunks(batch).skip(worker).step_by(workers.len()).flatten().copied().collect();
        workers.iter().map(of).collect()
    }

    #[test]
    fn the_right_order_is_among_those_supposed() {
        for (batch, workers) in [(64, &[0][..]), (64, &[1, 0]), (96, &[3, 1, 0, 2]), (256, &[0, 1, 2, 4, 3, 5, 6, 7])] {
            let turns = Turns::new(dealt(batch, workers));
            assert!(!turns.is_empty() && turns.len() <= 28 * 24, "{}", turns.len());
            let right = (0..turns.len()).filter(|&which| turns.order(which).iter().copied().eq(0..PLACES as u32)).count();
            assert_eq!(right, 1, "{batch} {workers:?}");
        }
    }

    #[test]
    fn a_probe_is_left_out_and_a_gap_ends_the_order() {
        let mut streams = dealt(64, &[0, 1]);
        streams.insert(0, vec![7; 2]);
        assert!((0..Turns::new(streams.clone()).len()).any(|which| Turns::new(streams.clone()).order(which)[200] == 200));
        let mut one = dealt(1, &[0]);
        one[0].insert(0, 5);
        assert_eq!(Turns::new(one).order(1)[..3], [0, 1, 2]);
        // one worker is far behind: its next batch is the gap
        streams[2].truncate(64 * 150);
        assert!((0..Turns::new(streams.clone()).len()).all(|which| turns_batch(&streams, which) != 64));
        streams[2].truncate(64 * 100);
        assert!(Turns::new(streams).is_empty());
    }

    fn turns_batch(streams: &[Vec<SampleIndex>], which: usize) -> usize {
        Turns::new(streams.to_vec()).supposed[which].1
    }

    #[test]
    fn a_pool_of_threads_has_no_turns() {
        assert!(Turns::new(vec![(0..400).collect(); 100]).is_empty());
        assert!(Turns::new(Vec::new()).is_empty());
    }
}
