//! The planner through whole simulated runs: what it promises, against the bounds it is scored by.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::simulate::{Dice, Forecast, Processes, Readers, Run, Script, Simulation, StoreModel};
use super::{EpochCount, EpochFiles, LoaderHint, OrderConfig, OrderState, Trust};
use crate::types::FileIndex;

/// A seeded permutation per epoch, dealt to `world` ranks of which `ranks` are here, as DistributedSampler deals (incomplete rounds dropped).
pub(super) fn shuffled(files: Range<u32>, seed: u64, world: u32, ranks: Range<u32>) -> Script {
    Script(Arc::new(move |epoch| {
        let mut order: Vec<u32> = files.clone().collect();
        let mut dice = Dice::new(seed * 1000 + epoch + 1);
        for i in (1..order.len()).rev() {
            order.swap(i, usize::try_from(dice.next() % (i as u64 + 1)).unwrap());
        }
        let steps = order.len() / world as usize;
        let files = (0..steps)
            .flat_map(|k| ranks.clone().map(move |r| (k, r)))
            .map(|(k, r)| FileIndex(order[k * world as usize + r as usize]))
            .collect();
        EpochFiles { files, stride: ranks.end - ranks.start }
    }))
}

fn sequential(files: Range<u32>) -> Script {
    Script(Arc::new(move |_| EpochFiles { files: files.clone().map(FileIndex).collect(), stride: 1 }))
}

/// Another numbering of the same epochs.
fn renumbered(script: &Script, map: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Script {
    let inner = Arc::clone(&script.0);
    Script(Arc::new(move |epoch| inner(map(epoch))))
}

pub(super) const THREADS: Readers = Readers::Threads { threads: 8 };
pub(super) const LOADER: Readers = Readers::Loader { workers: 4, batch: 32, prefetch_factor: 2 };

pub(super) fn run_of(script: &Script, passes: u64, readers: Readers) -> Run {
    Run {
        declared: OrderConfig::default(),
        predicted: script.clone(),
        actual: script.clone(),
        start_place: 0,
        passes,
        readers,
        // 1000 to 2000 files a second, which 64 requests of 20 ms can bring.
        compute: if matches!(readers, Readers::Threads { .. }) { Duration::from_millis(4) } else { Duration::from_millis(1) },
        skew_per_mille: 0,
        after: None,
        lead: 0,
    }
}

pub(super) fn simulation(n: u32, capacity: u64, runs: Vec<Run>) -> Simulation {
    Simulation {
        tiers: vec![capacity],
        sizes: vec![1000; n as usize].into(),
        store: StoreModel { bytes_per_second: 1e8, ..StoreModel::default() },
        runs,
        processes: Processes::Known,
        lost_per_mille: 0,
        seed: 1,
    }
}

fn check_sound(forecast: &Forecast) {
    assert!(forecast.faults.is_empty(), "{:#?}", forecast.faults);
}

fn check_right(forecast: &Forecast, order: usize) {
    check_wasted(forecast, order, 5);
}

/// Beside readers, what waits for its next pass gives up its part of the window: some of it is fetched twice.
fn check_shared(forecast: &Forecast, order: usize) {
    check_wasted(forecast, order, 25);
}

fn check_wasted(forecast: &Forecast, order: usize, per_mille: u64) {
    check_followed(forecast, order);
    let wasted = forecast.view.wasted;
    assert!(wasted.files * 1000 <= forecast.view.issued.max(1) * per_mille, "{wasted:?} of {}", forecast.view.issued);
}

pub(super) fn check_followed(forecast: &Forecast, order: usize) {
    check_sound(forecast);
    let result = &forecast.orders[order];
    assert_eq!(result.state, OrderState::Locked, "{}", result.note);
    assert!(result.lost_at.is_none(), "{}", result.note);
    assert!(result.predicted * 100 >= result.observed * 90, "{} of {} predicted", result.predicted, result.observed);
}

#[expect(clippy::cast_precision_loss, reason = "rates")]
fn retained_rate(count: &EpochCount) -> f64 {
    count.retained_bytes as f64 / count.bytes() as f64
}

#[test]
fn one_node_retains_what_fits_and_fetches_what_it_must() {
    let n = 4000;
    for (c, readers) in [(200, THREADS), (500, THREADS), (200, LOADER), (500, LOADER)] {
        let capacity = u64::from(n) * c; // thousandths of the data, of 1000 bytes each
        let mut run = run_of(&shuffled(0..n, 7, 1, 0..1), 4, readers);
        run.declared.epochs = Some(4);
        let forecast = simulation(n, capacity, vec![run]).run();
        check_right(&forecast, 0);
        let epochs = &forecast.orders[0].epochs;
        assert_eq!(epochs.iter().map(|e| (e.epoch, e.accesses)).collect::<Vec<_>>(), [(0, 4000), (1, 4000), (2, 4000), (3, 4000)]);
        #[expect(clippy::cast_precision_loss, reason = "rates")]
        let possible = (capacity - forecast.view.window_bytes) as f64 / (f64::from(n) * 1000.0);
        for epoch in &epochs[1..] {
            assert!(retained_rate(epoch) >= possible - 0.01, "{readers:?} c={c} possible {possible}: {epoch:?}");
            assert!(retained_rate(epoch) <= epoch.bound_retained_rate + 0.02, "{epoch:?}");
        }
        let bound: u64 = epochs.iter().map(|e| e.bound_store_bytes).sum();
        assert!(forecast.store_bytes * 100 <= bound * 102, "{readers:?} c={c}: {} of {bound}", forecast.store_bytes);
    }
}

#[test]
fn everything_is_fetched_once_when_it_fits() {
    let n = 3000;
    let forecast = simulation(n, u64::from(n) * 1500, vec![run_of(&shuffled(0..n, 3, 1, 0..1), 3, LOADER)]).run();
    check_right(&forecast, 0);
    assert_eq!(forecast.store_bytes, u64::from(n) * 1000);
    assert!(forecast.orders[0].epochs[1..].iter().all(|e| e.retained == 3000), "{:#?}", forecast.orders[0].epochs);
}

#[test]
fn a_fast_enough_store_never_lets_readers_wait_after_the_start() {
    let n = 4000;
    let forecast = simulation(n, u64::from(n) * 200, vec![run_of(&shuffled(0..n, 5, 1, 0..1), 3, LOADER)]).run();
    check_right(&forecast, 0);
    for epoch in &forecast.orders[0].epochs[1..] {
        assert!(epoch.late * 100 <= epoch.accesses, "{epoch:?}");
        // also at the boundary: files read late in one epoch and early in the next are still there
        assert_eq!(epoch.miss, 0, "{epoch:?}");
    }
}

/// The Bélády curve of `w` nodes at cache fraction `c` (field notes: clairvoyance §3.2 B): linear between h_k = 1 − q^k at c_k = 1 − (1 + k/w) q^k.
fn belady(w: f64, c: f64) -> f64 {
    let point = |k: f64| {
        let power = (1.0 - 1.0 / w).powf(k);
        (1.0 - (1.0 + k / w) * power, 1.0 - power)
    };
    let (low, high) = (0..100).map(|k| (point(f64::from(k)), point(f64::from(k + 1)))).find(|(_, high)| high.0 >= c).unwrap();
    low.1 + (high.1 - low.1) * (c - low.0) / (high.0 - low.0)
}

#[test]
fn several_nodes_come_near_the_belady_curve() {
    assert!((belady(4.0, 0.2) - 0.496).abs() < 0.001);
    for (world, c) in [(4, 100), (4, 200), (8, 100)] {
        let n = 8000;
        let capacity = u64::from(n) * c;
        let forecast = simulation(n, capacity, vec![run_of(&shuffled(0..n, 9, world, 0..1), 24, THREADS)]).run();
        check_right(&forecast, 0);
        let middle = &forecast.orders[0].epochs[8..16];
        let mean = |f: fn(&EpochCount) -> f64| middle.iter().map(f).sum::<f64>() / 8.0;
        let (rate, bound) = (mean(retained_rate), mean(|e| e.bound_retained_rate));
        #[expect(clippy::cast_precision_loss, reason = "rates")]
        let curve = belady(f64::from(world), (capacity - forecast.view.window_bytes) as f64 / (f64::from(n) * 1000.0));
        assert!(
            rate > curve - 0.02 && rate > bound - 0.01 && (bound - curve).abs() < 0.02,
            "W={world} c={c}: {rate} bound {bound} curve {curve}"
        );
    }
}

#[test]
fn a_wrong_seed_is_noticed_within_256_opens() {
    for (world, readers) in [(1, THREADS), (1, LOADER), (4, LOADER)] {
        let n = 8000;
        let mut run = run_of(&shuffled(0..n, 1, world, 0..1), 2, readers);
        run.predicted = shuffled(0..n, 2, world, 0..1);
        let forecast = simulation(n, u64::from(n) * 200, vec![run]).run();
        check_sound(&forecast);
        assert!(forecast.orders[0].lost_at.is_some_and(|opens| opens <= 256), "{:?}", forecast.orders[0]);
        assert!(forecast.orders[0].note.contains("seed"), "{}", forecast.orders[0].note);
        assert!(forecast.view.issued <= 512, "{:?}", forecast.view);
    }
}

#[test]
fn a_rank_of_another_node_is_told_and_costs_one_window() {
    let n = 4000;
    let mut run = run_of(&shuffled(0..n, 1, 8, 0..1), 1, THREADS);
    run.predicted = shuffled(0..n, 1, 8, 1..2);
    let forecast = simulation(n, 400_000, vec![run]).run();
    check_sound(&forecast);
    assert!(forecast.orders[0].note.contains("check ranks"), "{:?}", forecast.orders[0].note);
    assert!(forecast.view.issued * 1000 <= 400_000 / 4, "{}", forecast.view.issued);
}

#[test]
fn a_wrong_world_size_is_noticed_within_256_opens() {
    for (declared, actual, readers) in [(4, 8, THREADS), (8, 4, THREADS), (4, 8, LOADER), (8, 4, LOADER)] {
        for ranks in [0..1, 0..4] {
            let n = 16_000;
            let mut run = run_of(&shuffled(0..n, 1, actual, ranks.clone()), 1, readers);
            run.predicted = shuffled(0..n, 1, declared, ranks.clone());
            let forecast = simulation(n, u64::from(n) * 200, vec![run]).run();
            check_sound(&forecast);
            let lost = &forecast.orders[0];
            assert!(lost.lost_at.is_some_and(|opens| opens <= 256), "{declared} {actual} {ranks:?} {readers:?} {lost:?}");
            assert!(lost.note.contains("world size"), "{}", lost.note);
            assert_eq!(lost.state, OrderState::Lost);
        }
    }
}

#[test]
fn a_forgotten_set_epoch_is_recognised_in_the_second_epoch() {
    for readers in [THREADS, LOADER] {
        let n = 4000;
        let mut run = run_of(&shuffled(0..n, 4, 1, 0..1), 4, readers);
        run.actual = renumbered(&run.predicted, |_| 0);
        let forecast = simulation(n, u64::from(n) * 200, vec![run]).run();
        check_followed(&forecast, 0);
        let result = &forecast.orders[0];
        // what was fetched for the epoch that did not come, once
        let view = &forecast.view;
        assert!(view.wasted.bytes <= view.window_bytes, "{:?} of a window of {}", view.wasted, view.window_bytes);
        assert!(result.note.contains("set_epoch"), "{}", result.note);
        assert_eq!(result.epochs.iter().map(|e| e.epoch).collect::<Vec<_>>(), [0, 0, 0, 0]);
        for epoch in &result.epochs[2..] {
            assert!((epoch.late + epoch.miss) * 100 <= epoch.accesses * 2, "{epoch:?}");
        }
    }
}

#[test]
fn a_resume_in_mid_epoch_is_followed_without_being_declared() {
    for (readers, declared) in [(THREADS, 0), (LOADER, 0), (LOADER, 2048)] {
        let n = 6000;
        let mut run = run_of(&shuffled(0..n, 4, 1, 0..1), 2, readers);
        run.start_place = 2048;
        run.declared.start_place = declared;
        let forecast = simulation(n, u64::from(n) * 200, vec![run]).run();
        check_sound(&forecast);
        let result = &forecast.orders[0];
        assert_eq!(result.state, OrderState::Locked, "{}", result.note);
        assert!(result.predicted * 100 >= result.observed * 97, "{} of {}", result.predicted, result.observed);
    }
}

#[test]
fn another_epoch_than_declared_is_found() {
    let n = 4000;
    let mut run = run_of(&shuffled(0..n, 4, 1, 0..1), 2, LOADER);
    run.actual = renumbered(&run.predicted, |pass| pass + 5);
    let forecast = simulation(n, u64::from(n) * 200, vec![run]).run();
    check_sound(&forecast);
    let result = &forecast.orders[0];
    assert_eq!(result.state, OrderState::Locked, "{}", result.note);
    assert_eq!(result.epochs.last().map(|e| e.epoch), Some(6));
}

#[test]
fn validation_runs_beside_training() {
    let (n, m) = (4000, 800);
    let train = run_of(&shuffled(0..n, 4, 1, 0..1), 4, LOADER);
    let mut validation = run_of(&sequential(n..n + m), 4, LOADER);
    validation.after = Some(0);
    let forecast = simulation(n + m, u64::from(n) * 300, vec![train, validation]).run();
    check_shared(&forecast, 0);
    check_shared(&forecast, 1);
    let accesses: Vec<u64> = forecast.orders[1].epochs.iter().map(|e| e.accesses).collect();
    // The epochs are alike: an open at the boundary may be counted on either side of it.
    assert!(accesses.len() == 4 && accesses.iter().all(|&a| a.abs_diff(800) <= 4), "{accesses:?}");
}

#[test]
fn two_jobs_read_the_same_files_in_their_own_orders() {
    let n = 4000;
    let runs = vec![run_of(&shuffled(0..n, 1, 1, 0..1), 3, LOADER), run_of(&shuffled(0..n, 2, 1, 0..1), 3, LOADER)];
    let forecast = simulation(n, u64::from(n) * 400, runs).run();
    for order in 0..2 {
        check_shared(&forecast, order);
        assert!(forecast.orders[order].epochs[..3].iter().all(|e| e.accesses.abs_diff(4000) <= 20), "{:#?}", forecast.orders);
    }
}

#[test]
fn other_readers_neither_disturb_an_order_nor_become_one() {
    let (n, other) = (4000, 3000);
    let train = run_of(&shuffled(0..n, 4, 1, 0..1), 3, LOADER);
    let mut noise = run_of(&shuffled(n..n + other, 1, 1, 0..1), 3, THREADS);
    noise.predicted = shuffled(n..n + other, 2, 1, 0..1);
    noise.declared.trust = Trust::Guess;
    let forecast = simulation(n + other, u64::from(n) * 300, vec![train, noise]).run();
    check_right(&forecast, 0);
    assert_ne!(forecast.orders[1].state, OrderState::Locked);
    let apart = &forecast.view.unassigned;
    assert_eq!(apart.retained + apart.in_time + apart.late + apart.miss, 9000);
}

#[test]
fn a_guess_is_followed_when_opens_confirm_it_and_not_before() {
    let n = 4000;
    let mut run = run_of(&shuffled(0..n, 4, 1, 0..1), 2, LOADER);
    run.declared.trust = Trust::Guess;
    let forecast = simulation(n, u64::from(n) * 200, vec![run]).run();
    check_sound(&forecast);
    let result = &forecast.orders[0];
    assert_eq!(result.state, OrderState::Locked);
    assert!(result.predicted * 100 >= result.observed * 95, "{result:?}");
}

#[test]
fn eight_ranks_of_four_workers_drift_over_the_boundary() {
    for skew in [0, 5] {
        let n = 16_000;
        let mut run = run_of(&shuffled(0..n, 4, 8, 0..8), 3, LOADER);
        run.skew_per_mille = skew;
        run.compute = Duration::from_millis(4);
        run.declared.loader = Some(LoaderHint { ranks: 8, workers: 4, prefetch_factor: 2, batch: 32 });
        let forecast = simulation(n, u64::from(n) * 500, vec![run]).run();
        check_right(&forecast, 0);
        let epochs = &forecast.orders[0].epochs;
        assert_eq!(epochs.len(), 3);
        assert!(epochs.iter().all(|e| e.accesses == 16_000), "{epochs:#?}");
        assert!(epochs[1..].iter().all(|e| retained_rate(e) > e.bound_retained_rate - 0.02), "{epochs:#?}");
    }
}

#[test]
fn unknown_processes_are_followed_too() {
    for (script, readers) in
        [(shuffled(0..6000, 4, 1, 0..1), THREADS), (shuffled(0..6000, 4, 1, 0..1), LOADER), (shuffled(0..6000, 4, 4, 0..4), LOADER)]
    {
        let mut plan = simulation(6000, 6000 * 300, vec![run_of(&script, 3, readers)]);
        plan.processes = Processes::Unknown;
        let forecast = plan.run();
        check_right(&forecast, 0);
        assert!(forecast.orders[0].epochs[..3].iter().all(|e| e.accesses >= 5980), "{:#?}", forecast.orders[0].epochs);
    }
}

#[test]
fn lost_events_do_not_derail_it() {
    for readers in [THREADS, LOADER] {
        let n = 4000;
        let mut plan = simulation(n, u64::from(n) * 200, vec![run_of(&shuffled(0..n, 4, 1, 0..1), 4, readers)]);
        plan.lost_per_mille = 50;
        let forecast = plan.run();
        check_sound(&forecast);
        let result = &forecast.orders[0];
        assert!(result.state == OrderState::Locked && result.lost_at.is_none(), "{}", result.note);
        assert!(result.epochs[1..].iter().all(|e| retained_rate(e) > e.bound_retained_rate - 0.1), "{:#?}", result.epochs);
    }
}

#[test]
fn two_tiers_are_filled_fastest_first_and_small_files_are_preferred() {
    let n = 4000u32;
    let mut plan = simulation(n, 0, vec![run_of(&shuffled(0..n, 4, 1, 0..1), 4, LOADER)]);
    plan.sizes = (0..n).map(|f| 200 + u64::from(f % 17) * 100).collect();
    plan.tiers = vec![400_000, 800_000];
    let forecast = plan.run();
    check_right(&forecast, 0);
    for epoch in &forecast.orders[0].epochs[2..] {
        assert!(retained_rate(epoch) > epoch.bound_retained_rate - 0.02, "{epoch:?}");
        assert!(epoch.retained * 100 > epoch.accesses * 40, "bytes for 23 % hold over 40 % of the files: {epoch:?}");
    }
}

#[test]
fn without_room_nothing_is_asked_for() {
    let forecast = simulation(500, 0, vec![run_of(&shuffled(0..500, 4, 1, 0..1), 2, LOADER)]).run();
    check_sound(&forecast);
    assert_eq!((forecast.view.issued, forecast.orders[0].state), (0, OrderState::Locked));
}

mod soundness {
    use proptest::prelude::*;

    use super::super::residency::Class;
    use super::super::{Action, Event, Planner, PlannerConfig};
    use super::*;
    use crate::types::{ErrorKind, Outcome};

    const FILES: u32 = 96;

    /// What may happen, in any sequence; files and orders that do not exist included.
    #[derive(Clone, Debug)]
    enum Step {
        Open(u32, u32, u8),
        /// The next file of the order, as a reader would.
        Read(u32),
        Release(u32),
        /// The oldest fetch asked for arrives; elsewhere than asked if true.
        Arrive(bool),
        Demand(u32),
        Fail(u8),
        Gone(u32),
        Present(Vec<u32>),
        Answer,
        Measured(u32),
        Capacity(usize, u64),
        Tick,
    }

    fn step() -> impl Strategy<Value = Step> {
        let file = 0..FILES + 1;
        prop_oneof![
            2 => (file.clone(), 0..4u32, 0..4u8).prop_map(|(f, p, o)| Step::Open(f, p, o)),
            6 => (0..3u32).prop_map(Step::Read),
            4 => file.clone().prop_map(Step::Release),
            6 => any::<bool>().prop_map(Step::Arrive),
            2 => file.clone().prop_map(Step::Demand),
            1 => (0..3u8).prop_map(Step::Fail),
            1 => file.clone().prop_map(Step::Gone),
            1 => prop::collection::vec(file, 0..4).prop_map(Step::Present),
            3 => Just(Step::Answer),
            1 => (1..2_000_000u32).prop_map(Step::Measured),
            1 => (0..3usize, 0..40_000u64).prop_map(|(tier, bytes)| Step::Capacity(tier, bytes)),
            2 => Just(Step::Tick),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_sequence_of_events_keeps_the_books(
            steps in prop::collection::vec(step(), 1..400),
            mut tiers in prop::collection::vec(0..40_000u64, 0..3),
            sizes in prop::collection::vec(1..3000u64, FILES as usize),
            epochs in prop::option::of(1..5u64),
        ) {
            let script = shuffled(0..FILES, 1, 1, 0..1);
            let mut planner = Planner::new(PlannerConfig::new(tiers.clone()), sizes.into());
            planner.add_order(OrderConfig { epochs, ..OrderConfig::default() });
            planner.add_order(OrderConfig { trust: Trust::Guess, ..OrderConfig::default() });
            let (mut asked, mut wanted) = (Vec::new(), Vec::new());
            let mut position = 0;
            let mut now = Duration::ZERO;
            for step in steps {
                now += Duration::from_millis(30);
                let file = FileIndex;
                let event = match step {
                    Step::Open(f, process, o) => {
                        Event::Opened { file: file(f), process, outcome: [Outcome::Retained, Outcome::InTime, Outcome::Late, Outcome::Miss][usize::from(o)] }
                    }
                    Step::Read(process) => {
                        let f = (script.0)(position / u64::from(FILES)).files[usize::try_from(position % u64::from(FILES)).unwrap()];
                        position += 1;
                        Event::Opened { file: f, process, outcome: Outcome::InTime }
                    }
                    Step::Release(f) => Event::Released { file: file(f) },
                    Step::Arrive(elsewhere) => match asked.is_empty() {
                        true => Event::Tick,
                        false => {
                            let (file, tier): (FileIndex, usize) = asked.remove(0);
                            Event::Fetched { file, tier: tier + usize::from(elsewhere), ahead: true }
                        }
                    },
                    Step::Demand(f) => Event::Fetched { file: file(f), tier: 0, ahead: false },
                    Step::Fail(kind) => match asked.pop() {
                        None => Event::Tick,
                        Some((file, _)) => Event::Failed { file, kind: [ErrorKind::NoSpace, ErrorKind::Timeout, ErrorKind::NotFound][usize::from(kind)] },
                    },
                    Step::Gone(f) => Event::Gone { file: file(f) },
                    Step::Present(files) => Event::Present(files.into_iter().map(|f| (file(f), 0)).collect()),
                    Step::Answer => match wanted.pop() {
                        None => Event::Tick,
                        Some((order, epoch)) => Event::Order { order, epoch, way: 0, files: Arc::new((script.0)(epoch)) },
                    },
                    Step::Measured(rate) => Event::Measured {
                        bytes_per_second: f64::from(rate),
                        latency_p999: Duration::from_millis(20),
                        requests_per_second: 0.0,
                        in_flight_max: rate % 7,
                    },
                    Step::Capacity(tier, bytes) => {
                        if let Some(capacity) = tiers.get_mut(tier) {
                            *capacity = bytes;
                        }
                        Event::Capacity { tier, bytes }
                    }
                    Step::Tick => Event::Tick,
                };
                let before: Vec<Class> = (0..FILES).map(|f| planner.books().class(FileIndex(f))).collect();
                let told = match &event {
                    Event::Fetched { file, .. } | Event::Failed { file, .. } | Event::Gone { file } => Some(*file),
                    _ => None,
                };
                if let Some(told) = told {
                    asked.retain(|&(file, _)| file != told);
                }
                let present = matches!(event, Event::Present(_));
                let outgrown: Vec<bool> = (0..tiers.len()).map(|t| planner.books().used(t) > tiers[t]).collect();
                let mut out = Vec::new();
                planner.handle(now, event, &mut out);
                planner.books().check();
                prop_assert!(out.len() <= 1000);
                let mut retired = Vec::new();
                for action in out {
                    match action {
                        Action::Fetch { file, tier } => {
                            let here = before[file.at()] != Class::Absent && told != Some(file) && !retired.contains(&file);
                            prop_assert!(!here || present, "{file:?} was {:?}", before[file.at()]);
                            prop_assert!(tier < tiers.len());
                            // Demand and what was found may exceed a tier by the cache's word; what is asked for never does.
                            prop_assert!(outgrown[tier] || planner.books().used(tier) <= tiers[tier], "{tier}");
                            asked.push((file, tier));
                        }
                        Action::Retire { file } => retired.push(file),
                        Action::Compute { order, epoch, .. } => wanted.push((order, epoch)),
                    }
                }
            }
            // Half of the room, nobody reads and nothing is on its way: soon all of it fits.
            let mut tell = |planner: &mut Planner, event, out: &mut Vec<Action>| {
                now += Duration::from_millis(100);
                planner.handle(now, event, out);
                planner.books().check();
            };
            let mut out = Vec::new();
            for (tier, capacity) in tiers.iter_mut().enumerate() {
                *capacity /= 2;
                tell(&mut planner, Event::Capacity { tier, bytes: *capacity }, &mut out);
            }
            for file in (0..FILES).map(FileIndex) {
                tell(&mut planner, Event::Released { file }, &mut out);
                if planner.books().class(file) == Class::InFlight {
                    tell(&mut planner, Event::Failed { file, kind: ErrorKind::NotFound }, &mut out);
                }
            }
            tell(&mut planner, Event::Tick, &mut out);
            tell(&mut planner, Event::Tick, &mut out);
            for (tier, capacity) in tiers.iter().enumerate() {
                prop_assert!(planner.books().used(tier) <= *capacity, "{} of {capacity}", planner.books().used(tier));
            }
        }
    }
}

#[test]
fn every_access_stays_counted_when_its_epoch_is_long_past() {
    let (n, passes) = (20, 1100); // more epochs than rows are kept
    let forecast = simulation(n, 20_000, vec![run_of(&sequential(0..n), passes, Readers::Threads { threads: 1 })]).run();
    let (all, rows) = (&forecast.view.accesses, forecast.orders[0].epochs.iter().map(|epoch| epoch.accesses).sum::<u64>());
    assert_eq!(all.accesses, u64::from(n) * passes);
    assert_eq!(all.retained + all.in_time + all.late + all.miss, all.accesses);
    assert!(rows < all.accesses, "this test shows nothing while all rows are kept");
}
