//! Several jobs with orders of their own over one cache that is small against the data.

use std::sync::Arc;

use super::simulate::{Forecast, Readers, Run, Script};
use super::tests::{LOADER, THREADS, check_followed, run_of, shuffled, simulation};
use super::{EpochCount, EpochFiles};

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
