//! Meet in the middle: the seed from three places 227 apart, without trying all seeds. For n from 50,000 on.
//!
//! Source: field notes «orders» §5b. Outputs o and o + 227 of a generator's first block share one twist, so their xor gives state word
//! o + 228 but for one bit. A draw leaves 2^32/n values for its output: (2^32/n)^2 pairs, about one word each; 227 steps forward reach output
//! o + 454, whose draw refuses all but 1/n; 228 steps back reach the seed. n^2/2^32 times less work than all seeds.
//! Costs in `benches/README.md`: 0.1 core-s at n = 1,281,167 for one supposed batch size, growing with 1/n^2.
//!
//! With workers the streams must be put back in order, so a batch size is supposed and the number of workers is the number of streams: wait until all workers
//! have begun. Not here: distributed runs (places of one rank lie a multiple of the world apart, and 227 is a prime).

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::exhaustive::{Found, HITS_MAX, Hit};
use super::lanes::{CodePath, Kernels, LANES, Lanes, Modulus};
use super::replay::Replay;
use super::target::{Layout, Target};
use super::words::{seed_step_back, unmixed, untemper};
use super::{Control, Sighting};
use crate::types::SampleIndex;

/// Below, `exhaustive` is cheaper (135 against 95 core-s on the machine of the field notes).
pub const MEET_FROM: u32 = 50_000;
/// Distance of the three places: the twist takes word o + 227 from word o of the same block.
const APART: u32 = 227;
/// The last output with which state word o + 455 is one of the block's 624.
const LAST_OUTPUT: u32 = 168;
/// Opens from which on the three places are among those seen, wherever a worker is (place 454 and two batches of 64 by two workers).
pub const MEET_OPENS: usize = 700;

/// Batch sizes that are tried, the usual ones first.
pub const BATCHES: [u32; 28] =
    [256, 128, 64, 32, 512, 1024, 96, 48, 192, 16, 8, 100, 50, 200, 384, 80, 160, 320, 24, 12, 40, 20, 10, 120, 4, 2, 1, 2048];

/// What is supposed of the loader: which stream is which worker, its batch size, and where the three places begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assume {
    /// How far the streams of the workers that read the three places may be from their numbers together, each one at most: from and to.
    exchanged: (i64, i64),
    /// The first of the three places: from and to. The second is for samples that were displaced.
    firsts: (u32, u32),
    /// Of [`BATCHES`], from and up to.
    batches: (usize, usize),
}

impl Assume {
    /// Streams are numbered as their workers: one try for each batch size.
    pub const IN_ORDER: Self = Self { exchanged: (0, 0), firsts: (0, 1), batches: (0, BATCHES.len()) };
    /// Or with neighbours exchanged: up to 27 tries for each batch size.
    pub const NEIGHBOURS: Self = Self { exchanged: (0, 3), ..Self::IN_ORDER };
    /// The same in parts, the likeliest first.
    pub const PARTS: [Self; 6] = [
        Self { exchanged: (0, 0), firsts: (0, 0), batches: (0, USUAL) },
        Self { exchanged: (1, 1), firsts: (0, 0), batches: (0, USUAL) },
        Self { exchanged: (0, 0), firsts: (0, 0), batches: (USUAL, BATCHES.len()) },
        Self { exchanged: (0, 1), firsts: (1, 1), batches: (0, BATCHES.len()) },
        Self { exchanged: (1, 1), firsts: (0, 0), batches: (USUAL, BATCHES.len()) },
        Self { exchanged: (2, 3), firsts: (0, 1), batches: (0, BATCHES.len()) },
    ];

    /// How many threes of places it makes of a sighting: each costs the same.
    #[must_use]
    pub fn count(self, sighting: &Sighting, offset: u32) -> usize {
        triples(sighting, offset, self).len()
    }
}

/// The first of [`BATCHES`]: powers of two that loaders have.
const USUAL: usize = 6;

/// Three places and their samples.
type Triple = [(u32, SampleIndex); 3];

/// Searches all 2^32 seeds for the order of a whole (not distributed) sighting with known streams, the generator having given `offset` outputs before.
/// Hits (target 0) agree with all opens, as in the streams form. Ends with the first supposition that gives any. Nothing is found when the places are not among
/// the opens, when one of the three samples was displaced by an earlier draw (1 % at n = 50,000; another three places are tried then), or for n too large or small.
#[must_use]
pub fn meet(sighting: &Sighting, offset: u32, assume: Assume, control: Control<'_>) -> Found {
    meet_by(CodePath::best(), sighting, offset, assume, control)
}

/// The same by a code path of the caller's choice.
#[must_use]
pub fn meet_by(path: CodePath, sighting: &Sighting, offset: u32, assume: Assume, control: Control<'_>) -> Found {
    let mut found = Found { complete: true, ..Found::default() };
    let Some(target) = Target::streams(0, sighting, offset, Layout::Whole) else { return found };
    for triple in triples(sighting, offset, assume) {
        found = one_triple(path, &target, triple, 0..usize::MAX, control);
        if !found.hits.is_empty() || !found.complete {
            break;
        }
    }
    found
}

/// All suppositions' places, without repeats (all batch sizes above 455 say the same of the front).
fn triples(sighting: &Sighting, offset: u32, assume: Assume) -> Vec<Triple> {
    let count = sighting.opens.iter().map(|&(stream, _)| stream as usize + 1).max().unwrap_or(0);
    let mut streams: Vec<Vec<SampleIndex>> = vec![Vec::new(); count];
    for &(stream, sample) in &sighting.opens {
        streams[stream as usize].push(sample);
    }
    let mut seen = HashSet::new();
    let mut triples = Vec::new();
    // The likeliest first: no exchange, then others; the first place, then the second.
    for away in assume.exchanged.0..=assume.exchanged.1 {
        for first in assume.firsts.0..=assume.firsts.1 {
            if offset + first > LAST_OUTPUT || sighting.n <= first + 2 * APART + 1 {
                continue;
            }
            for &batch in &BATCHES[assume.batches.0..assume.batches.1] {
                for shifts in exchanges(away.min(1)) {
                    let places = [first, first + APART, first + 2 * APART];
                    let Some((triple, _)) = located(&streams, batch, places, shifts).filter(|located| located.1 == away) else { continue };
                    let undisplaced = triple.iter().all(|&(place, sample)| sample >= place);
                    if undisplaced && seen.insert(triple) {
                        triples.push(triple);
                    }
                }
            }
        }
    }
    triples
}

/// How far off its number the stream of each place's worker may be.
fn exchanges(reach: i64) -> impl Iterator<Item = [i64; 3]> {
    (-reach..=reach).flat_map(move |a| (-reach..=reach).flat_map(move |b| (-reach..=reach).map(move |c| [a, b, c])))
}

/// The samples there, and how far the streams of the workers that read them are off together.
fn located(streams: &[Vec<SampleIndex>], batch: u32, places: [u32; 3], shifts: [i64; 3]) -> Option<(Triple, i64)> {
    let workers = u32::try_from(streams.len()).ok()?;
    let mut triple = [(0, 0); 3];
    let mut chosen = [(0, 0); 3];
    for (slot, (place, shift)) in places.into_iter().zip(shifts).enumerate() {
        let number = place / batch;
        let worker = number % workers;
        let stream = usize::try_from(i64::from(worker) + shift).ok()?;
        let at = number / workers * batch + place % batch;
        triple[slot] = (place, *streams.get(stream)?.get(at as usize)?);
        chosen[slot] = (worker, stream);
    }
    // One worker is one stream, two are two.
    let consistent = |a: usize, b: usize| (chosen[a].0 == chosen[b].0) == (chosen[a].1 == chosen[b].1);
    // Each worker counts once.
    let off = |slot: usize| if (0..slot).any(|before| chosen[before].0 == chosen[slot].0) { 0 } else { shifts[slot].abs() };
    (consistent(0, 1) && consistent(0, 2) && consistent(1, 2)).then_some((triple, off(0) + off(1) + off(2)))
}

/// State words whose outputs have a residue.
fn raws(n: u32, (place, sample): (u32, SampleIndex)) -> Vec<u32> {
    (u64::from(sample - place)..1 << 32).step_by((n - place) as usize).map(|output| untemper(output as u32)).collect()
}

/// Candidates wait until they fill a block.
struct Queue {
    /// State words o + 228, and the raw outputs o + 227 they came with.
    words: [u32; 2 * LANES],
    raws: [u32; 2 * LANES],
    len: usize,
}

/// `part`: which of the values of the first output are paired.
fn one_triple(path: CodePath, target: &Target, triple: Triple, part: Range<usize>, control: Control<'_>) -> Found {
    let n = target.n();
    let kernels = Kernels::of(path);
    let output = target.offset + triple[0].0;
    let (near, far) = (raws(n, triple[0]), raws(n, triple[1]));
    let modulus = Modulus::new(n - triple[2].0);
    let residue = triple[2].1 - triple[2].0;
    let next = AtomicUsize::new(part.start);
    let complete = AtomicBool::new(true);
    let hits = Mutex::new(Vec::new());
    let work = || {
        let mut replay = Replay::new(n);
        let mut queue = Queue { words: [0; 2 * LANES], raws: [0; 2 * LANES], len: 0 };
        let mut test = |queue: &mut Queue, len: usize| {
            for seed in seeds(kernels, queue, len, output, modulus, residue) {
                if let Some(places) = target.places(seed, &mut replay) {
                    hits.lock().expect("no thread panics with the lock").push(Hit { target: 0, seed, places });
                }
            }
        };
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(&one) = near.get(at).filter(|_| at < part.end) else { break };
            if control.stopped() {
                complete.store(false, Ordering::Relaxed);
                break;
            }
            // At most two candidates come of a pair: half a block of pairs never overfills the queue.
            for part in far.chunks(LANES / 2) {
                pair_up(one, part, output, &mut queue);
                if queue.len >= LANES {
                    test(&mut queue, LANES);
                    queue.words.copy_within(LANES.., 0);
                    queue.raws.copy_within(LANES.., 0);
                    queue.len -= LANES;
                }
            }
        }
        let rest = queue.len;
        test(&mut queue, rest);
    };
    control.on_all_threads(work);
    let mut hits = hits.into_inner().expect("no thread panics with the lock");
    hits.sort_by_key(|hit: &Hit| hit.seed);
    hits.dedup();
    let overflow = hits.len() > HITS_MAX;
    hits.truncate(HITS_MAX);
    Found { hits, overflow, complete: complete.into_inner() }
}

/// State words o + 228 that agree with raw outputs o and o + 227: the xor gives all but the top bit, and word o + 227, one step back,
/// must have the top bit that the xor says. Without branches: half of the candidates fall.
fn pair_up(near: u32, far: &[u32], output: u32, queue: &mut Queue) {
    let mut len = queue.len;
    for &raw in far {
        let both = unmixed(near ^ raw);
        for top in [0, 0x8000_0000] {
            let word = (both & 0x7fff_ffff) | top;
            let before = seed_step_back(word, output + APART + 1);
            queue.words[len] = word;
            queue.raws[len] = raw;
            len += usize::from((before ^ both) >> 31 == 0);
        }
    }
    queue.len = len;
}

/// Seeds of the first `len` candidates whose output o + 454 has the residue.
fn seeds(kernels: Kernels, queue: &Queue, len: usize, output: u32, modulus: Modulus, residue: u32) -> Vec<u32> {
    let mut upper = Lanes::ZERO;
    let mut raws = Lanes::ZERO;
    upper.0.copy_from_slice(&queue.words[..LANES]);
    raws.0.copy_from_slice(&queue.raws[..LANES]);
    let from = output + APART + 1;
    let to = output + 2 * APART;
    (kernels.advance)(&mut upper, from, to);
    let mut lower = upper;
    (kernels.advance)(&mut lower, to, to + 1);
    let mut outputs = Lanes::ZERO;
    (kernels.output)(&upper, &lower, &raws, &mut outputs);
    let mut marks = Lanes::ZERO;
    if !(kernels.mark)(&outputs, modulus, &[residue], &mut marks) {
        return Vec::new();
    }
    let back = |lane: usize| (1..=from).rev().fold(queue.words[lane], seed_step_back);
    (0..len).filter(|&lane| marks.0[lane] != 0).map(back).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::infer::words::Lazy;

    /// So large that a search costs next to nothing even without optimisations; `benches/search.rs` has the sizes of real data sets.
    const N: u32 = 100_000_000;

    fn search(sighting: &Sighting, offset: u32, assume: Assume) -> Vec<u32> {
        let go = AtomicBool::new(false);
        let found = meet(sighting, offset, assume, Control { stop: &go, threads: 2 });
        assert!(found.complete);
        found.hits.iter().map(|hit| hit.seed).collect()
    }

    /// The front of an order as so many workers read it, in perfect turns; the streams appear in this order.
    fn sighting(n: u32, seed: u32, offset: u32, batch: usize, appear: &[u32]) -> Sighting {
        let mut outputs = Lazy::new(seed);
        outputs.skip(offset);
        let mut replay = Replay::new(n);
        replay.begin(n);
        let workers = appear.len();
        let mut queues: Vec<Vec<SampleIndex>> = vec![Vec::new(); workers];
        for place in 0..700 * workers {
            queues[place / batch % workers].push(replay.next(&mut outputs));
        }
        let mut opens = Vec::new();
        for at in 0..700 / workers * 2 {
            let turn = (0u32..).zip(appear).filter_map(|(stream, &worker)| Some((stream, *queues[worker as usize].get(at)?)));
            opens.extend(turn);
        }
        Sighting { n, opens, streams_known: true }
    }

    #[test]
    fn all_seeds_are_searched_in_no_time_when_n_is_large() {
        for (seed, offset, batch, appear) in [(3_735_928_559, 0, 64, &[0][..]), (7, 2, 256, &[0, 1, 2, 3]), (u32::MAX, 0, 48, &[0, 1, 2])] {
            let sighting = sighting(N, seed, offset, batch, appear);
            assert_eq!(search(&sighting, offset, Assume::IN_ORDER), [seed], "batch {batch}");
        }
    }

    #[test]
    fn neighbours_may_have_come_the_other_way_round() {
        let sighting = sighting(N, 99, 0, 256, &[1, 0]);
        assert!(search(&sighting, 0, Assume::IN_ORDER).is_empty());
        assert_eq!(search(&sighting, 0, Assume::NEIGHBOURS), [99]);
    }

    /// All pairs of these sizes take minutes without optimisations: those of a few values of the first output, the right one among them.
    #[test]
    fn a_part_of_the_pairs_is_enough_where_the_right_one_is_in_it() {
        let go = AtomicBool::new(false);
        let control = Control { stop: &go, threads: 1 };
        for (n, seed) in [(60_000u32, 1_234_567_890u32), (100_000, 77)] {
            let sighting = sighting(n, seed, 0, 64, &[0, 1, 2]);
            let target = Target::streams(0, &sighting, 0, Layout::Whole).unwrap();
            let right = Lazy::new(seed).output() / n;
            let of_batch_64 = Assume { batches: (2, 3), ..Assume::PARTS[0] };
            let triple = triples(&sighting, 0, of_batch_64)[0];
            for (part, hits) in [(right..right + 1, &[seed][..]), (right + 1..right + 3, &[])] {
                let part = part.start as usize..part.end as usize;
                let found = one_triple(CodePath::best(), &target, triple, part, control);
                assert_eq!(found.hits.iter().map(|hit| hit.seed).collect::<Vec<_>>(), hits, "n = {n}");
            }
        }
    }

    #[test]
    fn the_parts_together_are_all_suppositions_each_once() {
        let sighting = sighting(N, 99, 0, 64, &[1, 0, 2]);
        let sorted = |mut triples: Vec<Triple>| {
            triples.sort_unstable();
            triples
        };
        // a batch size of one part may say of the front what one of another says
        let mut parts: Vec<Triple> = sorted(Assume::PARTS.into_iter().flat_map(|part| triples(&sighting, 0, part)).collect());
        parts.dedup();
        assert_eq!(parts, sorted(triples(&sighting, 0, Assume::NEIGHBOURS)));
        assert!(Assume::PARTS[0].count(&sighting, 0) <= USUAL);
    }

    #[test]
    fn the_wrong_map_finds_nothing() {
        let mut sighting = sighting(N, 99, 0, 256, &[0]);
        for (_, sample) in &mut sighting.opens {
            *sample = sighting.n - 1 - *sample;
        }
        assert!(search(&sighting, 0, Assume::IN_ORDER).is_empty());
    }
}
