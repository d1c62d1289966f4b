//! Real PyTorch on a real mount: an unmodified ImageFolder + DataLoader + DistributedSampler, every byte compared with its source.

use std::path::Path;
use std::process::Command;

use belady::demo::dataset::DatasetSpec;
use belady::demo::server::{Server, ServerConfig};

use crate::support::belady::Belady;

pub(crate) const PYTHON: &str = "/usr/bin/python3";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/torch_epochs.py");

/// Whether PyTorch is here. Where all tests must run (`BELADY_TEST_REQUIRE_ALL`), it has to be.
pub(crate) fn torch_is_here() -> bool {
    let here = Command::new(PYTHON).args(["-c", "import torch, torchvision"]).output().is_ok_and(|output| output.status.success());
    assert!(
        here || std::env::var_os("BELADY_TEST_REQUIRE_ALL").is_none(),
        "PyTorch is missing: apt-get install python3-torch python3-torchvision"
    );
    if !here {
        eprintln!("left out: no PyTorch at {PYTHON} (apt-get install python3-torch python3-torchvision)");
    }
    here
}

/// A bucket with a generated dataset, and the same tree as plain files.
pub(crate) fn dataset(files: u32) -> (Server, tempfile::TempDir) {
    let server = Server::start_with_threads(ServerConfig::default(), 1).expect("a loopback port");
    let dataset = DatasetSpec { files, classes: 10, mean_bytes: 40_000, ..DatasetSpec::default() }.build();
    server.add_dataset(&dataset);
    let source = tempfile::tempdir().expect("a temporary directory");
    for entry in &dataset.entries {
        let path = source.path().join(&entry.key);
        std::fs::create_dir_all(path.parent().expect("keys have folders")).expect("folders");
        std::fs::write(path, entry.content.to_bytes()).expect("files");
    }
    (server, source)
}

fn train(mount: &Path, source: &Path, args: &[&str]) -> serde_json::Value {
    let output =
        Command::new(PYTHON).arg(SCRIPT).args([mount.join("train"), source.join("train")]).args(args).output().expect("python starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(text.trim()).expect("one JSON line")
}

#[test]
fn a_distributed_sampler_is_followed_and_every_byte_is_right() {
    if !torch_is_here() {
        return;
    }
    let (server, source) = dataset(2_000);
    let order = "torch-distributed:seed=7:world=2:rank=0:root=train:batch=32:workers=2";
    let mount = Belady::mount_bucket(&server, &["--memory", "30MiB", "--order", order]);
    let result = train(&mount.dir, source.path(), &["--seed", "7", "--world", "2", "--rank", "0", "--epochs", "3", "--workers", "2"]);
    assert_eq!(result["mismatches"], 0);
    assert_eq!(result["samples"], 3_000);
    mount.wait_for("all accesses counted", |stats| stats["reads"]["accesses"] == 3_000);
    let stats = mount.stats();
    assert_eq!(stats["orders"][0]["state"], "locked", "{stats:#}");
    // all but what the first 256 opens cost at a cold start
    let number = |pointer: &str| stats.pointer(pointer).and_then(serde_json::Value::as_f64).expect(pointer);
    let ready = number("/reads/retained") + number("/reads/in_time");
    assert!(ready >= 0.99 * (3_000.0 - 256.0), "{stats:#}");
    assert_eq!(mount.unmount(), 0);
}

#[test]
fn a_forgotten_set_epoch_is_noticed_and_followed() {
    if !torch_is_here() {
        return;
    }
    let (server, source) = dataset(1_000);
    let order = "torch-distributed:seed=0:world=1:rank=0:root=train";
    let mount = Belady::mount_bucket(&server, &["--memory", "16MiB", "--order", order]);
    let result = train(&mount.dir, source.path(), &["--forget-set-epoch", "--epochs", "4", "--workers", "2"]);
    assert_eq!(result["mismatches"], 0);
    mount.wait_for("all accesses counted", |stats| stats["reads"]["accesses"] == 4_000);
    let stats = mount.stats();
    assert_eq!(stats["orders"][0]["state"], "locked", "{stats:#}");
    let epochs = stats["orders"][0]["epochs"].as_array().expect("epochs");
    let last = epochs.last().expect("four epochs");
    let unready = last["late"].as_u64().expect("late") + last["miss"].as_u64().expect("miss");
    assert!(unready <= 50, "the last epoch repeats the first and is known: {stats:#}");
}

#[test]
fn a_random_sampler_with_a_seed_is_followed() {
    if !torch_is_here() {
        return;
    }
    let (server, source) = dataset(1_000);
    let order = "torch-random:seed=3:root=train";
    let mount = Belady::mount_bucket(&server, &["--memory", "16MiB", "--order", order]);
    let result = train(&mount.dir, source.path(), &["--sampler", "random", "--seed", "3", "--epochs", "3", "--workers", "2"]);
    assert_eq!(result["mismatches"], 0);
    mount.wait_for("all accesses counted", |stats| stats["reads"]["accesses"] == 3_000);
    let stats = mount.stats();
    assert_eq!(stats["orders"][0]["state"], "locked", "{stats:#}");
    let ready = stats["reads"]["ready_rate"].as_f64().expect("a rate");
    assert!(ready > 0.85, "{stats:#}");
}
