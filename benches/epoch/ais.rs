//! A first epoch from an AIStore cluster: what foreknowledge, GetBatch and the way straight to the target are worth, beside plain GETs through
//! a redirect each.
//!
//! The cluster is the tests' fake, in this process; mount and reader are processes of their own.

use std::time::Duration;

use crate::fake_ais::{AisCluster, AisConfig, BatchConfig};
use crate::reader::{Found, How, Job, read};
use crate::rig::{Mount, User, number};
use crate::scene::{ORDER, Scene};
use crate::table::{Table, median};
use crate::{Failure, Options, say, show};

const BUCKET: &str = "ais://imagenet";
/// Mean sizes: where a batch is published to gain most, and the usual image.
const MEANS: [u64; 2] = [10 << 10, 100 << 10];
/// Without foreknowledge a thread reads some hundred files a second: so many are enough.
const FIRST: usize = 1_000;
/// To the first byte of a proxy's answer, and of a target's.
const PROXY: Duration = Duration::from_millis(2);
const TARGET: Duration = Duration::from_millis(5);
/// Of a batch besides: the lower end of what AIStore's documentation gives (50 to 500 ms).
const BATCH: Duration = Duration::from_millis(50);

/// How a mount reads.
struct Way {
    name: &'static str,
    order: &'static str,
    without: &'static str,
    first: usize,
}

const WAYS: [Way; 5] = [
    Way { name: "no foreknowledge, redirected GETs", order: "none", without: "batch+direct", first: FIRST },
    Way { name: "no foreknowledge, GETs straight to the target", order: "none", without: "batch", first: FIRST },
    Way { name: "order known, redirected GETs", order: ORDER, without: "batch+direct", first: usize::MAX },
    Way { name: "order known, GETs straight to the target", order: ORDER, without: "batch", first: usize::MAX },
    Way { name: "order known, GetBatch", order: ORDER, without: "", first: usize::MAX },
];

#[derive(Clone, Debug)]
struct Run {
    found: Found,
    cpu: f64,
    ready: f64,
    batches: u64,
    entries: u64,
    singles: u64,
    gets: u64,
    /// Accesses whose bytes were not retained: all, in a first epoch.
    missed: u64,
    /// HTTP requests for objects that the nodes of the cluster saw.
    seen: u64,
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
pub(crate) async fn run(options: &Options) -> Result<(), Failure> {
    for mean in MEANS {
        let scene = Scene::new(options.files, mean);
        let batch = BatchConfig { first_byte: BATCH, ..BatchConfig::default() };
        let cluster =
            AisCluster::start(AisConfig { proxy_first_byte: PROXY, target_first_byte: TARGET, batch: Some(batch), ..AisConfig::default() });
        cluster.add_dataset(BUCKET, &crate::scene::dataset(scene.files, scene.mean_bytes));
        for threads in [1, 8] {
            let mut runs = vec![Vec::new(); WAYS.len()];
            for rep in 0..options.reps {
                for (way, runs) in WAYS.iter().zip(&mut runs) {
                    say(&format!("ais, {mean} bytes, {threads} threads, {}, repetition {rep}", way.name));
                    runs.push(one(&scene, &cluster, way, threads).await?);
                }
            }
            let mut table = Table::new(&[
                "",
                "files/s",
                "÷ first",
                "requests/missed object",
                "seen by the cluster",
                "GETs",
                "batches",
                "files in batches",
                "fell back",
                "ready",
                "CPU ms/file: mount",
                "p50 ms",
                "p99 ms",
            ]);
            let speed = |run: &Run| run.found.files_per_second();
            for (way, own) in WAYS.iter().zip(&runs) {
                let of = |value: &dyn Fn(&Run) -> f64| median(own.iter().map(value));
                let ratio = median(own.iter().zip(&runs[0]).map(|(run, base)| speed(run) / speed(base)));
                table.row([
                    way.name.to_owned(),
                    format!("{:.0}", of(&speed)),
                    format!("{ratio:.2}"),
                    format!("{:.3}", of(&|run| (run.gets + run.batches) as f64 / run.missed.max(1) as f64)),
                    format!("{:.3}", of(&|run| run.seen as f64 / run.missed.max(1) as f64)),
                    format!("{:.0}", of(&|run| run.gets as f64)),
                    format!("{:.0}", of(&|run| run.batches as f64)),
                    format!("{:.0}", of(&|run| run.entries as f64)),
                    format!("{:.0}", of(&|run| run.singles as f64)),
                    format!("{:.1} %", of(&|run| run.ready) * 100.0),
                    format!("{:.3}", of(&|run| run.cpu * 1e3 / run.found.files.max(1) as f64)),
                    format!("{:.2}", of(&|run| run.found.p50_ms)),
                    format!("{:.2}", of(&|run| run.found.p99_ms)),
                ]);
            }
            show(&format!(
                "{} files of mean {mean} bytes (the first {FIRST} where nothing is known), first byte of a proxy after {} ms, of a target after {} ms, \
                 of a batch after {} ms more, \
                 {threads} reader threads, median of {}:\n\n{table}",
                scene.files,
                PROXY.as_millis(),
                TARGET.as_millis(),
                BATCH.as_millis(),
                options.reps
            ))?;
        }
    }
    Ok(())
}

async fn one(scene: &Scene, cluster: &AisCluster, way: &Way, threads: usize) -> Result<Run, Failure> {
    let endpoint = cluster.endpoint();
    let mut arguments = vec!["--endpoint-url", &endpoint, "--order", way.order];
    if !way.without.is_empty() {
        arguments.extend(["--disable-store", way.without]);
    }
    let mount = Mount::of(&format!("{BUCKET}/"), User::Root, scene.all(), &arguments).await?;
    let before = seen(cluster);
    let (cpu, job) = (
        mount.cpu(),
        Job {
            root: mount.dir.clone(),
            files: scene.files,
            mean_bytes: scene.mean_bytes,
            order: ORDER.to_owned(),
            epoch: 0,
            first: way.first,
            threads,
            compare_every: 16,
            how: How::Files,
        },
    );
    let user = mount.user();
    let found = tokio::task::spawn_blocking(move || read(&job, user)).await??;
    let stats = mount.settled(found.files).await?;
    let run = Run {
        cpu: mount.cpu() - cpu,
        ready: stats.pointer("/reads/ready_rate").and_then(serde_json::Value::as_f64).unwrap_or_default(),
        batches: number(&stats, "/store/requests/batch"),
        entries: number(&stats, "/store/batch_entries"),
        singles: number(&stats, "/store/batch_singles"),
        gets: number(&stats, "/store/requests/get"),
        missed: found.files - number(&stats, "/reads/retained").min(found.files),
        seen: seen(cluster) - before,
        found,
    };
    mount.end().await?;
    Ok(run)
}

/// Requests for objects at proxies and targets, so far.
fn seen(cluster: &AisCluster) -> u64 {
    let now = cluster.counters();
    now.proxy_get + now.proxy_batch + now.target_get + now.batches
}
