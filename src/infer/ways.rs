//! How an order may go on after the epoch that is read, where that epoch does not tell: by another stride of the default generator (`strides`), or
//! by another way to shuffle again (`order/again`), since the first epoch of all of those is the same. The planner holds them side by side until
//! the next epoch's first opens decide.

use super::strides::{self, Beside, Shown};
use crate::order::again::Again;
use crate::order::spec::OrderSpec;
use crate::plan::{Going, Way, WayOn};
use crate::types::Epoch;

/// Other ways to shuffle again, the likeliest first. That the first epoch comes again is compared for every order.
const AGAIN: [Again; 3] = [Again::Permutation, Again::InPlace, Again::Reseeded];

/// The order that goes on after `epoch` by another way, and the number of its next epoch.
pub(super) fn by(spec: &OrderSpec, epoch: Epoch, way: Way) -> Option<(OrderSpec, Epoch)> {
    if spec.kind.again().is_none() {
        return strides::by(spec, epoch, way);
    }
    let again = AGAIN.into_iter().find(|&again| number(again) == way)?;
    Some((OrderSpec { kind: spec.kind.shuffled(again), ..spec.clone() }, epoch + 1))
}

/// The ways on after `epoch`, which is being read, other than the one that is supposed. `samples` are an epoch's.
pub(super) fn on(spec: &OrderSpec, epoch: Epoch, going: Going, samples: u64, beside: Beside, shown: &Shown) -> Vec<WayOn> {
    match (spec.kind.again(), strides::output_of(spec, 0)) {
        // A later epoch has told.
        (Some(now), _) if epoch == 0 && !going.proven => {
            // DALI's reader and webdataset do not know all of them, and no epoch is added to a text.
            let is_number = |again: &Again| spec.seed_text.is_none() || *again != Again::Reseeded;
            let is_other = |again: &Again| *again != now && is_number(again) && spec.kind.shuffled(*again).again() == Some(*again);
            AGAIN.into_iter().filter(is_other).map(|again| WayOn { way: number(again), likely: true }).collect()
        }
        (None, Some((_, stride))) => strides::ways(stride, going, samples, beside, shown),
        _ => Vec::new(),
    }
}

/// What is told of an order that has gone on by this way.
pub(super) fn why(spec: &OrderSpec, way: Way) -> String {
    match spec.kind.again() {
        Some(_) => "the epoch after the first tells how it is shuffled again".to_owned(),
        None => format!("the default generator goes on, {way} outputs after the epoch before"),
    }
}

/// When it does, for people.
pub(super) fn condition(spec: &OrderSpec, way: Way) -> String {
    let again = Again::ALL.into_iter().find(|&(_, again)| spec.kind.again().is_some() && number(again) == way);
    match again {
        Some((name, _)) => format!("it is shuffled again with again={name}"),
        None => format!("its generator gives {way} numbers between two epochs"),
    }
}

/// 0 is the way that is supposed.
const fn number(again: Again) -> Way {
    match again {
        Again::Permutation => 1,
        Again::InPlace => 2,
        Again::Reseeded => 3,
        Again::Never => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_goes_on_in_three_ways_until_its_second_epoch() {
        let going = |proven| Going { way: 0, proven, epoch: 0, reached: 0, began: None };
        let on = |text: &str, epoch, proven| {
            let spec: OrderSpec = text.parse().unwrap();
            let ways = on(&spec, epoch, going(proven), 100, Beside::default(), &Shown::default());
            ways.into_iter().map(|on| by(&spec, epoch, on.way).unwrap()).collect::<Vec<_>>()
        };
        for kind in ["numpy-legacy", "numpy-generator", "python-shuffle", "python-sample:k=50"] {
            let spec = |again: &str| format!("{kind}:seed=7:again={again}").parse::<OrderSpec>().unwrap();
            assert_eq!(on(&format!("{kind}:seed=7"), 0, false), [(spec("in-place"), 1), (spec("reseeded"), 1)]);
            let others = [(spec("permutation"), 1), (spec("in-place"), 1)];
            assert_eq!(on(&format!("{kind}:seed=7:again=reseeded"), 0, false), others);
            assert!(on(&format!("{kind}:seed=7"), 1, false).is_empty() && on(&format!("{kind}:seed=7"), 0, true).is_empty());
        }
        let dali = |again: &str| format!("dali:shuffle_after_epoch=true:again={again}");
        assert_eq!(on(&dali("in-place"), 0, false), [(dali("reseeded").parse().unwrap(), 1)]);
        assert!(condition(&"numpy-legacy:seed=1".parse().unwrap(), 2).contains("again=in-place"));
        assert!(on("torch-distributed:seed=7", 0, false).is_empty());
        assert!(!on("torch-random:seed=7:offset=3", 0, false).is_empty());
    }
}
