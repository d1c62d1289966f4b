//! Ranks of an order that is known: which of a world's ranks read here, told by the places of their opens. A followed order takes in ranks
//! that begin later, and ranks of another job are found with their first opens.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::super::job::{Found, Search, Wider};
use super::super::proof::{self, Evidence};
use crate::dataset::maps::CandidateMap as Map;
use crate::order::SharedSampler;
use crate::order::spec::OrderSpec;
use crate::plan::{EpochFiles, Seen};
use crate::types::{Epoch, FileIndex, Rank};

/// Epochs that ranks which are not followed yet may be in: the current one, or ahead of it.
const EPOCHS: Epoch = 2;
/// Orders compared, for the proof's threshold.
const TRIED: f64 = 4.0;
/// A rank has this part of the opens of the one with most, at least: opens of something else fall on all ranks.
pub(in crate::infer) const RANK_SHARE: usize = 8;

/// ... and so many, or they may be chance.
const RANK_LEAST: usize = 3;

/// What opens say of a known order in one epoch.
struct Dealt {
    spec: OrderSpec,
    sampler: SharedSampler,
    files: Arc<EpochFiles>,
    evidence: Evidence,
}

impl Search<'_> {
    /// Opens that the followed order did not have: of other ranks of it?
    pub(in crate::infer) fn widen(&mut self) {
        let (Some((spec, now)), Some(map)) = (&self.job.followed, &self.job.numbering) else { return };
        self.tried = TRIED;
        // Its own readers, ahead of where they were looked for, are no other ranks.
        let mut own: HashSet<FileIndex> = HashSet::new();
        for epoch in *now..now + EPOCHS {
            let Ok(sampler) = spec.sampler(map.len()) else { return };
            own.extend(sampler.order(epoch).places.iter().map(|&sample| map.samples[sample as usize]));
        }
        let strangers: Vec<Seen> = self.job.strangers.iter().filter(|seen| !own.contains(&seen.file)).copied().collect();
        for epoch in *now..now + EPOCHS {
            let Some(dealt) = self.dealt_as(map, spec, epoch, &strangers) else { continue };
            if !dealt.evidence.proves_dealt(self.tried) {
                continue;
            }
            let mut ranks: Vec<Rank> = spec.ranks.iter().chain(&dealt.spec.ranks).copied().collect();
            ranks.sort_unstable();
            ranks.dedup();
            if ranks.len() == spec.ranks.len() {
                continue;
            }
            let new = spec.ranks.iter().map(|rank| ranks.partition_point(|other| other < rank));
            let new = new.map(|at| u32::try_from(at).unwrap_or(u32::MAX)).collect();
            // what a loader's shape told is not known of the new ones
            let wide = OrderSpec { ranks, ..spec.clone() };
            let Ok(sampler) = wide.sampler(map.len()) else { return };
            let epochs: Vec<(Epoch, Arc<EpochFiles>)> =
                (*now..now + EPOCHS).map(|epoch| (epoch, Arc::new(EpochFiles::new(&sampler.order(epoch), &map.samples)))).collect();
            let found = Found {
                epoch: *now,
                files: Arc::clone(&epochs[0].1),
                wider: Some(Wider { epochs, new, opens: self.job.strangers.clone() }),
                why: "more ranks of it read here".to_owned(),
                ln: dealt.evidence.ln,
                samples: Arc::clone(&map.samples),
                spec: wide,
                sampler,
                epochs: None,
            };
            self.best = Some((found.ln, found));
            return;
        }
    }

    /// As `prove`, for a world that is known: the ranks of a job that has just begun.
    pub(in crate::infer) fn prove_dealt(&mut self, map: &Map, spec: &OrderSpec, epoch: Epoch, why: &str) {
        if spec.world < 2 || !spec.kind.has_world() {
            return;
        }
        let Some(dealt) = self.dealt_as(map, spec, epoch, self.job.opens()) else { return };
        let Dealt { spec, sampler, files, evidence } = dealt;
        if evidence.proves_dealt(self.tried) && self.best.as_ref().is_none_or(|(ln, _)| *ln < evidence.ln) {
            let (ln, samples) = (evidence.ln - self.tried.ln(), Arc::clone(&map.samples));
            let found = Found { spec, epoch, sampler, samples, files, epochs: None, ln, why: why.to_owned(), wider: None };
            self.best = Some((evidence.ln, found));
        }
    }

    fn dealt_as(&self, map: &Map, spec: &OrderSpec, epoch: Epoch, opens: &[Seen]) -> Option<Dealt> {
        let whole = OrderSpec { world: 1, ranks: vec![0], ..spec.clone() }.sampler(map.len()).ok()?;
        let opened: HashMap<u32, ()> = opens.iter().filter_map(|seen| Some((map.index_of(seen.file)?, ()))).collect();
        let mut counts: HashMap<Rank, usize> = HashMap::new();
        for (place, sample) in (0u32..).zip(&whole.order(epoch).places) {
            if opened.contains_key(sample) {
                *counts.entry(place % spec.world).or_default() += 1;
            }
        }
        let least = (counts.values().copied().max()? / RANK_SHARE).max(RANK_LEAST - 1);
        let mut ranks: Vec<Rank> = counts.into_iter().filter(|&(_, opens)| opens > least).map(|(rank, _)| rank).collect();
        ranks.sort_unstable();
        let spec = OrderSpec { ranks: self.job.told.ranks_with(spec.world, ranks), ..spec.clone() };
        let sampler = spec.sampler(map.len()).ok()?;
        let files = Arc::new(EpochFiles::new(&sampler.order(epoch), &map.samples));
        let evidence = proof::evidence(&files, opens, &self.job.sizes).of_ranks(spec.world, spec.ranks.len());
        Some(Dealt { spec, sampler, files, evidence })
    }
}
