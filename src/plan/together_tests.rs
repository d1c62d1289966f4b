//! Several jobs with orders of their own over one cache that is small against the data.

use std::sync::Arc;
use std::time::Duration;

use super::simulate::{Forecast, Readers, Run, Script};
use super::tests::{LOADER, THREADS, check_followed, run_of, shuffled, simulation};
use super::{Action, EpochCount, EpochFiles, Event, OrderConfig, Planner, PlannerConfig};
use crate::types::{FileIndex, Outcome};

const FILES: u32 = 4000;

fn job(seed: u64, passes: u64, readers: Readers) -> Run {
    run_of(&shuffled(0..FILES, seed, 1, 0..1), passes, readers)
}

/// The same, broken off after `files` opens: its readers were killed.
fn killed_after(files: usize, job: &Run) -> Run {
    let whole = Arc::clone(&job.actual.0);
    let actual = Script(Arc::new(move |epoch| EpochFiles { files: whole(epoch).files[..files].to_vec(), stride: 1 }));
    Run { actual, passes: 1, ..job.clone() }
}

/// Of an epoch's accesses, those that prefetch and cache did nothing for.
#[expect(clippy::cast_precision_loss, reason = "rates")]
fn missed(epoch: &EpochCount) -> f64 {
    epoch.miss as f64 / epoch.accesses.max(1) as f64
}

fn epochs(forecast: &Forecast) -> String {
    let row = |e: &EpochCount| format!("{} retained, {} in time, {} late, {} miss", e.retained, e.in_time, e.late, e.miss);
    let orders = forecast.orders.iter().enumerate();
    orders.map(|(o, order)| format!("{o}: {}\n", order.epochs.iter().map(row).collect::<Vec<_>>().join("; "))).collect()
}

/// Every file is in both orders. A use that is to come somewhere in the other's epoch is no reason to hold a file in the window: both would be
/// read without prefetch as soon as the cache is full of such files.
#[test]
fn two_jobs_share_the_window() {
    for (readers, per_mille) in [(THREADS, 100), (THREADS, 200), (LOADER, 100), (LOADER, 200), (LOADER, 400)] {
        let jobs = vec![job(1, 2, readers), job(2, 2, readers)];
        let forecast = simulation(FILES, u64::from(FILES) * per_mille, jobs).run();
        for order in 0..2 {
            check_followed(&forecast, order);
            // a window of 100 files for two loaders of 256 open batches each is too small for either
            let bound = if per_mille == 100 { 0.2 } else { 0.03 };
            assert!(forecast.orders[order].epochs[..2].iter().all(|e| missed(e) < bound), "{readers:?} {per_mille}\n{}", epochs(&forecast));
        }
    }
}

#[test]
fn the_room_of_a_killed_job_is_for_those_who_read() {
    for (readers, per_mille) in [(THREADS, 50), (THREADS, 100), (LOADER, 200), (LOADER, 400)] {
        let jobs = vec![job(1, 3, readers), killed_after(600, &job(2, 1, readers))];
        let forecast = simulation(FILES, u64::from(FILES) * per_mille, jobs).run();
        check_followed(&forecast, 0);
        let rows = &forecast.orders[0].epochs;
        assert!(rows[1..3].iter().all(|e| missed(e) < 0.01), "{readers:?} {per_mille}\n{}", epochs(&forecast));
    }
}

/// A third job begins after one was killed and one has ended.
#[test]
fn the_room_of_an_ended_job_is_for_the_next() {
    for readers in [THREADS, LOADER] {
        let mut next = job(3, 3, readers);
        next.after = Some(0);
        let jobs = vec![job(1, 3, readers), killed_after(600, &job(2, 1, readers)), next];
        let forecast = simulation(FILES, u64::from(FILES) * 200, jobs).run();
        check_followed(&forecast, 2);
        assert!(forecast.orders[2].epochs[..3].iter().all(|e| missed(e) < 0.03), "{readers:?}\n{}", epochs(&forecast));
    }
}

/// Validation is read fast after each epoch, and waits for the end of the next: a window full of its next pass would leave training none.
#[test]
fn validation_that_waits_leaves_training_its_room() {
    let (n, m) = (800, 700);
    for per_mille in [300, 500] {
        let train = Run { compute: Duration::from_millis(5), ..run_of(&shuffled(0..n, 1, 1, 0..1), 6, LOADER) };
        let mut validation = Run { compute: Duration::from_micros(100), ..run_of(&shuffled(n..n + m, 2, 1, 0..1), 6, LOADER) };
        validation.after = Some(0);
        let forecast = simulation(n + m, u64::from(n + m) * per_mille, vec![train, validation]).run();
        check_followed(&forecast, 0);
        assert!(forecast.orders[0].epochs[1..6].iter().all(|e| missed(e) < 0.15), "{per_mille}\n{}", epochs(&forecast));
    }
}

/// One open near the front of an epoch that has not begun (`dataset[0]`, a logged sample) is no reader: prefetch does not go on from there.
#[test]
fn single_reads_between_epochs_leave_no_gap() {
    let n = 2000u32;
    let order = shuffled(0..n, 5, 1, 0..1);
    let config = PlannerConfig { in_flight_max: 8, ..PlannerConfig::new(vec![u64::from(n) * 100]) };
    let mut planner = Planner::new(config, vec![1000; n as usize].into());
    planner.add_order(OrderConfig::default());
    let mut here = vec![false; n as usize];
    let mut now = Duration::ZERO;
    let mut tell = |planner: &mut Planner, here: &mut Vec<bool>, event: Event| {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            now += Duration::from_micros(200);
            let mut out = Vec::new();
            planner.handle(now, event, &mut out);
            for action in out {
                match action {
                    Action::Compute { order: number, epoch, way } => {
                        events.push(Event::Order { order: number, epoch, way, files: Arc::new((order.0)(epoch)) });
                    }
                    Action::Fetch { file, tier } => {
                        here[file.at()] = true;
                        events.insert(0, Event::Fetched { file, tier, ahead: true });
                    }
                    Action::Retire { file } => here[file.at()] = false,
                }
            }
        }
    };
    tell(&mut planner, &mut here, Event::Tick);
    for epoch in 0..4 {
        let files = (order.0)(epoch).files;
        // what a script looks at before it begins lies some hundred places into its order
        let strays: Vec<FileIndex> = if epoch > 0 { vec![files[150], files[190]] } else { Vec::new() };
        let mut misses = 0;
        for file in strays.into_iter().chain(files) {
            let outcome = if here[file.at()] { Outcome::InTime } else { Outcome::Miss };
            misses += u32::from(outcome == Outcome::Miss);
            tell(&mut planner, &mut here, Event::Opened { file, process: 7, outcome });
            if outcome == Outcome::Miss {
                here[file.at()] = true;
                tell(&mut planner, &mut here, Event::Fetched { file, tier: 0, ahead: false });
            }
            tell(&mut planner, &mut here, Event::Released { file });
        }
        assert!(misses <= 4, "epoch {epoch}: {misses} misses");
    }
}
