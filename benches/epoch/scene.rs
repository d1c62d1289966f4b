//! What all parts share: the dataset that the store serves, its order, and the machine of the moment.

use std::sync::Arc;

use belady::cache::charge_of;
use belady::demo::dataset::{Dataset, DatasetSpec, Entry};
use belady::demo::raw::Wanted;
use belady::order::spec::OrderSpec;

use crate::Failure;

/// The order of the reader unless a part says otherwise: one process, seed 0, `set_epoch` called.
pub(crate) const ORDER: &str = "torch-distributed:seed=0:world=1:rank=0:root=train:files=imagefolder";

/// The dataset, as a reader and the plain client need it.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) files: u32,
    pub(crate) mean_bytes: u64,
    pub(crate) entries: Arc<[Entry]>,
    pub(crate) bytes: u64,
    /// What the cache charges for all of it.
    pub(crate) charged: u64,
}

impl Scene {
    pub(crate) fn new(files: u32, mean_bytes: u64) -> Self {
        let dataset = dataset(files, mean_bytes);
        let bytes = dataset.total_bytes();
        let charged = dataset.entries.iter().map(|entry| charge_of(entry.content.size())).sum();
        Self { files, mean_bytes, entries: dataset.entries.into(), bytes, charged }
    }

    /// Memory that holds all of it and what is on its way.
    pub(crate) fn all(&self) -> u64 {
        self.charged + self.charged / 8 + (64 << 20)
    }

    /// What the plain client asks for, in this epoch's order.
    pub(crate) fn wanted(&self, order: &str, epoch: u64, first: usize) -> Result<Arc<[Wanted]>, Failure> {
        let entry = |sample: &u32| &self.entries[*sample as usize];
        let wanted = |entry: &Entry| Wanted { key: entry.key.clone(), size: entry.content.size() };
        Ok(places(order, self.files, epoch, first)?.iter().map(entry).map(wanted).collect())
    }
}

/// The same as `belady demo --serve-only --files FILES --mean-size MEAN` serves; a part's first read compares bytes and would tell.
pub(crate) fn dataset(files: u32, mean_bytes: u64) -> Dataset {
    DatasetSpec { files, classes: (files / 100).clamp(1, 1_000), mean_bytes, ..DatasetSpec::default() }.build()
}

/// The first sample numbers that a reader with this order reads in an epoch.
pub(crate) fn places(order: &str, files: u32, epoch: u64, first: usize) -> Result<Arc<[u32]>, Failure> {
    let mut places = order.parse::<OrderSpec>()?.sampler(files)?.order(epoch).places;
    places.truncate(first);
    Ok(places.into())
}

/// Cores and kernel, for the caption.
pub(crate) fn machine() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel: Vec<&str> = kernel.trim().split(['.', '-']).take(2).collect();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{cores} cores, Linux {}.", kernel.join("."))
}

/// How much of the cores goes to programs that are not part of the measurement: figures of a busy machine are not figures.
#[derive(Debug)]
pub(crate) struct Others {
    busy: u64,
    all: u64,
    own: u64,
}

impl Others {
    pub(crate) fn since_now() -> Self {
        let (busy, all) = busy_and_all();
        Self { busy, all, own: own() }
    }

    /// Share of the cores' time; call it when all children have ended.
    #[expect(clippy::cast_precision_loss, reason = "ticks are far below 2^52")]
    pub(crate) fn share(&self) -> f64 {
        let now = Self::since_now();
        let foreign = (now.busy - self.busy).saturating_sub(now.own - self.own);
        foreign as f64 / (now.all - self.all).max(1) as f64
    }
}

/// Ticks of all cores since boot: at work, and altogether (proc_stat(5)).
fn busy_and_all() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    // user nice system idle iowait irq softirq steal
    let ticks: Vec<u64> =
        text.lines().next().unwrap_or_default().split_whitespace().skip(1).take(8).map_while(|word| word.parse().ok()).collect();
    let (all, idle) = (ticks.iter().sum::<u64>(), ticks.iter().skip(3).take(2).sum::<u64>());
    (all - idle, all)
}

/// Ticks of this process and of all children that have ended (fields 14 to 17 of proc_pid_stat(5)).
fn own() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    fields.skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum()
}
