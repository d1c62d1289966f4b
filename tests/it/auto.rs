//! `--order auto`, the default, with real PyTorch on a real mount: the order is found in the opens, and later epochs are known before their
//! first open.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::belady::Belady;
use crate::torch::{PYTHON, dataset, torch_is_here};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/torch_auto.py");

fn start(mount: &Path, args: &[&str]) -> Child {
    let mut command = Command::new(PYTHON);
    command.arg(SCRIPT).arg(mount.join("train")).args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("python starts")
}

fn samples(child: Child) -> u64 {
    let output = child.wait_with_output().expect("python ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str::<Value>(text.trim()).expect("one JSON line")["samples"].as_u64().expect("samples")
}

fn epoch_of(order: &Value, epoch: u64) -> &Value {
    let epochs = order["epochs"].as_array().expect("epochs");
    epochs.iter().find(|row| row["epoch"] == epoch).unwrap_or_else(|| panic!("no epoch {epoch}: {order:#}"))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// One run with two thirds of the data in memory; `late`: accesses of an epoch after the second that may wait.
fn check(name: &str, kind: &str, seed: u64, args: &[&str], epochs_known_from: u64, late: u64) {
    let (server, _source) = dataset(1_500);
    let mount = Belady::mount_bucket(&server, &["--memory", "44MiB"]);
    let read = samples(start(&mount.dir, args));
    mount.wait_for("all accesses counted", |stats| stats["reads"]["accesses"] == read);
    let stats = mount.stats();
    let order = stats["orders"].as_array().and_then(|orders| orders.iter().find(|order| order["root"] == "train"));
    let order = order.unwrap_or_else(|| panic!("{name}: no order: {stats:#}"));
    assert_eq!((&order["state"], &order["source"]), (&"locked".into(), &"inferred".into()), "{name}: {order:#}");
    assert_eq!((&order["kind"], &order["seed"]), (&kind.into(), &seed.into()), "{name}: {order:#}");
    for epoch in epochs_known_from..3 {
        let row = epoch_of(order, epoch);
        let waited = number(&row["late"]) + number(&row["miss"]);
        assert!(waited <= late, "{name}: epoch {epoch} waited for {waited}: {order:#}");
        assert!(number(&row["retained"]) > 0 && number(&row["in_time"]) > 0, "{name}: {order:#}");
    }
    assert_eq!(mount.unmount(), 0);
}

#[test]
fn a_shuffled_loader_is_found_whatever_its_workers() {
    if !torch_is_here() {
        return;
    }
    for (workers, known_from) in [("0", 1), ("2", 1), ("4", 1)] {
        let args = ["--seed", "42", "--model", "--workers", workers, "--pause", "2"];
        check(&format!("workers={workers}"), "torch-random", 42, &args, known_from, 60);
    }
}

#[test]
fn persistent_workers_and_a_probe_before_are_followed() {
    if !torch_is_here() {
        return;
    }
    let args = ["--seed", "7", "--probe", "--persistent", "--workers", "2", "--pause", "2"];
    check("persistent", "torch-random", 7, &args, 2, 60);
}

#[test]
fn one_rank_of_two_is_found() {
    if !torch_is_here() {
        return;
    }
    let args = ["--world", "2", "--rank", "1", "--workers", "2", "--pause", "2"];
    check("distributed", "torch-distributed", 0, &args, 1, 60);
}

#[test]
fn nothing_is_looked_for_when_told_so() {
    if !torch_is_here() {
        return;
    }
    let (server, _source) = dataset(300);
    let mount = Belady::mount_bucket(&server, &["--memory", "64MiB", "--order", "none"]);
    assert_eq!(samples(start(&mount.dir, &["--seed", "42", "--epochs", "2"])), 600);
    assert_eq!(mount.stats()["orders"], Value::Array(Vec::new()));
    assert_eq!(mount.unmount(), 0);
}
