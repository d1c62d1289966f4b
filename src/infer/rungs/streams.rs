//! What comes next where permutations are drawn straight from a generator that runs on: how many outputs others draw between two of them.

use super::super::cost;
use super::super::job::{Clue, Search};
use super::super::torch::Fronts;
use super::HITS_MAX;
use crate::dataset::maps::CandidateMap as Map;
use crate::order::infer::Sighting;
use crate::order::mt19937::Mt19937;
use crate::order::spec::{OrderKind, OrderSpec};
use crate::order::torch::{Count, RandomSource, outputs_of_randperm};
use crate::types::Epoch;

/// Outputs looked through, by opens seen: loaders' base seeds at once, and transforms that draw in the main process later.
const AHEAD: [(usize, u64); 3] = [(0, 64), (32, 1 << 14), (128, 1 << 20)];

impl Search<'_> {
    /// The next permutation of a clue's generator, wherever it begins.
    pub(super) fn next_permutation(&mut self, map: &Map, clue: &Clue, sighting: &Sighting, fronts: &mut Option<Fronts>) {
        let Some(begun) = Begun::of(clue, map.len()) else { return };
        if begun.is_shared {
            self.tried += 1.0;
            self.prove(map, &clue.spec, clue.epoch + 1, "the generator goes on as before");
            if self.best.is_some() {
                return;
            }
        }
        let permutation = outputs_of_randperm(map.len());
        let fronts = fronts.get_or_insert_with(|| Fronts::new(sighting));
        let mut from = 0;
        let tries = if begun.is_shared { AHEAD.len() } else { 1 };
        for (_, ahead) in AHEAD.into_iter().take(tries).filter(|&(opens, _)| sighting.opens.len() >= opens) {
            // After one that is read; and after one more, which samplers draw at an epoch's end, or which a loader does not use.
            #[expect(clippy::cast_precision_loss, reason = "a million")]
            if from > 0 && !self.pays(cost::draws(2.0 * (ahead - from) as f64)) {
                return;
            }
            for unused in [0, permutation] {
                let first = begun.output.saturating_add(permutation + unused + from);
                let mut generator = Mt19937::new(begun.seed);
                generator.skip(first);
                #[expect(clippy::cast_precision_loss, reason = "a count of what was tried")]
                let tried = (ahead - from) as f64;
                self.tried += tried;
                let fitting = fronts.starts_that_fit(&mut generator, ahead - from, &self.control);
                for start in fitting.into_iter().take(HITS_MAX) {
                    let (spec, epoch) = goes_on(clue, begun, map.len(), first + start);
                    let why = format!(
                        "the generator goes on, {} outputs after the permutation before",
                        first + start - begun.output - permutation
                    );
                    self.prove(map, &spec, epoch, &why);
                }
            }
            from = ahead;
            if self.is_over() {
                return;
            }
        }
    }
}

/// The generator that made an order's permutation, and the output with which that began.
#[derive(Clone, Copy, Debug)]
struct Begun {
    seed: u64,
    output: u64,
    /// Others may draw from it.
    is_shared: bool,
}

impl Begun {
    fn of(clue: &Clue, n: u32) -> Option<Self> {
        let (spec, epoch, permutation) = (&clue.spec, clue.epoch, outputs_of_randperm(n));
        let at = |output: u64| Some(Self { seed: spec.seed, output, is_shared: true });
        let own = |seed: u64| Some(Self { seed, output: 0, is_shared: false });
        if spec.subset.is_some() || spec.world > 1 {
            return None;
        }
        match spec.kind {
            OrderKind::TorchRandom { source, count: Count { num_samples: None, replacement: false } } => match source {
                RandomSource::Stream { offset, between } => at(offset.saturating_add(epoch.saturating_mul(permutation + between))),
                RandomSource::Loader => at(RandomSource::BASE_SEED + epoch.saturating_mul(2 * permutation + RandomSource::BASE_SEED)),
                RandomSource::Sampler => at(epoch.saturating_mul(2 * permutation)),
                RandomSource::Default { offset, stride } => {
                    let mut generator = Mt19937::new(spec.seed);
                    generator.skip(offset.saturating_add(epoch.saturating_mul(stride)));
                    own(u64::from(generator.random()))
                }
                RandomSource::Reseeded | RandomSource::Built { .. } => None,
            },
            OrderKind::TorchSubset { offset, between } => at(offset.saturating_add(epoch.saturating_mul(permutation + between))),
            OrderKind::TorchRandperm | OrderKind::TorchDistributed => own(spec.seed.wrapping_add(epoch)),
            _ => None,
        }
    }
}

/// The order whose next permutation begins with output `next`, and that epoch: numbered on, where the outputs before allow it.
fn goes_on(clue: &Clue, begun: Begun, n: u32, next: u64) -> (OrderSpec, Epoch) {
    let stride = next - begun.output;
    let between = stride - outputs_of_randperm(n);
    let (offset, epoch) = match next.checked_sub((clue.epoch + 1).saturating_mul(stride)) {
        Some(first) => (first, clue.epoch + 1),
        None if begun.output == 0 => (0, 1),
        None => (next, 0),
    };
    let kind = match clue.spec.kind {
        OrderKind::TorchSubset { .. } => OrderKind::TorchSubset { offset, between },
        _ => OrderKind::TorchRandom { source: RandomSource::Stream { offset, between }, count: Count::default() },
    };
    (OrderSpec { kind, seed: begun.seed, ..clue.spec.clone() }, epoch)
}
