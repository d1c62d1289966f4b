//! Other epochs of known orders: a run that is taken up again, by new processes, on another world, from within an epoch.
//!
//! Each is a whole order, and the world is read off the opens, so worlds cost nothing. The likely epochs are tried at once. The others wait until the
//! opens would prove the right one: dozens of readers that start want the cores, too, and a search of milliseconds takes a second beside them.

use super::super::cost;
use super::super::job::{Clue, Search};
use crate::dataset::maps::CandidateMap as Map;
use crate::order::spec::{OrderKind, OrderSpec};
use crate::types::Epoch;

/// Epochs after a known one that are tried: a resumed run, skipped epochs.
const EPOCHS_AHEAD: Epoch = 64;
/// Samples shuffled for them at most, for one clue.
const AHEAD_SAMPLES: u64 = 1 << 23;
/// Opens from which on all these are worth their cost: so many, and so many that are not a reader's first, or there is hardly a step by which a
/// world is told.
const FAR_FROM: usize = 64;
const FAR_STEPS: usize = 24;

impl Search<'_> {
    /// The epoch that was read last, and those beside it: a run is taken up again near where it was left.
    pub(super) fn near_epochs(&mut self, map: &Map, clue: &Clue) {
        let last = self.job.last_epoch.unwrap_or(clue.epoch).max(clue.epoch);
        for epoch in near(clue.epoch, last) {
            self.one_of_epochs(map, clue, epoch, "an epoch of the order before");
        }
    }

    /// All later ones.
    pub(super) fn far_epochs(&mut self, map: &Map, clue: &Clue) {
        if !goes_on_by_epochs(clue) || !self.is_worth_far() {
            return;
        }
        let last = self.job.last_epoch.unwrap_or(clue.epoch).max(clue.epoch);
        let ahead = (AHEAD_SAMPLES / u64::from(map.len())).clamp(2, EPOCHS_AHEAD);
        if !self.pays(epochs((last + ahead - clue.epoch).min(EPOCHS_AHEAD), map)) {
            return;
        }
        for epoch in (clue.epoch + 1..=last + ahead).take(EPOCHS_AHEAD as usize) {
            self.one_of_epochs(map, clue, epoch, "a later epoch of the order before");
        }
    }

    /// Whether the right epoch would be proved: otherwise none is.
    pub(in crate::infer) fn is_worth_far(&self) -> bool {
        let opens = self.job.opens().len();
        opens >= FAR_FROM && opens >= FAR_STEPS + self.streams()
    }

    fn one_of_epochs(&mut self, map: &Map, clue: &Clue, epoch: Epoch, why: &str) {
        if self.best.is_none() && !self.control.stopped() {
            self.prove_once(map, &clue.spec, epoch, why);
        }
    }

    /// As `prove`, unless this epoch of the order was compared already, dealt to whatever world.
    pub(in crate::infer) fn prove_once(&mut self, map: &Map, spec: &OrderSpec, epoch: Epoch, why: &str) {
        let whole = (whole(spec), epoch);
        if self.compared.contains(&whole) {
            return;
        }
        self.compared.push(whole);
        self.tried += 1.0;
        self.prove(map, spec, epoch, why);
    }
}

/// Core-seconds for so many epochs.
#[expect(clippy::cast_precision_loss, reason = "some million samples")]
pub(in crate::infer) fn epochs(epochs: Epoch, map: &Map) -> f64 {
    let samples = epochs as f64 * f64::from(map.len());
    cost::draws(samples) + cost::samples(samples)
}

/// What is said of an order but for how it is dealt.
fn whole(spec: &OrderSpec) -> OrderSpec {
    OrderSpec { world: 1, ranks: vec![0], epoch: 0, epochs: None, batch: None, workers: None, ..spec.clone() }
}

/// Whether a later epoch is told by its number alone.
fn goes_on_by_epochs(clue: &Clue) -> bool {
    let by_number = !matches!(clue.spec.kind, OrderKind::Sequential | OrderKind::List | OrderKind::TorchRandom { .. });
    by_number && clue.epochs != Some(1) && clue.spec.subset.is_none()
}

/// The epoch that was read last (checkpoints are taken within it), the next one (it had been read to its end), the one before (nobody had come
/// to its first checkpoint), and the one after that in which the order was found.
fn near(found: Epoch, last: Epoch) -> Vec<Epoch> {
    let mut near = vec![last, last + 1];
    near.extend(last.checked_sub(1));
    near.push(found + 1);
    near
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_looked_for_near_where_it_was_left() {
        assert_eq!(near(0, 0), [0, 1, 1]);
        assert_eq!(near(3, 40), [40, 41, 39, 4]);
    }

    #[test]
    fn worlds_and_where_it_held_do_not_make_another_order() {
        let one = OrderSpec { seed: 7, world: 128, ranks: vec![3, 4], epoch: 2, ..OrderSpec::of(OrderKind::TorchDistributed) };
        let other = OrderSpec { world: 96, ranks: vec![0], epoch: 0, epochs: Some(3), ..one.clone() };
        assert_eq!(whole(&one), whole(&other));
        assert_ne!(whole(&one), whole(&OrderSpec { seed: 8, ..one.clone() }));
    }
}
