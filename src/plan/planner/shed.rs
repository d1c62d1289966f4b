//! A tier became larger or smaller while it is in use.
//!
//! Larger: the window follows, and prefetch fills it. Smaller: the books let go of what is above, the least worth first: disposables, the worst
//! kept, then what is due last. Files somebody reads go when they are released, files in flight when they have landed. Prefetch puts nothing into
//! such a tier meanwhile, because it has no room. How far orders are looked ahead in epochs stays as it was.

use super::Planner;
use crate::plan::Action;
use crate::types::FileIndex;

/// Files looked at per event: each may be an unlink (some 10 µs in memory), and readers' events wait meanwhile. With ten ticks a second this gives
/// back 1 GB/s of 110 KB files when nobody reads at all.
const SHED_STEPS: u32 = 1024;

impl Planner {
    pub(super) fn resize(&mut self, tier: usize, bytes: u64) {
        self.books.set_capacity(tier, bytes);
        self.window.resize(self.books.capacity());
        self.reserve();
        self.books.set_reserve(self.window.bytes());
        self.shedding = self.books.is_above();
        self.blocked = false;
    }

    /// A piece of the way down to a smaller capacity.
    pub(super) fn shed(&mut self, out: &mut Vec<Action>) {
        if !self.shedding {
            return;
        }
        let before = out.len();
        let left = self.books.shed_used(SHED_STEPS, out);
        self.shed_latest(left, out);
        for action in &out[before..] {
            if let Action::Retire { file } = *action {
                // it may be due in a part that prefetch has gone past
                self.orders.iter_mut().for_each(|order| order.rewind(file));
            }
        }
        self.shedding = self.books.is_above();
    }

    /// Lets go of what is here for a use to come: what prefetch came to last, then what is ready outside of all passes.
    fn shed_latest(&mut self, mut steps: u32, out: &mut Vec<Action>) {
        let Self { orders, books, .. } = self;
        let passes = orders.iter().filter(|order| order.is_locked()).flat_map(|order| order.passes.iter().rev());
        for (pass, place) in passes.flat_map(|pass| (pass.front()..pass.scan).rev().map(move |place| (pass, place))) {
            if steps == 0 || !books.is_above() {
                return;
            }
            steps -= 1;
            if !pass.is_opened(place) {
                books.shed_ready(pass.file(place), out);
            }
        }
        while steps > 0 && books.is_above() {
            steps -= 1;
            if self.shed_from >= books.files() {
                self.shed_from = 0;
                return;
            }
            books.shed_ready(FileIndex(self.shed_from), out);
            self.shed_from += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::plan::residency::Class;
    use crate::plan::{EpochFiles, Event, OrderConfig, PlannerConfig};
    use crate::types::Outcome;

    const FILES: u32 = 400;
    const SIZE: u64 = 100;

    /// A planner of one sequential order, and a cache that does what it is told.
    struct Rig {
        planner: Planner,
        now: Duration,
        /// Files here, as the actions make it.
        here: Vec<bool>,
        read: u32,
    }

    impl Rig {
        fn new(capacity: u64) -> Self {
            let config = PlannerConfig { in_flight_max: 8, ..PlannerConfig::new(vec![capacity]) };
            let mut planner = Planner::new(config, vec![SIZE; FILES as usize].into());
            planner.add_order(OrderConfig::default());
            Self { planner, now: Duration::ZERO, here: vec![false; FILES as usize], read: 0 }
        }

        /// One event and all that follows from it; the files asked for.
        fn tell(&mut self, event: Event) -> Vec<FileIndex> {
            let (mut events, mut asked) = (vec![event], Vec::new());
            while let Some(event) = events.pop() {
                self.now += Duration::from_millis(1);
                let mut out = Vec::new();
                self.planner.handle(self.now, event, &mut out);
                self.planner.books().check();
                for action in out {
                    match action {
                        Action::Compute { order, epoch, way } => {
                            let files = Arc::new(EpochFiles { files: (0..FILES).map(FileIndex).collect(), stride: 1 });
                            events.push(Event::Order { order, epoch, way, files });
                        }
                        Action::Fetch { file, tier } => {
                            asked.push(file);
                            self.here[file.at()] = true;
                            events.insert(0, Event::Fetched { file, tier, ahead: true });
                        }
                        Action::Retire { file } => self.here[file.at()] = false,
                    }
                }
            }
            asked
        }

        fn read(&mut self, files: u32) {
            for _ in 0..files {
                let file = FileIndex(self.read % FILES);
                self.read += 1;
                let outcome = if self.here[file.at()] { Outcome::InTime } else { Outcome::Miss };
                self.tell(Event::Opened { file, process: 1, outcome });
                if outcome == Outcome::Miss {
                    self.here[file.at()] = true;
                    self.tell(Event::Fetched { file, tier: 0, ahead: false });
                }
                self.tell(Event::Released { file });
            }
        }

        fn here(&self) -> u64 {
            self.here.iter().filter(|here| **here).count() as u64 * SIZE
        }
    }

    #[test]
    fn a_smaller_tier_is_emptied_at_once_and_a_larger_one_filled_again() {
        let mut rig = Rig::new(30_000);
        rig.tell(Event::Tick);
        rig.read(600);
        assert!(rig.here() > 25_000, "{} of 30,000 in use", rig.here());
        rig.tell(Event::Capacity { tier: 0, bytes: 5_000 });
        assert!(rig.here() <= 5_000, "{}", rig.here());
        let window = rig.planner.view().window_bytes;
        assert!(window <= 5_000 / 4, "the window follows: {window}");
        rig.read(400);
        assert!(rig.here() <= 5_100, "and one that is read: {}", rig.here());
        rig.tell(Event::Capacity { tier: 0, bytes: 30_000 });
        rig.read(900);
        assert!(rig.here() > 25_000, "{} of 30,000 in use again", rig.here());
        assert!(rig.planner.order(0).predicted * 100 >= rig.planner.order(0).observed * 99);
    }

    #[test]
    fn what_is_due_first_stays_longest() {
        let mut rig = Rig::new(30_000);
        rig.tell(Event::Tick);
        rig.read(10);
        // nothing but what is ahead: 64 files of window
        rig.tell(Event::Capacity { tier: 0, bytes: 2_000 });
        let ready: Vec<u32> = (0..FILES).filter(|f| rig.planner.books().class(FileIndex(*f)) == Class::Ready).collect();
        assert_eq!(ready, (10..30).collect::<Vec<_>>(), "the next twenty");
        // the rest is asked for again when its time comes
        let misses = |rig: &Rig| rig.planner.epochs(0).map(|epoch| epoch.miss).sum::<u64>();
        let before = misses(&rig);
        rig.read(100);
        assert_eq!(misses(&rig), before);
    }

    #[test]
    fn nothing_is_asked_for_while_it_is_above() {
        let mut rig = Rig::new(30_000);
        rig.tell(Event::Tick);
        rig.read(400);
        for file in 0..FILES {
            rig.tell(Event::Opened { file: FileIndex(file), process: 9, outcome: Outcome::Retained });
        }
        let asked = rig.tell(Event::Capacity { tier: 0, bytes: 1_000 });
        assert_eq!(asked, [], "all that is here is open");
        assert!(rig.here() > 1_000);
        for file in 0..FILES {
            rig.tell(Event::Released { file: FileIndex(file) });
        }
        assert!(rig.here() <= 1_000, "{}", rig.here());
    }
}
