//! Walks, validation beside training, readers whose streams are not known: right or silent.

use std::sync::Arc;
use std::time::Duration;

use super::job::Rung;
use super::verify::{Logged, Report, manifest_of, verify};
use super::{InferConfig, Inference};
use crate::dataset::Node;
use crate::order::mt19937::Mt19937;
use crate::order::torch::randperm;
use crate::plan::Seen;
use crate::types::Outcome;

const CLASSES: u32 = 7;
const OF_CLASS: u32 = 108;
const VAL: u32 = 200;

fn train(sample: u32) -> String {
    format!("train/n{:02}/{sample:05}.jpg", sample / OF_CLASS)
}

fn val(sample: u32) -> String {
    format!("val/n{:02}/{sample:05}.jpg", sample / 20)
}

fn report(opens: impl IntoIterator<Item = (u32, String)>) -> Report {
    let files = (0..CLASSES * OF_CLASS).map(train).chain((0..VAL).map(val));
    let at = |number: usize| Duration::from_millis(5 * number as u64);
    let all: Vec<Logged> = files.map(|path| Logged { at: Duration::ZERO, process: 0, path }).collect();
    let opens: Vec<Logged> = opens.into_iter().enumerate().map(|(n, (process, path))| Logged { at: at(n), process, path }).collect();
    let config = InferConfig { exhaustive: false, deep: false, ..InferConfig::default() };
    verify(&Arc::new(manifest_of(&all)), &opens, config, &|| Duration::ZERO, &|_| {})
}

/// Nothing was lost, and each open of a followed order was where it was predicted.
fn check_never_wrong(report: &Report) {
    assert!(report.events.iter().all(|(_, text)| !text.contains("; lost;")), "{report:#?}");
    assert!(report.orders.iter().all(|order| order.state != "lost"), "{report:#?}");
    assert!(report.orders.iter().all(|order| order.later <= report.opens), "{report:#?}");
}

#[test]
fn a_walk_is_followed_as_what_it_is_to_its_end() {
    let walk = || (0..CLASSES * OF_CLASS).map(train).chain((0..VAL).map(val)).map(|path| (5, path));
    let report = report(walk());
    check_never_wrong(&report);
    let roots: Vec<&str> = report.orders.iter().map(|order| order.root.as_str()).collect();
    assert_eq!(roots, ["train", "val"], "{report:#?}");
    assert!(report.orders.iter().all(|order| order.predicted == order.later), "{report:#?}");
    assert!(report.orders[0].locked_after > u64::from(OF_CLASS), "{report:#?}");
    assert!(report.orders[0].note.starts_with("finished"), "{report:#?}");
}

#[test]
fn walks_that_take_directories_in_another_order_are_not_followed() {
    for classes in [vec![3, 1, 6, 0, 5, 2, 4], vec![0], vec![0, 2, 4, 6]] {
        let opens = classes.iter().flat_map(|class| (0..OF_CLASS).map(move |k| (5, train(class * OF_CLASS + k))));
        let report = report(opens);
        assert!(report.orders.is_empty(), "{classes:?}: {report:#?}");
    }
}

#[test]
fn a_walk_twice_is_known_the_second_time_and_training_after_it_is_judged_anew() {
    let n = CLASSES * OF_CLASS;
    let order = |epoch: u64| {
        let mut default = Mt19937::new(42);
        default.skip(3 + 4 * epoch);
        randperm(n, &mut Mt19937::new(u64::from(default.random())))
    };
    let walk = |process| (0..n).map(move |k| (process, train(k)));
    let opens = walk(5).chain(order(0).into_iter().map(|k| (9, train(k)))).chain(order(1).into_iter().map(|k| (9, train(k))));
    let found = report(opens);
    check_never_wrong(&found);
    assert_eq!((found.orders.len(), found.orders[0].seed), (1, 42), "{found:#?}");
    let twice = report(walk(5).chain(walk(6)).chain(walk(7)));
    check_never_wrong(&twice);
    assert_eq!(twice.orders.len(), 1, "{twice:#?}");
    // the first is certain after three of seven classes, and those after it are known at their eighth open
    assert!(twice.orders[0].later >= u64::from(2 * n), "{twice:#?}");
}

#[test]
fn training_and_validation_in_turns_are_two_orders() {
    let n = CLASSES * OF_CLASS;
    let mut opens = Vec::new();
    for epoch in 0..3u64 {
        let mut default = Mt19937::new(42);
        default.skip(3 + 6 * epoch);
        let order = randperm(n, &mut Mt19937::new(u64::from(default.random())));
        let process = 10 + 2 * u32::try_from(epoch).unwrap();
        opens.extend(order.into_iter().map(|k| (process, train(k))));
        opens.extend((0..VAL).map(|k| (process + 1, val(k))));
    }
    let report = report(opens);
    check_never_wrong(&report);
    let mut roots: Vec<&str> = report.orders.iter().map(|order| order.root.as_str()).collect();
    roots.sort_unstable();
    assert_eq!(roots, ["train", "val"], "{report:#?}");
    let val = report.orders.iter().find(|order| order.root == "val").unwrap();
    assert!(val.predicted + 8 >= u64::from(2 * VAL), "{report:#?}");
}

#[test]
fn readers_without_ids_are_found_or_nothing_is_claimed() {
    let n = CLASSES * OF_CLASS;
    let mut default = Mt19937::new(42);
    default.skip(3);
    let order = randperm(n, &mut Mt19937::new(u64::from(default.random())));
    // one reader in another pid namespace
    let alone = report(order.iter().map(|&k| (0, train(k))));
    check_never_wrong(&alone);
    // a pool of 8 threads: which of them takes the next file is chance
    let pool = report(order.iter().zip(0u32..).map(|(&k, at)| (20 + (at.wrapping_mul(0x9e37_79b1) >> 29), train(k))));
    check_never_wrong(&pool);
    for report in [&alone, &pool] {
        assert!(report.orders.iter().all(|order| order.seed == 42 && order.predicted * 100 >= order.later * 99), "{report:#?}");
    }
}

/// The searches that are begun over these opens, by rung, when none of them finds anything; each is reckoned to cost so much.
fn begun(opens: impl IntoIterator<Item = (u32, u32)>, cost: f64) -> Vec<(Rung, usize)> {
    searched(opens, cost, InferConfig::default()).0
}

/// The same, and what is told at the end.
fn searched(opens: impl IntoIterator<Item = (u32, u32)>, cost: f64, config: InferConfig) -> (Vec<(Rung, usize)>, Vec<String>) {
    let paths = (0..CLASSES * OF_CLASS).map(train).chain((0..VAL).map(val));
    let all: Vec<Logged> = paths.map(|path| Logged { at: Duration::ZERO, process: 0, path }).collect();
    let manifest = Arc::new(manifest_of(&all));
    let sizes: Arc<[u64]> = vec![1; manifest.len()].into();
    let mut inference = Inference::new(Arc::clone(&manifest), sizes, config);
    let mut begun: Vec<(Rung, usize)> = Vec::new();
    for (number, (process, sample)) in opens.into_iter().enumerate() {
        let Some(Node::File(file)) = manifest.find(&train(sample)) else { panic!("{}", train(sample)) };
        let now = Duration::from_micros(400 * number as u64);
        inference.opened(Seen { now, file, process, outcome: Outcome::Miss }, 0, None);
        while let Some(job) = inference.next_job(true, |_| None, |_| 0).or_else(|| inference.next_job(false, |_| None, |_| 0)) {
            match begun.iter_mut().find(|(rung, _)| *rung == job.rung()) {
                Some((_, times)) => *times += 1,
                None => begun.push((job.rung(), 1)),
            }
            inference.finished(job.in_vain(cost), |_| None);
        }
    }
    let told = inference.unexplained().collect();
    (begun, told)
}

fn times(begun: &[(Rung, usize)], wanted: Rung) -> usize {
    begun.iter().filter(|(rung, _)| *rung == wanted).map(|(_, times)| times).sum()
}

#[test]
fn a_walk_is_not_searched() {
    let all = CLASSES * OF_CLASS;
    let listed = begun((0..all).map(|sample| (5, sample)), 0.0);
    assert!(listed.iter().all(|(rung, _)| *rung == Rung::Known), "{listed:?}");
    // as `cp -r` goes: directory after directory, each in an order of its own. The first may be a small dataset.
    let within = randperm(OF_CLASS, &mut Mt19937::new(3));
    let copied = begun((0..CLASSES).rev().flat_map(|class| within.iter().map(move |k| (5, class * OF_CLASS + k))), 0.0);
    assert!(copied.iter().all(|(rung, times)| *rung == Rung::Known || *times <= 3), "{copied:?}");
    assert!(times(&copied, Rung::Likely) <= 2 && times(&copied, Rung::Others) == 0, "{copied:?}");
}

#[test]
fn what_nothing_explains_is_searched_a_few_times_and_then_no_more() {
    let all = CLASSES * OF_CLASS;
    let shuffled = begun(randperm(all, &mut Mt19937::new(9)).into_iter().map(|sample| (5, sample)), 0.005);
    assert!((1..=2).contains(&times(&shuffled, Rung::Likely)) && times(&shuffled, Rung::Others) <= 1, "{shuffled:?}");
    assert_eq!(times(&shuffled, Rung::Exhaustive), 0, "the pass is over sooner: {shuffled:?}");
    // any file, again and again: each repeat may be another pass
    let mut die = Mt19937::new(4);
    let access: Vec<(u32, u32)> = (0..6_000).map(|_| (5, die.random() % all)).collect();
    let (short, long) = (begun(access[..2_000].iter().copied(), 1.0), begun(access, 1.0));
    assert!(times(&short, Rung::Likely) <= 8 && times(&short, Rung::Likely) == times(&long, Rung::Likely), "{short:?} {long:?}");
    assert_eq!(times(&long, Rung::Exhaustive), 0, "{long:?}");
}

#[test]
fn what_was_not_looked_for_is_told() {
    let order = randperm(CLASSES * OF_CLASS, &mut Mt19937::new(9));
    let opens = |count: usize| order[..count].iter().map(|&sample| (5, sample));
    let (patient, thrifty) = (InferConfig { patient: true, ..InferConfig::default() }, InferConfig::default());
    let told = searched(opens(300), 0.0, patient).1;
    assert!(matches!(&told[..], [one] if one.starts_with("train: ") && one.contains("first 64")), "{told:?}");
    // nothing promises all seeds
    let told = searched(opens(60), 0.0, thrifty).1;
    assert!(matches!(&told[..], [one] if !one.contains("not looked for")), "{told:?}");
    let walk = searched((0..CLASSES * OF_CLASS).map(|sample| (5, sample)), 0.0, thrifty).1;
    assert!(walk.iter().all(|one| one.contains("known orders")), "{walk:?}");
}

#[test]
fn a_quick_answer_tells_what_it_left_out() {
    let quick = InferConfig { patient: true, exhaustive: false, ..InferConfig::default() };
    let order = randperm(CLASSES * OF_CLASS, &mut Mt19937::new(9));
    let told = |config| searched(order[..300].iter().map(|&sample| (5, sample)), 0.0, config).1;
    let text = told(quick);
    assert!(matches!(&text[..], [one] if one.ends_with("; left out to be quick: all seeds")), "{text:?}");
    let text = told(InferConfig { exhaustive: true, ..quick });
    assert!(matches!(&text[..], [one] if !one.contains("to be quick")), "{text:?}");
}
