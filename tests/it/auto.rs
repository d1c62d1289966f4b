//! `--order auto`, the default, with real PyTorch on a real mount: the order is found in the opens, and later epochs are known before their
//! first open.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::belady::Belady;
use crate::torch::{PYTHON, dataset, torch_is_here};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/torch_auto.py");
const POOL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/pool.py");

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

/// What `reader` reads of 600 files, twice in an order that Python shuffles: it is found, or nothing is claimed.
fn found_or_silent(name: &str, mount: &Belady, mut reader: Command, threads: u64) {
    let output = reader.arg(POOL).arg(mount.dir.join("train")).args(["--threads", &threads.to_string()]).output().expect("it starts");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    mount.wait_for("all accesses counted", |stats| stats["reads"]["accesses"] == 1_200);
    let stats = mount.stats();
    let orders = stats["orders"].as_array().expect("orders");
    for order in orders {
        assert_eq!((&order["kind"], &order["seed"]), (&"python-shuffle".into(), &42.into()), "{name}: {order:#}");
        let (observed, predicted) = (number(&order["observed"]), number(&order["predicted"]));
        assert!(observed - predicted <= observed / 50, "{name}: {order:#}");
    }
    println!("{name}: {}", if orders.is_empty() { "nothing is claimed" } else { "found" });
}

fn python_is_here() -> bool {
    let here = Path::new(PYTHON).exists();
    assert!(here || std::env::var_os("BELADY_TEST_REQUIRE_ALL").is_none(), "no {PYTHON}");
    here
}

#[test]
fn a_pool_of_threads_is_found_or_nothing_is_claimed() {
    if !python_is_here() {
        return;
    }
    let (server, _source) = dataset(600);
    for threads in [1, 8] {
        let mount = Belady::mount_bucket(&server, &["--memory", "64MiB"]);
        found_or_silent(&format!("{threads} threads"), &mount, Command::new(PYTHON), threads);
        assert_eq!(mount.unmount(), 0);
    }
}

/// Readers in another pid namespace: seen from the mount they have ids, but no environment that could be read of old; where the mount is the
/// one in a namespace below, they have none.
#[test]
fn readers_in_another_pid_namespace_are_found_or_nothing_is_claimed() {
    let unshared = Command::new("unshare").args(["-fp", "--mount-proc", "true"]).status().is_ok_and(|status| status.success());
    if !python_is_here() || !unshared {
        return eprintln!("left out: unshare needs root");
    }
    let (server, _source) = dataset(600);
    let mount = Belady::mount_bucket(&server, &["--memory", "64MiB"]);
    let mut reader = Command::new("unshare");
    reader.args(["-fp", "--mount-proc", PYTHON]);
    found_or_silent("below", &mount, reader, 1);
    assert_eq!(mount.unmount(), 0);
    for threads in [1, 4] {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let record = folder.path().join("opens.tsv");
        let args = ["--memory", "64MiB", "--record-opens", record.to_str().expect("a plain path")];
        let mount = Belady::mount_bucket_by(&["unshare", "-fp", "--kill-child"], &server, &args);
        found_or_silent(&format!("above, {threads} threads"), &mount, Command::new(PYTHON), threads);
        assert_eq!(mount.unmount(), 0);
        let log = belady::observe::log::parse(std::fs::read(&record).expect("a log").as_slice()).expect("text");
        assert!(log.opens.len() >= 1_200 && log.opens.iter().all(|open| open.thread == 0), "all ids are hidden");
    }
}

/// `BELADY_ORDER` of the readers' environment: an order that no search would find is followed once their opens are in it, and where they are not,
/// or nobody may look, it is not.
#[test]
fn an_order_that_the_environment_names_is_followed_where_opens_confirm_it() {
    if !python_is_here() {
        return;
    }
    let (server, _source) = dataset(600);
    let named = |seed: u32| format!("python-shuffle:seed={seed}:again=in-place:root=train");
    for (peek, told, follows) in [("true", 2_718_281_829, true), ("true", 2_718_281_828, false), ("false", 2_718_281_829, false)] {
        let mount = Belady::mount_bucket(&server, &["--memory", "64MiB", "--search-exhaustive=false", &format!("--peek={peek}")]);
        let mut reader = Command::new(PYTHON);
        reader.env("BELADY_ORDER", named(told)).arg(POOL).arg(mount.dir.join("train")).args(["--seed", "2718281829"]);
        let output = reader.output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        mount.wait_for("all accesses counted", |stats| stats["reads"]["accesses"] == 1_200);
        let stats = mount.stats();
        let orders = stats["orders"].as_array().expect("orders");
        let shown = format!("peek={peek}, {told}: {stats:#}");
        assert_eq!(orders.len(), usize::from(follows), "{shown}");
        for order in orders {
            let is = (&order["kind"], &order["seed"], &order["state"]);
            assert_eq!(is, (&"python-shuffle".into(), &2_718_281_829_u32.into(), &"locked".into()), "{shown}");
            // the second epoch, too: the first few dozen opens tell
            assert!(number(&order["predicted"]) > 1_100, "{shown}");
        }
        assert_eq!(mount.unmount(), 0);
    }
}
