//! What a user says of an order: `kind[:key=value]...`, e.g. `torch-distributed:seed=0:world=8:rank=0-7:root=train:files=imagefolder`.
//!
//! An [`OrderSpec`] is checked when it is made (`parse`), from a text or from an `[[order]]` table with the same keys; `Display` writes a
//! text that parses to the same specification.
//!
//! Not here: reading the list file, finding the samples, and resuming: the follower begins at place `start` of epoch `epoch`.

use std::fmt;
use std::sync::Arc;

use crate::order::SharedSampler;
use crate::order::plain::Sequential;
use crate::order::shard::Shard;
use crate::order::torch::{Distributed, Random, RandomSource};
use crate::types::{Epoch, Rank, SampleRule};

mod nearest;
mod parse;

pub use nearest::nearest;

/// What makes the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OrderKind {
    /// `DistributedSampler(shuffle=True)` with `set_epoch`.
    TorchDistributed,
    /// `DataLoader(shuffle=True)` in one process.
    TorchRandom,
    /// `randperm` of a fresh generator seeded with seed + epoch.
    TorchRandperm,
    /// No shuffling; with a world, `DistributedSampler(shuffle=False)`.
    Sequential,
    /// A file names the samples in the order they are read.
    List,
    /// Nothing declared: what the mount can find out by itself (in this version nothing: a cached mount).
    Auto,
    /// A cached mount, and nothing is to be found out either.
    None,
}

impl OrderKind {
    pub(crate) const ALL: [(&str, Self); 7] = [
        ("torch-distributed", Self::TorchDistributed),
        ("torch-random", Self::TorchRandom),
        ("torch-randperm", Self::TorchRandperm),
        ("sequential", Self::Sequential),
        ("list", Self::List),
        ("auto", Self::Auto),
        ("none", Self::None),
    ];

    /// The word for it in specifications and statistics.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// Whether an order is declared, so that there is a sampler.
    #[must_use]
    pub const fn is_declared(self) -> bool {
        !matches!(self, Self::Auto | Self::None)
    }
}

impl fmt::Display for OrderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A parsed and checked order specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderSpec {
    /// Name in the statistics; the root or the kind unless the user chose one.
    pub id: String,
    pub kind: OrderKind,
    /// Directory below the mount point that holds the dataset; empty: the mount itself. No slash at either end.
    pub root: String,
    /// Which files are the samples.
    pub files: SampleRule,
    pub seed: u64,
    /// Only [`OrderKind::TorchRandom`] reads it.
    pub source: RandomSource,
    /// Processes of the whole job, ≥ 1.
    pub world: u32,
    /// Ranks on this node, rising, at least one.
    pub ranks: Vec<Rank>,
    /// `DistributedSampler(drop_last=True)`.
    pub drop_last: bool,
    /// `DataLoader(drop_last=True)`; then `batch` is given.
    pub drop_last_batch: bool,
    /// `DataLoader(batch_size=…)` of each rank; `None`: not told.
    pub batch: Option<u32>,
    /// `DataLoader(num_workers=…)` of each rank; `None`: not told.
    pub workers: Option<u32>,
    /// `DataLoader(prefetch_factor=…)`; `None`: not told (torch's default is 2).
    pub prefetch_factor: Option<u32>,
    /// Places of the merged local stream that were read before, in the first epoch: a resumed run.
    pub start: u64,
    /// The first epoch.
    pub epoch: Epoch,
    /// How many epochs there are; `None`: not told.
    pub epochs: Option<u64>,
}

/// Why a specification is refused: names the part and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(pub String);

/// Gives orders that would have one name in the statistics different ones: `train`, `train-2`, …
pub fn make_ids_distinct(specs: &mut [OrderSpec]) {
    for place in 1..specs.len() {
        let (before, rest) = specs.split_at_mut(place);
        let taken = |id: &str| before.iter().any(|spec| spec.id == id);
        let id = &mut rest[0].id;
        if taken(id) {
            let free = (2..).map(|number| format!("{id}-{number}")).find(|id| !taken(id));
            *id = free.expect("more numbers than orders");
        }
    }
}

impl OrderSpec {
    /// An order of this kind with nothing said of it.
    #[must_use]
    pub fn of(kind: OrderKind) -> Self {
        Self {
            id: kind.to_string(),
            kind,
            root: String::new(),
            files: SampleRule::default(),
            seed: 0,
            source: RandomSource::Default { offset: RandomSource::OFFSET, stride: RandomSource::STRIDE },
            world: 1,
            ranks: vec![0],
            drop_last: false,
            drop_last_batch: false,
            batch: None,
            workers: None,
            prefetch_factor: None,
            start: 0,
            epoch: 0,
            epochs: None,
        }
    }

    /// The sampler for a dataset of `n` samples.
    ///
    /// # Errors
    /// When `n` does not fit the specification, or it declares no order.
    pub fn sampler(&self, n: u32) -> Result<SharedSampler, SpecError> {
        let shard = self.shard();
        if self.kind.is_declared() && shard.len(n) == 0 {
            let remedy = if n == 0 { "check root= and files=" } else { "check world=, batch= and drop_last=" };
            return Err(SpecError(format!("order {}: no sample of {n} is left for this node to read: {remedy}", self.id)));
        }
        if self.start > shard.len(n) {
            return Err(SpecError(format!(
                "order {}: start={} is beyond the {} samples that this node reads in an epoch: give epoch= for whole epochs",
                self.id,
                self.start,
                shard.len(n)
            )));
        }
        let seed = self.seed;
        Ok(match self.kind {
            OrderKind::TorchDistributed => Arc::new(Distributed { n, seed, shard }),
            OrderKind::TorchRandom => Arc::new(Random { n, seed, source: self.source, shard }),
            OrderKind::TorchRandperm => Arc::new(Random { n, seed, source: RandomSource::Reseeded, shard }),
            OrderKind::Sequential | OrderKind::List => Arc::new(Sequential { n, shard }),
            OrderKind::Auto | OrderKind::None => {
                return Err(SpecError(format!("order {} declares no order: name a sampler, e.g. torch-distributed:seed=0", self.kind)));
            }
        })
    }

    /// How the order is dealt to ranks.
    #[must_use]
    pub fn shard(&self) -> Shard {
        let batch = self.batch.filter(|_| self.drop_last_batch);
        Shard { world: self.world, ranks: self.ranks.clone(), drop_last: self.drop_last, batch }
    }

    /// The local ranks as a user writes them: `0-7`, `0+2+5`.
    #[must_use]
    pub fn ranks_text(&self) -> String {
        let mut runs: Vec<(Rank, Rank)> = Vec::new();
        for &rank in &self.ranks {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == rank => *last = rank,
                _ => runs.push((rank, rank)),
            }
        }
        let text = |&(first, last): &(Rank, Rank)| if first == last { first.to_string() } else { format!("{first}-{last}") };
        runs.iter().map(text).collect::<Vec<_>>().join("+")
    }
}

impl fmt::Display for OrderSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if !self.kind.is_declared() {
            return Ok(());
        }
        if self.kind.has_seed() {
            write!(f, ":seed={}", self.seed)?;
        }
        if self.kind.has_world() {
            write!(f, ":world={}:rank={}", self.world, self.ranks_text())?;
        }
        if self.kind == OrderKind::TorchRandom {
            match self.source {
                RandomSource::Default { offset, stride } => write!(f, ":generator=default:offset={offset}:stride={stride}")?,
                RandomSource::Loader => f.write_str(":generator=loader")?,
                RandomSource::Sampler => f.write_str(":generator=sampler")?,
                RandomSource::Reseeded => {}
            }
        }
        if !self.root.is_empty() {
            write!(f, ":root={}", self.root)?;
        }
        write!(f, ":files={}", self.files)?;
        for (key, value) in [("batch", self.batch), ("workers", self.workers), ("prefetch_factor", self.prefetch_factor)] {
            if let Some(value) = value {
                write!(f, ":{key}={value}")?;
            }
        }
        for (key, value) in [("drop_last", self.drop_last), ("drop_last_batch", self.drop_last_batch)] {
            if value {
                write!(f, ":{key}=true")?;
            }
        }
        write!(f, ":start={}:epoch={}", self.start, self.epoch)?;
        if let Some(epochs) = self.epochs {
            write!(f, ":epochs={epochs}")?;
        }
        write!(f, ":id={}", self.id)
    }
}
