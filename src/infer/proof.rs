//! Whether an order explains opens: how it is dealt to the readers here, and the one rule of belief, a likelihood ratio against uniform.
//!
//! The ratio is the planner's own (`plan/pass`), here summed without bounds, because a search that tried k orders must beat k times the odds.
//! Beside it stands regularity: whoever follows an order opens it in order. A buffer shuffled over a listing is likely under the listing, and
//! does not follow it.
//!
//! Not here: which orders are tried.

use std::sync::Arc;

use super::rungs::RANK_SHARE;
use crate::order::infer::Sighting;
use crate::plan::belief::TRUST;
use crate::plan::pass::{EpochIndex, Expected, Pass};
use crate::plan::{EpochFiles, Seen};
use crate::types::{QuickMap, Rank, SampleIndex};

/// Share of steps that must go forward along the order: the rest are restarts, probes and other programs.
const RISING_LEAST: f64 = 0.9;
/// Share of the opens that must be in this node's stream.
const INSIDE_LEAST: f64 = 0.85;
/// Opens before anything is proved: fewer fit hundreds of seeds (field notes «orders» §5).
pub(super) const OPENS_LEAST: usize = 8;
/// Steps along streams from which a world size is read.
pub(super) const STEPS_LEAST: u32 = 6;
/// Largest step taken for a world size (issue: up to 4096 ranks), times the workers of a loader with batches of one.
const STEP_MAX: u32 = 4096 * 16;

/// How a global order is dealt to the readers here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) world: u32,
    pub(super) ranks: Vec<Rank>,
    /// Steps that say so.
    pub(super) steps: u32,
}

impl Shape {
    /// All of the order is read here: nothing can be told from one process that reads everything.
    pub(super) fn is_whole(&self) -> bool {
        u32::try_from(self.ranks.len()) == Ok(self.world)
    }
}

/// Reads world size and ranks off the places of the opens. `None`: the streams do not rise along this order.
pub(super) fn shape(place_of: impl Fn(SampleIndex) -> Option<u32>, sighting: &Sighting) -> Option<Shape> {
    let placed: Vec<(u32, u32)> = sighting.opens.iter().filter_map(|&(stream, sample)| Some((stream, place_of(sample)?))).collect();
    if placed.len() < OPENS_LEAST / 2 {
        return None;
    }
    let mut steps: QuickMap<u32, u32> = QuickMap::default();
    let (mut rises, mut falls) = (0u32, 0u32);
    if sighting.streams_known {
        let mut last: QuickMap<u32, u32> = QuickMap::default();
        for &(stream, place) in &placed {
            if let Some(before) = last.insert(stream, place).filter(|&before| before != place) {
                if place > before {
                    rises += 1;
                    *steps.entry(place - before).or_default() += 1;
                } else {
                    falls += 1;
                }
            }
        }
        if f64::from(rises) < RISING_LEAST * f64::from(rises + falls) {
            return None;
        }
    } else {
        let mut places: Vec<u32> = placed.iter().map(|&(_, place)| place).collect();
        places.sort_unstable();
        places.dedup();
        for pair in places.windows(2) {
            rises += 1;
            *steps.entry(pair[1] - pair[0]).or_default() += 1;
        }
    }
    let (step, times) = steps.into_iter().max_by_key(|&(step, times)| (times, std::cmp::Reverse(step)))?;
    // Within a batch all steps are the world size. Where none prevails, only one process can have read it all.
    let world = if times * 3 >= rises && step <= STEP_MAX { step } else { 1 };
    let mut seen: QuickMap<Rank, usize> = QuickMap::default();
    for &(_, place) in &placed {
        *seen.entry(place % world).or_default() += 1;
    }
    // A stray of another program, or of another epoch, is not a rank. One that has only just begun is taken in later.
    let least = (placed.len() / 100).max(seen.values().copied().max().unwrap_or(0) / RANK_SHARE).max(1);
    let mut ranks: Vec<Rank> = seen.into_iter().filter(|&(_, opens)| opens >= least).map(|(rank, _)| rank).collect();
    ranks.sort_unstable();
    Some(Shape { world, ranks, steps: rises })
}

/// What speaks for an order.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Evidence {
    /// ln of the likelihood ratio against uniform.
    pub(super) ln: f64,
    /// Share of the opens that are in the stream, for the first time.
    pub(super) inside: f64,
    /// Share of the steps that go forward, or continue a run of opened places.
    pub(super) rising: f64,
    pub(super) opens: usize,
    /// Steps along streams.
    steps: u32,
}

impl Evidence {
    /// ... when the world is known and these ranks of it were read off the opens: each of them is in so small a part of the epoch, less
    /// what the choice of the part gives away (ln of the number of such parts, from above, and of their sizes).
    pub(super) fn of_ranks(self, world: u32, ranks: usize) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        let (inside, ranks) = (self.inside * self.opens as f64, ranks as f64);
        let part = (f64::from(world) / ranks).ln();
        Self { ln: self.ln + inside * part - ranks * (1.0 + part) - f64::from(world).ln(), ..self }
    }

    /// As [`Self::proves`], of an order that is known: so few opens that no process had a second one may be enough.
    pub(super) fn proves_dealt(&self, tried: f64) -> bool {
        Self { rising: if self.steps == 0 { 1.0 } else { self.rising }, ..*self }.proves(tried)
    }

    /// Whether it is proof, when so many orders were tried.
    pub(super) fn proves(&self, tried: f64) -> bool {
        self.opens >= OPENS_LEAST && self.ln >= TRUST + tried.max(1.0).ln() && self.inside >= INSIDE_LEAST && self.rising >= RISING_LEAST
    }
}

/// Plays the opens to a pass over the order.
pub(super) fn evidence(files: &Arc<EpochFiles>, opens: &[Seen], sizes: &[u64]) -> Evidence {
    let mut pass = Pass::new(Arc::new(EpochIndex::new(0, Arc::clone(files), sizes)), 0, None);
    let stride = files.stride.max(1);
    let mut last: QuickMap<u32, u32> = QuickMap::default();
    let (mut ln, mut inside, mut steps, mut rises, mut runs) = (0.0, 0usize, 0u32, 0u32, 0u32);
    for seen in opens {
        let sight = pass.sight(seen.file, seen.process);
        ln += sight.ratio.max(1e-9).ln();
        let Some(place) = sight.place.filter(|_| sight.fresh) else { continue };
        inside += 1;
        if let Some(&before) = last.get(&seen.process) {
            steps += 1;
            rises += u32::from(seen.process != 0 && place > before);
            runs += u32::from(place.checked_sub(stride).is_none_or(|before| pass.is_opened(before)));
        }
        last.insert(seen.process, place);
        pass.mark(place, seen.process, if sight.ratio >= 1.0 { Expected::Next } else { Expected::Elsewhere });
    }
    let share = |part: f64, whole: f64| if whole == 0.0 { 0.0 } else { part / whole };
    #[expect(clippy::cast_precision_loss, reason = "a share of a few thousand opens")]
    let inside = share(inside as f64, opens.len() as f64);
    Evidence { ln, inside, rising: share(f64::from(rises.max(runs)), f64::from(steps)), opens: opens.len(), steps }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{FileIndex, Outcome};

    fn seen(process: u32, file: u32) -> Seen {
        Seen { now: std::time::Duration::ZERO, file: FileIndex(file), process, outcome: Outcome::Miss }
    }

    fn sighting(opens: &[(u32, u32)], streams_known: bool) -> Sighting {
        Sighting { n: 10_000, opens: opens.to_vec(), streams_known }
    }

    #[test]
    fn world_and_ranks_are_read_off_the_places() {
        // node 15 of 16 with 8 ranks: two workers each, batches of 4
        let mut opens = Vec::new();
        for rank in 120..128u32 {
            for worker in 0..2u32 {
                opens.extend((0..8).map(|k| (rank * 2 + worker, rank + 128 * (k % 4 + 4 * worker + 8 * (k / 4)))));
            }
        }
        let found = shape(Some, &sighting(&opens, true)).unwrap();
        assert_eq!((found.world, found.ranks), (128, (120..128).collect::<Vec<_>>()));
        // batches of one: four workers take turns
        let opens: Vec<(u32, u32)> = (0..64).map(|k| (k % 4, k)).collect();
        assert!(shape(Some, &sighting(&opens, true)).unwrap().is_whole());
        // no order at all
        let opens: Vec<(u32, u32)> = (0..64u32).map(|k| (k % 2, k.wrapping_mul(0x9e37_79b1) % 10_000)).collect();
        assert_eq!(shape(Some, &sighting(&opens, true)), None);
    }

    #[test]
    fn an_order_is_proved_and_a_buffer_shuffled_over_it_is_not() {
        let files = Arc::new(EpochFiles { files: (0..20_000).map(FileIndex).collect(), stride: 1 });
        let sizes = vec![1; 20_000];
        let in_order: Vec<Seen> = (0..64).map(|k| seen(1 + k / 8 % 2, k)).collect();
        let evidence_in_order = evidence(&files, &in_order, &sizes);
        assert!(evidence_in_order.proves(1e9), "{evidence_in_order:?}");
        // a buffer of 500, each next one taken at random from it
        let mut buffer: Vec<u32> = (0..500).collect();
        let shuffled: Vec<Seen> = (500..756u32)
            .map(|next| {
                let at = next.wrapping_mul(0x9e37_79b1) as usize % buffer.len();
                seen(1, std::mem::replace(&mut buffer[at], next))
            })
            .collect();
        let evidence_shuffled = evidence(&files, &shuffled, &sizes);
        assert!(!evidence_shuffled.proves(1.0), "{evidence_shuffled:?}");
    }
}
