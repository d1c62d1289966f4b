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

/// Cores, kernel and load, for the caption: figures of a busy machine are not figures.
pub(crate) fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (kernel, load) = (read("/proc/sys/kernel/osrelease"), read("/proc/loadavg"));
    let kernel: Vec<&str> = kernel.trim().split(['.', '-']).take(2).collect();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{cores} cores, Linux {}, load before the run {}.", kernel.join("."), load.split(' ').next().unwrap_or_default())
}
