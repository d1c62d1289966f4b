//! `belady demo`: what this program brings, on the user's own machine, in a minute. An S3 server in this process stands for a store that
//! takes its time; this program mounts it, as a user would; threads read the mount in the order of PyTorch's DistributedSampler over some
//! epochs; beside them the same reads by plain GETs.
//!
//! The figures are the machine's of the moment: server, mount and reader share its cores. The server and the generated dataset serve the
//! tests and benchmarks too.

pub mod dataset;
mod mount;
pub mod process;
pub mod raw;
pub mod reader;
pub mod report;
pub mod server;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

use self::dataset::{Dataset, DatasetSpec, Entry};
use self::mount::Mount;
use self::process::process_cpu;
use self::raw::{Wanted, plain_gets};
use self::reader::{Compare, Measured, Reading, Share};
use self::report::{Accesses, EpochRow, PlainRow, Report};
use self::server::{FirstByte, Server, ServerConfig};
use crate::order::SharedSampler;
use crate::order::spec::{OrderSpec, SpecError};
use crate::types::ByteSize;

/// Threads of the server: one serves some 10,000 small GETs a second, and the mount needs the cores.
const SERVER_THREADS: usize = 1;
/// How many plain GETs at a time the mount is compared with: what a good client of S3 holds open.
const MANY: usize = 64;
/// Reading one by one takes a minute where the rest takes seconds: it is cut off after about so long.
const ONE_BY_ONE: Duration = Duration::from_secs(4);
/// While timed, each so-many-th file is compared byte for byte; all of them are afterwards.
const COMPARED_WHILE_TIMED: usize = 16;
/// Counters follow the reads by a moment: how long to wait for them.
const COUNTERS_LIMIT: Duration = Duration::from_secs(2);

/// What to show.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Print JSON instead of the table.
    pub json: bool,
    pub files: u32,
    pub mean_size: ByteSize,
    /// Time to the store's first byte.
    pub delay_ms: u64,
    pub epochs: u32,
    pub threads: u32,
    /// `None`: half of the dataset.
    pub cache: Option<ByteSize>,
    /// Leave store and mount running after the table, until Ctrl-C.
    pub keep: bool,
    /// Of the store; 0: a free one.
    pub port: u16,
    /// The program to mount with; `None`: this one.
    pub executable: Option<PathBuf>,
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self {
            json: false,
            files: 2_000,
            mean_size: ByteSize(110_000),
            delay_ms: 20,
            epochs: 3,
            threads: 4,
            cache: None,
            keep: false,
            port: 0,
            executable: None,
        }
    }
}

impl DemoOptions {
    fn dataset(&self) -> Dataset {
        // ImageNet has 1,300 files a class; a demo of a few thousand should still have folders.
        let classes = (self.files / 100).clamp(1, 1_000);
        DatasetSpec { files: self.files, classes, mean_bytes: self.mean_size.0, ..DatasetSpec::default() }.build()
    }

    fn server(&self, dataset: &Dataset) -> Result<Server, DemoError> {
        let first_byte = FirstByte::constant(Duration::from_millis(self.delay_ms));
        let config = ServerConfig { port: self.port, first_byte, ..ServerConfig::default() };
        let server = Server::start_with_threads(config, SERVER_THREADS).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => DemoError::Port(self.port),
            _ => DemoError::Io(error),
        })?;
        server.add_dataset(dataset);
        Ok(server)
    }
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The machine lacks something; one line each.
    #[error("the demo cannot mount here:\n  {}", .0.join("\n  "))]
    Missing(Vec<String>),
    #[error("port {0} is taken: choose another, or 0 for any free one")]
    Port(u16),
    #[error("{0}")]
    Mount(String),
    #[error("the mount's statistics cannot be used: {0}")]
    Stats(String),
    #[error(transparent)]
    Order(#[from] SpecError),
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Ctrl-C or a termination signal; everything is cleaned up.
    #[error("interrupted; unmounted and cleaned up")]
    Interrupted,
}

/// Runs the demo and prints its table (or JSON) on stdout, progress on stderr. Nothing stays mounted, however it ends.
///
/// # Errors
/// When the machine lacks something, the mount fails, a byte differs, or the user interrupts.
pub fn run(options: DemoOptions) -> Result<Report, DemoError> {
    let missing = mount::missing();
    if !missing.is_empty() {
        return Err(DemoError::Missing(missing));
    }
    // One thread: the plain client runs on it, and its CPU time is this thread's.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(show(&options));
    // A reader thread may still be at its last file.
    runtime.shutdown_background();
    result
}

/// Serves the generated dataset, for other programs, until Ctrl-C.
///
/// # Errors
/// When the port is taken.
pub fn serve_only(options: DemoOptions) -> Result<(), DemoError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let dataset = options.dataset();
    let server = options.server(&dataset)?;
    writeln!(
        io::stdout(),
        "serving {} files, {:.1} MB, as s3://{}/ at {} (region us-east-1, path style, no signature); Ctrl-C ends it",
        dataset.entries.len(),
        megabytes(dataset.total_bytes()),
        server.bucket(),
        server.url(),
    )?;
    runtime.block_on(interrupted())?;
    let counters = server.counters();
    writeln!(
        io::stdout(),
        "served {} LIST, {} HEAD, {} GET, {:.1} MB over {} connections, at most {} GETs at once",
        counters.list,
        counters.head,
        counters.get,
        megabytes(counters.bytes),
        counters.connections,
        counters.in_flight_peak,
    )?;
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Returns with the first SIGINT or SIGTERM.
async fn interrupted() -> io::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// Everything that is fixed before the mount starts.
struct Scene {
    server: Server,
    entries: Arc<[Entry]>,
    sampler: SharedSampler,
    order: String,
    dataset_bytes: u64,
    cache_bytes: u64,
}

async fn show(options: &DemoOptions) -> Result<Report, DemoError> {
    let scene = prepare(options)?;
    // Signals are caught from here on: whatever is running is dropped, and cleans up.
    let stopped = interrupted();
    tokio::pin!(stopped);
    let plain = tokio::select! {
        plain = plain_rows(options, &scene) => plain?,
        _ = &mut stopped => return Err(DemoError::Interrupted),
    };
    let mount = tokio::select! {
        mount = start_mount(options, &scene) => mount?,
        _ = &mut stopped => return Err(DemoError::Interrupted),
    };
    let report = tokio::select! {
        report = read_epochs(options, &scene, &mount, plain) => Some(report),
        _ = &mut stopped => None,
    };
    let report = match report {
        Some(Ok(report)) => report,
        Some(Err(error)) => {
            // What the mount has to say of it is worth more than that it then ended well.
            let said = mount.log_tail();
            let _ended = mount.end().await;
            return Err(DemoError::Mount(format!("{error}{said}")));
        }
        None => {
            let _ended = mount.end().await;
            return Err(DemoError::Interrupted);
        }
    };
    let text = if options.json { report.to_json() } else { report.to_string() };
    writeln!(io::stdout(), "{text}")?;
    if options.keep {
        let (url, point) = (scene.server.url(), mount.point().display());
        say(&format!("the store stays at {url}, mounted on {point} (try: belady stats {point}); Ctrl-C ends both"));
        stopped.await?;
    }
    mount.end().await?;
    Ok(report)
}

fn say(text: &str) {
    // Progress is for people: a closed stderr is no reason to stop.
    let _ = writeln!(io::stderr(), "belady demo: {text}");
}

fn prepare(options: &DemoOptions) -> Result<Scene, DemoError> {
    let dataset = options.dataset();
    let dataset_bytes = dataset.total_bytes();
    let order = "torch-distributed:seed=0:world=1:rank=0:root=train:files=imagefolder".to_owned();
    // The keys in byte order are ImageFolder's samples: classes sorted, and files within them.
    let sampler = order.parse::<OrderSpec>()?.sampler(options.files)?;
    let server = options.server(&dataset)?;
    let cache_bytes = options.cache.map_or(dataset_bytes / 2, |cache| cache.0);
    Ok(Scene { server, entries: dataset.entries.into(), sampler, order, dataset_bytes, cache_bytes })
}

impl Scene {
    /// Sample numbers of an epoch in the order they are read.
    fn places(&self, epoch: u64) -> Arc<[u32]> {
        self.sampler.order(epoch).places.into()
    }
}

/// The reads of the first epoch by plain GETs.
async fn plain_rows(options: &DemoOptions, scene: &Scene) -> Result<Vec<PlainRow>, DemoError> {
    let wanted: Vec<Wanted> = scene
        .places(0)
        .iter()
        .map(|sample| &scene.entries[*sample as usize])
        .map(|entry| Wanted { key: entry.key.clone(), size: entry.content.size() })
        .collect();
    let one_takes = Duration::from_millis(options.delay_ms + 1);
    let few = usize::try_from(ONE_BY_ONE.as_millis() / one_takes.as_millis()).unwrap_or(usize::MAX).clamp(1, wanted.len());
    let mut rows = Vec::new();
    for (connections, wanted) in [(1, &wanted[..few]), (MANY, &wanted[..])] {
        say(&format!("{} plain GETs, {connections} at a time", wanted.len()));
        let measured = plain_gets(scene.server.address(), scene.server.bucket(), wanted.into(), connections).await?;
        rows.push(PlainRow { connections, speed: (&measured).into(), cpu_ms_per_file: per_file(measured.cpu, measured.files) });
    }
    Ok(rows)
}

async fn start_mount(options: &DemoOptions, scene: &Scene) -> Result<Mount, DemoError> {
    let executable = match &options.executable {
        Some(path) => path.clone(),
        None => std::env::current_exe()?,
    };
    let arguments: Vec<String> = [
        "--endpoint-url",
        &scene.server.url(),
        "--no-sign-request",
        "--force-path-style",
        "--region",
        "us-east-1",
        "--memory",
        &scene.cache_bytes.to_string(),
        "--order",
        &scene.order,
        "--foreground",
        "--log-level",
        "warn",
    ]
    .map(str::to_owned)
    .into();
    say(&format!("mounting s3://{}/ with {} of memory", scene.server.bucket(), ByteSize(scene.cache_bytes)));
    scene.server.reset_counters();
    Mount::start(&executable, &format!("s3://{}/", scene.server.bucket()), &arguments).await
}

async fn read_epochs(options: &DemoOptions, scene: &Scene, mount: &Mount, plain: Vec<PlainRow>) -> Result<Report, DemoError> {
    let mut epochs = Vec::new();
    let mut before = accesses(&stats(mount.point()).await?);
    for epoch in 0..u64::from(options.epochs) {
        say(&format!("reading epoch {epoch}"));
        let cpu_before = process_cpu(mount.pid());
        let measured = read(options, scene, mount, epoch, Compare::Every(COMPARED_WHILE_TIMED)).await?;
        let cpu = process_cpu(mount.pid()).zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
        let counters = scene.server.counters();
        scene.server.reset_counters();
        let stats = settled_stats(mount.point(), before.total() + measured.files).await?;
        let (now, bound) = (accesses(&stats), bound(&stats, epoch));
        let found = now.since(&before);
        before = now;
        epochs.push(EpochRow {
            epoch,
            speed: (&measured).into(),
            accesses: found,
            retained_rate: found.retained_rate(),
            bound_retained_rate: bound.map(|bound| bound.0),
            store_get: counters.get,
            store_list: counters.list,
            store_head: counters.head,
            store_bytes: counters.bytes,
            bound_store_bytes: bound.map(|bound| bound.1),
            cpu_ms_per_file: per_file(cpu, measured.files),
        });
    }
    say("one more epoch, not timed, comparing every byte");
    let compared = read(options, scene, mount, u64::from(options.epochs), Compare::All).await?;
    let mut report = Report {
        files: scene.entries.len() as u64,
        dataset_bytes: scene.dataset_bytes,
        cache_bytes: scene.cache_bytes,
        delay_ms: options.delay_ms,
        threads: options.threads as usize,
        order: scene.order.clone(),
        plain,
        epochs,
        compared_files: compared.files,
        verdict: Vec::new(),
    };
    report.verdict = report.judge();
    Ok(report)
}

async fn read(options: &DemoOptions, scene: &Scene, mount: &Mount, epoch: u64, compare: Compare) -> io::Result<Measured> {
    let reading = Reading {
        root: mount.point().to_owned(),
        entries: Arc::clone(&scene.entries),
        order: scene.places(epoch),
        threads: options.threads as usize,
        share: Share::Cursor,
        compare,
    };
    reading.run().await
}

/// CPU milliseconds of one file.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn per_file(cpu: Option<Duration>, files: u64) -> Option<f64> {
    cpu.map(|cpu| cpu.as_secs_f64() * 1e3 / files.max(1) as f64)
}

/// The mount's own counters, as it shows them in itself.
async fn stats(point: &Path) -> Result<Value, DemoError> {
    let path = point.join(".belady/stats.json");
    let refuse = |error: &dyn std::fmt::Display| DemoError::Stats(format!("{}: {error}", path.display()));
    // The file is in the mount: its read must not keep the plain client's thread, which also hears signals.
    let (from, read) = (path.clone(), |path: PathBuf| std::fs::read(path));
    let text = tokio::task::spawn_blocking(move || read(from)).await.map_err(|error| refuse(&error))?.map_err(|error| refuse(&error))?;
    serde_json::from_slice(&text).map_err(|error| refuse(&error))
}

/// The counters once they have caught up with this many accesses, or as they are after a moment.
async fn settled_stats(point: &Path, accesses_wanted: u64) -> Result<Value, DemoError> {
    let until = Instant::now() + COUNTERS_LIMIT;
    loop {
        let now = stats(point).await?;
        if accesses(&now).total() >= accesses_wanted || Instant::now() > until {
            return Ok(now);
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// `reads` of schema 1.
fn accesses(stats: &Value) -> Accesses {
    let reads = &stats["reads"];
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let bytes = |name: &str| number(&reads["bytes"][name]);
    Accesses {
        retained: number(&reads["retained"]),
        in_time: number(&reads["in_time"]),
        late: number(&reads["late"]),
        miss: number(&reads["miss"]),
        retained_bytes: bytes("retained"),
        all_bytes: bytes("retained") + bytes("in_time") + bytes("late") + bytes("miss"),
    }
}

/// Retained rate and store bytes that are possible in an epoch, where the mount follows an order.
fn bound(stats: &Value, epoch: u64) -> Option<(f64, u64)> {
    let epochs = stats["orders"].as_array()?.iter().find_map(|order| order["epochs"].as_array())?;
    let bound = &epochs.iter().find(|row| row["epoch"].as_u64() == Some(epoch))?["bound"];
    Some((bound["retained_rate"].as_f64()?, bound["store_bytes"].as_u64()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_taken_from_schema_1() {
        let stats = serde_json::json!({"schema": 1,
            "reads": {"retained": 5, "in_time": 3, "late": 1, "miss": 1, "bytes": {"retained": 50, "in_time": 30, "late": 10, "miss": 10}},
            "orders": [{"epochs": [{"epoch": 1, "bound": {"retained_rate": 0.5, "store_bytes": 77}}]}]});
        let found = accesses(&stats);
        assert_eq!((found.total(), found.retained_bytes, found.all_bytes), (10, 50, 100));
        assert!((found.retained_rate() - 0.5).abs() < 1e-9);
        assert_eq!(bound(&stats, 1), Some((0.5, 77)));
        assert_eq!(bound(&stats, 0), None);
        assert_eq!(accesses(&serde_json::json!({})), Accesses::default());
    }

    #[test]
    fn a_taken_port_is_named() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let options = DemoOptions { port: taken.local_addr().unwrap().port(), files: 1, ..DemoOptions::default() };
        assert!(matches!(options.server(&options.dataset()), Err(DemoError::Port(port)) if port == options.port));
    }
}
