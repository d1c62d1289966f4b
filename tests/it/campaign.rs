//! Right or silent: many runs of programs of all kinds, and no order may be believed that is not theirs.
//!
//! Some small ones here; `BELADY_TEST_RUNS=1000` (from `BELADY_TEST_SEED` on, with `BELADY_TEST_DEEP` as deep as the mount searches) by hand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use belady::infer::InferConfig;
use belady::infer::verify::{Report, manifest_of, verify};

use crate::support::campaign::{Run, Truth};

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var_os(name).map_or(otherwise, |text| text.to_string_lossy().parse().unwrap_or_else(|_| panic!("{name}: a number is needed")))
}

fn report(run: &Run, deep: bool) -> Report {
    let config = InferConfig { threads: 1, exhaustive: false, deep, patient: false };
    verify(&Arc::new(manifest_of(&run.listing())), &run.opens, config, &|| Duration::ZERO, &|_| {})
}

/// What is said of a run that is not so.
fn faults(run: &Run, report: &Report) -> Vec<String> {
    let mut faults = Vec::new();
    for order in &report.orders {
        let may_be = match &run.truth {
            Truth::Unknown => false,
            // two walks: the second reads as the first did
            Truth::Listing => order.kind == "sequential" || order.kind == "list",
            Truth::Planted(kind) => {
                order.kind == *kind
                    || order.kind == "list"
                    || kind.starts_with("torch") && order.kind == "torch-randperm"
                    // one permutation has several names
                    || kind.starts_with("torch") && order.kind.starts_with("torch") && order.later == order.predicted
                    || run.strays > 0 && order.kind == "sequential"
            }
        };
        if !may_be {
            faults.push(format!("{} is not in it: {}", order.order, order.why));
        }
        let wrong = order.later - order.predicted;
        // what is lost or overtaken, and how a planted order goes on after its first epoch, shows itself in some opens
        let allowed = if matches!(run.truth, Truth::Planted(_)) { 16 + order.later / 50 } else { 0 };
        if wrong > allowed + run.strays as u64 {
            faults.push(format!("{}: {wrong} of {} opens are not where it has them", order.order, order.later));
        }
    }
    faults.extend(
        report
            .events
            .iter()
            .filter(|(_, what)| what.contains("; lost;") || what.contains(": lost;"))
            .map(|(at, what)| format!("after {at}: {what}")),
    );
    faults
}

#[test]
fn no_order_is_believed_that_is_not_there() {
    let (runs, seed, deep) = (number("BELADY_TEST_RUNS", 20), number("BELADY_TEST_SEED", 1), number("BELADY_TEST_DEEP", 0) > 0);
    // large ones cost seconds in a debug build
    let most = if std::env::var_os("BELADY_TEST_RUNS").is_some() { 5_000 } else { 150 };
    let mut wrong = Vec::new();
    let mut found: BTreeMap<String, (u32, u32, u32)> = BTreeMap::new();
    let first = number("BELADY_TEST_FROM", 0);
    for number in first..first + runs {
        let run = Run::new(seed, number, most);
        let report = report(&run, deep);
        if runs == 1 {
            println!("{}: {report:#?}", run.name);
        }
        let faults = faults(&run, &report);
        let row = found.entry(run.kind.clone()).or_default();
        *row = (row.0 + 1, row.1 + u32::from(!report.orders.is_empty()), row.2 + u32::from(!faults.is_empty()));
        if !faults.is_empty() {
            eprintln!("{}: {}", run.name, faults.join("\n    "));
            wrong.push(run.name);
        }
    }
    for (kind, (runs, found, faults)) in found {
        println!("{kind}: {found} of {runs} followed, {faults} wrong");
    }
    assert!(wrong.is_empty(), "{} of {runs}: {wrong:#?}", wrong.len());
}

/// Two walks at once through one directory, by nobody knows whom: what had to be paid for was owed, could be paid, and made no sense for such reads,
/// so that the same search was due again at once, for ever.
#[test]
fn what_makes_no_sense_for_a_walk_is_not_due_again_and_again() {
    let run = Run::new(1, 1_151, 5_000);
    assert!(run.name.contains("walk: two at once, pid 0"), "{}", run.name);
    let report = report(&run, false);
    assert!(report.searches < 200 && report.orders.is_empty(), "{report:#?}");
}
