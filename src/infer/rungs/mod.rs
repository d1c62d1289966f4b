//! The rungs of the ladder: which orders are compared with the opens. All but the first are climbed in steps, what is likely and cheap first; each
//! step has a price, and is taken when it is free or paid for (`cost`).
//!
//! Source: field notes «orders» §5, §6. The searches through many seeds are `order/infer`'s.

mod all_seeds;
mod backward;
mod epochs;
mod known;
mod likely;
mod linear;
mod numbers;
mod others;
mod repeated;
mod replaced;
mod shards;
mod splits;
mod streams;
mod widen;

pub(super) use widen::RANK_SHARE;

pub(super) use all_seeds::all_seeds;
pub(super) use backward::backward_seeds;
pub(super) use epochs::epochs;

use super::job::{Rung, Search};
use super::maps::MapSet;
use crate::order::infer::Sighting;
use crate::order::infer::target::{Layout, Target};
use crate::types::SampleIndex;

/// More hits than this are chance: the opens were too few.
const HITS_MAX: usize = 64;
/// Maps that a costly step tries: each costs as much as the first.
const MAPS_OF_COSTLY: usize = 4;

/// What a step costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Price {
    /// Most scripts are found by it: it is taken at once.
    Free(f64),
    /// Many are: it is in the pass that a job begins with.
    FreeAtFirst(f64),
    /// Core-seconds.
    Of(f64),
    /// It has no chance with these opens.
    Skipped,
    /// Neither it nor what follows has one, or there is no other.
    NotNow,
}

/// Samples that a program looks at before it reads in order (`ds[0]`, a few to be shown), at most: supposed where searches are cheap.
const PROBES: usize = 8;
/// ... and where each costs a search through many seeds a twentieth more.
const PROBES_OF_COSTLY: usize = 1;

/// One process from place 0: as the opens came, and without what may have been probes before: the opens of a first process that opened some
/// before all others, or one to `probes` first opens.
fn fronts(sighting: &Sighting, offset: u32, probes: usize) -> Vec<Target> {
    let Some(&(first, _)) = sighting.opens.first() else { return Vec::new() };
    if !sighting.streams_known {
        return Target::unordered(0, sighting, offset).into_iter().collect();
    }
    let opens = &sighting.opens;
    let is_first = |&&(stream, _): &&(u32, SampleIndex)| stream == first;
    let (own, before) = (opens.iter().filter(is_first).count(), opens.iter().take_while(is_first).count());
    let is_alone = own == opens.len();
    let mut supposed = vec![opens.clone()];
    if own <= 2 && !is_alone {
        // whenever it opened them
        supposed.push(opens.iter().copied().filter(|&(stream, _)| stream != first).collect());
    } else {
        let most = if is_alone { probes.min(own - 1) } else { 1 };
        supposed.extend((1..=most).map(|at| opens[at..].to_vec()));
        if !is_alone && own == before && own <= PROBES {
            supposed.push(opens[own..].to_vec());
        }
    }
    let target = |opens| Target::streams(0, &Sighting { opens, ..*sighting }, offset, Layout::Whole);
    supposed.into_iter().filter_map(target).collect()
}

impl Search<'_> {
    fn is_over(&self) -> bool {
        self.best.is_some() || self.control.stopped()
    }

    /// Takes step after step, as far as they are free or paid for.
    pub(super) fn climb(&mut self, maps: &mut MapSet) {
        let mut left = self.job.allowance;
        while !self.is_over() {
            let price = self.price(maps);
            let is_free = match price {
                Price::Free(_) => self.job.is_free,
                Price::FreeAtFirst(_) => self.job.is_free && self.job.is_first,
                _ => false,
            };
            match price {
                Price::NotNow => return,
                Price::Skipped => {}
                Price::Free(seconds) | Price::FreeAtFirst(seconds) | Price::Of(seconds) if !is_free && seconds > left => {
                    self.owed = Some(seconds);
                    return;
                }
                Price::Free(seconds) | Price::FreeAtFirst(seconds) | Price::Of(seconds) => {
                    left -= seconds;
                    self.cost += seconds;
                    self.free += if is_free { seconds } else { 0.0 };
                    match self.job.rung {
                        Rung::Likely => self.likely(maps),
                        Rung::Others => self.others(maps),
                        Rung::Meet => self.meet(maps),
                        Rung::Exhaustive => self.exhaustive(maps),
                        Rung::Backward => self.backward(maps),
                        Rung::Linear => self.linear(maps),
                        Rung::Widen | Rung::Known | Rung::Usual | Rung::Origin => return,
                    }
                    if self.control.stopped() {
                        // it is begun again
                        self.owed = Some(seconds);
                        return;
                    }
                }
            }
            self.step += 1;
        }
    }

    fn price(&self, maps: &mut MapSet) -> Price {
        let Some(map) = maps.get(0) else { return Price::NotNow };
        match self.job.rung {
            Rung::Likely => self.likely_price(&map, maps),
            Rung::Others => self.others_price(&map, maps),
            Rung::Meet => self.meet_price(&map, maps),
            Rung::Exhaustive => self.exhaustive_price(&map),
            Rung::Backward => self.backward_price(maps),
            Rung::Linear => self.linear_price(),
            Rung::Widen | Rung::Usual | Rung::Known | Rung::Origin => Price::NotNow,
        }
    }

    /// Core-seconds until the maps that a costly step tries are there, and how many there are then at most.
    fn other_maps(&self, maps: &MapSet) -> (f64, usize) {
        let files = u32::try_from(self.job.manifest.len()).unwrap_or(u32::MAX);
        let known = maps.computed().len();
        if known >= MAPS_OF_COSTLY || maps.is_all() { (0.0, known.min(MAPS_OF_COSTLY)) } else { (super::cost::maps(files), MAPS_OF_COSTLY) }
    }
}
