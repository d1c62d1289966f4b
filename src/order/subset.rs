//! Part of a dataset, chosen before the loader shuffles: `random_split`, the slices of a shuffled list of indices, a range.
//!
//! A loader over a subset yields places in it; the subset says which sample of the dataset each is. Source of the rules:
//! `torch/utils/data/dataset.py` (`random_split`, its lengths of fractions since 1.13), and the usual
//! `np.random.shuffle(indices); train, valid = indices[split:], indices[:split]` with split = floor(fraction * n).

use std::fmt;

use crate::order::again::Library;
use crate::order::mt19937::Mt19937;
use crate::order::numpy::Legacy;
use crate::order::pcg64::Pcg64;
use crate::order::python::Random;
use crate::order::torch::{outputs_of_randperm, randperm};
use crate::types::SampleIndex;

/// What shuffles the indices before they are cut into parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum By {
    /// `torch.utils.data.random_split`.
    #[default]
    Torch,
    /// `np.random.seed(seed); np.random.shuffle(indices)`.
    NumpyLegacy,
    /// `np.random.default_rng(seed)`.
    NumpyGenerator,
    /// `random.seed(seed); random.shuffle(indices)`.
    Python,
    /// Nothing: the parts are slices of the listing.
    Listing,
}

impl By {
    pub(crate) const ALL: [(&str, Self); 5] = [
        ("torch", Self::Torch),
        ("numpy-legacy", Self::NumpyLegacy),
        ("numpy-generator", Self::NumpyGenerator),
        ("python", Self::Python),
        ("listing", Self::Listing),
    ];
}

/// How long the parts are.
#[derive(Clone, Debug, PartialEq)]
pub enum Parts {
    /// Samples of each; together the dataset.
    Counts(Vec<u32>),
    /// Fractions, finite, together 1.
    Fractions(Vec<f64>),
}

// No fraction is NaN: the parser takes digits and a point.
impl Eq for Parts {}

impl Parts {
    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Counts(counts) => counts.len(),
            Self::Fractions(fractions) => fractions.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Samples of each part of `n`.
    fn lengths(&self, n: u32, by: By) -> Result<Vec<u32>, String> {
        let lengths = match self {
            Self::Counts(counts) => counts.clone(),
            Self::Fractions(fractions) => {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a fraction of n, at least 0")]
                let floor = |fraction: &f64| (f64::from(n) * fraction).floor() as u32;
                let mut lengths: Vec<u32> = fractions.iter().map(floor).collect();
                let rest = n.checked_sub(lengths.iter().sum()).ok_or("split: the parts are more than the whole")?;
                let count = lengths.len();
                if by == By::Torch {
                    // One more each for the first parts, round and round.
                    (0..rest as usize).for_each(|more| lengths[more % count] += 1);
                } else if let Some(last) = lengths.last_mut() {
                    *last += rest;
                }
                lengths
            }
        };
        let total: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
        if total == u64::from(n) {
            return Ok(lengths);
        }
        Err(format!("split: the parts are {total} samples together, the dataset has {n}: correct split=, or write fractions"))
    }
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = match self {
            Self::Counts(counts) => counts.iter().map(u32::to_string).collect(),
            Self::Fractions(fractions) => fractions.iter().map(|fraction| format!("{fraction:?}")).collect(),
        };
        f.write_str(&texts.join("+"))
    }
}

/// Which samples of a dataset a loader has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subset {
    /// Part number `part` (from 0) of the shuffled list.
    Split { by: By, seed: SplitSeed, parts: Parts, part: usize },
    /// Samples `first`, `first + step`, … up to `last`, in the listing's order.
    Range { first: u32, last: u32, step: u32 },
}

/// Where the split's randomness comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitSeed {
    /// A generator of its own.
    Own(u64),
    /// torch's default generator, which the split is the first to use; seeded with the order's seed.
    Default,
}

impl Subset {
    /// The samples of the dataset of `n` that belong to it, in the subset's own order.
    ///
    /// # Errors
    /// When it does not fit `n`; says which key to correct.
    pub fn indices(&self, n: u32, seed: u64) -> Result<Vec<SampleIndex>, String> {
        let (by, own, parts, part) = match self {
            &Self::Range { first, last, step } if last < n => return Ok((first..=last).step_by(step as usize).collect()),
            Self::Range { last, .. } => return Err(format!("indices: {last} is beyond the {n} samples")),
            Self::Split { by, seed, parts, part } => (*by, *seed, parts, *part),
        };
        let lengths = parts.lengths(n, by)?;
        let seed = if let SplitSeed::Own(own) = own { own } else { seed };
        let shuffled = match by {
            By::Torch => randperm(n, &mut Mt19937::new(seed)),
            By::NumpyLegacy => Legacy::seeded(seed).permutation(n),
            By::NumpyGenerator => Pcg64::seeded(seed).permutation(n),
            By::Python => Random::seeded(seed).permutation(n),
            By::Listing => (0..n).collect(),
        };
        let from = lengths[..part].iter().sum::<u32>() as usize;
        Ok(shuffled[from..from + lengths[part] as usize].to_vec())
    }

    /// Outputs of torch's default generator that it takes, of a dataset of `n`.
    #[must_use]
    pub fn outputs(&self, n: u32) -> u64 {
        match self {
            Self::Split { by: By::Torch, seed: SplitSeed::Default, .. } => outputs_of_randperm(n),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_floored_and_the_rest_given_out() {
        let parts = Parts::Fractions(vec![0.3, 0.3, 0.4]);
        assert_eq!(parts.lengths(11, By::Torch), Ok(vec![4, 3, 4]));
        assert_eq!(parts.lengths(11, By::Python), Ok(vec![3, 3, 5]));
        assert!(Parts::Counts(vec![5, 5]).lengths(11, By::Torch).unwrap_err().contains("10 samples together, the dataset has 11"));
    }

    #[test]
    fn the_parts_are_the_dataset() {
        for (name, by) in By::ALL {
            let part = |part| Subset::Split { by, seed: SplitSeed::Own(3), parts: Parts::Fractions(vec![0.8, 0.2]), part };
            let (first, second) = (part(0).indices(101, 0).unwrap(), part(1).indices(101, 0).unwrap());
            assert_eq!(first.len(), if by == By::Torch { 81 } else { 80 }, "{name}");
            let mut all = [first, second].concat();
            assert_eq!(all.is_sorted(), by == By::Listing);
            all.sort_unstable();
            assert!(all.into_iter().eq(0..101), "{name}");
        }
        assert_eq!(Subset::Range { first: 1, last: 7, step: 3 }.indices(8, 0).unwrap(), [1, 4, 7]);
        assert!(Subset::Range { first: 1, last: 8, step: 3 }.indices(8, 0).is_err());
    }
}
