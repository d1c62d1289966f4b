//! What forms a batch, and when. Pure; time is an argument.
//!
//! Entries wait in the order wanted (that of their tickets). A batch is full at [`BatchLimits::most`] entries or [`BatchLimits::bytes`]. Short of
//! that it goes once entries had [`GATHER`] to come together, if there are enough: with nothing under way [`BatchLimits::least`], and twice as
//! many for each batch under way, so that small batches go at once over an idle wire and large ones form by themselves over a busy one. What has
//! waited for [`WAIT_MAX`] goes with a small batch, and fewer than `least` go alone. A reader's demand takes an entry out at any time before.
//!
//! Its bound: one entry per prefetch under way, which the planner bounds.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::store::batch::BatchLimits;

/// What the planner asks for at once comes within this: its task gathers opens for a millisecond.
pub const GATHER: Duration = Duration::from_millis(2);
/// No entry is kept waiting for company longer than this while a place is free: a reader of 64 files a second still fills small batches (16), and
/// the planner's least window with batches is four of them, a second's worth of such a reader.
pub const WAIT_MAX: Duration = Duration::from_millis(250);
/// Larger objects go alone: at 1 MiB a batch is published to gain 1.7 times over single reads (arXiv 2602.22434), beyond it the bytes are what takes
/// the time, and a cut stream costs more than it saves.
const OBJECT_MAX: u64 = 1 << 20;

/// What is to be done with the entries that wait.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing waits.
    Idle,
    /// Nothing before this time, unless entries come or a batch ends.
    Wait(Duration),
    /// Nothing before a batch ends: all places are taken.
    WaitForPlace,
    /// A batch of so many bytes may go: ask for its place, then [`Former::take`].
    Batch(u64),
    /// Those that wait had better go alone: [`Former::take_all`].
    Alone,
}

/// The entries that wait: `E` is what the caller keeps of each.
#[derive(Debug)]
pub struct Former<E> {
    entries: BTreeMap<u64, (u64, E)>,
    bytes: u64,
    /// Since when those that wait have been gathering.
    since: Duration,
    running: usize,
}

impl<E> Default for Former<E> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), bytes: 0, since: Duration::ZERO, running: 0 }
    }
}

impl<E> Former<E> {
    /// Whether an object of so many bytes may join a batch. Of those that may, at least [`BatchLimits::least`] fit one.
    #[must_use]
    pub fn fits(size: u64, limits: &BatchLimits) -> bool {
        let least = u64::try_from(limits.least.max(1)).unwrap_or(u64::MAX);
        (1..=OBJECT_MAX.min(limits.bytes / least)).contains(&size)
    }

    /// Adds an entry. True when the caller should look at [`Self::step`] now.
    pub fn add(&mut self, now: Duration, ticket: u64, size: u64, entry: E, limits: &BatchLimits) -> bool {
        let (empty, was_due) = (self.entries.is_empty(), self.enough(limits));
        if empty {
            self.since = now;
        }
        if let Some((old, _)) = self.entries.insert(ticket, (size, entry)) {
            self.bytes -= old; // tickets are unique: not reached, and harmless
        }
        self.bytes += size;
        empty || !was_due && self.enough(limits)
    }

    /// Takes an entry out, if it still waits.
    pub fn withdraw(&mut self, ticket: u64) -> Option<E> {
        let (size, entry) = self.entries.remove(&ticket)?;
        self.bytes -= size;
        Some(entry)
    }

    /// Enough for the next batch, were they gathered.
    fn enough(&self, limits: &BatchLimits) -> bool {
        let doublings = u32::try_from(self.running.min(16)).unwrap_or(16);
        let wanted = limits.least.max(1).saturating_mul(1 << doublings).min(limits.most);
        self.entries.len() >= wanted || self.bytes >= limits.bytes
    }

    fn full(&self, limits: &BatchLimits) -> bool {
        self.entries.len() >= limits.most || self.bytes >= limits.bytes
    }

    /// What to do now, with at most `places` batches under way at once.
    #[must_use]
    pub fn step(&self, now: Duration, limits: &BatchLimits, places: usize) -> Step {
        if self.entries.is_empty() {
            return Step::Idle;
        }
        let (gathered, patience) = (self.since + GATHER, self.since + WAIT_MAX);
        let few = self.entries.len() < limits.least;
        if few && !self.full(limits) || places == 0 {
            return if now >= patience { Step::Alone } else { Step::Wait(patience) };
        }
        if self.running >= places {
            return Step::WaitForPlace;
        }
        if self.full(limits) || now >= patience || self.enough(limits) && now >= gathered {
            return Step::Batch(self.entries.values().map(|(size, _)| size).scan(0, within(limits, u64::MAX)).last().unwrap_or(0));
        }
        Step::Wait(if self.enough(limits) { gathered } else { patience })
    }

    /// The next batch, in order: its entries, of no more than `bytes` together. It counts as under way until [`Self::ended`]. The first is taken
    /// however large it is.
    pub fn take(&mut self, now: Duration, limits: &BatchLimits, bytes: u64) -> Vec<(u64, E)> {
        let count = self.entries.values().map(|(size, _)| size).scan(0, within(limits, bytes)).count().max(1).min(self.entries.len());
        let rest = match self.entries.keys().nth(count).copied() {
            Some(ticket) => self.entries.split_off(&ticket),
            None => BTreeMap::new(),
        };
        let taken: Vec<_> =
            std::mem::replace(&mut self.entries, rest).into_iter().map(|(ticket, (size, entry))| (ticket, size, entry)).collect();
        self.bytes -= taken.iter().map(|(_, size, _)| size).sum::<u64>();
        self.since = now;
        self.running += usize::from(!taken.is_empty());
        taken.into_iter().map(|(ticket, _, entry)| (ticket, entry)).collect()
    }

    /// All that wait.
    pub fn take_all(&mut self) -> Vec<E> {
        self.bytes = 0;
        std::mem::take(&mut self.entries).into_values().map(|(_, entry)| entry).collect()
    }

    /// A batch ended.
    pub fn ended(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    /// Batches under way.
    #[must_use]
    pub const fn running(&self) -> usize {
        self.running
    }

    /// Entries that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Sums sizes as long as they fit the limits.
fn within(limits: &BatchLimits, bytes: u64) -> impl FnMut(&mut u64, &u64) -> Option<u64> + use<> {
    let (mut left, bytes) = (limits.most, limits.bytes.min(bytes));
    move |sum, size| {
        left = left.checked_sub(1)?;
        *sum += size;
        (*sum <= bytes).then_some(*sum)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: BatchLimits = BatchLimits { least: 4, most: 32, bytes: 1 << 20, at_once: 3 };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn filled(tickets: impl IntoIterator<Item = u64>) -> Former<u64> {
        let mut former = Former::default();
        for ticket in tickets {
            former.add(ms(0), ticket, 1000, ticket, &LIMITS);
        }
        former
    }

    fn tickets(batch: Vec<(u64, u64)>) -> Vec<u64> {
        batch.into_iter().map(|(ticket, _)| ticket).collect()
    }

    #[test]
    fn a_small_batch_goes_at_once_over_an_idle_wire_and_larger_ones_form_over_a_busy_one() {
        let mut former = filled([2, 1, 3]);
        assert_eq!(former.step(ms(2), &LIMITS, 3), Step::Wait(WAIT_MAX), "too few");
        assert!(former.add(ms(2), 0, 1000, 0, &LIMITS), "enough by now");
        assert_eq!(former.step(ms(1), &LIMITS, 3), Step::Wait(GATHER));
        assert_eq!(former.step(ms(2), &LIMITS, 3), Step::Batch(4000));
        assert_eq!(tickets(former.take(ms(2), &LIMITS, 4000)), [0, 1, 2, 3], "in the order wanted");
        for ticket in 0..7 {
            former.add(ms(3), ticket, 1000, ticket, &LIMITS);
        }
        assert_eq!(former.step(ms(9), &LIMITS, 3), Step::Wait(ms(3) + WAIT_MAX), "one under way: eight are wanted");
        former.add(ms(9), 7, 1000, 7, &LIMITS);
        assert_eq!(former.step(ms(9), &LIMITS, 1), Step::WaitForPlace);
        assert_eq!(former.step(ms(9), &LIMITS, 2), Step::Batch(8000));
        former.ended();
        assert_eq!(former.step(ms(9), &LIMITS, 1), Step::Batch(8000));
    }

    #[test]
    fn the_full_batch_needs_no_time_and_the_few_go_alone_after_theirs() {
        let mut former = filled(0..40);
        assert_eq!(former.step(ms(0), &LIMITS, 3), Step::Batch(32_000));
        assert_eq!(former.take(ms(0), &LIMITS, 5_500).len(), 5, "no more bytes than there is a place for");
        assert_eq!(former.take(ms(0), &LIMITS, u64::MAX).len(), 32);
        assert_eq!(former.len(), 3);
        assert_eq!(former.step(ms(250), &LIMITS, 3), Step::Alone);
        assert_eq!(former.take_all(), [37, 38, 39]);
        assert_eq!((former.step(ms(250), &LIMITS, 3), former.running()), (Step::Idle, 2));
    }

    #[test]
    fn large_objects_and_empty_ones_are_not_for_batches() {
        let fits = |size| Former::<()>::fits(size, &LIMITS);
        assert_eq!([0, 1, 256 << 10, (256 << 10) + 1].map(fits), [false, true, true, false]);
        let roomy = BatchLimits { bytes: 1 << 30, ..LIMITS };
        assert_eq!([1 << 20, (1 << 20) + 1].map(|size| Former::<()>::fits(size, &roomy)), [true, false]);
    }

    #[derive(Clone, Debug)]
    enum Act {
        Add(u64),
        Pass(u64),
        Withdraw(u64),
        End,
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            8 => (1..300_000u64).prop_map(Act::Add),
            3 => (0..40u64).prop_map(Act::Pass),
            1 => (0..200u64).prop_map(Act::Withdraw),
            3 => Just(Act::End),
        ];
        prop::collection::vec(act, 0..300)
    }

    proptest! {
        /// Every entry leaves exactly once; batches keep their limits and the order; nobody waits beyond his time while a place is free; a look
        /// that says to wait, and no news, is not followed by something due before that time.
        #[test]
        fn batches_keep_their_limits_and_nobody_is_forgotten(acts in acts(), places in 0..4usize) {
            let mut former = Former::default();
            let (mut now, mut ticket) = (ms(0), 0u64);
            let mut inside = BTreeMap::new();
            for act in acts {
                match act {
                    Act::Add(size) if Former::<u64>::fits(size, &LIMITS) => {
                        former.add(now, ticket, size, ticket, &LIMITS);
                        inside.insert(ticket, (size, now));
                        ticket += 1;
                    }
                    Act::Add(_) => {}
                    Act::Pass(time) => now += ms(time),
                    Act::Withdraw(ticket) => prop_assert_eq!(former.withdraw(ticket).is_some(), inside.remove(&ticket).is_some()),
                    Act::End => former.ended(),
                }
                loop {
                    match former.step(now, &LIMITS, places) {
                        Step::Idle => prop_assert!(inside.is_empty()),
                        Step::Wait(until) => {
                            prop_assert!(until > now);
                            prop_assert!(until <= now + WAIT_MAX);
                            for just_before in [now, now + (until - now) / 2] {
                                prop_assert_eq!(former.step(just_before, &LIMITS, places), Step::Wait(until));
                            }
                        }
                        Step::WaitForPlace => prop_assert_eq!(former.running(), places),
                        Step::Batch(bytes) => {
                            prop_assert!(bytes <= LIMITS.bytes && former.running() < places);
                            let batch = tickets(former.take(now, &LIMITS, bytes));
                            prop_assert!((LIMITS.least..=LIMITS.most).contains(&batch.len()) || inside.len() < LIMITS.least);
                            let first: Vec<_> = inside.keys().copied().take(batch.len()).collect();
                            prop_assert_eq!(&batch, &first);
                            prop_assert_eq!(batch.iter().map(|ticket| inside.remove(ticket).expect("inside").0).sum::<u64>(), bytes);
                            continue;
                        }
                        Step::Alone => {
                            prop_assert!(places == 0 || inside.len() < LIMITS.least);
                            let all = former.take_all();
                            prop_assert_eq!(&all, &inside.keys().copied().collect::<Vec<_>>());
                            inside.clear();
                            continue;
                        }
                    }
                    break;
                }
                prop_assert_eq!(former.len(), inside.len());
                prop_assert_eq!(former.bytes, inside.values().map(|(size, _)| size).sum::<u64>());
            }
        }
    }
}
