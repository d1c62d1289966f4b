//! Reads that no seed explains: walks through the tree, and orders from the system's entropy. No order may be believed that is wrong, and
//! looking for one must cost next to nothing.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::rig::{Mount, User, as_user};
use crate::script::Readers;
use crate::stage::{Set, Store};
use crate::table::Table;
use crate::watch::{Watch, any};
use crate::{Bounds, Failure, Options, say, show};

const FILES: u32 = 3_000;
const MEAN_BYTES: u64 = 8_000;
/// Near: a walk reads one file after the other, and 3,000 must not take long.
const DELAY_MS: u64 = 2;
const LIMIT: Duration = Duration::from_secs(120);
/// CPU of the mount beside `--order none`, at most.
const COST: f64 = 1.02;
/// Rounds of the cost.
const REPS: usize = 3;

/// Something that reads a tree.
#[derive(Clone, Copy, Debug)]
enum Reads {
    /// A shell command; `$0` is the tree.
    Walk(&'static str),
    /// The training script with this sampler and these arguments.
    Loader(&'static str),
}

const READS: [(&str, Reads); 9] = [
    ("find", Reads::Walk("find \"$0\" -type f -size +0 > /dev/null")),
    ("find + md5sum", Reads::Walk("find \"$0\" -type f -print0 | xargs -0 md5sum > /dev/null")),
    ("grep -r", Reads::Walk("grep -r -c nowhere-to-be-found \"$0\" > /dev/null; test $? -le 1")),
    ("rsync -a", Reads::Walk("to=$(mktemp -d) && rsync -a \"$0/\" \"$to\" && rm -r \"$to\"")),
    ("cp -r", Reads::Walk("to=$(mktemp -d) && cp -r \"$0/.\" \"$to\" && rm -r \"$to\"")),
    ("WeightedRandomSampler, 2 workers", Reads::Loader("weighted --workers 2")),
    ("numpy default_rng(), 2 workers", Reads::Loader("entropy --workers 2")),
    ("shuffle buffer of 1,000, 1 process", Reads::Loader("buffer --workers 0")),
    ("any file, repeats, 2 workers", Reads::Loader("access --workers 2")),
];

/// What the cost is measured with, from a store as fast as it can, so that the mount's CPU is most of the time.
struct Cost {
    name: &'static str,
    reads: Reads,
    files: u32,
    mean_bytes: u64,
    epochs: u32,
    /// Part of the data that the cache holds.
    cache: f64,
}

/// In listing order, and in none: small files once, where what is searched first weighs most, and a training's (ImageNet's files are of 110 KB).
const COSTS: [Cost; 3] = [
    Cost { name: "find + md5sum", reads: READS[1].1, files: 6_000, mean_bytes: MEAN_BYTES, epochs: 1, cache: 1.2 },
    Cost {
        name: "numpy default_rng(), 1 process",
        reads: Reads::Loader("entropy --workers 0"),
        files: 6_000,
        mean_bytes: MEAN_BYTES,
        epochs: 1,
        cache: 1.2,
    },
    Cost {
        name: "numpy default_rng(), 2 workers, large files, 3 epochs",
        reads: Reads::Loader("entropy --workers 2"),
        files: 6_000,
        mean_bytes: 110_000,
        epochs: 3,
        cache: 0.5,
    },
];

impl Reads {
    /// The same reads of all these mounts: a walk of each, or one loader that reads each file in all of them.
    fn start(self, readers: &mut Readers, mounts: &[Mount], epochs: u32) -> Result<(), Failure> {
        match self {
            Self::Walk(line) => mounts.iter().try_for_each(|mount| {
                let mut command: Command = as_user(User::Root, "sh");
                command.args(["-c", line]).arg(mount.dir.join("train"));
                readers.start(command)
            }),
            Self::Loader(arguments) => {
                let [first, beside @ ..] = mounts else { return Err("no mount".into()) };
                let mut arguments: Vec<String> =
                    format!("--sampler {arguments} --batch 32 --epochs {epochs}").split(' ').map(str::to_owned).collect();
                for mount in beside {
                    arguments.extend(["--beside".to_owned(), mount.dir.join("train").display().to_string()]);
                }
                readers.train(&first.dir, &arguments, &[])
            }
        }
    }

    /// What it needs and this machine has not.
    fn lacks(self) -> Option<&'static str> {
        let Self::Walk(line) = self else { return None };
        ["rsync", "find", "grep", "md5sum"].into_iter().find(|&program| {
            let there = |folder: &str| Path::new(folder).join(program).exists();
            line.split([' ', ';']).any(|word| word == program) && !there("/usr/bin") && !there("/bin")
        })
    }
}

pub(crate) async fn run(options: &Options, bounds: &mut Bounds) -> Result<(), Failure> {
    beliefs(options, bounds).await?;
    cost(options, bounds).await
}

async fn beliefs(options: &Options, bounds: &mut Bounds) -> Result<(), Failure> {
    let files = if options.quick { FILES / 4 } else { FILES };
    let train = Set::new("train", files, MEAN_BYTES);
    let memory = train.memory(0.5);
    let store = Store::serve(&[train], DELAY_MS)?;
    let mut table = Table::new(&["", "opens", "orders ever locked", "wrong while believed", "prefetched", "wasted", "mount's CPU s", "s"]);
    let mut words = String::new();
    for (name, reads) in READS {
        if !name.contains(&options.only) {
            continue;
        }
        if let Some(program) = reads.lacks() {
            say(&format!("left out: {name}: no {program} here"));
            continue;
        }
        say(&format!("walks: {name}"));
        let mount = store.mount(options.order("sequential:root=train"), memory).await?;
        let (mut readers, cpu, begun) = (Readers::new()?, mount.cpu(), std::time::Instant::now());
        reads.start(&mut readers, std::slice::from_ref(&mount), 2)?;
        let watch = Watch::until(&mount, &mut readers, LIMIT, |_| false).await?;
        let (wrong, last) = (watch.wrong(any), &watch.last);
        let locked = watch.ever_locked();
        table.row([
            name.to_owned(),
            last.reads.opens.to_string(),
            if locked.is_empty() { "none".to_owned() } else { locked.join(", ") },
            wrong.to_string(),
            last.prefetch.issued.to_string(),
            last.prefetch.wasted.to_string(),
            format!("{:.2}", mount.cpu() - cpu),
            format!("{:.0}", begun.elapsed().as_secs_f64()),
        ]);
        words += &format!("{name}:\n{}\n", watch.words());
        bounds.check(wrong == 0, || format!("{name}: {wrong} opens that a locked order had not predicted"));
        mount.end().await?;
    }
    show(&format!(
        "First byte after {DELAY_MS} ms, {files} files of mean {MEAN_BYTES} bytes, cache for half; loaders read two epochs:\n\n{table}"
    ))?;
    if options.verbose { show(&words) } else { Ok(()) }
}

/// User and system seconds of mounts over the same reads, with an order to be found and without. They are read at the same time, file by file: what
/// else goes on in the machine meets all of them alike.
async fn cost(options: &Options, bounds: &mut Bounds) -> Result<(), Failure> {
    let reps = if options.quick { 1 } else { options.reps.unwrap_or(REPS) };
    let mut table =
        Table::new(&["", "opens", "CPU s, order none", "CPU s, order auto", "auto ÷ none", "by round", "none again ÷ none", "by round"]);
    for cost in COSTS.iter().filter(|cost| cost.name.contains(&options.only)) {
        let files = if options.quick { cost.files / 4 } else { cost.files };
        let train = Set::new("train", files, cost.mean_bytes);
        let memory = train.memory(cost.cache);
        let store = Store::serve(&[train], 0)?;
        // beside none: auto, and none again. What two mounts alike differ by is what the figures are good for.
        let beside = [options.order("sequential:root=train"), "none"];
        let mut rounds: [Vec<[f64; 2]>; 2] = [const { Vec::new() }; 2];
        for rep in 0..reps {
            say(&format!("walks: cost of {}, round {rep}", cost.name));
            for (pairs, order) in rounds.iter_mut().zip(beside) {
                pairs.push(cpu(&store, cost, ["none", order], memory).await?);
            }
        }
        let all = |pairs: usize, which: usize| rounds[pairs].iter().map(|round| round[which]).sum::<f64>();
        let of_rounds = |pairs: usize| {
            let ratios: Vec<String> = rounds[pairs].iter().map(|round| format!("{:.3}", round[1] / round[0])).collect();
            ratios.join(" ")
        };
        let ratio = all(0, 1) / all(0, 0);
        table.row([
            cost.name.to_owned(),
            (files * cost.epochs).to_string(),
            format!("{:.2}", all(0, 0) / reps as f64),
            format!("{:.2}", all(0, 1) / reps as f64),
            format!("{ratio:.3}"),
            of_rounds(0),
            format!("{:.3}", all(1, 1) / all(1, 0)),
            of_rounds(1),
        ]);
        bounds.check(ratio <= COST, || format!("{}: {ratio:.3} of the CPU with order none, {COST} was allowed", cost.name));
    }
    show(&format!("CPU of the mounts, first byte at once, {reps} rounds:\n\n{table}"))
}

async fn cpu(store: &Store, cost: &Cost, orders: [&str; 2], memory: u64) -> Result<[f64; 2], Failure> {
    let mut mounts = Vec::new();
    for order in orders {
        mounts.push(store.mount(order, memory).await?);
    }
    let mut readers = Readers::new()?;
    for mount in &mounts {
        // The listing is part of the mount, not of the reads.
        let _complete = std::fs::read_dir(mount.dir.join("train"))?.count();
    }
    let before: Vec<f64> = mounts.iter().map(Mount::cpu).collect();
    cost.reads.start(&mut readers, &mounts, cost.epochs)?;
    let begun = std::time::Instant::now();
    while !readers.have_ended()? {
        if begun.elapsed() > LIMIT {
            return Err("two minutes, and the reads have not ended".into());
        }
        // Nobody asks the mounts meanwhile: answers cost CPU too.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let cpu = std::array::from_fn(|which| mounts[which].cpu() - before[which]);
    for mount in mounts {
        mount.end().await?;
    }
    Ok(cpu)
}
