//! A first epoch in a declared order beside plain GETs over 64 connections: does the mount reach the store's rate, and what CPU does a
//! file cost in each process.

use belady::demo::raw::plain_gets;

use crate::reader::{Found, How, Job, read};
use crate::rig::{BUCKET, Mount, Store, User, number};
use crate::scene::{ORDER, Scene};
use crate::table::{Table, median, percent};
use crate::{Failure, Options, say, show};

/// What a good client of S3 holds open.
const CONNECTIONS: usize = 64;
/// Comparing costs the reader's CPU: a sample while timed.
const COMPARE_EVERY: usize = 16;

/// One epoch of the mount.
struct Run {
    found: Found,
    to_raw: f64,
    belady_ms: f64,
    store_ms: f64,
    reader_ms: f64,
    ready: f64,
    gets: u64,
    concurrency: u64,
}

struct Raw {
    files_per_second: f64,
    megabytes_per_second: f64,
    client_ms: f64,
    store_ms: f64,
}

pub(crate) async fn run(options: &Options) -> Result<(), Failure> {
    let scene = Scene::new(options.files, options.mean_bytes);
    let delays = options.delay_ms.map_or(vec![50, 20], |delay| vec![delay]);
    for delay_ms in delays {
        at(options, &scene, delay_ms).await?;
    }
    Ok(())
}

async fn at(options: &Options, scene: &Scene, delay_ms: u64) -> Result<(), Failure> {
    let store = Store::serve(options.files, options.mean_bytes, delay_ms)?;
    let at_most = CONNECTIONS.to_string();
    let caches: [(&str, u64, &[&str]); 3] = [
        ("belady, cache for all", scene.all(), &[]),
        ("belady, cache for half", scene.charged / 2, &[]),
        ("belady, --max-requests 64", scene.all(), &["--max-requests", &at_most]),
    ];
    let (mut raws, mut runs) = (Vec::new(), caches.map(|_| Vec::new()));
    for rep in 0..options.reps {
        say(&format!("cold, {delay_ms} ms, repetition {rep}"));
        let raw = raw(scene, &store).await?;
        for (cache, runs) in caches.iter().zip(&mut runs) {
            runs.push(mounted(options, scene, &store, cache, raw.files_per_second).await?);
        }
        raws.push(raw);
    }
    let mut table = Table::new(&[
        "",
        "files/s",
        "MB/s",
        "÷ raw",
        "CPU ms/file: mount or client",
        "store",
        "reader",
        "p50 ms",
        "p99 ms",
        "ready",
        "GETs",
        "GETs at once",
    ]);
    let of = |value: fn(&Raw) -> f64| median(raws.iter().map(value));
    table.row([
        format!("plain GETs, {CONNECTIONS} connections"),
        format!("{:.0}", of(|raw| raw.files_per_second)),
        format!("{:.1}", of(|raw| raw.megabytes_per_second)),
        "1".to_owned(),
        format!("{:.3}", of(|raw| raw.client_ms)),
        format!("{:.3}", of(|raw| raw.store_ms)),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
        scene.files.to_string(),
        CONNECTIONS.to_string(),
    ]);
    for (cache, runs) in caches.iter().zip(&runs) {
        let of = |value: fn(&Run) -> f64| median(runs.iter().map(value));
        table.row([
            cache.0.to_owned(),
            format!("{:.0}", of(|run| run.found.files_per_second())),
            format!("{:.1}", of(|run| run.found.megabytes_per_second())),
            format!("{:.2}", of(|run| run.to_raw)),
            format!("{:.3}", of(|run| run.belady_ms)),
            format!("{:.3}", of(|run| run.store_ms)),
            format!("{:.3}", of(|run| run.reader_ms)),
            format!("{:.2}", of(|run| run.found.p50_ms)),
            format!("{:.2}", of(|run| run.found.p99_ms)),
            percent(of(|run| run.ready)),
            runs.iter().map(|run| run.gets).max().unwrap_or_default().to_string(),
            runs.iter().map(|run| run.concurrency).max().unwrap_or_default().to_string(),
        ]);
    }
    show(&format!(
        "First byte after {delay_ms} ms, {} files of mean {} bytes, {} reader threads, median of {}:\n\n{table}",
        scene.files, scene.mean_bytes, options.threads, options.reps
    ))
}

async fn raw(scene: &Scene, store: &Store) -> Result<Raw, Failure> {
    let store_before = store.cpu();
    let measured = plain_gets(store.address, BUCKET, scene.wanted(ORDER, 0, usize::MAX)?, CONNECTIONS).await?;
    let per_file = |seconds: f64| seconds * 1e3 / f64::from(scene.files);
    Ok(Raw {
        files_per_second: measured.files_per_second(),
        megabytes_per_second: measured.bytes_per_second() / 1e6,
        client_ms: per_file(measured.cpu.unwrap_or_default().as_secs_f64()),
        store_ms: per_file(store.cpu() - store_before),
    })
}

async fn mounted(options: &Options, scene: &Scene, store: &Store, cache: &(&str, u64, &[&str]), raw: f64) -> Result<Run, Failure> {
    let order = format!("{ORDER}:epochs=1");
    let mount = Mount::belady(store, User::Root, cache.1, &[&["--order", &order], cache.2].concat()).await?;
    let job = Job {
        root: mount.dir.clone(),
        files: scene.files,
        mean_bytes: scene.mean_bytes,
        order,
        epoch: 0,
        first: usize::MAX,
        threads: options.threads,
        compare_every: COMPARE_EVERY,
        how: How::Files,
    };
    let (belady_before, store_before) = (mount.cpu(), store.cpu());
    let found = read(&job, mount.user())?;
    let (belady_cpu, store_cpu) = (mount.cpu() - belady_before, store.cpu() - store_before);
    let stats = mount.settled(found.files).await?;
    let run = Run {
        to_raw: found.files_per_second() / raw,
        belady_ms: found.per_file(belady_cpu),
        store_ms: found.per_file(store_cpu),
        reader_ms: found.per_file(found.cpu_seconds),
        ready: stats.pointer("/reads/ready_rate").and_then(serde_json::Value::as_f64).unwrap_or_default(),
        gets: number(&stats, "/store/requests/get"),
        concurrency: number(&stats, "/store/concurrency"),
        found,
    };
    mount.end().await?;
    Ok(run)
}
