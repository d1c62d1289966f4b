//! The inference over a log of opens, as the daemon would have made it: what is followed, from which open on, and how much it predicted.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;

use super::{Engine, InferConfig, Inference};
use crate::dataset::{Manifest, Node};
use crate::order::infer::Control;
use crate::plan::{Event, Planner, PlannerConfig};
use crate::types::{FileIndex, ObjectMeta, Outcome};

/// One open of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Logged {
    pub at: Duration,
    /// Thread id; 0: not known.
    pub process: u32,
    /// Below the mount point.
    pub path: String,
}

/// One order that was followed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OrderReport {
    /// searching, locked or lost, at the end of the log.
    pub state: &'static str,
    pub root: String,
    pub kind: String,
    /// The hypothesis, as `--order` takes it.
    pub order: String,
    pub seed: u64,
    pub world: u32,
    pub ranks: String,
    /// Why it is followed.
    pub why: String,
    pub note: String,
    pub confidence: f64,
    /// Opens of the log before it was first followed.
    pub locked_after: u64,
    /// Opens of its readers since, and those of them that were where the order had them.
    pub later: u64,
    pub predicted: u64,
}

/// What came of a log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// locked: an order is followed at the end.
    pub state: &'static str,
    pub opens: u64,
    pub files: u64,
    /// Of the opens after the first order was followed.
    pub predicted_fraction: f64,
    pub search_seconds: f64,
    pub searches: u64,
    /// What was taken for granted, for people; empty: nothing.
    pub assumed: String,
    /// Lines of the log that were of no known form.
    pub damaged_lines: u64,
    pub orders: Vec<OrderReport>,
    /// What no order explains at the end of the log, and how far it was searched, for people.
    pub unexplained: Vec<String>,
    /// What happened, in words: (opens so far, what).
    pub events: Vec<(u64, String)>,
}

/// The files that a log names, as a namespace: where there is no listing.
#[must_use]
pub fn manifest_of(opens: &[Logged]) -> Manifest {
    let object = |open: &Logged| ObjectMeta { key: open.path.trim_start_matches('/').into(), size: 1, etag: "".into(), mtime_seconds: 0 };
    Manifest::build("", opens.iter().map(object).collect())
}

/// Plays a log to planner and inference. `clock` measures the searches; `progress` hears of those that take long before they begin.
#[must_use]
pub fn verify(
    manifest: &Arc<Manifest>,
    opens: &[Logged],
    config: InferConfig,
    clock: &dyn Fn() -> Duration,
    progress: &dyn Fn(&str),
) -> Report {
    let sizes: Arc<[u64]> = vec![1; manifest.len()].into();
    let planner = Planner::new(PlannerConfig::new(Vec::new()), Arc::clone(&sizes));
    let mut play = Play {
        engine: Engine::new(planner, Some(Inference::new(Arc::clone(manifest), sizes, config))),
        control: &AtomicBool::new(false),
        threads: config.threads,
        clock,
        progress,
        seconds: 0.0,
        searches: 0,
        notes: HashMap::new(),
        events: Vec::new(),
        since: Vec::new(),
    };
    let mut count = 0;
    let mut later = 0;
    let mut predicted = 0;
    for open in opens {
        let Some(Node::File(file)) = manifest.find(open.path.trim_start_matches('/')) else { continue };
        count += 1;
        later += u64::from(!play.since.is_empty());
        predicted += u64::from(play.open(count, open.at, file, open.process));
    }
    let orders: Vec<OrderReport> = play.orders();
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let predicted_fraction = if later == 0 { 0.0 } else { predicted as f64 / later as f64 };
    // an order that was read to its end is looked for again, and was right
    let state = if orders.iter().any(|order| order.state == "locked" || order.state == "searching" && order.later > 0) {
        "locked"
    } else if orders.is_empty() {
        "searching"
    } else {
        "lost"
    };
    Report {
        state,
        opens: count,
        files: manifest.len() as u64,
        predicted_fraction,
        search_seconds: play.seconds,
        searches: play.searches,
        assumed: String::new(),
        damaged_lines: 0,
        orders,
        unexplained: play.engine.unexplained(),
        events: play.events,
    }
}

struct Play<'a> {
    engine: Engine,
    control: &'a AtomicBool,
    threads: usize,
    clock: &'a dyn Fn() -> Duration,
    progress: &'a dyn Fn(&str),
    seconds: f64,
    searches: u64,
    notes: HashMap<usize, String>,
    events: Vec<(u64, String)>,
    /// Per order: opens before it was followed.
    since: Vec<u64>,
}

impl Play<'_> {
    /// True if a followed order had it where it was.
    fn open(&mut self, count: u64, now: Duration, file: FileIndex, process: u32) -> bool {
        let mut out = Vec::new();
        self.engine.handle(now, Event::Opened { file, process, outcome: Outcome::Miss }, &mut out);
        let claimed = self.engine.planner().claimed();
        self.engine.handle(now, Event::Released { file }, &mut out);
        self.engine.settle(now, |_| Some(0));
        self.engine.compute_here(now, &mut out);
        while let Some(job) = self.engine.next_job(true).or_else(|| self.engine.next_job(false)) {
            if let Some(budget) = job.budget() {
                (self.progress)(&format!("after {count} opens, {budget}"));
            }
            let began = (self.clock)();
            let result = job.run(Control { stop: self.control, threads: self.threads });
            let seconds = (self.clock)().saturating_sub(began).as_secs_f64();
            self.seconds += seconds;
            self.searches += 1;
            if self.engine.finished(now, result, seconds, &mut out) {
                self.engine.compute_here(now, &mut out);
            }
            self.since.resize(self.engine.followed().len(), count);
        }
        self.tell(count);
        claimed.is_some()
    }

    fn tell(&mut self, count: u64) {
        for (order, followed) in self.engine.followed().iter().enumerate() {
            let view = self.engine.planner().order(order);
            let text = format!("{}: {}; {}; {}", followed.spec, view.state.as_str(), followed.why, view.note);
            if self.notes.get(&order) != Some(&text) {
                self.events.push((count, text.clone()));
                self.notes.insert(order, text);
            }
        }
    }

    fn orders(&self) -> Vec<OrderReport> {
        let rows = self.engine.followed().iter().zip(&self.since).enumerate();
        rows.map(|(number, (followed, &since))| {
            let view = self.engine.planner().order(number);
            OrderReport {
                state: view.state.as_str(),
                root: followed.spec.root.clone(),
                kind: followed.spec.kind.to_string(),
                order: followed.spec.to_string(),
                seed: followed.spec.seed,
                world: followed.spec.world,
                ranks: followed.spec.ranks_text(),
                why: followed.why.clone(),
                note: view.note.to_owned(),
                confidence: view.confidence,
                locked_after: since,
                later: view.observed,
                predicted: view.predicted,
            }
        })
        .collect()
    }
}
