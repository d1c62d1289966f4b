//! Loaders that nobody seeded: the seed of the epoch's permutation is one of 2^32, and has to be searched for.

use std::time::{Duration, Instant};

use belady::order::infer::lanes::CodePath;
use serde_json::Value;

use crate::rig::{Mount, number};
use crate::script::{Open, Readers};
use crate::stage::{Set, Store};
use crate::table::Table;
use crate::watch::{Lock, Watch, any};
use crate::{Bounds, Failure, Options, say, show};

/// From this open on the full search can know enough.
const FULL_FROM: usize = 128;
/// A full search takes 100 core-seconds with wide vectors; on two cores, beside the readers, a minute or so.
const FULL_LIMIT: Duration = Duration::from_secs(200);
/// ... and that is its bound; without AVX-512 twice that.
const FULL_SECONDS: f64 = 60.0;
/// From this open on the meeting in the middle can know enough: places k, k + 227 and k + 454, and some to check.
const MIDDLE_FROM: usize = 700;
/// Seconds from there to the lock, at most.
const MIDDLE_SECONDS: f64 = 5.0;
/// The script's scan of its directories takes ten seconds of it.
const MIDDLE_LIMIT: Duration = Duration::from_secs(75);
/// So many opens after the lock are looked at.
const AFTER: u64 = 500;

/// What is searched for.
struct Hunt {
    files: u32,
    mean_bytes: u64,
    delay_ms: u64,
    /// Cache, bytes.
    memory: u64,
    /// Threads of a search.
    threads: &'static str,
    /// (workers, batch) of each run.
    loaders: &'static [(usize, u32)],
    /// The open that time is counted from.
    from: usize,
    /// Samples read at most.
    samples: usize,
    limit: Duration,
}

/// What was found.
struct Found {
    watch: Watch,
    opens: Vec<Open>,
    lock: Option<Lock>,
    /// Low word of the epoch's seed, as the script saw it.
    truth: Option<u64>,
    /// From the mount's start to the complete listing, and from the script's start to its first open.
    listed: f64,
    scanned: f64,
    store_bytes: u64,
    mount_bytes: u64,
}

/// n = 10,000: all 2^32 seeds.
pub(crate) async fn unseeded(options: &Options, bounds: &mut Bounds) -> Result<(), Failure> {
    let loaders: &[(usize, u32)] = &[(2, 32), (0, 64), (4, 16)];
    let hunt = Hunt {
        files: 10_000,
        mean_bytes: 16_000,
        // An epoch must last longer than the search, or it is not worth it: 8 to 32 files a second, so five minutes at least.
        delay_ms: 120,
        memory: 64 << 20,
        // The readers leave two cores nearly idle. By default a search takes a tenth of the cores, one at least.
        threads: "2",
        loaders: if options.quick { &loaders[..1] } else { loaders },
        from: FULL_FROM,
        samples: 10_000,
        limit: FULL_LIMIT,
    };
    let most = if CodePath::best() == CodePath::Avx512 { FULL_SECONDS } else { 2.0 * FULL_SECONDS };
    for (name, found) in hunts(options, &hunt).await? {
        judge(&name, &found, bounds);
        in_time(&name, &found, &hunt, most, bounds);
    }
    Ok(())
}

/// n = 1,281,167: the meeting in the middle.
pub(crate) async fn imagenet(options: &Options, bounds: &mut Bounds) -> Result<(), Failure> {
    let loaders: &[(usize, u32)] = &[(4, 64), (2, 128), (0, 64)];
    let hunt = Hunt {
        files: 1_281_167,
        mean_bytes: 1_000,
        delay_ms: 10,
        memory: 256 << 20,
        threads: "auto",
        loaders: if options.quick { &loaders[..1] } else { loaders },
        from: MIDDLE_FROM,
        // Enough for two minutes without prefetch; the run ends 500 opens after the lock.
        samples: 50_000,
        limit: MIDDLE_LIMIT,
    };
    for (name, found) in hunts(options, &hunt).await? {
        judge(&name, &found, bounds);
        in_time(&name, &found, &hunt, MIDDLE_SECONDS, bounds);
    }
    Ok(())
}

/// Locked within so many seconds of the open from which on that is possible.
fn in_time(name: &str, found: &Found, hunt: &Hunt, most: f64, bounds: &mut Bounds) {
    let seconds = found.lock.as_ref().and_then(|lock| lock.seconds_after(&found.opens, hunt.from));
    bounds.check(seconds.is_some_and(|seconds| seconds <= most), || match seconds {
        Some(seconds) => format!("{name}: {seconds:.1} s from open {} to the lock, {most} were allowed", hunt.from),
        None => format!("{name}: no {most} s from open {} to the lock: never locked, or not so many opens", hunt.from),
    });
}

async fn hunts(options: &Options, hunt: &Hunt) -> Result<Vec<(String, Found)>, Failure> {
    let from = format!("s from open {} to lock", hunt.from);
    let mut table = Table::new(&[
        "unseeded",
        "locked after opens",
        &from,
        "mount's CPU s",
        "seed",
        "seed is",
        "opens after that",
        "predicted",
        "listing s",
        "script's scan s",
        "store MB",
        "mount MB",
    ]);
    let store = Store::serve(&[Set::new("train", hunt.files, hunt.mean_bytes)], hunt.delay_ms)?;
    let (mut all, mut words) = (Vec::new(), String::new());
    for (workers, batch) in hunt.loaders {
        let name = format!("n {}, W {workers}, B {batch}", hunt.files);
        say(&name);
        let (found, cpu) = one(options, hunt, &store, *workers, *batch).await?;
        let (observed, predicted) = found.watch.since_lock(any);
        let lock = found.lock.as_ref();
        table.row([
            name.clone(),
            lock.map_or("never".to_owned(), |lock| {
                let (least, most) = lock.opens(&found.opens);
                format!("{least}–{most}")
            }),
            lock.and_then(|lock| lock.seconds_after(&found.opens, hunt.from)).map_or(String::new(), |seconds| format!("{seconds:.1}")),
            format!("{cpu:.1}"),
            lock.map_or(String::new(), |lock| (lock.order.seed & u64::from(u32::MAX)).to_string()),
            found.truth.map_or(String::new(), |seed| seed.to_string()),
            observed.to_string(),
            predicted.to_string(),
            format!("{:.1}", found.listed),
            format!("{:.1}", found.scanned),
            (found.store_bytes >> 20).to_string(),
            (found.mount_bytes >> 20).to_string(),
        ]);
        words += &format!("{name}:\n{}\n", found.watch.words());
        all.push((name, found));
    }
    show(&format!("First byte after {} ms, files of mean {} bytes, opens of the first epoch:\n\n{table}", hunt.delay_ms, hunt.mean_bytes))?;
    if options.verbose {
        show(&words)?;
    }
    Ok(all)
}

async fn one(options: &Options, hunt: &Hunt, store: &Store, workers: usize, batch: u32) -> Result<(Found, f64), Failure> {
    let begun = Instant::now();
    let declared = "torch-random:seed=0:root=train";
    let mount = store.mount_with(options.order(declared), hunt.memory, &["--search-threads", hunt.threads]).await?;
    listing(&mount).await?;
    let listed = begun.elapsed().as_secs_f64();
    let arguments = format!("--sampler random --workers {workers} --batch {batch} --epochs 1 --limit {}", hunt.samples);
    let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
    let (cpu, started) = (mount.cpu(), crate::watch::now());
    let mut readers = Readers::new()?;
    readers.train(&mount.dir, &arguments, &[])?;
    let watch = Watch::until(&mount, &mut readers, hunt.limit, |watch| watch.since_lock(any).0 >= AFTER).await?;
    let cpu = mount.cpu() - cpu;
    let words = readers.words()?;
    let truth = words.iter().find(|word| word["event"] == "epoch").and_then(|word| word["seed"].as_u64());
    let opens = readers.opens()?;
    let found = Found {
        lock: watch.lock(any),
        watch,
        truth,
        listed,
        scanned: opens.first().map_or(f64::NAN, |open| open.at - started),
        opens,
        store_bytes: store.resident(),
        mount_bytes: mount.peak_bytes(),
    };
    mount.end().await?;
    Ok((found, cpu))
}

/// Waits until the namespace is complete: what a script would wait for in its first readdir.
async fn listing(mount: &Mount) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        let stats: Value = mount.stats()?;
        if stats["namespace"]["listing"] == "complete" {
            return Ok(());
        }
        if begun.elapsed() > Duration::from_secs(180) {
            return Err(format!("only {} keys listed in three minutes", number(&stats, "/namespace/objects")).into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn judge(name: &str, found: &Found, bounds: &mut Bounds) {
    bounds.check(found.lock.is_some(), || format!("{name}: never locked"));
    let Some(lock) = &found.lock else { return };
    let seed = lock.order.seed & u64::from(u32::MAX);
    bounds.check(Some(seed) == found.truth, || format!("{name}: seed {seed} found, {:?} it is", found.truth));
    let (observed, predicted) = found.watch.since_lock(any);
    bounds.check(observed > 0 && observed == predicted, || format!("{name}: {predicted} of {observed} opens after the lock predicted"));
}
