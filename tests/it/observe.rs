//! Who reads, on real processes and a real mount; and a real training run's opens, numbered by the map that they suggest.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use belady::dataset::maps::Maps;
use belady::dataset::{Manifest, Node};
use belady::demo::dataset::DatasetSpec;
use belady::demo::server::{Server, ServerConfig};
use belady::observe::log;
use belady::observe::process::peek;
use belady::observe::readers::{Life, Rank, Readers};
use belady::order::spec::OrderSpec;
use belady::types::{FileIndex, ObjectMeta};

use crate::support::belady::Belady;

const PYTHON: &str = "/usr/bin/python3";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/readers.py");

/// A program that holds its files open until it is dropped.
struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Starts the script; its own process id and its readers'.
fn readers_of(how: &str, folder: &Path) -> (Held, u32, Vec<u32>) {
    let mut child = Command::new(PYTHON)
        .args([SCRIPT, how, folder.to_str().unwrap()])
        .env("RANK", "3")
        .env("WORLD_SIZE", "8")
        .env("BELADY_ORDER", "torch-distributed:world=8:rank=3:root=train")
        .env("SLURM_JWT", "s3cr3t")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut ids = line.split_whitespace().map(|id| id.parse().unwrap());
    let main = ids.next().unwrap_or_else(|| panic!("{how} says nothing"));
    let readers = ids.collect();
    (Held(child), main, readers)
}

#[test]
fn workers_of_every_kind_are_of_their_rank() {
    if !Path::new(PYTHON).exists() {
        assert!(std::env::var_os("BELADY_TEST_REQUIRE_ALL").is_none(), "no {PYTHON}");
        return eprintln!("left out: no {PYTHON}");
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["0", "1"] {
        std::fs::write(folder.path().join(name), "bytes").unwrap();
    }
    for how in ["fork", "spawn", "forkserver", "pipe", "threads"] {
        let (_held, main, threads) = readers_of(how, folder.path());
        assert_eq!(threads.len(), 2);
        let mut readers = Readers::default();
        let mut seen_by = Vec::new();
        for thread in threads {
            let seen = readers.opened(Duration::ZERO, thread);
            let peeked = peek(Path::new("/proc"), thread, true);
            assert_eq!(peeked.refused, None, "{how}");
            let hints = peeked.hints.unwrap();
            assert_eq!((hints.rank, hints.world_size, hints.orders.len()), (Some(3), Some(8), 1), "{how}: {hints:?}");
            assert!(!format!("{hints:?}").contains("s3cr3t"));
            readers.learn(peeked.facts);
            seen_by.push(seen.reader);
        }
        let start = peek(Path::new("/proc"), main, false).facts.line[0].start;
        for reader in &seen_by {
            assert_eq!(readers.rank(*reader), Rank::Of(Life { process: main, start }), "{how}");
            assert_eq!(readers.job(*reader), readers.job(seen_by[0]), "{how}");
        }
    }
}

#[test]
fn opens_on_a_real_mount_are_recorded() {
    let server = Server::start_with_threads(ServerConfig::default(), 1).unwrap();
    let dataset = DatasetSpec { files: 60, classes: 3, mean_bytes: 5_000, ..DatasetSpec::default() }.build();
    server.add_dataset(&dataset);
    let keys: Vec<&str> = dataset.entries.iter().map(|entry| &*entry.key).collect();
    for order in ["none", "sequential:root=train"] {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("opens.tsv");
        let mount = Belady::mount_bucket(&server, &["--memory", "16MiB", "--order", order, "--record-opens", record.to_str().unwrap()]);
        let mut expected = Vec::new();
        for keys in keys.chunks(20) {
            // One process reads them one after the other.
            let paths = keys.iter().map(|key| mount.dir.join(key));
            let mut child = Command::new("cat").args(paths).stdout(Stdio::null()).spawn().unwrap();
            expected.extend(keys.iter().map(|key| (child.id(), (*key).to_owned())));
            assert!(child.wait().unwrap().success());
        }
        mount.wait_for("all opens counted", |stats| stats["reads"]["accesses"] == 60);
        assert_eq!(mount.stat("/reads/opens_unrecorded"), 0.0);
        assert_eq!(mount.unmount(), 0);
        let log = log::parse(std::fs::read(&record).unwrap().as_slice()).unwrap();
        assert_eq!(log.skipped, 0);
        let seen: Vec<(u32, String)> = log.opens.into_iter().map(|open| (open.thread, open.path)).collect();
        assert_eq!(seen, expected, "{order}");
    }
    let refused = Belady::try_mount("file:///etc", &["--record-opens", "/no/such/dir/x"]).unwrap_err();
    assert!(refused.contains("--record-opens /no/such/dir/x"), "{refused}");
}

/// The first opens of an unmodified script (`torch.manual_seed(42)`, ImageFolder of 2,000 files, 2 workers, batches of 32; PyTorch 2.15):
/// the first map is the right one, and in it each worker reads its batches of the order, every place exact.
#[test]
fn a_real_runs_opens_are_its_order_in_the_first_map() {
    let text = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/opens_seed42_workers2.tsv")).unwrap();
    let log = log::parse(text.as_slice()).unwrap();
    assert_eq!((log.opens.len(), log.skipped), (600, 0));
    let path = |i: u32| format!("train/n{:05}/img_{i:07}.png", i % 20);
    let object = |i: u32| ObjectMeta { key: path(i).into(), size: 1, etag: "".into(), mtime_seconds: 0 };
    let manifest = Arc::new(Manifest::build("", (0..2000).map(object).collect()));
    let opens = log::files(&log, &manifest, "train");
    assert_eq!(opens.len(), 600);
    let files: Vec<FileIndex> = opens.iter().take(64).map(|open| open.1).collect();
    let map = Maps::new(&manifest, &files, &[]).next().unwrap();
    assert_eq!((map.root.as_str(), map.rule.to_string().as_str(), map.len()), ("train", "imagefolder", 2000));
    assert!(matches!(manifest.find("train/n00003/img_0000003.png"), Some(Node::File(file)) if map.index_of(file) == Some(300)));

    // The first output is the model's initialisation and the loader's own draw later.
    let spec: OrderSpec = "torch-random:seed=42:offset=13005:root=train:batch=32:workers=2".parse().unwrap();
    let order = spec.sampler(2000).unwrap().order(0).places;
    let mut threads: Vec<u32> = Vec::new();
    for (thread, _) in &opens {
        if !threads.contains(thread) {
            threads.push(*thread);
        }
    }
    assert_eq!(threads.len(), 2);
    for (worker, thread) in threads.iter().enumerate() {
        let own: Vec<(u32, FileIndex)> = opens.iter().filter(|open| open.0 == *thread).copied().collect();
        let seen: Vec<u32> = map.sight(&own).into_iter().map(|(_, sample)| sample).collect();
        let expected: Vec<u32> = order.chunks(32).skip(worker).step_by(2).flatten().copied().take(seen.len()).collect();
        assert_eq!(seen, expected, "worker {worker}");
    }
}
