//! One node of sixteen: 8 of 128 ranks, each with 8 workers, started with torchrun's environment and without; and a job that goes on, from
//! within an epoch, with other numbers of ranks.

use std::time::Duration;

use belady::stats::snapshot::Order;

use crate::loaders::opens_allowed;
use crate::rig::Mount;
use crate::script::{Open, Readers, opens_with_all};
use crate::stage::{Set, Store};
use crate::table::Table;
use crate::watch::{Watch, any};
use crate::{Bounds, Failure, Options, say, show};

const DELAY_MS: u64 = 20;
const MEAN_BYTES: u64 = 2_000;
const FILES: u32 = 64_000;
const BATCH: usize = 8;
/// Ranks of this node, and workers of each.
const LOCAL: usize = 8;
const WORKERS: usize = 8;
const LIMIT: Duration = Duration::from_secs(120);

/// Eight trainers of one job.
struct Job {
    name: &'static str,
    sampler: &'static str,
    world: usize,
    /// Whether they are started as torchrun does.
    environment: bool,
    first_epoch: usize,
    /// Samples of that epoch that the whole job has read before.
    start: usize,
    epochs: usize,
    /// Samples that each rank reads, then all end.
    limit: Option<usize>,
}

impl Job {
    async fn run(&self, mount: &Mount, workers: usize) -> Result<(Watch, Vec<Open>), Failure> {
        let mut readers = Readers::new()?;
        for rank in 0..LOCAL {
            let mut arguments = format!(
                "--sampler {} --world {} --rank {rank} --workers {workers} --batch {BATCH} --epochs {} --first-epoch {} --start {} --barrier {LOCAL}",
                self.sampler, self.world, self.epochs, self.first_epoch, self.start
            );
            if let Some(limit) = self.limit {
                arguments += &format!(" --limit {limit}");
            }
            let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
            let (local, world) = (LOCAL.to_string(), self.world.to_string());
            let environment = [
                ("RANK", rank.to_string()),
                ("LOCAL_RANK", rank.to_string()),
                ("WORLD_SIZE", world),
                ("LOCAL_WORLD_SIZE", local),
                ("GROUP_RANK", "0".to_owned()),
                ("MASTER_ADDR", "127.0.0.1".to_owned()),
                ("MASTER_PORT", "29500".to_owned()),
            ];
            readers.train(&mount.dir, &arguments, if self.environment { &environment } else { &[] })?;
        }
        let watch = Watch::until(mount, &mut readers, LIMIT, |_| false).await?;
        Ok((watch, readers.opens()?))
    }
}

pub(crate) async fn run(options: &Options, bounds: &mut Bounds) -> Result<(), Failure> {
    let (files, workers) = if options.quick { (FILES / 2, 2) } else { (FILES, WORKERS) };
    let train = Set::new("train", files, MEAN_BYTES);
    let memory = train.memory(0.1).max(64 << 20);
    let store = Store::serve(&[train], DELAY_MS)?;
    let mut report = Report::new(workers);
    let whole =
        |name, environment| Job { name, sampler: "distributed", world: 128, environment, first_epoch: 0, start: 0, epochs: 3, limit: None };
    for job in [whole("128 ranks, torchrun's environment", true), whole("128 ranks, no environment", false)] {
        if job.name.contains(&options.only) {
            let mount = store.mount(options.order("torch-distributed:world=128:rank=0-7:root=train"), memory).await?;
            report.add(&job, &mount, bounds).await?;
            mount.end().await?;
        }
    }
    if "resumed".contains(&options.only) {
        let mount = store.mount(options.order("torch-distributed:world=96:rank=0-7:root=train"), memory).await?;
        for job in resumed(files as usize) {
            report.add(&job, &mount, bounds).await?;
        }
        mount.end().await?;
    }
    report.show(options)
}

/// 96 ranks to the middle of epoch 0, 128 from there to the middle of epoch 1, 64 from there on, on one mount. Nothing tells the mount.
fn resumed(files: usize) -> [Job; 3] {
    let job = |name, world, first_epoch, start, limit| Job {
        name,
        sampler: "elastic",
        world,
        environment: true,
        first_epoch,
        start,
        epochs: 2,
        limit: Some(limit),
    };
    let whole_batches = |samples: usize| samples / BATCH * BATCH;
    let first = whole_batches(files / 96 / 2);
    let rest = (files - first * 96).div_ceil(128);
    let second = whole_batches(files / 128 / 2);
    let last = (files - second * 128).div_ceil(64);
    [
        job("96 ranks", 96, 0, 0, first),
        job("→ 128 ranks, from within epoch 0", 128, 0, first * 96, rest + second),
        job("→ 64 ranks, from within epoch 1", 64, 1, second * 128, last + files / 64 / 4),
    ]
}

struct Report {
    workers: usize,
    table: Table,
    words: String,
}

impl Report {
    fn new(workers: usize) -> Self {
        let head = [
            "8 ranks of",
            "readers",
            "opens",
            "when the last had begun",
            "locked after opens",
            "opens after that",
            "predicted",
            "%",
            "wrong while believed",
        ];
        Self { workers, table: Table::new(&head), words: String::new() }
    }

    async fn add(&mut self, job: &Job, mount: &Mount, bounds: &mut Bounds) -> Result<(), Failure> {
        say(&format!("ranks: {}", job.name));
        let (watch, opens) = job.run(mount, self.workers).await?;
        self.words += &format!("{}:\n{}\n", job.name, watch.words());
        let (name, readers) = (job.name, LOCAL * self.workers);
        let allowed = opens_allowed(&opens, readers);
        // Of this world: a mount that had an order before believes in that one until it is refuted.
        let meant = |order: &Order| order.world as usize == job.world;
        let locked = watch.lock(meant).map(|lock| lock.opens(&opens));
        let (observed, predicted) = watch.since_lock(meant);
        bounds.check(locked.is_some_and(|(least, _)| least <= allowed), || match locked {
            Some((least, _)) => format!("{name}: locked after more than {least} opens, {allowed} were allowed"),
            None => format!("{name}: never locked"),
        });
        bounds.check(observed > 0 && observed == predicted, || format!("{name}: {predicted} of {observed} opens after the lock predicted"));
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let share = 100.0 * predicted as f64 / (observed as f64).max(1.0);
        self.table.row([
            name.to_owned(),
            readers.to_string(),
            opens.len().to_string(),
            opens_with_all(&opens, readers).map_or("never".to_owned(), |all| all.to_string()),
            locked.map_or("never".to_owned(), |(least, most)| format!("{least}–{most}")),
            observed.to_string(),
            predicted.to_string(),
            format!("{share:.2}"),
            watch.wrong(any).to_string(),
        ]);
        Ok(())
    }

    fn show(&self, options: &Options) -> Result<(), Failure> {
        show(&format!("First byte after {DELAY_MS} ms, batches of {BATCH}, {} workers a rank:\n\n{}", self.workers, self.table))?;
        if options.verbose { show(&self.words) } else { Ok(()) }
    }
}
