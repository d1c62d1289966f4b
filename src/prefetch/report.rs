//! What the planner knows, written where the stats are read.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::cache::charge_of;
use crate::infer::Engine;
use crate::order::spec::{OrderKind, OrderSpec};
use crate::plan::{EpochCount, LoaderHint, OrderConfig, OrderState, PlannerConfig, Trust};
use crate::stats::{EpochStatus, OrderStatus, Outcomes, Reads, Stats, text};

/// Names of files that `.belady/order` shows: a look at what is next, not the epoch.
const UPCOMING: usize = 64;
/// Orders of earlier runs that are shown while they wait: those of some scripts over one listing.
const KEPT_SHOWN: usize = 8;
/// Groups of readers that no order explains, as shown: more than a node's jobs.
const UNEXPLAINED_SHOWN: usize = 8;
/// ... and characters of what is said of each: what was not looked for is told in some hundred.
const UNEXPLAINED_CHARS: usize = 500;

pub(super) fn planner_config(tiers: Vec<u64>) -> PlannerConfig {
    PlannerConfig { room: charge_of, ..PlannerConfig::new(tiers) }
}

/// What the user said of an order, in the planner's words.
pub(super) fn order_config(spec: &OrderSpec) -> OrderConfig {
    let ranks = u32::try_from(spec.ranks.len()).unwrap_or(u32::MAX);
    let loader = spec.batch_of_rank().map(|batch| LoaderHint {
        ranks,
        workers: spec.workers.unwrap_or(1),
        prefetch_factor: spec.prefetch_factor.unwrap_or(2), // torch's default
        batch,
    });
    OrderConfig { first_epoch: spec.epoch, start_place: spec.start, epochs: spec.epochs, trust: Trust::Declared, loader }
}

/// Writes the planner's view into the stats. Remembers only the starved time each epoch began with.
#[derive(Debug, Default)]
pub(super) struct Reporter {
    /// Per order: (epoch, starved time when it was first seen, starved time so far in it).
    starved: Vec<Vec<(u64, Duration, Duration)>>,
    /// Last reason told in the log, per order.
    told: Vec<String>,
    /// Imported, and not followed yet: at most as many as the inference takes.
    waiting: Vec<OrderSpec>,
    /// Kept from earlier runs, likewise; one of each, whatever the epoch.
    kept: Vec<OrderSpec>,
    unfollowed: Unfollowed,
}

/// Waits that passed while no order was followed, added up from one publication to the next: a change of state is published at once.
#[derive(Debug, Default)]
struct Unfollowed {
    /// Whether one was followed at the last publication.
    followed: bool,
    starved_micros: u64,
    wait_micros: u64,
}

impl Unfollowed {
    fn publish(&mut self, followed: bool, reads: &Reads) {
        let (starved, waited) = (reads.starved_micros.get(), reads.wait_micros.get());
        if !self.followed {
            reads.starved_unfollowed_micros.add(starved.saturating_sub(self.starved_micros));
            reads.wait_unfollowed_micros.add(waited.saturating_sub(self.wait_micros));
        }
        (self.followed, self.starved_micros, self.wait_micros) = (followed, starved, waited);
    }
}

impl Reporter {
    /// An order that was taken in: it waits for its readers.
    pub(super) fn imported(&mut self, spec: OrderSpec) {
        if !self.waiting.contains(&spec) {
            self.waiting.push(spec);
        }
    }

    /// An order of an earlier run: it waits, too.
    pub(super) fn kept(&mut self, spec: OrderSpec) {
        if self.kept.len() < KEPT_SHOWN && !self.kept.iter().any(|kept| is_one(kept, &spec)) {
            self.kept.push(spec);
        }
    }

    pub(super) fn publish(
        &mut self,
        engine: &Engine,
        now: Duration,
        starved: Duration,
        path: &dyn Fn(crate::types::FileIndex) -> String,
        stats: &Stats,
    ) {
        let count = engine.followed().len();
        self.starved.resize(count, Vec::new());
        self.told.resize(count, String::new());
        let orders = (0..count).map(|index| self.order(engine, index, now, starved, path)).collect();
        *stats.orders.lock().unwrap_or_else(PoisonError::into_inner) = orders;
        stats.computing.lock().unwrap_or_else(PoisonError::into_inner).clear();
        for (waiting, shown) in [(&mut self.waiting, &stats.imported), (&mut self.kept, &stats.kept)] {
            waiting.retain(|spec| !engine.followed().iter().any(|followed| is_one(spec, &followed.spec)));
            *shown.lock().unwrap_or_else(PoisonError::into_inner) = waiting.iter().map(ToString::to_string).collect();
        }
        let unexplained = engine.unexplained().into_iter().take(UNEXPLAINED_SHOWN).map(|what| bounded(what, UNEXPLAINED_CHARS));
        *stats.unexplained.lock().unwrap_or_else(PoisonError::into_inner) = unexplained.collect();
        let planner = engine.planner();
        self.unfollowed.publish((0..count).any(|order| planner.order(order).state == OrderState::Locked), &stats.reads);
        let view = planner.view();
        set(&stats.reads.accesses, &view.accesses);
        stats.prefetch.wasted.set(view.wasted.files);
        stats.prefetch.wasted_bytes.set(view.wasted.bytes);
        stats.prefetch.window_bytes.set(view.window_bytes);
        stats.prefetch.window_wanted_bytes.set(view.window_wanted_bytes);
    }

    fn order(
        &mut self,
        engine: &Engine,
        index: usize,
        now: Duration,
        starved: Duration,
        path: &dyn Fn(crate::types::FileIndex) -> String,
    ) -> OrderStatus {
        let (followed, planner) = (&engine.followed()[index], engine.planner());
        let (spec, view) = (&followed.spec, planner.order(index));
        let note = followed.note(view.note);
        if self.told[index] != note {
            note.clone_into(&mut self.told[index]);
            tracing::info!(order = %spec, state = view.state.as_str(), epoch = view.epoch, search_seconds = followed.search_seconds, "{note}");
        }
        let marks = &mut self.starved[index];
        match marks.last_mut() {
            Some(last) if last.0 == view.epoch => last.2 = starved.saturating_sub(last.1),
            _ => marks.push((view.epoch, starved, Duration::ZERO)),
        }
        let perhaps = planner.perhaps(index, UPCOMING).into_iter();
        let starved_in = |epoch: u64| marks.iter().filter(|mark| mark.0 == epoch).map(|mark| mark.2.as_secs_f64()).sum();
        OrderStatus {
            id: spec.id.clone(),
            job: String::new(),
            root: spec.root.clone(),
            source: match spec.kind {
                _ if followed.inferred => "inferred",
                OrderKind::List => "given",
                _ => "declared",
            },
            hypothesis: spec.to_string(),
            search_seconds: followed.search_seconds,
            state: view.state.as_str(),
            kind: spec.kind.to_string(),
            seed: spec.seed,
            world: spec.world,
            ranks: spec.ranks_text(),
            epoch: view.epoch,
            position: view.position,
            length: view.length,
            confidence: view.confidence,
            observed: view.observed,
            predicted: view.predicted,
            note,
            epochs: planner.epochs(index).map(|epoch| status(epoch, starved_in(epoch.epoch))).collect(),
            upcoming: planner.upcoming(index, now, UPCOMING).into_iter().map(|(_, file)| path(file)).collect(),
            perhaps: perhaps.map(|(way, files)| (followed.condition(way), files.into_iter().map(path).collect())).collect(),
        }
    }
}

/// Whether one is the other; an epoch, or the ranks, may be others here.
fn is_one(spec: &OrderSpec, other: &OrderSpec) -> bool {
    (&spec.root, spec.seed, &spec.seed_text) == (&other.root, other.seed, &other.seed_text) && spec.kind.name() == other.kind.name()
}

/// At most so many characters of a text.
fn bounded(mut text: String, most: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
        text.push('…');
    }
    text
}

fn status(count: &EpochCount, starved_seconds: f64) -> EpochStatus {
    EpochStatus {
        epoch: count.epoch,
        accesses: count.accesses,
        retained: count.retained,
        in_time: count.in_time,
        late: count.late,
        miss: count.miss,
        retained_bytes: count.retained_bytes,
        in_time_bytes: count.in_time_bytes,
        late_bytes: count.late_bytes,
        miss_bytes: count.miss_bytes,
        // what was not here came from the store for this epoch's use, whenever it was fetched
        store_bytes: count.in_time_bytes + count.late_bytes + count.miss_bytes,
        seconds: count.seconds,
        starved_seconds,
        bound_retained_rate: count.bound_retained_rate,
        bound_store_bytes: count.bound_store_bytes,
    }
}

fn set(all: &Outcomes, totals: &EpochCount) {
    all.retained.set(totals.retained);
    all.in_time.set(totals.in_time);
    all.late.set(totals.late);
    all.miss.set(totals.miss);
    all.retained_bytes.set(totals.retained_bytes);
    all.in_time_bytes.set(totals.in_time_bytes);
    all.late_bytes.set(totals.late_bytes);
    all.miss_bytes.set(totals.miss_bytes);
}

/// The files that will be read next, a line each: what `.belady/order` shows.
#[must_use]
pub fn predicted(stats: &Stats) -> String {
    let orders = stats.orders.lock().unwrap_or_else(PoisonError::into_inner);
    let mut shown = String::new();
    for order in orders.iter() {
        shown += &format!("# {}: {}, epoch {}, place {} of {}\n", order.id, order.state, order.epoch, order.position, order.length);
        for path in &order.upcoming {
            shown += path;
            shown.push('\n');
        }
        for (condition, files) in &order.perhaps {
            shown += &format!("# {}: perhaps, if {condition}\n", order.id);
            for path in files {
                shown += path;
                shown.push('\n');
            }
        }
    }
    let list = |list: &Mutex<Vec<String>>| list.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let waiting = text::waiting(&list(&stats.computing), &list(&stats.imported), &list(&stats.kept));
    if orders.is_empty() && waiting.is_empty() {
        shown += &format!("# order: {}\n", text::without_order(stats.finds_orders, stats.reads.opens.get()));
    }
    for order in waiting {
        shown += &format!("# {order}\n");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kept_order_is_shown_once_and_few_of_them() {
        let mut reporter = Reporter::default();
        let spec = |text: &str| text.parse::<OrderSpec>().unwrap();
        for epoch in 0..3 {
            reporter.kept(spec(&format!("torch-random:seed=5:epoch={epoch}")));
        }
        assert_eq!(reporter.kept, [spec("torch-random:seed=5:epoch=0")]);
        (0..100).for_each(|seed| reporter.kept(spec(&format!("torch-random:seed={seed}"))));
        assert_eq!(reporter.kept.len(), KEPT_SHOWN);
        assert_eq!((bounded("aäb".into(), 2), bounded("aäb".into(), 3)), ("aä…".into(), "aäb".into()));
    }

    #[test]
    fn waits_are_of_the_time_in_which_no_order_was_followed() {
        let (reads, mut unfollowed) = (Reads::default(), Unfollowed::default());
        let mut publish = |followed, starved, waited| {
            reads.starved_micros.set(starved);
            reads.wait_micros.set(waited);
            unfollowed.publish(followed, &reads);
            (reads.starved_unfollowed_micros.get(), reads.wait_unfollowed_micros.get())
        };
        assert_eq!(publish(false, 10, 100), (10, 100));
        assert_eq!(publish(true, 12, 130), (12, 130), "until it was found");
        assert_eq!(publish(true, 50, 500), (12, 130));
        assert_eq!(publish(false, 60, 600), (12, 130), "until it was lost");
        assert_eq!(publish(false, 61, 605), (13, 135));
    }
}
