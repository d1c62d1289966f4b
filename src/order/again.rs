//! Shuffles of a library's generator, epoch after epoch: the four ways in which programs call `shuffle` again.

use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};

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

/// A list of `n` samples that `G` shuffles.
///
/// A running generator cannot be set ahead: epoch e costs the shuffles of all before it, unless the epoch before was the last one asked for.
#[derive(Debug)]
pub struct Shuffled<G> {
    n: u32,
    seed: u64,
    again: Again,
    /// The generator of the first epoch, where no number seeds it.
    first: Option<G>,
    /// A running generator where it was left, so that epochs in a row cost one shuffle each.
    left: Mutex<Option<Running<G>>>,
}

/// A generator that has shuffled epochs 0 to `next` - 1, and the list as it left it.
#[derive(Debug)]
struct Running<G> {
    generator: G,
    places: Vec<SampleIndex>,
    next: Epoch,
}

impl<G: Library> Shuffled<G> {
    #[must_use]
    pub const fn new(n: u32, seed: u64, again: Again) -> Self {
        Self { n, seed, again, first: None, left: Mutex::new(None) }
    }

    /// ... of a generator that was seeded with no number; `again` is not [`Again::Reseeded`].
    #[must_use]
    pub const fn of(n: u32, first: G, again: Again) -> Self {
        Self { n, seed: 0, again, first: Some(first), left: Mutex::new(None) }
    }

    fn first(&self) -> G {
        self.first.clone().unwrap_or_else(|| G::seeded(self.seed))
    }

    fn running(&self, epoch: Epoch) -> Vec<SampleIndex> {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut running = left.filter(|running| running.next <= epoch).unwrap_or_else(|| Running {
            generator: self.first(),
            places: (0..self.n).collect(),
            next: 0,
        });
        while running.next <= epoch {
            if self.again == Again::Permutation {
                running.places.iter_mut().zip(0..).for_each(|(place, sample)| *place = sample);
            }
            running.generator.shuffle(&mut running.places);
            running.next += 1;
        }
        let places = running.places.clone();
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
        places
    }
}

impl<G: Library> Shuffle for Shuffled<G> {
    fn epoch(&self, epoch: Epoch) -> Vec<SampleIndex> {
        match self.again {
            Again::Permutation | Again::InPlace => self.running(epoch),
            Again::Reseeded => G::seeded(self.seed.wrapping_add(epoch)).permutation(self.n),
            Again::Never => G::seeded(self.seed).permutation(self.n),
        }
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

    #[test]
    fn epochs_may_be_asked_for_in_any_sequence() {
        for again in [Again::Permutation, Again::InPlace] {
            let shuffled = Shuffled::<Legacy>::new(50, 7, again);
            for epoch in [2, 3, 3, 0, 5, 1] {
                assert_eq!(shuffled.epoch(epoch), Shuffled::<Legacy>::new(50, 7, again).epoch(epoch), "{again:?} {epoch}");
            }
        }
    }
}
