//! Seeded loaders as people write them: when is the order locked, and is all that follows predicted.

use std::time::Duration;

use crate::script::{Open, Readers, of_training, opens_with_all};
use crate::stage::{Set, Store};
use crate::table::Table;
use crate::watch::{Lock, Watch, any, is_training};
use crate::{Bounds, Failure, Options, say, show};

/// A store some way off: without prefetch each reader opens fifty files a second.
const DELAY_MS: u64 = 20;
/// Small images.
const MEAN_BYTES: u64 = 16_000;
/// Less than the dataset, so that later epochs have to be fetched again, ahead.
const CACHE_SHARE: f64 = 0.4;
/// No configuration takes longer unless something hangs.
const LIMIT: Duration = Duration::from_secs(90);
/// Opens until the lock, at most: so many, or [`AFTER_LAST`] after the last worker's first.
pub(crate) const OPENS: usize = 128;
pub(crate) const AFTER_LAST: usize = 16;

/// One loader.
#[derive(Clone, Copy, Debug)]
struct Config {
    files: u32,
    workers: usize,
    batch: u32,
    seed: u32,
    epochs: usize,
    /// `p`: persistent workers, `v`: validation after each epoch, `m`: a model initialised before, `f`: random flips, `d`: `drop_last`.
    with: &'static str,
}

const fn config(files: u32, workers: usize, batch: u32, seed: u32, with: &'static str) -> Config {
    Config { files, workers, batch, seed, epochs: 3, with }
}

const CONFIGS: [Config; 20] = [
    config(2_000, 0, 32, 42, ""),
    config(2_000, 0, 64, 0, "f"),
    config(3_000, 0, 256, 1, "v"),
    config(2_000, 0, 16, 123, "m"),
    config(2_000, 2, 32, 42, ""),
    config(3_000, 2, 64, 7, "p"),
    config(2_000, 2, 16, 1_234, "v"),
    config(4_000, 2, 128, 0, "pv"),
    config(5_000, 2, 256, 3_407, "m"),
    config(2_000, 2, 32, 2_023, "mv"),
    config(20_000, 2, 64, 42, ""),
    config(2_000, 4, 32, 123_456, ""),
    config(2_500, 4, 16, 42, "p"),
    config(3_000, 4, 64, 10, "v"),
    config(5_000, 4, 128, 100, "m"),
    config(10_000, 4, 256, 1_337, "pv"),
    config(2_000, 4, 32, 2_024, "mpv"),
    config(20_000, 4, 64, 42, "m"),
    config(5_000, 2, 32, 42, "d"),
    config(5_000, 4, 32, 9_176, "f"),
];

/// One of each number of workers, and one with everything.
const QUICK: [usize; 4] = [0, 4, 11, 16];

impl Config {
    fn name(&self) -> String {
        let words = [('p', "persistent"), ('v', "validation"), ('m', "model"), ('f', "flips"), ('d', "drop_last")];
        let with: Vec<&str> = words.iter().filter(|(letter, _)| self.with.contains(*letter)).map(|(_, word)| *word).collect();
        format!("n {}, W {}, B {}, seed {} {}", self.files, self.workers, self.batch, self.seed, with.join(" ")).trim_end().to_owned()
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments = format!(
            "--sampler random --seed {} --workers {} --batch {} --epochs {} --pause 0.5",
            self.seed, self.workers, self.batch, self.epochs
        );
        for (letter, flag) in [('p', " --persistent"), ('m', " --model"), ('f', " --flip"), ('d', " --drop-last")] {
            if self.with.contains(letter) {
                arguments += flag;
            }
        }
        arguments.split(' ').map(str::to_owned).collect()
    }

    /// What is true of it, as far as a specification can say: not what a model or flips draw.
    fn declared(&self) -> String {
        format!("torch-random:seed={}:root=train:batch={}:workers={}", self.seed, self.batch, self.workers.max(1))
    }

    /// Processes that open training files in the first epoch.
    fn readers(&self) -> usize {
        self.workers.max(1)
    }
}

pub(crate) async fn run(options: &Options, bounds: &mut Bounds) -> Result<(), Failure> {
    let mut table = Table::new(&[
        "",
        "locked after opens",
        "after the last worker's first",
        "opens after that",
        "predicted",
        "epoch 1: foretold",
        "miss",
        "epoch 2: foretold",
        "miss",
        "other orders: wrong",
        "s",
    ]);
    let mut words = String::new();
    for (number, config) in CONFIGS.iter().enumerate() {
        let name = config.name();
        if (options.quick && !QUICK.contains(&number)) || !name.contains(&options.only) {
            continue;
        }
        say(&format!("loaders {} of {}: {name}", number + 1, CONFIGS.len()));
        let run = one(options, config).await?;
        words += &format!("{name}:\n{}\n", run.watch.words());
        judge(&name, &run, bounds);
        table.row(row(name, &run));
    }
    show(&format!(
        "First byte after {DELAY_MS} ms, files of mean {MEAN_BYTES} bytes, cache for {:.0} % of them. *foretold*: of an epoch's first 32 files, so many \
         stood in `.belady/order` half a second before the first of them was opened; *miss*: accesses of the epoch whose fetch began with the open; *other orders: wrong*: opens that \
         an order of something else (the validation set's, or a false one) had not predicted while it was locked:\n\n{table}",
        CACHE_SHARE * 100.0
    ))?;
    if options.verbose { show(&words) } else { Ok(()) }
}

struct Run {
    watch: Watch,
    opens: Vec<Open>,
    lock: Option<Lock>,
    readers: usize,
    /// Per epoch: (foretold, of).
    foretold: Vec<(u64, u64)>,
    seconds: f64,
}

async fn one(options: &Options, config: &Config) -> Result<Run, Failure> {
    let train = Set::new("train", config.files, MEAN_BYTES);
    let memory = train.memory(CACHE_SHARE);
    let store = Store::serve(&[train, Set::new("val", config.files / 20, MEAN_BYTES)], DELAY_MS)?;
    let mount = store.mount(options.order(&config.declared()), memory).await?;
    let mut arguments = config.arguments();
    arguments.extend(["--order".to_owned(), mount.dir.join(".belady/order").display().to_string()]);
    if config.with.contains('v') {
        arguments.extend(["--val".to_owned(), mount.dir.join("val").display().to_string()]);
    }
    let (mut readers, begun) = (Readers::new()?, std::time::Instant::now());
    readers.train(&mount.dir, &arguments, &[])?;
    let watch = Watch::until(&mount, &mut readers, LIMIT, |_| false).await?;
    let seconds = begun.elapsed().as_secs_f64();
    if watch.last.reads.errors > 0 {
        return Err(format!("{} reads failed", watch.last.reads.errors).into());
    }
    let done: Vec<_> = readers.words()?.into_iter().filter(|word| word["event"] == "done").collect();
    let number = |word: &serde_json::Value, name: &str| word[name].as_u64().unwrap_or_default();
    let foretold = done.iter().map(|word| (number(word, "foretold"), number(word, "first"))).collect();
    mount.end().await?;
    let opens = of_training(readers.opens()?);
    Ok(Run { lock: watch.lock(any), watch, opens, readers: config.readers(), foretold, seconds })
}

/// How many opens a lock may take: 128, or 16 after the last of the first epoch's processes began, if that is later.
pub(crate) fn opens_allowed(opens: &[Open], processes: usize) -> usize {
    opens_with_all(opens, processes).map_or(OPENS, |all| OPENS.max(all + AFTER_LAST))
}

fn judge(name: &str, run: &Run, bounds: &mut Bounds) {
    let allowed = opens_allowed(&run.opens, run.readers);
    let locked = run.lock.as_ref().map(|lock| lock.opens(&run.opens));
    // Judged by the last answer that still said otherwise: the first that says so comes up to a tick later.
    bounds.check(locked.is_some_and(|(least, _)| least <= allowed), || match locked {
        Some((least, _)) => format!("{name}: locked after more than {least} opens, {allowed} were allowed"),
        None => format!("{name}: never locked"),
    });
    let (observed, predicted) = run.watch.since_lock(any);
    bounds.check(observed > 0 && observed == predicted, || format!("{name}: {predicted} of {observed} opens after the lock predicted"));
    let epochs = run.foretold.len();
    bounds.check(epochs > 1, || format!("{name}: not read to its end"));
    let wrong = run.watch.wrong(|order| !is_training(order));
    bounds.check(wrong == 0, || format!("{name}: {wrong} opens that another locked order had not predicted"));
    for (epoch, (foretold, of)) in (0..).zip(&run.foretold).skip(1) {
        bounds.check(foretold == of, || format!("{name}: {foretold} of epoch {epoch}'s first {of} files foretold"));
        let miss = run.watch.misses(epoch);
        bounds.check(miss == Some(0), || format!("{name}: {miss:?} misses in epoch {epoch}"));
    }
}

fn row(name: String, run: &Run) -> [String; 11] {
    let (observed, predicted) = run.watch.since_lock(any);
    let (after, last) = match &run.lock {
        None => ("never".to_owned(), String::new()),
        Some(lock) => {
            let (least, most) = lock.opens(&run.opens);
            let all = opens_with_all(&run.opens, run.readers);
            (format!("{least}–{most}"), all.map_or(String::new(), |all| format!("≤ {}", most.saturating_sub(all))))
        }
    };
    let foretold = |epoch: usize| run.foretold.get(epoch).map_or(String::new(), |(foretold, of)| format!("{foretold}/{of}"));
    let miss = |epoch: u64| run.watch.misses(epoch).map_or(String::new(), |miss| miss.to_string());
    [
        name,
        after,
        last,
        observed.to_string(),
        predicted.to_string(),
        foretold(1),
        miss(1),
        foretold(2),
        miss(2),
        run.watch.wrong(|order| !is_training(order)).to_string(),
        format!("{:.0}", run.seconds),
    ]
}
