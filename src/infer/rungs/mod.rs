//! The rungs of the ladder, each over one candidate map: which orders are compared with the opens.
//!
//! Source: field notes «orders» §5, §6. The searches through many seeds are `order/infer`'s.

mod all_seeds;
mod backward;
mod known;
mod likely;
mod others;

use super::job::Search;
use crate::order::infer::Sighting;
use crate::order::infer::target::{Layout, Target};

/// More hits than this are chance: the opens were too few.
const HITS_MAX: usize = 64;

/// One process from place 0: as the opens came, and without what may have been a probe before (`ds[0]`): the opens of a first process
/// that opened two at most, or the first open.
fn fronts(sighting: &Sighting, offset: u32) -> Vec<Target> {
    let Some(&(first, _)) = sighting.opens.first() else { return Vec::new() };
    if !sighting.streams_known {
        return Target::unordered(0, sighting, offset).into_iter().collect();
    }
    let own = sighting.opens.iter().filter(|&&(stream, _)| stream == first).count();
    let opens = if own <= 2 && own < sighting.opens.len() {
        sighting.opens.iter().copied().filter(|&(stream, _)| stream != first).collect()
    } else {
        sighting.opens[1..].to_vec()
    };
    let without = Sighting { opens, ..*sighting };
    [sighting, &without].into_iter().filter_map(|sighting| Target::streams(0, sighting, offset, Layout::Whole)).collect()
}

impl Search<'_> {
    fn is_over(&self) -> bool {
        self.best.is_some() || self.control.stopped()
    }
}
