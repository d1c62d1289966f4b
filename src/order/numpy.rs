//! numpy's shuffles, bit for bit (numpy 1.24 to 2.4): `RandomState` (`np.random.seed`, `np.random.shuffle`) and `Generator` (`default_rng`).
//!
//! Both settle the last place first: for i = n - 1 .. 1 swap place i with a place drawn from 0..=i, by masking and rejection. `permutation(n)`
//! is `shuffle(arange(n))`, and a list is shuffled like an array. Source: `numpy/random/mtrand.pyx`, `_generator.pyx`, `random_interval` in
//! `src/distributions/distributions.c`.

use crate::order::again::Library;
use crate::order::mt19937::Mt19937;
use crate::order::pcg64::Pcg64;
use crate::types::SampleIndex;

/// `random_interval`: a number from 0 to `max`; draws 32 bits as often as it takes, none where there is no choice.
fn interval(max: u32, mut next32: impl FnMut() -> u32) -> u32 {
    if max == 0 {
        return 0;
    }
    let mask = u32::MAX >> max.leading_zeros();
    loop {
        let value = next32() & mask;
        if value <= max {
            return value;
        }
    }
}

fn shuffle<T>(items: &mut [T], mut next32: impl FnMut() -> u32) {
    for last in (1..items.len()).rev() {
        let max = u32::try_from(last).expect("no more items than samples, whose number is a u32");
        items.swap(last, interval(max, &mut next32) as usize);
    }
}

/// `np.random.RandomState(seed)`, for a seed below 2^32 (numpy takes no other).
#[derive(Clone, Debug)]
pub struct Legacy(Mt19937);

impl Library for Legacy {
    fn seeded(seed: u64) -> Self {
        Self(Mt19937::new(seed))
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        shuffle(items, || self.0.random());
    }
}

impl Library for Pcg64 {
    fn seeded(seed: u64) -> Self {
        Self::new(seed)
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        shuffle(items, || self.next32());
    }
}

/// `np.random.RandomState(seed).permutation(n)`.
#[must_use]
pub fn legacy_permutation(n: u32, seed: u64) -> Vec<SampleIndex> {
    Legacy::seeded(seed).permutation(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_masked_and_rejected() {
        let mut draws = [0b1111, 0b0110, 0b1_0101].into_iter();
        assert_eq!(interval(5, || draws.next().unwrap()), 0b101, "7 and 6 are above 5");
        assert_eq!(interval(0, || unreachable!("nothing to choose")), 0);
        assert_eq!(interval(u32::MAX, || u32::MAX), u32::MAX);
    }
}
