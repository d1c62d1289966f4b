//! Promise 9: the memory tier gives way when others need the memory. The whole daemon in this process, a real mount, figures of our making.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use belady::config::machine::{Headroom, Machine};
use belady::config::resolve::{Layers, resolve};
use belady::daemon::pressure::{Pace, Watch};
use belady::daemonize::{Ready, Stop};
use belady::demo::dataset::{Dataset, DatasetSpec};
use belady::demo::server::{Server, ServerConfig};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::support::mount::PATIENCE;

/// Above the least (16 MiB) that a tier is left with, and below the tier.
const DATASET_FILES: u32 = 600;
const TIER_BYTES: u64 = 48 << 20;
const LEAST_BYTES: u64 = 16 << 20;
const TOTAL_BYTES: u64 = 8 << 30;

/// A daemon in this process.
struct Daemon {
    dir: PathBuf,
    /// What the machine says is left.
    available: Arc<AtomicU64>,
    stop: mpsc::Sender<Stop>,
    ended: Option<tokio::task::JoinHandle<Result<(), String>>>,
    runtime: Runtime,
    _home: tempfile::TempDir,
}

impl Daemon {
    fn mount(server: &Server, more: &str) -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        let dir = home.path().join("mnt");
        fs::create_dir(&dir).expect("a mount point");
        let text = format!(
            "endpoint_url = \"{}\"\nregion = \"us-east-1\"\nno_sign_request = true\nmemory = \"{TIER_BYTES}\"\n{more}",
            server.url()
        );
        let machine = Machine { runtime_dir: home.path().to_owned(), ..Machine::here() };
        let layers = Layers::from_file(&text, "test.toml").expect("a good file");
        let settings = resolve(&format!("s3://{}", server.bucket()), &dir, layers, &machine).expect("good settings");
        let available = Arc::new(AtomicU64::new(TOTAL_BYTES));
        let figures = Arc::clone(&available);
        let watch = Watch {
            figures: Arc::new(move || vec![Headroom { available: figures.load(SeqCst), total: TOTAL_BYTES }]),
            pace: Pace { look_every: Duration::from_millis(10), calm: Duration::from_millis(100), grow_every: Duration::from_millis(30) },
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
        let (stop, stops) = mpsc::channel(2);
        let ended = runtime.spawn(belady::daemon::run_watching(settings, Ready::foreground(), stops, watch));
        let daemon = Self { dir, available, stop, ended: Some(ended), runtime, _home: home };
        daemon.wait("the mount answers", || daemon.dir.join(".belady/stats.json").exists());
        daemon
    }

    fn wait(&self, what: &str, done: impl Fn() -> bool) {
        let began = Instant::now();
        while !done() {
            assert!(began.elapsed() < PATIENCE, "waited for: {what}");
            assert!(self.ended.as_ref().is_some_and(|ended| !ended.is_finished()), "the daemon ended before: {what}");
            std::thread::yield_now();
        }
    }

    fn stats(&self) -> serde_json::Value {
        let text = fs::read_to_string(self.dir.join(".belady/stats.json")).expect("the stats file reads");
        serde_json::from_str(&text).expect("the stats are JSON")
    }

    /// (used, capacity) of the memory tier.
    fn tier(&self) -> (u64, u64) {
        let stats = self.stats();
        let figure = |name: &str| stats["tiers"][0][name].as_u64().expect("a number");
        (figure("used_bytes"), figure("capacity_bytes"))
    }

    fn notes(&self) -> Vec<String> {
        let stats = self.stats();
        let notes = stats["notes"].as_array().expect("notes").iter().filter_map(|note| note.as_str());
        notes.filter(|note| note.starts_with("memory tier is shrunk")).map(str::to_owned).collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.stop.try_send(Stop::Drain);
        if let Some(ended) = self.ended.take() {
            drop(self.runtime.block_on(async { tokio::time::timeout(PATIENCE, ended).await }));
        }
    }
}

/// Ends the readers, also when the test fails: the scope waits for them.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn read_all(dir: &Path, dataset: &Dataset, part: usize, parts: usize) {
    for entry in dataset.entries.iter().skip(part).step_by(parts) {
        let bytes = fs::read(dir.join(&entry.key)).unwrap_or_else(|error| panic!("{}: {error}", entry.key));
        assert!(entry.content.matches(&bytes), "{} has wrong bytes", entry.key);
    }
}

fn shrinks_under_readers_and_grows_back(order: &str) {
    let server = Server::start_with_threads(ServerConfig::default(), 1).expect("a loopback port");
    let dataset = DatasetSpec { files: DATASET_FILES, classes: 8, mean_bytes: 60_000, ..DatasetSpec::default() }.build();
    assert!(dataset.total_bytes() > 2 * LEAST_BYTES && dataset.total_bytes() < TIER_BYTES - (8 << 20));
    server.add_dataset(&dataset);
    let daemon = Daemon::mount(&server, order);
    let full = dataset.total_bytes();

    read_all(&daemon.dir, &dataset, 0, 1);
    daemon.wait("the tier holds the dataset", || daemon.tier() >= (full, TIER_BYTES));
    assert!(daemon.notes().is_empty());

    // Others take all there is, while readers go on.
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = End(&done);
        let readers: Vec<_> = (0..2)
            .map(|part| {
                let (done, dir, dataset) = (&done, &daemon.dir, &dataset);
                scope.spawn(move || {
                    let mut rounds = 0;
                    while !done.load(SeqCst) {
                        read_all(dir, dataset, part, 2);
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        let began = Instant::now();
        daemon.available.store(0, SeqCst);
        daemon.wait("the tier gives back what it may not hold", || {
            let (used, capacity) = daemon.tier();
            capacity == LEAST_BYTES && used <= LEAST_BYTES
        });
        eprintln!("{} MiB given back in {:?}", (full - LEAST_BYTES) >> 20, began.elapsed());
        let notes = daemon.notes();
        assert_eq!(notes, ["memory tier is shrunk to 16MiB of 48MiB: the machine has 0B free"]);
        // what is read in between finds room only below the limit
        let opens = daemon.stats()["reads"]["opens"].as_u64().expect("a number");
        daemon.wait("readers have gone on", || daemon.stats()["reads"]["opens"].as_u64() > Some(opens + u64::from(DATASET_FILES)));
        let (used, capacity) = daemon.tier();
        assert!(capacity == LEAST_BYTES && used <= LEAST_BYTES, "{used} of {capacity}");

        // Calm: all of it again, and in use.
        daemon.available.store(TOTAL_BYTES, SeqCst);
        daemon.wait("the tier has its size again", || daemon.tier().1 == TIER_BYTES);
        daemon.wait("and uses it", || daemon.tier().0 >= full);
        assert!(daemon.notes().is_empty());
        done.store(true, SeqCst);
        let rounds: u32 = readers.into_iter().map(|reader| reader.join().expect("every byte right")).sum();
        assert!(rounds >= 2, "they read on");
    });
    assert_eq!(daemon.stats()["reads"]["errors"], 0);
}

#[test]
fn the_memory_tier_gives_way_without_an_order() {
    shrinks_under_readers_and_grows_back("order = \"none\"\n");
}

#[test]
fn the_memory_tier_gives_way_under_a_plan() {
    shrinks_under_readers_and_grows_back("order = [\"sequential:root=train\"]\n");
}

#[test]
fn the_memory_tier_gives_way_when_nobody_reads() {
    let server = Server::start_with_threads(ServerConfig::default(), 1).expect("a loopback port");
    let dataset = DatasetSpec { files: DATASET_FILES, classes: 8, mean_bytes: 60_000, ..DatasetSpec::default() }.build();
    server.add_dataset(&dataset);
    let daemon = Daemon::mount(&server, "order = [\"sequential:root=train\"]\n");
    read_all(&daemon.dir, &dataset, 0, 1);
    daemon.wait("the tier holds the dataset", || daemon.tier().0 >= dataset.total_bytes());
    // one file stays open: its bytes stay too, and it stays readable
    let entry = &dataset.entries[dataset.entries.len() / 2];
    let open = fs::File::open(daemon.dir.join(&entry.key)).expect("opens");
    daemon.available.store(0, SeqCst);
    daemon.wait("the tier gives back what it may not hold", || {
        daemon.tier().0 <= LEAST_BYTES + belady::cache::charge_of(entry.content.size())
    });
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut &open, &mut bytes).expect("reads");
    assert!(entry.content.matches(&bytes));
    drop(open);
    daemon.wait("and the rest when it is closed", || daemon.tier().0 <= LEAST_BYTES);
}
