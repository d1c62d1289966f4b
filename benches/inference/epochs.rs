//! The epoch benchmark's reader over five epochs, its order to be found out, beside the same order declared and none: what not having to
//! declare costs in throughput.

use crate::reader::{Found, How, Job, finish, start};
use crate::rig::{Mount, Store, User, number};
use crate::scene::{ORDER, Scene};
use crate::table::{Table, median};
use crate::{Bounds, Failure, Options, say, show};

const FILES: u32 = 20_000;
/// ImageNet's.
const MEAN_BYTES: u64 = 110_000;
const DELAY_MS: u64 = 20;
const THREADS: usize = 4;
const EPOCHS: u64 = 5;
/// Each sequence of the three mounts once: what ran before has its effect on what runs next.
const SEQUENCES: [[usize; 3]; 6] = [[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0], [1, 0, 2], [0, 2, 1]];
const REPS: usize = SEQUENCES.len();
/// Without an order each thread waits for each file: so many are enough.
const NONE_FIRST: usize = 1_000;
/// Throughput beside the declared order, at least: of the first epoch, in which the order has to be found, and of all later ones together. One epoch
/// of a declared order differs from the same of another mount by up to 6 %.
const FIRST: f64 = 0.9;
const LATER: f64 = 0.97;
/// A reader at fifty files a second and thread ends in no more than this.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(150);

pub(crate) async fn run(options: &Options, bounds: &mut Bounds) -> Result<(), Failure> {
    let (files, reps) = if options.quick { (FILES / 4, 1) } else { (FILES, options.reps.unwrap_or(REPS)) };
    let scene = Scene::new(files, MEAN_BYTES);
    let store = Store::serve(files, MEAN_BYTES, DELAY_MS)?;
    // declared, auto, and declared again: auto is compared with both of them, and what these differ by is what the figures are good for
    let (orders, mut none) = ([ORDER, options.order(ORDER), ORDER], Vec::new());
    let mut runs: [Vec<Vec<f64>>; 3] = [const { Vec::new() }; 3];
    let mut counts = Table::new(&[
        "round",
        "order",
        "epoch",
        "files/s",
        "retained",
        "in time",
        "late",
        "miss",
        "issued",
        "wasted",
        "window MB",
        "CPU s",
    ]);
    for rep in 0..reps {
        say(&format!("epochs, round {rep}"));
        none.extend(epochs(&scene, &store, "none", 1, NONE_FIRST).await?.iter().map(|epoch| epoch.rate));
        for which in SEQUENCES[rep % SEQUENCES.len()] {
            let run = epochs(&scene, &store, orders[which], EPOCHS, usize::MAX).await?;
            for (epoch, of) in (1..).zip(&run) {
                counts.row(of.row(rep, ["declared", "auto", "declared again"][which], epoch));
            }
            runs[which].push(run.iter().map(|epoch| epoch.rate).collect());
        }
    }
    let mut table = Table::new(&["files/s", "none", "declared", "auto", "auto ÷ declared", "wanted", "declared: one half ÷ the other"]);
    let later = usize::try_from(EPOCHS)?;
    let mut row = |name: String, epochs: std::ops::Range<usize>, wanted: Option<f64>| {
        // over all of these epochs
        let rate = |run: &Vec<f64>| {
            let seconds: f64 = run.get(epochs.clone())?.iter().map(|rate| rate.recip()).sum();
            #[expect(clippy::cast_precision_loss, reason = "a few epochs")]
            Some(epochs.len() as f64 / seconds)
        };
        let rates = |of: &[usize]| median(of.iter().flat_map(|&which| &runs[which]).filter_map(rate));
        let (declared, auto) = (rates(&[0, 2]), rates(&[1]));
        let ratio = auto / declared;
        table.row([
            name.clone(),
            if epochs.start == 0 { format!("{:.0}", median(none.iter().copied())) } else { String::new() },
            format!("{declared:.0}"),
            format!("{auto:.0}"),
            format!("{ratio:.3}"),
            wanted.map_or(String::new(), |wanted| format!("{wanted:.2}")),
            format!("{:.3}", rates(&[2]) / rates(&[0])),
        ]);
        if let Some(wanted) = wanted {
            bounds.check(ratio >= wanted, || format!("{name}: {ratio:.3} of the declared order's throughput, {wanted} was wanted"));
        }
    };
    row("epoch 1".to_owned(), 0..1, Some(FIRST));
    for epoch in 1..later {
        row(format!("epoch {}", epoch + 1), epoch..epoch + 1, None);
    }
    row(format!("epochs 2 to {later}"), 1..later, Some(LATER));
    show(&format!(
        "First byte after {DELAY_MS} ms, {files} files of mean {MEAN_BYTES} bytes, cache for half, {THREADS} reader threads, {ORDER}; medians of {reps} \
         alternating rounds (none: the first {NONE_FIRST} files):\n\n{table}"
    ))?;
    if options.verbose { show(&counts.to_string()) } else { Ok(()) }
}

/// What became of an epoch.
struct Epoch {
    /// Files a second.
    rate: f64,
    /// Retained, in time, late, miss, prefetched and wasted.
    counts: [u64; COUNTED.len()],
    window_bytes: u64,
    /// Of the mount.
    cpu_seconds: f64,
}

const COUNTED: [&str; 6] = ["/reads/retained", "/reads/in_time", "/reads/late", "/reads/miss", "/prefetch/issued", "/prefetch/wasted"];

impl Epoch {
    fn row(&self, rep: usize, order: &str, epoch: usize) -> [String; 12] {
        let [retained, in_time, late, miss, issued, wasted] = self.counts.map(|count| count.to_string());
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let window = format!("{:.1}", self.window_bytes as f64 / 1e6);
        let (rate, cpu) = (format!("{:.0}", self.rate), format!("{:.2}", self.cpu_seconds));
        [rep.to_string(), order.to_owned(), epoch.to_string(), rate, retained, in_time, late, miss, issued, wasted, window, cpu]
    }
}

async fn epochs(scene: &Scene, store: &Store, order: &str, epochs: u64, first: usize) -> Result<Vec<Epoch>, Failure> {
    let mount = Mount::belady(store, User::Root, scene.charged / 2, &["--order", order]).await?;
    let (mut rows, mut before, mut accesses) = (Vec::new(), [0; COUNTED.len()], 0);
    for epoch in 0..epochs {
        let job = Job {
            root: mount.dir.clone(),
            files: scene.files,
            mean_bytes: scene.mean_bytes,
            order: ORDER.to_owned(),
            epoch,
            first,
            threads: THREADS,
            compare_every: 64,
            how: How::Files,
        };
        let cpu = mount.cpu();
        let mut reader = start(&job, mount.user())?;
        let begun = std::time::Instant::now();
        while reader.try_wait()?.is_none() {
            if begun.elapsed() > LIMIT {
                reader.kill()?;
                reader.wait()?;
                return Err(format!("epoch {epoch} with order {order} does not end").into());
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let found: Found = finish(reader)?;
        accesses += found.files;
        let stats = mount.settled(accesses).await?;
        let counted = COUNTED.map(|pointer| number(&stats, pointer));
        rows.push(Epoch {
            rate: found.files_per_second(),
            counts: std::array::from_fn(|at| counted[at].saturating_sub(before[at])),
            window_bytes: number(&stats, "/prefetch/window_bytes"),
            cpu_seconds: mount.cpu() - cpu,
        });
        before = counted;
    }
    mount.end().await?;
    Ok(rows)
}
