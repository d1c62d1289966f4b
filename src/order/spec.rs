//! What a user says of an order: `kind[:key=value]...`, e.g. `torch-distributed:seed=0:world=8:rank=0-7:root=train:files=imagefolder`.
//!
//! An [`OrderSpec`] is checked when it is made (`parse`), from a text or from an `[[order]]` table with the same keys; `Display` writes a
//! text that parses to the same specification.
//!
//! Not here: reading the list file, finding the samples, and resuming: the follower begins at place `start` of epoch `epoch`.

use std::fmt;

use crate::order::shard::Tail;
use crate::order::subset::{By, SplitSeed, Subset};
use crate::types::{Epoch, Rank, SampleRule};

mod build;
mod kind;
mod nearest;
mod pairs;
mod parse;
mod text;

pub use kind::{AccelerateSampler, OrderKind};
pub use nearest::nearest;

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
    /// Which of them the loader has; `None`: all.
    pub subset: Option<Subset>,
    pub seed: u64,
    /// The seed where it is a text; `seed` is 0 then.
    pub seed_text: Option<Box<str>>,
    /// Processes of the whole job, ≥ 1.
    pub world: u32,
    /// Ranks on this node, rising, at least one.
    pub ranks: Vec<Rank>,
    /// What the ranks do where the samples do not go evenly into them.
    pub tail: Tail,
    /// `DataLoader(drop_last=True)`; then `batch` is given.
    pub drop_last_batch: bool,
    /// `DataLoader(batch_size=…)` as the program says it ([`OrderSpec::batch_of_rank`]); `None`: not told.
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
            subset: None,
            seed: 0,
            seed_text: None,
            world: 1,
            ranks: vec![0],
            tail: Tail::default(),
            drop_last_batch: false,
            batch: None,
            workers: None,
            prefetch_factor: None,
            start: 0,
            epoch: 0,
            epochs: None,
        }
    }

    /// Samples in a batch of one rank; `None`: not told.
    #[must_use]
    pub fn batch_of_rank(&self) -> Option<u32> {
        self.batch.map(|batch| if parse::splits_batches(self.kind) { batch / self.world } else { batch })
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
        match &self.seed_text {
            Some(text) => write!(f, ":seed_text={text}")?,
            None if self.kind.takes("seed") => write!(f, ":seed={}", self.seed)?,
            None => {}
        }
        if self.kind.takes("world") {
            write!(f, ":world={}:rank={}", self.world, self.ranks_text())?;
        }
        self.kind.write(f)?;
        if !self.root.is_empty() {
            write!(f, ":root={}", self.root)?;
        }
        write!(f, ":files={}", self.files)?;
        self.subset.as_ref().map_or(Ok(()), |subset| write_subset(subset, f))?;
        for (key, value) in [("batch", self.batch), ("workers", self.workers), ("prefetch_factor", self.prefetch_factor)] {
            if let Some(value) = value {
                write!(f, ":{key}={value}")?;
            }
        }
        if self.tail == Tail::Drop {
            f.write_str(":drop_last=true")?;
        } else if self.tail != parse::usual_tail(self.kind) {
            write!(f, ":tail={}", self.tail.name())?;
        }
        if self.drop_last_batch {
            f.write_str(":drop_last_batch=true")?;
        }
        write!(f, ":start={}:epoch={}", self.start, self.epoch)?;
        if let Some(epochs) = self.epochs {
            write!(f, ":epochs={epochs}")?;
        }
        write!(f, ":id={}", self.id)
    }
}

fn write_subset(subset: &Subset, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match subset {
        Subset::Range { first, last, step } => write!(f, ":indices={first}-{last}/{step}"),
        Subset::Split { by, seed, parts, part } => {
            let by = By::ALL.iter().find(|(_, known)| known == by).map_or("", |(name, _)| name);
            write!(f, ":split={parts}:part={part}:split_by={by}")?;
            match seed {
                SplitSeed::Own(seed) => write!(f, ":split_seed={seed}"),
                SplitSeed::Default => Ok(()),
            }
        }
    }
}
