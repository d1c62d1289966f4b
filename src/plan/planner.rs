//! [`Planner`]: hands events to the orders' cursors and to the books, and fetches what is due earliest.

mod adopt;
mod owner;
mod rest;
mod shed;

use std::sync::Arc;
use std::time::Duration;

use owner::Readers;

use super::bounds::Ideal;
use super::count::EpochCount;
use super::cursor::{Choice, Cursor, Pause};
use super::lookahead::Window;
use super::next_use::{FAR, Round};
use super::residency::{Class, Residency};
use super::{Action, Event, Going, OrderConfig, OrderIndex, OrderView, PlannerConfig, PlannerView, Way, WayOn};
use crate::types::{Epoch, ErrorKind, FileIndex, Outcome};

/// Places looked at per event: prefetch over a fully cached epoch must not make one event slow (about 40 µs).
const SCAN_STEPS: u32 = 4096;
/// Files re-examined per event after the orders changed; a million files take a thousand events.
const SWEEP_FILES: u32 = 1024;
/// Handles and fetches whose end was never told are given up after two sweeps of this distance: a read ends within 300 s (design §2).
const SWEEP_EVERY: Duration = Duration::from_secs(300);
/// A fetch that failed for a moment's reason is asked for again after this long.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Failed fetches waiting for it; beyond that demand will fetch them.
const RETRIES_MAX: usize = 1024;
/// Fetches asked for per concurrent request of the store: one on the wire, one waiting, so that the door never idles.
const QUEUE_PER_REQUEST: u32 = 2;

/// So many opens of other files, and none of an order, are worth a word.
const UNREAD_AFTER: u64 = 128;
const UNREAD: &str = "files are read, but none of this node's stream: check ranks, world size and root";

/// See the module documentation of [`super`].
#[derive(Debug)]
pub struct Planner {
    sizes: Arc<[u64]>,
    /// What each file takes in a tier.
    rooms: Arc<[u64]>,
    orders: Vec<Cursor>,
    readers: Readers,
    books: Residency,
    window: Window,
    ideal: Ideal,
    in_flight_max: u32,
    /// No room, by the cache's word: wait for a tick or for something to be freed.
    blocked: bool,
    /// A tier became smaller than what is in it, and is being emptied.
    shedding: bool,
    /// Next file the emptying looks at.
    shed_from: u32,
    retries: Vec<(Duration, FileIndex)>,
    /// Next file of the running sweep.
    sweep: Option<u32>,
    swept_at: Duration,
    /// The running sweep also looks for lost events.
    sweep_suspects: bool,
    accesses: EpochCount,
    unassigned: EpochCount,
    /// The order that the last open was where it was expected in.
    claimed: Option<OrderIndex>,
    passed: Vec<FileIndex>,
    /// Of the event being handled.
    now: Duration,
    /// Latest round any order was in.
    last_round: Round,
}

impl Planner {
    /// `sizes`: bytes of each file of the manifest.
    #[must_use]
    pub fn new(config: PlannerConfig, sizes: Arc<[u64]>) -> Self {
        let rooms: Arc<[u64]> = sizes.iter().map(|&size| (config.room)(size)).collect();
        let books = Residency::new(&config.tiers, Arc::clone(&rooms));
        let total: u64 = rooms.iter().fold(0, |sum, &size| sum.saturating_add(size));
        let window = Window::new(books.capacity(), total / u64::try_from(sizes.len()).unwrap_or(1).max(1), total);
        let mut planner = Self {
            ideal: Ideal::new(sizes.len()),
            sizes,
            rooms,
            orders: Vec::new(),
            readers: Readers::default(),
            books,
            window,
            in_flight_max: config.in_flight_max.max(1),
            blocked: false,
            shedding: false,
            shed_from: 0,
            retries: Vec::new(),
            sweep: None,
            swept_at: Duration::ZERO,
            sweep_suspects: false,
            accesses: EpochCount::default(),
            unassigned: EpochCount::default(),
            claimed: None,
            passed: Vec::new(),
            now: Duration::ZERO,
            last_round: 0,
        };
        planner.reserve();
        planner
    }

    /// Another order of this mount. Its epochs are asked for with the next event.
    pub fn add_order(&mut self, config: OrderConfig) -> OrderIndex {
        self.orders.push(Cursor::new(config, self.sizes.len(), self.books.capacity()));
        self.orders.len() - 1
    }

    /// Takes one event, and appends what is to be done, the most urgent first.
    pub fn handle(&mut self, now: Duration, event: Event, out: &mut Vec<Action>) {
        self.now = now;
        match event {
            Event::Opened { file, process, outcome } if file.at() < self.sizes.len() => self.opened(now, file, process, outcome),
            Event::Released { file } if file.at() < self.sizes.len() => {
                if self.books.released(file) {
                    self.blocked = false;
                }
            }
            Event::Fetched { file, tier, ahead } if file.at() < self.sizes.len() => self.fetched(file, tier, ahead),
            Event::Failed { file, kind } if file.at() < self.sizes.len() => self.failed(now, file, kind),
            Event::Present(files) => {
                let unknown = |file: FileIndex, books: &Residency| file.at() < self.sizes.len() && books.class(file) == Class::Absent;
                for (file, tier) in files {
                    if !unknown(file, &self.books) {
                        continue; // asked for, or read, before the cache knew all it has
                    }
                    let round = self.next_round(file);
                    self.books.present(file, tier, round);
                    self.ideal.hold(file, self.rooms[file.at()], round, self.books.kept_limit());
                }
            }
            Event::Gone { file } if file.at() < self.sizes.len() => {
                self.books.gone(file);
                self.blocked = false;
                self.orders.iter_mut().for_each(|order| order.rewind(file));
            }
            Event::Order { order, epoch, way, files } => {
                let round = self.round();
                if let Some(cursor) = self.orders.get_mut(order) {
                    cursor.on_order(epoch, way, files, &self.sizes, round);
                }
            }
            Event::Capacity { tier, bytes } => self.resize(tier, bytes),
            Event::Measured { bytes_per_second, latency_p999, in_flight_max, .. } => {
                self.window.measured(bytes_per_second, latency_p999);
                self.in_flight_max = in_flight_max.max(1);
                self.reserve();
            }
            Event::Batches { least } => self.window.batches_of(least),
            Event::Tick => self.tick(now),
            // A file this planner was not told of: the caller has another manifest. Nothing to plan.
            Event::Opened { .. } | Event::Released { .. } | Event::Fetched { .. } | Event::Failed { .. } | Event::Gone { .. } => {}
        }
        self.step(out);
    }

    /// The round new orders begin in: that of the order furthest on, or a new one.
    fn round(&self) -> Round {
        let reading = self.orders.iter().filter(|order| order.is_locked()).map(Cursor::round).max();
        reading.unwrap_or(self.last_round + 1)
    }

    /// Round of the next use over all orders that are followed.
    fn next_round(&self, file: FileIndex) -> Round {
        self.orders.iter().filter(|order| order.is_locked()).filter_map(|order| order.next_use.next(file, 0)).min().unwrap_or(FAR)
    }

    fn any_locked(&self) -> bool {
        self.orders.iter().any(Cursor::is_locked)
    }

    fn opened(&mut self, now: Duration, file: FileIndex, process: u32, outcome: Outcome) {
        self.books.opened(file);
        let waited = matches!(outcome, Outcome::Late | Outcome::Miss);
        // What comes after a finished pass is judged anew.
        let owner = self.owner(file, process).filter(|(order, choice)| {
            let ended = self.orders[*order].ends_with(choice);
            if ended {
                self.orders[*order].finish();
            }
            !ended
        });
        let mut accessed = false;
        match owner {
            Some((order, choice)) if choice.is_in_stream() => accessed = self.access(now, order, file, process, outcome, &choice),
            Some((order, _)) => self.orders[order].doubt(file),
            None => {}
        }
        let in_order = owner.is_some_and(|(_, choice)| choice.is_in_stream());
        if !in_order {
            self.unassigned.count(now, outcome, self.sizes[file.at()]);
            self.accesses.count(now, outcome, self.sizes[file.at()]);
        } else if waited && accessed {
            self.window.waited(now, self.books.free_for_ahead());
        }
        self.settle(file);
        let round = self.round();
        let claimed = owner.is_some_and(|(_, choice)| choice.ratio() >= 1.0);
        self.claimed = owner.filter(|(_, choice)| choice.is_predicted()).map(|(order, _)| order);
        for order in &mut self.orders {
            if order.is_locked() {
                order.judge();
            } else if !claimed {
                order.search(file, process, round);
            }
        }
    }

    /// An open of an order: true if it is an access, not a re-open.
    fn access(&mut self, now: Duration, order: OrderIndex, file: FileIndex, process: u32, outcome: Outcome, choice: &Choice) -> bool {
        let size = self.sizes[file.at()];
        let Some(round) = self.orders[order].assign(now, process, file, size, outcome, choice) else { return false };
        self.take_turn(order, choice);
        let next = Some(self.next_round(file)).filter(|&next| next != FAR);
        self.accesses.count(now, outcome, size);
        let had = self.ideal.access(file, self.rooms[file.at()], next, self.books.kept_limit());
        if let Some(count) = self.orders[order].count_of(round) {
            count.bound_retained_bytes += if had { size } else { 0 };
            count.bound();
        }
        choice.is_access()
    }

    /// After a use, or when nothing is expected of a file any more: only what prefetch counts on stays ready. A use later in the pass of another
    /// order is a reason to keep it, not to hold it: else all of a cache smaller than the data would be ready, and no room left to fetch ahead.
    fn settle(&mut self, file: FileIndex) {
        let round = self.next_round(file);
        let counted_on = self.orders.iter().filter(|order| order.is_locked()).find_map(|order| order.counts_on(file));
        match counted_on {
            // read at the end of one epoch, and soon again in the next
            Some(due) if self.books.class(file) != Class::Kept => self.books.hold(file, Class::Ready, due),
            _ if self.any_locked() => self.books.settle(file, round),
            _ => self.books.hold(file, Class::Kept, round),
        }
    }

    fn fetched(&mut self, file: FileIndex, tier: usize, ahead: bool) {
        // with no room at all, only what was asked for when there was some
        if self.books.capacity() == 0 && self.books.class(file) == Class::Absent {
            return;
        }
        let ahead = ahead || self.books.class(file) == Class::InFlight;
        let awake = self.orders.iter().filter(|order| order.is_locked() && !order.is_resting());
        let due = if ahead { awake.filter_map(|order| order.next_use.next(file, 0)).min() } else { None };
        if !self.books.fetched(file, tier, ahead, due) || due.is_none() {
            self.settle(file);
        }
    }

    fn failed(&mut self, now: Duration, file: FileIndex, kind: ErrorKind) {
        if self.books.class(file) != Class::InFlight {
            return;
        }
        self.books.gone(file);
        if kind == ErrorKind::NoSpace {
            self.blocked = true;
        }
        if (kind == ErrorKind::NoSpace || kind.is_transient()) && self.retries.len() < RETRIES_MAX {
            let wait = if kind == ErrorKind::NoSpace { Duration::ZERO } else { RETRY_AFTER };
            self.retries.push((now + wait, file));
        }
    }

    fn tick(&mut self, now: Duration) {
        self.blocked = false;
        self.wake(now);
        self.window.calm(now);
        self.reserve();
        let due: Vec<FileIndex> = self.retries.iter().filter(|&&(at, _)| at <= now).map(|&(_, file)| file).collect();
        self.retries.retain(|&(at, _)| at > now);
        for file in due {
            self.orders.iter_mut().for_each(|order| order.rewind(file));
        }
        if self.sweep.is_none() && now >= self.swept_at + SWEEP_EVERY {
            self.sweep = Some(0);
            self.swept_at = now;
            self.sweep_suspects = true;
        }
    }

    /// Keeps the window's room free of kept files.
    fn reserve(&mut self) {
        let mean = self.window.mean_size();
        let burst: u64 = self
            .orders
            .iter()
            .filter(|order| order.is_locked())
            .map(|order| order.config.loader.map_or_else(|| u64::from(order.spread()), |loader| loader.burst()).saturating_mul(mean))
            .fold(0, u64::saturating_add);
        let open = self.books.take_open_peak();
        if self.window.update(burst, open) || self.books.kept_limit() == self.books.capacity() {
            self.books.set_reserve(self.window.bytes());
        }
    }

    /// What follows from the new state: computations, places passed over, a piece of the sweep, fetches.
    fn step(&mut self, out: &mut Vec<Action>) {
        for number in 0..self.orders.len() {
            self.last_round = self.last_round.max(self.orders[number].round());
            self.orders[number].want(number, out);
            let mut passed = std::mem::take(&mut self.passed);
            self.orders[number].pass_over(SCAN_STEPS, &mut passed);
            for file in passed.drain(..) {
                self.settle(file);
            }
            self.passed = passed;
            self.settle_stale(number);
            if std::mem::take(&mut self.orders[number].rekey) {
                self.sweep = Some(0);
            }
        }
        self.sweep();
        self.shed(out);
        self.prefetch(out);
    }

    fn sweep(&mut self) {
        let Some(from) = self.sweep else { return };
        let to = (from + SWEEP_FILES).min(self.books.files());
        let locked = self.any_locked();
        for file in (from..to).map(FileIndex) {
            if self.sweep_suspects && self.books.suspect(file) {
                self.blocked = false;
            }
            let round = self.next_round(file);
            match self.books.class(file) {
                Class::Kept if locked => self.books.rekey(file, round),
                Class::Ready if round == FAR && locked => self.books.settle(file, round),
                Class::Ready if round == FAR => self.books.hold(file, Class::Kept, round),
                _ => {}
            }
            if locked {
                self.ideal.rekey(file, self.rooms[file.at()], round);
            }
        }
        self.sweep = (to < self.books.files()).then_some(to);
        self.sweep_suspects &= self.sweep.is_some();
    }

    /// Earliest deadline first over the streams of all followed orders, while there is window, room and concurrency.
    fn prefetch(&mut self, out: &mut Vec<Action>) {
        let (mut steps, pauses) = (SCAN_STEPS, self.pauses());
        while !self.blocked && self.books.in_flight_files() < self.in_flight_max.saturating_mul(QUEUE_PER_REQUEST) {
            let Some((due, (order, pass_number, place))) = self.earliest(&pauses, &mut steps) else { return };
            let pass = self.orders[order].pass(pass_number);
            let (file, round, size) = (pass.file(place), pass.round, self.rooms[pass.file(place).at()]);
            if self.orders[order].resume() && self.books.class(file) != Class::Absent {
                continue;
            }
            if self.books.ahead_files() > 0 && self.books.ahead_bytes() + size > self.window.limit() {
                if self.make_way(order, pass_number, due, &pauses) {
                    continue;
                }
                return;
            }
            let after = self.next_round_after(file, round);
            let before = out.len();
            let placed = self.books.place(file, after, out);
            for action in &out[before..] {
                if let Action::Retire { file } = *action {
                    // a kept file that lost its place may be due in a part that prefetch has gone past
                    self.orders.iter_mut().for_each(|order| order.rewind(file));
                }
            }
            let Some((tier, promised)) = placed else {
                if size > self.books.largest_tier() {
                    // It can never be cached: leave it to demand.
                    self.orders[order].leave(pass_number, place);
                    continue;
                }
                if self.make_way(order, pass_number, due, &pauses) {
                    continue;
                }
                return;
            };
            self.books.asked(file, tier, round, promised);
            self.orders[order].leave(pass_number, place);
            out.push(Action::Fetch { file, tier });
        }
    }

    fn next_round_after(&self, file: FileIndex, round: Round) -> Round {
        let locked = self.orders.iter().filter(|order| order.is_locked());
        locked.filter_map(|order| order.next_use.next(file, round + 1)).min().unwrap_or(FAR)
    }

    /// The place to fetch next, and in how many seconds it is read: order, pass, place.
    fn earliest(&mut self, pauses: &[Pause], steps: &mut u32) -> Option<(f64, (OrderIndex, usize, u32))> {
        let (now, waiting) = (self.now, self.is_read().then(|| self.front_of_waiting()));
        let Self { orders, books, .. } = self;
        let mut best: Option<(f64, (OrderIndex, usize, u32))> = None;
        for (number, order) in orders.iter_mut().enumerate() {
            let most = waiting.filter(|_| order.waits(now) && pauses[number].is_open);
            let next = order.next_missing(now, pauses[number], most, steps, |file, round| match books.class(file) {
                Class::Absent => false,
                Class::Disposable => {
                    books.hold(file, Class::Kept, round);
                    true
                }
                Class::InFlight | Class::Ready | Class::Kept => true,
            });
            if let Some((pass, place, seconds)) = next
                && best.is_none_or(|(least, _)| seconds < least)
            {
                best = Some((seconds, (number, pass, place)));
            }
        }
        best
    }

    /// Number of orders.
    #[must_use]
    pub fn orders(&self) -> usize {
        self.orders.len()
    }

    /// One order now.
    #[must_use]
    pub fn order(&self, order: OrderIndex) -> OrderView<'_> {
        let cursor = &self.orders[order];
        let pass = cursor.passes.front();
        // Nothing speaks against such an order: readers of something else may be all there are yet. But who declared it wants to know.
        let unread = cursor.is_locked() && cursor.observed == 0 && self.unassigned.accesses >= UNREAD_AFTER;
        OrderView {
            state: cursor.state,
            epoch: pass.map_or(cursor.last_epoch(), |pass| pass.index.epoch),
            position: pass.map_or(0, |pass| u64::from(pass.opened_count())),
            length: pass.map_or(0, |pass| u64::from(pass.len())),
            confidence: cursor.confidence(),
            observed: cursor.observed,
            predicted: cursor.predicted,
            note: if unread { UNREAD } else { &cursor.note },
        }
    }

    /// Epochs read so far, oldest first (the last 1024 of them).
    pub fn epochs(&self, order: OrderIndex) -> impl Iterator<Item = &EpochCount> {
        self.orders[order].rows()
    }

    /// The next files this order's readers will open, and are not known to have opened: for people, at most `limit`.
    #[must_use]
    pub fn upcoming(&self, order: OrderIndex, now: Duration, limit: usize) -> Vec<(Epoch, FileIndex)> {
        self.orders[order].upcoming(now, limit)
    }

    /// ... if it goes on by another way than supposed: by each likely one, as long as it is not known.
    #[must_use]
    pub fn perhaps(&self, order: OrderIndex, limit: usize) -> Vec<(Way, Vec<FileIndex>)> {
        self.orders[order].perhaps(limit)
    }

    /// Which way it goes.
    #[must_use]
    pub fn going(&self, order: OrderIndex) -> Going {
        self.orders[order].going()
    }

    /// The ways on that are to be compared with the one supposed, the likeliest first.
    pub fn set_ways(&mut self, order: OrderIndex, ways: &[WayOn]) {
        if let Some(cursor) = self.orders.get_mut(order) {
            cursor.set_ways(ways);
        }
    }

    /// Whether a file is here, or asked for.
    #[must_use]
    pub fn is_near(&self, file: FileIndex) -> bool {
        file.at() < self.sizes.len() && self.books.class(file) != Class::Absent
    }

    /// Figures over all orders.
    #[must_use]
    pub fn view(&self) -> PlannerView {
        PlannerView {
            window_bytes: self.window.bytes(),
            window_wanted_bytes: self.window.wanted(),
            ahead_limit_bytes: self.window.limit(),
            ready_bytes: self.books.ready_bytes(),
            in_flight_files: u64::from(self.books.in_flight_files()),
            kept_bytes: self.books.kept_bytes(),
            issued: self.books.issued,
            useful: self.books.useful,
            wasted: self.books.wasted,
            accesses: self.accesses.clone(),
            unassigned: self.unassigned.clone(),
        }
    }

    #[cfg(test)]
    pub(crate) const fn books(&self) -> &Residency {
        &self.books
    }
}
