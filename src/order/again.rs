//! Shuffles of a library's generator, epoch after epoch: the three or four ways in which programs call `shuffle` again.

use std::fmt::Debug;
use std::marker::PhantomData;

use crate::order::Shuffle;
use crate::types::{Epoch, SampleIndex};

/// A library's generator and its way to shuffle.
pub trait Library: Clone + Debug + Send + Sync {
    fn seeded(seed: u64) -> Self;

    fn shuffle<T>(&mut self, items: &mut [T]);

    /// A new list 0..n, shuffled.
    fn permutation(&mut self, n: u32) -> Vec<SampleIndex> {
        let mut places: Vec<SampleIndex> = (0..n).collect();
        self.shuffle(&mut places);
        places
    }
}

/// What happens at the next epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Again {
    /// A new list, shuffled by the same running generator: `np.random.permutation(n)` each epoch.
    #[default]
    Permutation,
    /// The list of the epoch before is shuffled again, in place, by the running generator: `random.shuffle(files)` each epoch.
    InPlace,
    /// A new list, shuffled by a generator of seed + epoch.
    Reseeded,
    /// Shuffled once: every epoch is the first.
    Never,
}

impl Again {
    pub(crate) const ALL: [(&str, Self); 4] =
        [("permutation", Self::Permutation), ("in-place", Self::InPlace), ("reseeded", Self::Reseeded), ("never", Self::Never)];
}

/// A list of `n` samples that `G` shuffles. A late epoch of a running generator costs the shuffles of all before it.
#[derive(Clone, Debug)]
pub struct Shuffled<G> {
    n: u32,
    seed: u64,
    again: Again,
    library: PhantomData<G>,
}

impl<G> Shuffled<G> {
    #[must_use]
    pub const fn new(n: u32, seed: u64, again: Again) -> Self {
        Self { n, seed, again, library: PhantomData }
    }
}

impl<G: Library> Shuffle for Shuffled<G> {
    fn epoch(&self, epoch: Epoch) -> Vec<SampleIndex> {
        let (seed, earlier) = match self.again {
            Again::Permutation | Again::InPlace => (self.seed, epoch),
            Again::Reseeded => (self.seed.wrapping_add(epoch), 0),
            Again::Never => (self.seed, 0),
        };
        let mut generator = G::seeded(seed);
        // Draws are rejected by their value, not by what is shuffled, so a list of nothing is shuffled as fast as it can be.
        if self.again == Again::Permutation {
            let mut nothing = vec![(); self.n as usize];
            (0..earlier).for_each(|_| generator.shuffle(&mut nothing));
            return generator.permutation(self.n);
        }
        let mut places = generator.permutation(self.n);
        (0..earlier).for_each(|_| generator.shuffle(&mut places));
        places
    }

    fn len(&self) -> u32 {
        self.n
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::numpy::Legacy;

    #[test]
    fn the_ways_differ_and_the_first_epoch_does_not() {
        let epochs = |again: Again| [0, 1, 2].map(|epoch| Shuffled::<Legacy>::new(50, 7, again).epoch(epoch));
        let mut running = Legacy::seeded(7);
        let news = [(); 3].map(|()| running.permutation(50));
        assert_eq!(epochs(Again::Permutation), news);
        let mut running = Legacy::seeded(7);
        let mut list: Vec<u32> = (0..50).collect();
        let same = [(); 3].map(|()| {
            running.shuffle(&mut list);
            list.clone()
        });
        assert_eq!(epochs(Again::InPlace), same);
        assert_eq!(epochs(Again::Reseeded), [7, 8, 9].map(|seed| Legacy::seeded(seed).permutation(50)));
        assert_eq!(epochs(Again::Never), [(); 3].map(|()| news[0].clone()));
        assert_ne!(news[1], same[1]);
    }
}
