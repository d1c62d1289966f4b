//! WebDataset's order of shards: dealt to nodes, then to loader workers, then shuffled through a buffer by Python's generator.
//!
//! `split_by_node` (rank::world), `split_by_worker` (worker::workers), `shuffle(bufsize, initial, seed)` and `detshuffle`: source
//! `webdataset/shardlists.py`, `filters.py`. A place here is a shard; each worker is a stream of its own, and they advance together.
//!
//! Its seed is the one given to `WebDataset`, or `WDS_SEED` (a text), or (from 0.3 on) `random.randint(0, 1000000)`.
//!
//! Not here: the shuffle of samples within open shards, `resampled=True` (seeded with process id and time).

use crate::order::python::{Random, Seed};
use crate::order::{EpochOrder, Sampler};
use crate::types::{Epoch, Rank, SampleIndex};

/// The buffer that items pass through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Buffer {
    /// `bufsize`.
    pub size: u32,
    /// `initial`: items gathered before the first one is given.
    pub initial: u32,
}

/// `shuffle(bufsize, initial, seed)` of `items`.
#[must_use]
pub fn buffered(items: impl IntoIterator<Item = SampleIndex>, buffer: Buffer, random: &mut Random) -> Vec<SampleIndex> {
    let choices = |held: &[SampleIndex]| u32::try_from(held.len()).expect("no more items than samples, whose number is a u32");
    through(items, buffer, |held| Some(random.below(choices(held)) as usize))
}

/// The draws by which the front of what a buffer gives of `items` is `given`: each as the greatest possible and the drawn number. None: no draws
/// give that.
#[must_use]
pub fn draws(items: impl IntoIterator<Item = SampleIndex>, buffer: Buffer, given: &[SampleIndex]) -> Option<Vec<(u32, u32)>> {
    let mut draws = Vec::with_capacity(given.len());
    let mut left = given.iter();
    through(items, buffer, |held| {
        let wanted = left.next()?;
        let place = held.iter().position(|item| item == wanted)?;
        draws.push((u32::try_from(held.len() - 1).ok()?, u32::try_from(place).ok()?));
        Some(place)
    });
    (draws.len() == given.len()).then_some(draws)
}

/// Items through a buffer, which grows by two for each item given, up to its size; until there is no pick.
fn through(
    items: impl IntoIterator<Item = SampleIndex>,
    buffer: Buffer,
    mut pick: impl FnMut(&[SampleIndex]) -> Option<usize>,
) -> Vec<SampleIndex> {
    let initial = buffer.initial.min(buffer.size) as usize;
    let (mut items, mut held, mut given) = (items.into_iter(), Vec::new(), Vec::new());
    let mut give = |held: &mut Vec<SampleIndex>| {
        let picked = pick(held).map(|place| given.push(held.swap_remove(place)));
        picked.is_some()
    };
    while let Some(item) = items.next() {
        held.push(item);
        if held.len() < buffer.size as usize {
            held.extend(items.next());
        }
        if held.len() >= initial && !give(&mut held) {
            return given;
        }
    }
    while !held.is_empty() && give(&mut held) {}
    given
}

/// The shards of one job.
#[derive(Clone, Debug)]
pub struct Shards {
    /// Shards of the dataset.
    pub n: u32,
    pub seed: Seed,
    pub buffer: Buffer,
    /// `detshuffle`: seed + epoch. Otherwise every epoch is the first.
    pub det: bool,
    /// Processes of the job and those on this node.
    pub world: u32,
    pub ranks: Vec<Rank>,
    /// `DataLoader(num_workers=…)` of each rank, 1 for none.
    pub workers: u32,
}

impl Sampler for Shards {
    fn order(&self, epoch: Epoch) -> EpochOrder {
        let seed = if self.det { self.seed.plus(epoch) } else { self.seed.clone() };
        let stream = |rank: Rank, worker: u32| {
            let mine = (rank..self.n).step_by(self.world as usize).skip(worker as usize).step_by(self.workers as usize);
            buffered(mine, self.buffer, &mut Random::of(&seed))
        };
        // The first worker of each rank has the most shards: streams that are longer come first, as `merged` wants them.
        let streams: Vec<_> = (0..self.workers).flat_map(|worker| self.ranks.iter().map(move |&rank| (rank, worker))).collect();
        let streams: Vec<_> = streams.into_iter().map(|(rank, worker)| stream(rank, worker)).collect();
        EpochOrder { places: merged(&streams), stride: u32::try_from(streams.len()).expect("ranks times workers") }
    }

    fn len(&self) -> u64 {
        self.ranks.iter().map(|&rank| u64::from(self.n.saturating_sub(rank).div_ceil(self.world))).sum()
    }
}

/// Streams step by step; where they are not equally long, the longer ones go on.
fn merged(streams: &[Vec<SampleIndex>]) -> Vec<SampleIndex> {
    let longest = streams.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|step| streams.iter().filter_map(move |stream| stream.get(step).copied())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shard_is_read_once_by_somebody() {
        let buffer = Buffer { size: 5, initial: 3 };
        let all = Shards { n: 23, seed: Seed::Number(1), buffer, det: true, world: 3, ranks: vec![0, 1, 2], workers: 2 };
        let mut places = all.order(4).places;
        assert_eq!((places.len() as u64, all.order(4).stride), (all.len(), 6));
        assert_ne!(places, all.order(5).places);
        places.sort_unstable();
        assert!(places.into_iter().eq(0..23));
        let one = Shards { ranks: vec![1], workers: 1, det: false, ..all };
        assert_eq!(one.order(0), one.order(7));
        assert!(one.order(0).places.iter().all(|place| place % 3 == 1));
        assert_eq!(one.len(), 8);
    }
}
