//! Planner and inference as one state machine: what the daemon's task runs, and `belady order verify` offline.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::inference::Inference;
use super::job::{Found, Job, JobResult};
use super::kept::{Kept, Memo};
use super::strides::{self, Shown};
use super::told::Told;
use super::ways;
use crate::dataset::maps::NamesText;
use crate::order::SharedSampler;
use crate::order::spec::OrderSpec;
use crate::plan::{Action, EpochFiles, Event, Going, OrderConfig, OrderIndex, OrderState, Planner, Seen, Trust, Way};
use crate::types::{Epoch, FileIndex};

/// How long the inference waits to hear whose an open is: `/proc` answers in a fraction of a millisecond.
const PATIENCE: Duration = Duration::from_millis(100);
/// Opens that wait for it at most.
const PENDING_MAX: usize = 1024;

/// How an order came to be followed.
#[derive(Clone, Debug)]
pub struct Followed {
    pub spec: OrderSpec,
    pub sampler: SharedSampler,
    pub samples: Arc<[FileIndex]>,
    /// Found in the opens; otherwise the user's word.
    pub inferred: bool,
    /// How it was found.
    pub why: String,
    /// Seconds of search until it was found.
    pub search_seconds: f64,
    /// The way by which the planner's epochs are the specification's, and how many numbers they are ahead of its.
    way: Way,
    ahead: Epoch,
    shown: Shown,
    /// What the planner last said of it.
    went: Option<Going>,
}

/// An epoch that the planner wants to know.
#[derive(Clone, Debug)]
pub struct Wanted {
    sampler: SharedSampler,
    epoch: Epoch,
    samples: Arc<[FileIndex]>,
}

impl Wanted {
    #[must_use]
    pub fn files(&self) -> EpochFiles {
        EpochFiles::new(&self.sampler.order(self.epoch), &self.samples)
    }
}

impl Followed {
    /// On the user's word.
    #[must_use]
    pub fn declared(spec: OrderSpec, sampler: SharedSampler, samples: Arc<[FileIndex]>) -> Self {
        Self {
            spec,
            sampler,
            samples,
            inferred: false,
            why: String::new(),
            search_seconds: 0.0,
            way: 0,
            ahead: 0,
            shown: Shown::default(),
            went: None,
        }
    }

    /// The order that goes on by another way, from the planner's epoch `to` on, and the number of that epoch in it.
    fn by(&self, to: Epoch, way: Way) -> Option<(OrderSpec, Epoch, SharedSampler)> {
        let (spec, epoch) = ways::by(&self.spec, to.checked_sub(1 + self.ahead)?, way)?;
        let sampler = spec.sampler(u32::try_from(self.samples.len()).ok()?).ok()?;
        Some((spec, epoch, sampler))
    }

    /// When it would go on by this way, in words.
    #[must_use]
    pub fn condition(&self, way: Way) -> String {
        ways::condition(&self.spec, way)
    }

    /// What is to be told of the order: how it was found, and what became of it.
    #[must_use]
    pub fn note(&self, of_planner: &str) -> String {
        match (self.why.is_empty(), of_planner.is_empty()) {
            (true, _) => of_planner.to_owned(),
            (false, true) => self.why.clone(),
            (false, false) => format!("{of_planner} ({})", self.why),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Engine {
    planner: Planner,
    inference: Option<Inference>,
    followed: Vec<Followed>,
    search_seconds: f64,
    /// Opens that the inference has not seen: their process was not known yet.
    pending: VecDeque<(Seen, Option<OrderIndex>)>,
}

impl Engine {
    /// `inference`: none when orders are declared, or nothing is to be found out.
    #[must_use]
    pub const fn new(planner: Planner, inference: Option<Inference>) -> Self {
        Self { planner, inference, followed: Vec::new(), search_seconds: 0.0, pending: VecDeque::new() }
    }

    /// Adds a declared order.
    pub fn declare(&mut self, config: OrderConfig, followed: Followed) -> OrderIndex {
        self.followed.push(followed);
        self.planner.add_order(config)
    }

    #[must_use]
    pub const fn planner(&self) -> &Planner {
        &self.planner
    }

    #[must_use]
    pub fn followed(&self) -> &[Followed] {
        &self.followed
    }

    /// What no order explains, for people.
    #[must_use]
    pub fn unexplained(&self) -> Vec<String> {
        self.inference.iter().flat_map(Inference::unexplained).collect()
    }

    /// As [`Planner::handle`]; opens are looked at by the inference, too.
    pub fn handle(&mut self, now: Duration, event: Event, out: &mut Vec<Action>) {
        let opened = match (&self.inference, &event) {
            (Some(_), &Event::Opened { file, process, outcome }) => Some(Seen { now, file, process, outcome }),
            _ => None,
        };
        let is_tick = matches!(event, Event::Tick);
        self.planner.handle(now, event, out);
        self.follow_ways(is_tick);
        if let Some(seen) = opened {
            self.pending.push_back((seen, self.planner.claimed()));
        }
    }

    /// What is to be computed for [`Action::Compute`]; `None`: it is not wanted any more.
    #[must_use]
    pub fn wanted(&self, order: OrderIndex, epoch: Epoch, way: Way) -> Option<Wanted> {
        let followed = self.followed.get(order)?;
        let samples = Arc::clone(&followed.samples);
        if way == followed.way {
            return Some(Wanted { sampler: Arc::clone(&followed.sampler), epoch: epoch.checked_sub(followed.ahead)?, samples });
        }
        let (_, epoch, sampler) = followed.by(epoch, way)?;
        Some(Wanted { sampler, epoch, samples })
    }

    /// Tells the planner how orders may go on, and hears how they did. `anew`: what is read beside them may be another.
    fn follow_ways(&mut self, anew: bool) {
        let Some(inference) = &mut self.inference else { return };
        for (order, followed) in self.followed.iter_mut().enumerate().filter(|(_, followed)| followed.inferred) {
            let going = self.planner.going(order);
            if !anew && followed.went == Some(going) {
                continue;
            }
            if going.way != followed.way
                && let Some((spec, epoch, sampler)) = followed.by(going.reached, going.way)
            {
                if let Some((_, before)) = strides::output_of(&followed.spec, 0) {
                    followed.shown.note(before);
                    followed.shown.note(going.way);
                }
                followed.why = ways::why(&followed.spec, going.way);
                (followed.way, followed.ahead) = (going.way, going.reached - epoch);
                (followed.spec, followed.sampler) = (OrderSpec { epoch, epochs: None, ..spec }, sampler);
                inference.went_on(order, &followed.spec);
            }
            followed.went = Some(going);
            let beside = inference.beside(order, going.began);
            let (samples, epoch) = (followed.samples.len() as u64, going.epoch.saturating_sub(followed.ahead));
            self.planner.set_ways(order, &ways::on(&followed.spec, epoch, going, samples, beside, &followed.shown));
        }
    }

    /// Lets the inference see opens, as far as their jobs are known (`job_of`, by process) or have been waited for.
    pub fn settle(&mut self, now: Duration, mut job_of: impl FnMut(u32) -> Option<u64>) {
        let Some(inference) = &mut self.inference else { return };
        while let Some(&(seen, claimed)) = self.pending.front() {
            let job = job_of(seen.process);
            if job.is_none() && self.pending.len() < PENDING_MAX && now < seen.now + PATIENCE {
                return;
            }
            self.pending.pop_front();
            inference.opened(seen, job.unwrap_or(0), claimed);
        }
    }

    /// An order found elsewhere. False if nothing is to be found out here.
    pub fn import(&mut self, spec: OrderSpec) -> bool {
        self.inference.as_mut().is_some_and(|inference| inference.import(spec))
    }

    /// What the environment of one of a job's processes says.
    pub fn told(&mut self, job: u64, told: Told) {
        if let Some(inference) = &mut self.inference {
            inference.told(job, told);
        }
    }

    /// A pass of an earlier run.
    pub fn remember(&mut self, kept: Kept) {
        if let Some(inference) = &mut self.inference {
            inference.remember(kept);
        }
    }

    /// A text that readers opened before their first sample.
    pub fn text(&mut self, text: NamesText) {
        if let Some(inference) = &mut self.inference {
            inference.text(text);
        }
    }

    /// What is to be kept for later runs, once; `last`: the mount ends.
    pub fn memos(&mut self, last: bool) -> Vec<Memo> {
        self.inference.as_mut().map_or_else(Vec::new, |inference| if last { inference.end() } else { inference.memos() })
    }

    /// Does what the planner asks for at once, where nobody waits (a log, a simulation): orders are computed, fetches are not made.
    pub fn compute_here(&mut self, now: Duration, out: &mut Vec<Action>) {
        while !out.is_empty() {
            for action in std::mem::take(out) {
                if let Action::Compute { order, epoch, way } = action
                    && let Some(wanted) = self.wanted(order, epoch, way)
                {
                    let files = Arc::new(wanted.files());
                    self.handle(now, Event::Order { order, epoch, way, files }, out);
                }
            }
        }
    }

    /// A search to run elsewhere; `brief`: one that takes tens of milliseconds at most.
    pub fn next_job(&mut self, brief: bool) -> Option<Job> {
        let planner = &self.planner;
        self.inference.as_mut()?.next_job(brief, |order| epoch_of(planner, order), |order| planner.order(order).epoch)
    }

    /// What it found, and how long it took. True if an order is followed on its word now.
    pub fn finished(&mut self, now: Duration, result: JobResult, seconds: f64, out: &mut Vec<Action>) -> bool {
        // What waits is played back, too.
        self.settle(now + PATIENCE, |_| None);
        self.search_seconds += seconds;
        let Some(inference) = &mut self.inference else { return false };
        let planner = &self.planner;
        let Some(mut proposal) = inference.finished(result, |order| epoch_of(planner, order)) else { return false };
        if let Some(wider) = proposal.found.wider.take() {
            let Some(order) = proposal.order.filter(|&order| order < self.followed.len()) else { return false };
            let Found { spec, sampler, files, .. } = proposal.found;
            let widened = self.planner.widen(order, wider.epochs, &wider.new, &wider.opens, out);
            if widened {
                inference.widened(proposal.group, &spec, &files.files);
                let followed = &mut self.followed[order];
                // where it was found stays what is shown
                followed.spec.ranks.clone_from(&spec.ranks);
                followed.sampler = sampler;
            }
            return widened;
        }
        let found = proposal.found;
        let config = OrderConfig { first_epoch: found.epoch, start_place: 0, epochs: found.epochs, trust: Trust::Inferred, loader: None };
        let files = Arc::clone(&found.files);
        let shown = inference.shown(&found.spec);
        let followed = Followed {
            // where it holds is part of what is shown and handed on
            spec: OrderSpec { epoch: found.epoch, epochs: found.epochs, ..found.spec },
            sampler: found.sampler,
            samples: found.samples,
            inferred: true,
            why: found.why,
            search_seconds: self.search_seconds,
            way: 0,
            ahead: 0,
            shown,
            went: None,
        };
        let order = match proposal.order.filter(|&order| order < self.followed.len()) {
            Some(order) => {
                self.followed[order] = followed;
                order
            }
            None => {
                self.followed.push(followed);
                self.followed.len() - 1
            }
        };
        self.planner.adopt(Some(order), config, (found.epoch, found.files), &proposal.trail, out);
        let locked = self.planner.order(order).state == OrderState::Locked;
        inference.adopted(proposal.group, order, &self.followed[order], &files.files, locked);
        self.follow_ways(true);
        true
    }
}

/// The epoch an order is in, while it is followed.
fn epoch_of(planner: &Planner, order: OrderIndex) -> Option<Epoch> {
    let view = planner.order(order);
    (view.state == OrderState::Locked).then_some(view.epoch)
}
