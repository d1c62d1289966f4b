//! MosaicML Streaming's shuffles, bit for bit (0.13): which sample is at which place of an epoch, before it is dealt to nodes.
//!
//! Source: `streaming/base/shuffle/{naive,py1s,py2s,py1br,py1e}.py`. All draw from numpy's `default_rng`: of the seed for what stays the same over
//! a run (which shards a canonical node has), of seed + epoch for the rest. [`Shards`] says in which order shards are first needed,
//! which is what a mount sees: shards are its files.

use crate::order::Shuffle;
use crate::order::again::Library;
use crate::order::pcg64::Pcg64;
use crate::types::{Epoch, SampleIndex};

/// `shuffle_algo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    Naive,
    Py1s,
    Py2s,
    Py1br,
    #[default]
    Py1e,
}

impl Algorithm {
    pub(crate) const ALL: [(&str, Self); 5] =
        [("naive", Self::Naive), ("py1s", Self::Py1s), ("py2s", Self::Py2s), ("py1br", Self::Py1br), ("py1e", Self::Py1e)];
}

/// What `get_shuffle` is told, apart from the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    pub algorithm: Algorithm,
    /// `num_canonical_nodes`, ≥ 1.
    pub nodes: u32,
    /// `shuffle_seed`.
    pub seed: u64,
    /// `shuffle_block_size`, in samples, ≥ 4.
    pub block: u32,
}

impl Config {
    /// `shuffle_seed` where the user gives none.
    pub const SEED: u64 = 9176;
    /// `shuffle_block_size` of the functions; streams choose max(4,000,000 / nodes, 2^18).
    pub const BLOCK: u32 = 1 << 18;
}

/// Consecutive samples of one shard: from, to (excluded).
type Span = (u32, u32);

fn spans(sizes: &[u32]) -> Vec<Span> {
    let begins = sizes.iter().scan(0, |end, &size| {
        *end += size;
        Some((*end - size, *end))
    });
    begins.collect()
}

/// `divide_spans`: the spans in `nodes` parts of equally many samples, cut where a part ends.
fn divided(spans: Vec<Span>, nodes: u32) -> Vec<Vec<Span>> {
    let total: u64 = spans.iter().map(|(from, to)| u64::from(to - from)).sum();
    let (mut spans, mut so_far) = (spans.into_iter().peekable(), 0u64);
    let part = |node: u64| {
        let end = total * (node + 1) / u64::from(nodes);
        let mut part = Vec::new();
        while let Some(&mut (from, to)) = spans.peek_mut() {
            if end < so_far + u64::from(to - from) {
                let split = from + u32::try_from(end.saturating_sub(so_far)).expect("within a span");
                if split > from {
                    part.push((from, split));
                    *spans.peek_mut().expect("peeked at above") = (split, to);
                    so_far = end;
                }
                break;
            }
            part.push((from, to));
            spans.next();
            so_far += u64::from(to - from);
        }
        part
    };
    (0..u64::from(nodes)).map(part).collect()
}

/// `get_shuffle(algorithm, sizes, nodes, seed, epoch, block)`: the sample at each place, for shards of `sizes` samples.
#[must_use]
pub fn shuffle(sizes: &[u32], config: Config, epoch: Epoch) -> Vec<SampleIndex> {
    let total = sizes.iter().sum();
    let mut fixed = Pcg64::new(config.seed);
    let mut random = Pcg64::new(config.seed.wrapping_add(epoch));
    let mut shards = spans(sizes);
    match config.algorithm {
        Algorithm::Naive => return random.permutation(total),
        Algorithm::Py2s => return py2s(shards, config.nodes, &mut fixed, &mut random),
        Algorithm::Py1s | Algorithm::Py1br | Algorithm::Py1e => {}
    }
    fixed.shuffle(&mut shards);
    let mut nodes = divided(shards, config.nodes);
    nodes.iter_mut().for_each(|node| random.shuffle(node));
    let mut places: Vec<SampleIndex> = Vec::with_capacity(total as usize);
    match config.algorithm {
        Algorithm::Py1br => {
            let (least, most) = block_range(config.block);
            let staggers: Vec<i64> = nodes.iter().map(|_| random.integers(0, least)).collect();
            for (node, stagger) in nodes.iter().zip(staggers) {
                let from = places.len();
                node.iter().for_each(|&(from, to)| places.extend(from..to));
                in_blocks(&mut places[from..], stagger, (least, most), &mut random);
            }
        }
        Algorithm::Py1e => nodes.iter().for_each(|node| expanded(node, config.block, &mut random, &mut places)),
        Algorithm::Naive | Algorithm::Py1s | Algorithm::Py2s => {
            for &(from, to) in nodes.iter().flatten() {
                let start = places.len();
                places.extend(from..to);
                random.shuffle(&mut places[start..]);
            }
        }
    }
    places
}

/// A block has from 0.75 to 1.25 of the block size.
fn block_range(block: u32) -> (i64, i64) {
    let block = i64::from(block);
    (block * 3 / 4, block * 5 / 4)
}

/// py2s: the samples of every shard are shuffled for the run, and what a node has of it again for the epoch.
fn py2s(shards: Vec<Span>, nodes: u32, fixed: &mut Pcg64, random: &mut Pcg64) -> Vec<SampleIndex> {
    let mut shards = shards;
    fixed.shuffle(&mut shards);
    let mut samples: Vec<SampleIndex> = Vec::new();
    // Spans of places from here on, not of samples: they are cut the same.
    let mut places: Vec<Span> = Vec::new();
    for (from, to) in shards {
        let start = samples.len();
        samples.extend(from..to);
        fixed.shuffle(&mut samples[start..]);
        let start = u32::try_from(start).expect("no more samples than a u32");
        places.push((start, start + (to - from)));
    }
    let mut order = Vec::with_capacity(samples.len());
    for mut node in divided(places, nodes) {
        random.shuffle(&mut node);
        for (from, to) in node {
            let start = order.len();
            order.extend_from_slice(&samples[from as usize..to as usize]);
            random.shuffle(&mut order[start..]);
        }
    }
    order
}

/// py1br: blocks of random length, the first one shortened by the node's stagger, each shuffled.
fn in_blocks(node: &mut [SampleIndex], stagger: i64, (least, most): (i64, i64), random: &mut Pcg64) {
    let len = i64::try_from(node.len()).expect("no more samples than a u32");
    let mut end = 0;
    let mut blocks = Vec::new();
    while end < len {
        let block = random.integers(least, most);
        let (from, to) = ((end - stagger).max(0), (end + block - stagger).min(len));
        blocks.push((from, to));
        end += to - from;
    }
    for (from, to) in blocks {
        let place = |at: i64| usize::try_from(at).expect("within the node");
        random.shuffle(&mut node[place(from)..place(to)]);
    }
}

/// py1e: each sample is shifted by a random distance, its shard's samples within a block around the shard's place.
#[expect(clippy::cast_precision_loss, reason = "places are below 2^32")]
fn expanded(node: &[Span], block: u32, random: &mut Pcg64, places: &mut Vec<SampleIndex>) {
    let total: u32 = node.iter().map(|(from, to)| to - from).sum();
    let mut samples: Vec<SampleIndex> = Vec::with_capacity(total as usize);
    for &(from, to) in node {
        let start = samples.len();
        samples.extend(from..to);
        random.shuffle(&mut samples[start..]);
    }
    let (least, most) = block_range(block);
    let mut shifted: Vec<(f64, SampleIndex)> = Vec::with_capacity(samples.len());
    let mut offset = 0.0;
    for size in node.iter().map(|(from, to)| f64::from(to - from)) {
        let cutoff = ((random.integers(least, most) as f64 - size) / 2.0).max(0.0);
        let low = f64::max(-cutoff, -offset);
        let high = f64::min(cutoff, f64::from(total) - offset - size);
        let range = high - low;
        for _ in 0..size as u32 {
            let place = shifted.len();
            shifted.push((place as f64 + (low + range * random.double()), samples[place]));
        }
        offset += size;
    }
    // All are from 0 on, so that their bits sort as they do; two are hardly ever the same.
    shifted.sort_unstable_by_key(|(at, _)| at.to_bits());
    places.extend(shifted.into_iter().map(|(_, sample)| sample));
}

/// The order in which shards are first needed, all of `samples` samples.
#[derive(Clone, Debug)]
pub struct Shards {
    /// Shards of the dataset.
    pub n: u32,
    /// Samples of each shard; `n * samples` below 2^32.
    pub samples: u32,
    pub config: Config,
}

impl Shuffle for Shards {
    fn epoch(&self, epoch: Epoch) -> Vec<SampleIndex> {
        let order = shuffle(&vec![self.samples; self.n as usize], self.config, epoch);
        let mut seen = vec![false; self.n as usize];
        let shards = order.into_iter().map(|sample| sample / self.samples);
        shards.filter(|&shard| !std::mem::replace(&mut seen[shard as usize], true)).collect()
    }

    fn len(&self) -> u32 {
        self.n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_has_every_sample_and_every_shard() {
        for (name, algorithm) in Algorithm::ALL {
            for nodes in [1, 2, 3] {
                let config = Config { algorithm, nodes, seed: 3, block: 64 };
                let mut places = shuffle(&[10, 1, 25, 0, 30], config, 2);
                places.sort_unstable();
                assert!(places.into_iter().eq(0..66), "{name} {nodes}");
                let mut shards = Shards { n: 9, samples: 7, config }.epoch(1);
                shards.sort_unstable();
                assert!(shards.into_iter().eq(0..9), "{name} {nodes}");
            }
        }
    }

    #[test]
    fn parts_are_equal_and_cut() {
        assert_eq!(divided(vec![(0, 4), (10, 13)], 2), [vec![(0, 3)], vec![(3, 4), (10, 13)]].map(|part| part));
        assert_eq!(divided(vec![(0, 6)], 3), [vec![(0, 2)], vec![(2, 4)], vec![(4, 6)]]);
        assert_eq!(divided(vec![], 2), [Vec::<Span>::new(), Vec::new()]);
    }
}
