//! One order: which epoch its readers are in, where in it, and whether the order is to be believed.
//!
//! Searching → Locked → Lost, never an error. Locked, every open belongs to the current pass, to its successor (readers are skewed over the
//! boundary, there is no barrier) or to a rival of the successor (`rival`: the same epoch once more, another way on). Lost, a few other epochs at any offset are candidates; the first that is trusted takes over. It decides nothing about bytes.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

mod adopt;
mod ahead;
mod choice;
mod newcomers;
mod rate;
mod rival;
mod search;
mod turn;
mod widen;

pub(crate) use choice::Choice;
use choice::Which;
use newcomers::Newcomers;
use rate::Rate;
use rival::Rival;
use turn::Turn;
pub(crate) use turn::{PAUSE, Pause};

use super::belief::{Belief, ELSEWHERE, Verdict};
use super::count::EpochCount;
use super::next_use::{NextUse, Round, epochs_needed};
use super::pass::{EpochIndex, Pass};
use super::{Action, EpochFiles, OrderConfig, OrderIndex, OrderState, Trust, Way, WayOn};
use crate::types::{Epoch, FileIndex, Outcome, QuickMap};

/// Epochs of which the order is held at once, per order (12 bytes a file each).
const EPOCHS_MAX: usize = 6;
/// Between two passes an open that nobody expected says no more than this against the order: a script may look at some twenty samples there, and
/// an epoch in another order is noticed within as many opens more.
const BETWEEN: f64 = 0.3;
/// Rows of past epochs remembered for the stats.
const ROWS_MAX: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct Cursor {
    pub(crate) config: OrderConfig,
    pub(crate) state: OrderState,
    pub(crate) note: String,
    /// Why it was lost last.
    lost: String,
    pub(crate) belief: Belief,
    pub(crate) observed: u64,
    pub(crate) predicted: u64,
    pub(crate) next_use: NextUse,
    /// Keys have changed: everything resident must be looked at again.
    pub(crate) rekey: bool,
    pub(crate) done: VecDeque<EpochCount>,
    /// Current, then successor.
    pub(crate) passes: VecDeque<Pass>,
    rivals: Vec<Rival>,
    /// Places that a loader like the one seen opens first: of each pass that may come next they are fetched first.
    opening: Vec<u32>,
    /// Round of the pass that came, and is fetched in that sequence first.
    came: Option<Round>,
    /// Files fetched for passes that do not come: to be settled.
    stale: Vec<FileIndex>,
    /// How it goes on.
    way: Way,
    /// The first epoch reached by it.
    reached: Epoch,
    /// An epoch reached by that way was read.
    proven: bool,
    /// Other ways worth a comparison.
    ways: Vec<WayOn>,
    /// Round of the pass for which the way is decided.
    settled: Round,
    closing: Option<Pass>,
    candidates: Vec<Pass>,
    known: QuickMap<Epoch, Arc<EpochIndex>>,
    asked: HashSet<(Epoch, Way)>,
    odds: QuickMap<u32, f64>,
    /// The same epoch is read again and again.
    repeats: bool,
    /// The next pass has the order of the current one.
    same_next: bool,
    /// Rounds to know after the current one.
    depth: Option<u32>,
    capacity: u64,
    since_current: u32,
    /// Lost by density: a candidate must also have the right density.
    strict: bool,
    next_trial: Epoch,
    last_epoch: Epoch,
    rate: Rate,
    /// Nobody reads it, and others need its room: nothing is fetched ahead.
    resting: bool,
    newcomers: Newcomers,
    turn: Turn,
}

impl Cursor {
    pub(crate) fn new(config: OrderConfig, files: usize, capacity: u64) -> Self {
        Self {
            last_epoch: config.first_epoch,
            config,
            state: OrderState::Searching,
            note: String::new(),
            lost: String::new(),
            belief: Belief::default(),
            observed: 0,
            predicted: 0,
            next_use: NextUse::new(files),
            rekey: false,
            done: VecDeque::new(),
            passes: VecDeque::new(),
            rivals: Vec::new(),
            opening: Vec::new(),
            came: None,
            stale: Vec::new(),
            way: 0,
            reached: 0,
            proven: false,
            ways: Vec::new(),
            settled: 0,
            closing: None,
            candidates: Vec::new(),
            known: QuickMap::default(),
            asked: HashSet::new(),
            odds: QuickMap::default(),
            repeats: false,
            same_next: false,
            depth: None,
            capacity,
            since_current: 0,
            strict: false,
            next_trial: 0,
            rate: Rate::default(),
            resting: false,
            newcomers: Newcomers::default(),
            turn: Turn::default(),
        }
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.state == OrderState::Locked
    }

    pub(crate) fn confidence(&self) -> f64 {
        let best = self.candidates.iter().map(|c| c.belief.confidence()).fold(0.0, f64::max);
        if self.is_locked() { self.belief.confidence() } else { best }
    }

    pub(crate) fn round(&self) -> Round {
        self.passes.front().map_or(0, |pass| pass.round)
    }

    /// Round of the pass whose prefetch takes it for granted that this file is here.
    pub(crate) fn counts_on(&self, file: FileIndex) -> Option<Round> {
        self.passes.iter().find(|pass| pass.counts_on(file)).map(|pass| pass.round).or_else(|| self.is_of_an_opening(file))
    }

    fn last_round_epoch(&self) -> Option<Epoch> {
        self.config.epochs.map(|epochs| self.config.first_epoch.saturating_add(epochs))
    }

    fn epoch_of(&self, round: Round) -> Option<Epoch> {
        let current = self.passes.front()?;
        let epoch = if self.repeats { current.index.epoch } else { current.index.epoch + Epoch::from(round - current.round) };
        self.last_round_epoch().is_none_or(|end| epoch < end).then_some(epoch)
    }

    /// Asks for the orders of epochs that are needed and neither known nor asked for.
    pub(crate) fn want(&mut self, order: OrderIndex, out: &mut Vec<Action>) {
        let mut wanted: [Option<Epoch>; 2] = [None; 2];
        if self.is_locked() {
            let round = self.round();
            if self.passes.len() < 2 {
                wanted[0] = self.epoch_of(round + 1);
            } else if self.next_use.end() <= round + self.depth.unwrap_or(1) {
                wanted[0] = self.epoch_of(self.next_use.end());
            }
        } else if self.state == OrderState::Searching && self.config.trust == Trust::Declared {
            wanted = [
                Some(self.config.first_epoch),
                Some(self.config.first_epoch + 1).filter(|&e| self.last_round_epoch().is_none_or(|end| e < end)),
            ];
        } else if self.config.trust != Trust::Inferred && self.candidates.len() < EPOCHS_MAX && self.asked.is_empty() {
            wanted[0] = self.trial();
            if let Some(index) = wanted[0].and_then(|epoch| self.known.get(&epoch)) {
                self.candidates.push(Pass::new(Arc::clone(index), 0, None));
            }
        }
        for epoch in wanted.into_iter().flatten() {
            let needed = self.is_locked() || !self.known.contains_key(&epoch);
            if needed && self.asked.insert((epoch, self.way)) {
                out.push(Action::Compute { order, epoch, way: self.way });
            }
        }
        if self.is_locked()
            && let Some((epoch, way)) = self.next_way()
            && self.asked.insert((epoch, way))
        {
            out.push(Action::Compute { order, epoch, way });
        }
    }

    /// The order of an epoch arrived.
    pub(crate) fn on_order(&mut self, epoch: Epoch, way: Way, files: Arc<EpochFiles>, sizes: &[u64], round: Round) {
        self.asked.remove(&(epoch, way));
        if self.passes.front().is_some_and(|pass| pass.index.order.stride != files.stride) && self.is_locked() {
            return; // it was asked for before ranks were known
        }
        if files.files.is_empty() || u32::try_from(files.files.len()).is_err() || files.files.iter().any(|f| f.at() >= sizes.len()) {
            "an epoch of this order is empty or names files that are not in the manifest".clone_into(&mut self.note);
            return;
        }
        if self.is_locked() {
            let (current, end) = (self.round(), self.next_use.end());
            if way != self.way {
                if self.epoch_of(current + 1) == Some(epoch) {
                    self.on_way(Arc::new(EpochIndex::new(epoch, files, sizes)), way);
                }
            } else if self.passes.len() < 2 && self.epoch_of(current + 1) == Some(epoch) {
                let index = self.index(epoch, files, sizes);
                self.succeed(index);
            } else if self.epoch_of(end) == Some(epoch) && end > current {
                self.rekey |= self.next_use.push(&files.files);
            }
            return;
        }
        let index = self.index(epoch, files, sizes);
        match (self.state, self.config.trust) {
            (OrderState::Searching, Trust::Declared) if epoch == self.config.first_epoch => {
                let start = u32::try_from(self.config.start_place).unwrap_or(u32::MAX).min(index.len());
                self.belief = Belief::trusted();
                self.lock(Pass::new(index, round, Some(start)));
            }
            // It waits among the known ones for the first.
            (OrderState::Searching, Trust::Declared) => {}
            _ if self.candidates.len() < EPOCHS_MAX && self.candidates.iter().all(|c| c.index.epoch != epoch) => {
                self.candidates.push(Pass::new(index, round, None));
            }
            _ => {}
        }
    }

    fn index(&mut self, epoch: Epoch, files: Arc<EpochFiles>, sizes: &[u64]) -> Arc<EpochIndex> {
        if self.known.len() >= EPOCHS_MAX {
            let used: HashSet<Epoch> = self.passes.iter().chain(&self.candidates).map(|p| p.index.epoch).collect();
            self.known.retain(|epoch, _| used.contains(epoch));
        }
        Arc::clone(self.known.entry(epoch).or_insert_with(|| Arc::new(EpochIndex::new(epoch, files, sizes))))
    }

    /// The readers are in this pass.
    fn lock(&mut self, mut pass: Pass) {
        self.state = OrderState::Locked;
        self.last_epoch = pass.index.epoch;
        self.next_use.reset(pass.round);
        self.next_use.push(&pass.index.order.files);
        for place in 0..pass.len() {
            if place < pass.tail || pass.is_opened(place) {
                self.next_use.take(pass.file(place), pass.round);
            }
        }
        pass.scan = pass.scan.max(pass.front());
        self.candidates.clear();
        self.passes.clear();
        self.passes.push_back(pass);
        self.rivals.clear();
        self.forget_opening();
        self.repeats = false;
        self.since_current = 0;
        self.odds.clear();
        self.rekey = true;
        self.succeed_if_known();
    }

    fn succeed_if_known(&mut self) {
        if self.passes.len() < 2
            && let Some(index) = self.epoch_of(self.round() + 1).and_then(|epoch| self.known.get(&epoch))
        {
            let index = Arc::clone(index);
            self.succeed(index);
        }
    }

    fn succeed(&mut self, index: Arc<EpochIndex>) {
        let current = &self.passes[0];
        if self.depth.is_none() {
            self.depth = Some(depth(&current.index, &index, self.capacity));
        }
        let round = current.round + 1;
        self.same_next = Arc::ptr_eq(&index.order, &current.index.order) || index.order.files == current.index.order.files;
        if self.next_use.end() == round {
            self.rekey |= self.next_use.push(&index.order.files);
        }
        let mut pass = Pass::new(index, round, Some(0));
        pass.learn_from(&self.passes[0]);
        self.passes.push_back(pass);
    }

    /// Whether this process has been reading this order.
    pub(crate) fn knows(&self, process: u32) -> bool {
        self.passes.iter().any(|pass| pass.knows(process))
    }

    /// An open that belongs to this order. The round of the access, if it is one; a re-open in the same epoch is not.
    pub(crate) fn assign(
        &mut self,
        now: Duration,
        process: u32,
        file: FileIndex,
        size: u64,
        outcome: Outcome,
        choice: &Choice,
    ) -> Option<Round> {
        self.observed += 1;
        self.greet(now, process, choice);
        if let Some(odds) = choice.odds {
            self.odds.insert(process, odds);
        }
        let moved_on = choice.which != Which::Current;
        if choice.odds.is_some() {
            self.look_back(file, process, choice.which);
        }
        let expected = choice.sight.is_predicted();
        self.predicted += u64::from(expected);
        let place = choice.sight.place?;
        if !choice.sight.fresh {
            self.passes.front_mut()?.reopen(process, place);
            return None;
        }
        let least = if self.is_read() { BETWEEN } else { 0.0 };
        self.belief.add(choice.evidence().max(least));
        self.rate.open(now, outcome);
        self.resting = false;
        // A stray does not keep an epoch open.
        self.since_current = if moved_on || !expected { self.since_current.saturating_add(1) } else { 0 };
        let pass = match choice.which {
            Which::Current => self.passes.front_mut(),
            Which::Successor => self.passes.get_mut(1),
            Which::Rival(number) => self.rivals.get_mut(number).map(|rival| &mut rival.pass),
        }?;
        pass.mark(place, process, choice.sight.expected());
        pass.count.count(now, outcome, size);
        let round = pass.round;
        if pass.index.places(file).iter().all(|&place| pass.is_opened(place)) {
            self.next_use.take(file, round);
        }
        Some(round)
    }

    /// The row of the pass that reads `round`.
    pub(crate) fn count_of(&mut self, round: Round) -> Option<&mut EpochCount> {
        self.passes.iter_mut().find(|pass| pass.round == round).map(|pass| &mut pass.count)
    }

    /// A reader of this order opened a file that is not in it, in its part of the dataset. Between two passes it may read whatever it likes.
    pub(crate) fn doubt(&mut self, file: FileIndex) {
        if self.is_read() || self.passes.front().is_some_and(|pass| !pass.index.is_over(file)) {
            return;
        }
        self.observed += 1;
        self.belief.add(ELSEWHERE);
        if let Some(pass) = self.passes.front_mut() {
            pass.density.open(true);
        }
    }

    /// After an open: does the order still hold, and has an epoch ended?
    pub(crate) fn judge(&mut self) {
        if !self.is_locked() {
            return;
        }
        let verdict = self.passes.iter().map(|p| p.density.verdict()).find(|v| matches!(v, Verdict::Foreign | Verdict::Skipped));
        match verdict {
            Some(Verdict::Foreign) => {
                self.lose("readers open files that are not in this node's stream: check world size, ranks and root", true);
            }
            Some(_) => self.lose("readers leave out places of the stream: check world size and ranks", true),
            None if self.belief.is_lost() && self.is_over() => self.finish(),
            None if self.belief.is_lost() => self.lose(self.why_lost(), false),
            None if self.newcomers.are_others() => self.lose_to_newcomers(),
            None if self.is_over() && self.passes.front().is_some_and(|pass| pass.opened_count() == pass.len()) => self.finish(),
            None => {
                self.oppose();
                self.decide();
                self.advance();
            }
        }
    }

    fn why_lost(&self) -> &'static str {
        match self.config.trust {
            Trust::Inferred => "opens are not where the order has them",
            Trust::Declared | Trust::Guess => {
                "opens are not where the order has them: check seed, epoch, root, world size, and offset and stride where it has them"
            }
        }
    }

    fn row(&mut self, count: EpochCount) {
        if count.accesses == 0 {
            return;
        }
        if self.done.len() == ROWS_MAX {
            self.done.pop_front();
        }
        self.done.push_back(count);
    }

    /// The current pass is over when all of it was opened and the next has begun, or when nobody has come back to it for long.
    fn advance(&mut self) {
        let (Some(current), Some(next)) = (self.passes.front(), self.passes.get(1)) else { return };
        let rival = self.best_rival().map_or(0.0, |(_, ln)| ln);
        let complete = current.opened_count() == current.len();
        let better = if self.is_contested() { choice::GATHERED } else { 3.0 };
        let sure = next.has_come() && (next.belief.ln() > rival + better || next.opened_count() >= 64 && next.belief.ln() >= rival);
        // Ranks drift and read in bursts of a batch per worker: only a long silence is the end.
        let idle = (next.len() / 8).max(1024).min(next.len() / 4).max(1);
        if !(complete && sure || self.since_current > idle && next.has_come() && next.opened_count() > idle / 2) {
            return;
        }
        self.settle_rivals();
        let closing = self.passes.pop_front();
        if let (Some(ended), Some(next)) = (&closing, self.passes.front_mut()) {
            next.follows(ended);
        }
        if let Some(unfinished) = std::mem::replace(&mut self.closing, closing) {
            self.row(unfinished.count);
        }
        self.since_current = 0;
        self.rate.epoch();
        self.odds.clear();
        self.last_epoch = self.passes[0].index.epoch;
        if self.repeats {
            self.succeed_if_known();
        } else {
            let current = self.last_epoch;
            self.known.retain(|&epoch, _| epoch >= current);
            self.succeed_if_known();
        }
    }

    /// Gives up at most `limit` places that were passed over, of the closing and the current pass.
    pub(crate) fn pass_over(&mut self, limit: u32, passed: &mut Vec<FileIndex>) {
        let mut left = limit;
        let over = self.passes.front().map_or(0, Pass::over);
        let closing = self.closing.as_mut().map(|pass| (pass.len(), pass));
        let current = self.passes.front_mut().map(|pass| (over.min(pass.len()), pass));
        for (end, pass) in closing.into_iter().chain(current) {
            while pass.tail < end && left > 0 {
                let place = pass.tail;
                pass.tail += 1;
                left -= 1;
                if !pass.is_opened(place) {
                    pass.end_run(place);
                    let file = pass.file(place);
                    self.next_use.take(file, pass.round);
                    passed.push(file);
                }
            }
        }
        if let Some(pass) = self.closing.take_if(|pass| pass.tail == pass.len()) {
            self.next_use.drop_before(pass.round + 1);
            self.row(pass.count);
        }
    }

    /// Rows of all epochs read, oldest first.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &EpochCount> {
        self.done.iter().chain(self.closing.iter().chain(&self.passes).map(|pass| &pass.count).filter(|count| count.accesses > 0))
    }

    pub(crate) fn last_epoch(&self) -> Epoch {
        self.last_epoch
    }

    /// Places between the slowest and the fastest reader, at most.
    pub(crate) fn spread(&self) -> u32 {
        self.passes.front().map_or(0, Pass::widest)
    }
}

/// Rounds to know after the current one, from how much of one epoch's stream comes again in the next.
fn depth(current: &EpochIndex, next: &EpochIndex, capacity: u64) -> u32 {
    let again = next.order.files.iter().filter(|&&file| !current.places(file).is_empty()).count();
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let (nodes, bytes, capacity) = (next.order.files.len() as f64 / again.max(1) as f64, current.bytes as f64, capacity as f64);
    epochs_needed(nodes, capacity / (nodes * bytes).max(1.0))
}
