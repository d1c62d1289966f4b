//! How far a default generator goes on between two epochs, where one epoch was seen: the few strides that loaders have (field notes «orders» §1,
//! §5d), the likeliest first.
//!
//! Not here: strides nobody thought of, which are searched for once the epoch has begun (`rungs/known`).

use super::job::{Clue, Search};
use crate::order::spec::{OrderKind, OrderSpec};
use crate::order::torch::RandomSource;
use crate::plan::{Going, WayOn};
use crate::types::Epoch;

/// Outputs of one 64-bit seed: each loader that is iterated draws a base seed, and each `RandomSampler` a seed.
const SEED: u64 = 2;
/// Numbers that a transform draws for each sample in the main process: a flip, a crop's two places, both. (A random resized crop draws until one
/// fits: no stride.)
const DRAWS: [u64; 3] = [1, 2, 3];
/// Strides a run has shown, at most: more is no rule.
const SHOWN_MAX: usize = 4;

/// What else is known of the readers of an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Beside {
    /// Processes that read.
    pub(super) readers: usize,
    /// Other parts of the dataset that the same job has read since this epoch began: a loader each.
    pub(super) others: u64,
}

/// Strides an order has shown, in this run or an earlier one, the latest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown(Vec<u64>);

impl Shown {
    pub(super) fn note(&mut self, stride: u64) {
        self.0.retain(|&shown| shown != stride);
        self.0.insert(0, stride);
        self.0.truncate(SHOWN_MAX);
    }
}

/// Output and stride of the order's default generator at an epoch.
pub(super) const fn output_of(spec: &OrderSpec, epoch: Epoch) -> Option<(u64, u64)> {
    match spec.kind {
        OrderKind::TorchRandom { source: RandomSource::Default { offset, stride }, .. } => {
            Some((offset.saturating_add(epoch.saturating_mul(stride)), stride))
        }
        _ => None,
    }
}

/// The order that goes on after `epoch` by another stride, and the number of its next epoch.
pub(super) fn by(spec: &OrderSpec, epoch: Epoch, stride: u64) -> Option<(OrderSpec, Epoch)> {
    let (output, _) = output_of(spec, epoch)?;
    let clue = Clue { spec: spec.clone(), epoch, epochs: None };
    Some(Search::goes_on(&clue, output.checked_add(stride)?))
}

/// The ways on after the epoch being read, other than by `now`, the stride that is supposed. `samples` are an epoch's.
pub(super) fn ways(now: u64, going: Going, samples: u64, beside: Beside, shown: &Shown) -> Vec<WayOn> {
    let mut ways: Vec<WayOn> = Vec::new();
    let mut add = |stride: u64, likely: bool| {
        if stride > 0 && stride != now && ways.iter().all(|on| on.way != stride) {
            ways.push(WayOn { way: stride, likely });
        }
    };
    // What came before may come again: validation every few epochs.
    shown.0.iter().for_each(|&stride| add(stride, true));
    if going.proven || now != RandomSource::STRIDE {
        // One loader more or less than before.
        add(now + SEED, false);
        add(now.saturating_sub(SEED), false);
        return ways;
    }
    let others = SEED * beside.others;
    // Workers that persist draw no base seed; a validation loader draws its own.
    for stride in [RandomSource::STRIDE + others, SEED + others, SEED, RandomSource::STRIDE + SEED] {
        add(stride, true);
    }
    if beside.readers <= 1 {
        for draws in DRAWS {
            add(samples.saturating_mul(draws) + RandomSource::STRIDE + others, true);
        }
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;

    fn going(proven: bool) -> Going {
        Going { way: 0, proven, epoch: 0, reached: 0, began: None }
    }

    fn strides(now: u64, proven: bool, beside: Beside, shown: &[u64]) -> Vec<u64> {
        let mut all = Shown::default();
        shown.iter().for_each(|&stride| all.note(stride));
        ways(now, going(proven), 1_000, beside, &all).iter().map(|on| on.way).collect()
    }

    #[test]
    fn the_likeliest_strides_come_first() {
        let workers = |others| Beside { readers: 4, others };
        assert_eq!(strides(4, false, workers(0), &[]), [2, 6]);
        assert_eq!(strides(4, false, workers(1), &[]), [6, 2]);
        assert_eq!(strides(4, false, workers(2), &[]), [8, 6, 2]);
        assert_eq!(strides(4, false, Beside { readers: 1, others: 0 }, &[]), [2, 6, 1_004, 2_004, 3_004]);
        assert_eq!(strides(4, false, Beside { readers: 1, others: 1 }, &[]), [6, 2, 1_006, 2_006, 3_006]);
        assert_eq!(strides(4, false, workers(0), &[6]), [6, 2], "an earlier run's");
        assert_eq!(strides(4, true, workers(1), &[6, 4]), [6, 2], "validation every few epochs");
        assert_eq!(strides(6, false, workers(0), &[]), [8, 4], "found by two epochs");
    }

    #[test]
    fn an_order_goes_on_by_another_stride_from_where_it_is() {
        let spec: OrderSpec = "torch-random:seed=7:offset=3:stride=4".parse().unwrap();
        let (next, epoch) = by(&spec, 0, 6).unwrap();
        assert_eq!(output_of(&next, epoch), Some((9, 6)));
        // three epochs of 4, then 6: there was none before that
        let (next, epoch) = by(&spec, 2, 6).unwrap();
        assert_eq!(output_of(&next, epoch), Some((17, 6)));
        assert_eq!(by(&"torch-distributed:seed=7".parse().unwrap(), 0, 6), None);
    }
}
