//! Four epochs with a cache for part of the dataset: what was retained beside the best possible, what the store was asked for beside the
//! least possible, and whether it was the cache: every access must be an open with passthrough or one answered by READs.
//!
//! capacity − window = c of the dataset is what the theory speaks of (all in bytes as the cache charges them). The window follows from
//! measurements: runs as long as the one shown find it, which then gets c of the dataset more than that.

use serde_json::Value;

use crate::reader::{Found, How, Job, read};
use crate::rig::{Mount, Store, User, number};
use crate::scene::{ORDER, Scene};
use crate::table::{Table, percent};
use crate::{Failure, Options, say, show};

const FRACTIONS: [f64; 2] = [0.2, 0.5];
const EPOCHS: u64 = 4;
/// The window depends on the capacity where that is small (at most a quarter of it): once from a guess, once from what that found.
const LEARNING_RUNS: usize = 2;
/// Its accesses wait for the store one by one, each thread for itself: an eighth of the files is enough to count.
const CONTROL_SHARE: u32 = 8;
const CONTROL_EPOCHS: u64 = 2;

pub(crate) async fn run(options: &Options) -> Result<(), Failure> {
    let delay_ms = options.delay_ms.unwrap_or(20);
    let scene = Scene::new(options.files, options.mean_bytes);
    for c in FRACTIONS {
        say(&format!("retain, c = {c}: how large is the window"));
        let room = share(scene.charged, c);
        let mut window = scene.charged / 16;
        for _ in 0..LEARNING_RUNS {
            let learned = epochs(options, &scene, delay_ms, room + window, EPOCHS).await?;
            window = number(&learned.stats, "/prefetch/window_bytes");
        }
        say(&format!("retain, c = {c}: {EPOCHS} epochs"));
        let whole = epochs(options, &scene, delay_ms, room + window, EPOCHS).await?;
        table(options, &scene, delay_ms, (c, room + window), &whole)?;
    }
    say("retain, control");
    control(options, delay_ms).await
}

#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes far below 2^52")]
fn share(whole: u64, part: f64) -> u64 {
    (whole as f64 * part) as u64
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

struct Whole {
    /// Per epoch: what the reader took, and the counters after it.
    epochs: Vec<(Found, Value)>,
    stats: Value,
    gets: u64,
}

async fn epochs(options: &Options, scene: &Scene, delay_ms: u64, memory: u64, count: u64) -> Result<Whole, Failure> {
    let store = Store::serve(scene.files, scene.mean_bytes, delay_ms)?;
    let order = format!("{ORDER}:epochs={count}");
    let mount = Mount::belady(&store, User::Root, memory, &["--order", &order]).await?;
    let mut job = Job {
        root: mount.dir.clone(),
        files: scene.files,
        mean_bytes: scene.mean_bytes,
        order,
        epoch: 0,
        first: usize::MAX,
        threads: options.threads,
        compare_every: 16,
        how: How::Files,
    };
    let mut epochs = Vec::new();
    for epoch in 0..count {
        job.epoch = epoch;
        let found = read(&job, mount.user())?;
        let stats = mount.settled((epoch + 1) * u64::from(scene.files)).await?;
        epochs.push((found, stats));
    }
    mount.end().await?;
    let stats = epochs.last().map(|(_, stats)| stats.clone()).unwrap_or_default();
    Ok(Whole { epochs, stats, gets: store.end()?.get })
}

fn epochs_table(whole: &Whole) -> Table {
    let mut table = Table::new(&HEAD);
    let mut before = &Value::Null;
    for (epoch, (found, stats)) in whole.epochs.iter().enumerate() {
        let row = rows(stats).iter().rfind(|row| row["epoch"].as_u64() == Some(epoch as u64)).cloned().unwrap_or_default();
        let since = |pointer: &str| number(stats, pointer) - number(before, pointer);
        let bytes = ["/bytes/retained", "/bytes/in_time", "/bytes/late", "/bytes/miss"].map(|pointer| number(&row, pointer));
        table.row([
            format!("epoch {epoch}"),
            format!("{:.0}", found.files_per_second()),
            percent(ratio(bytes[0], bytes.iter().sum())),
            percent(row.pointer("/bound/retained_rate").and_then(Value::as_f64).unwrap_or(f64::NAN)),
            number(&row, "/in_time").to_string(),
            number(&row, "/late").to_string(),
            number(&row, "/miss").to_string(),
            megabytes(number(&row, "/store_bytes")),
            megabytes(number(&row, "/bound/store_bytes")),
            since("/reads/opens").to_string(),
            since("/reads/passthrough_opens").to_string(),
            since("/reads/requests").to_string(),
        ]);
        before = stats;
    }
    table
}

fn table(options: &Options, scene: &Scene, delay_ms: u64, (c, capacity): (f64, u64), whole: &Whole) -> Result<(), Failure> {
    let table = epochs_table(whole);
    let stats = &whole.stats;
    let window = number(stats, "/prefetch/window_bytes");
    let bounds: u64 = rows(stats).iter().map(|row| number(row, "/bound/store_bytes")).sum();
    let (bytes, extra) = (number(stats, "/store/bytes"), number(stats, "/store/bytes_extra"));
    let (issued, wasted) = (number(stats, "/prefetch/issued"), number(stats, "/prefetch/wasted"));
    show(&format!(
        "c = {c}: capacity {} MB, window {} MB at the end (wanted {} MB), so c' = {:.3} of the dataset's {} MB as charged; first byte after \
         {delay_ms} ms, {} files, {} reader threads:\n\n{table}\n\
         All epochs: {} MB from the store without {} MB of hedged and retried, {:.4} of the bound's {} MB; {} GETs ({} counted by the store) for \
         {} accesses; {wasted} of {issued} prefetched files wasted ({}); {} retries, {} hedges.\n",
        megabytes(capacity),
        megabytes(window),
        megabytes(number(stats, "/prefetch/window_wanted_bytes")),
        ratio(capacity.saturating_sub(window), scene.charged),
        megabytes(scene.charged),
        scene.files,
        options.threads,
        megabytes(bytes - extra),
        megabytes(extra),
        ratio(bytes - extra, bounds),
        megabytes(bounds),
        number(stats, "/store/requests/get"),
        whole.gets,
        number(stats, "/reads/accesses"),
        percent(ratio(wasted, issued)),
        number(stats, "/store/retries"),
        number(stats, "/store/hedges"),
    ))
}

const HEAD: [&str; 12] =
    ["", "files/s", "retained", "bound", "in time", "late", "miss", "store MB", "bound MB", "opens", "passthrough", "READs"];

/// The epochs of the only order.
fn rows(stats: &Value) -> &[Value] {
    stats.pointer("/orders/0/epochs").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1}", ratio(bytes, 1_000_000))
}

/// The same without a cache: nothing may be retained, and each access is a GET, or something else than the cache did the work.
async fn control(options: &Options, delay_ms: u64) -> Result<(), Failure> {
    let scene = Scene::new((options.files / CONTROL_SHARE).max(1), options.mean_bytes);
    let whole = epochs(options, &scene, delay_ms, 0, CONTROL_EPOCHS).await?;
    let stats = &whole.stats;
    let accesses = number(stats, "/reads/accesses");
    show(&format!(
        "Control, no cache: {} files, {CONTROL_EPOCHS} epochs: {accesses} accesses, {} opens, {} passthrough, {} READs; {} retained; {} GETs \
         ({} counted by the store).\n",
        scene.files,
        number(stats, "/reads/opens"),
        number(stats, "/reads/passthrough_opens"),
        number(stats, "/reads/requests"),
        number(stats, "/reads/retained"),
        number(stats, "/store/requests/get"),
        whole.gets,
    ))
}
