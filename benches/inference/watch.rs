//! What the mount says of its orders while readers read: `.belady/stats.json`, asked again and again, and what follows from it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use belady::stats::snapshot::{Order, Snapshot};
use tokio::time::sleep;

use crate::Failure;
use crate::rig::Mount;
use crate::script::{Open, Readers};

/// How often the mount is asked: it renews what it says ten times a second, and at each change of a state.
const LOOK: Duration = Duration::from_millis(20);
/// Outcomes follow opens by a moment, and the row by a tick.
const SETTLE: Duration = Duration::from_millis(350);
/// State of an order that is believed.
const LOCKED: &str = "locked";
/// ... and of one that was wrong. One that was read to its end is looked for again.
const LOST: &str = "lost";

/// One answer.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    /// Seconds since 1970, when the answer was there.
    pub(crate) at: f64,
    pub(crate) orders: Vec<Order>,
}

/// All answers, in order of time.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(crate) looks: Vec<Look>,
    /// The last one, whole.
    pub(crate) last: Snapshot,
}

/// The moment an order was locked, as far as it can be told from outside.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    /// When it was first seen.
    pub(crate) at: f64,
    /// The last answer before that.
    pub(crate) not_before: f64,
    /// The row as first seen.
    pub(crate) order: Order,
}

impl Watch {
    /// Asks until the readers have ended, `enough` says so, or `limit` has passed (the readers are ended in both cases).
    pub(crate) async fn until(
        mount: &Mount,
        readers: &mut Readers,
        limit: Duration,
        mut enough: impl FnMut(&Self) -> bool,
    ) -> Result<Self, Failure> {
        let (mut watch, begun) = (Self::default(), Instant::now());
        while !readers.have_ended()? {
            watch.look(mount)?;
            if enough(&watch) || begun.elapsed() > limit {
                readers.end();
                break;
            }
            sleep(LOOK).await;
        }
        sleep(SETTLE).await;
        watch.look(mount)?;
        Ok(watch)
    }

    fn look(&mut self, mount: &Mount) -> Result<(), Failure> {
        let text = std::fs::read_to_string(mount.dir.join(".belady/stats.json"))?;
        self.last = serde_json::from_str(&text)?;
        self.looks.push(Look { at: now(), orders: self.last.orders.clone() });
        Ok(())
    }

    /// When an order of the training set was first locked: the first row, in time, that is the training set's and is `meant`.
    pub(crate) fn lock(&self, meant: impl Fn(&Order) -> bool) -> Option<Lock> {
        let mut not_before = self.looks.first()?.at;
        for look in &self.looks {
            if let Some(order) = look.orders.iter().find(|order| is_believed(order) && meant(order)) {
                return Some(Lock { at: look.at, not_before, order: order.clone() });
            }
            not_before = look.at;
        }
        None
    }

    /// Opens of the training set's orders since the first lock, and how many of them were predicted. An order that is first seen later
    /// counts from where it is first seen locked: what it saw before is not its word.
    pub(crate) fn since_lock(&self, meant: impl Fn(&Order) -> bool) -> (u64, u64) {
        let training = self.last.orders.iter().enumerate().filter(|(_, order)| is_training(order));
        training.fold((0, 0), |(observed, predicted), (row, last)| {
            // Several orders may have one name: a row stays where it is.
            let first = self.looks.iter().filter_map(|look| look.orders.get(row)).find(|order| is_believed(order) && meant(order));
            first.map_or((observed, predicted), |first| {
                (observed + last.observed.saturating_sub(first.observed), predicted + last.predicted.saturating_sub(first.predicted))
            })
        })
    }

    /// Opens that an order was wrong about while it was believed: over all orders `meant`, between answers that both say so. An order that
    /// lost its belief was wrong at least once.
    pub(crate) fn wrong(&self, meant: impl Fn(&Order) -> bool) -> u64 {
        let mut wrong = 0;
        for pair in self.looks.windows(2) {
            // A row stays where it is, whatever its order is called.
            let rows = pair[0].orders.iter().zip(&pair[1].orders);
            for (before, after) in rows.filter(|(order, _)| order.state == LOCKED && meant(order)) {
                let opens = after.observed.saturating_sub(before.observed);
                let unpredicted = opens.saturating_sub(after.predicted.saturating_sub(before.predicted));
                wrong += if after.state == LOST { unpredicted.max(1) } else { unpredicted };
            }
        }
        wrong
    }

    /// Names of all orders that were ever believed.
    pub(crate) fn ever_locked(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for order in self.looks.iter().flat_map(|look| &look.orders).filter(|order| order.state == LOCKED) {
            let name = format!("{} {}", order.kind, order.root);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Misses of the training set's orders in an epoch; `None`: no such epoch. An epoch that was given up and found again has several rows.
    pub(crate) fn misses(&self, epoch: u64) -> Option<u64> {
        let epochs = self.last.orders.iter().filter(|order| is_training(order)).flat_map(|order| &order.epochs);
        let misses: Vec<u64> = epochs.filter(|row| row.epoch == epoch).map(|row| row.miss).collect();
        (!misses.is_empty()).then(|| misses.iter().sum())
    }

    /// Its last words, for people.
    pub(crate) fn words(&self) -> String {
        let line = |o: &Order| {
            let epochs: Vec<String> = o
                .epochs
                .iter()
                .map(|e| {
                    format!(
                        "{}: {} = {} retained + {} in time + {} late + {} miss",
                        e.epoch, e.accesses, e.retained, e.in_time, e.late, e.miss
                    )
                })
                .collect();
            format!(
                "- {} {} {} {} seed {} world {} ranks {} root {:?}, epoch {} place {} of {}, {} observed, {} predicted, note {:?}; {}\n",
                o.id,
                o.source,
                o.state,
                o.kind,
                o.seed,
                o.world,
                o.ranks,
                o.root,
                o.epoch,
                o.position,
                o.length,
                o.observed,
                o.predicted,
                o.note,
                epochs.join("; ")
            )
        };
        self.last.orders.iter().map(line).collect::<String>()
            + &self.last.notes.iter().map(|note| format!("- {note}\n")).collect::<String>()
    }
}

/// Any order.
pub(crate) fn any(_order: &Order) -> bool {
    true
}

fn is_believed(order: &Order) -> bool {
    is_training(order) && order.state == LOCKED
}

/// Training sets lie in `train` in all scenes: an order with another root is of something else, or wrong.
pub(crate) fn is_training(order: &Order) -> bool {
    order.root == "train"
}

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "the script's processes log their opens in it: it is the clock that they share with us")]
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

impl Lock {
    /// Opens before the lock: at least so many, at most so many.
    pub(crate) fn opens(&self, opens: &[Open]) -> (usize, usize) {
        let until = |at: f64| opens.partition_point(|open| open.at <= at);
        (until(self.not_before), until(self.at))
    }

    /// Seconds from the `number`-th open (from 1) to the lock; negative when it came before.
    pub(crate) fn seconds_after(&self, opens: &[Open], number: usize) -> Option<f64> {
        opens.get(number.checked_sub(1)?).map(|open| self.at - open.at)
    }
}
