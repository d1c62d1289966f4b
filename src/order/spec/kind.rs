//! The kinds of order: their names, the keys each one takes, and what those say.

use std::fmt;

use crate::order::again::Again;
use crate::order::dali::{self, Files};
use crate::order::dlio::Loader;
use crate::order::mosaic;
use crate::order::spec::pairs::{OUTPUTS, Pairs, U32, refuse};
use crate::order::spec::{SpecError, nearest};
use crate::order::torch::{Count, RandomSource};
use crate::order::webdataset::Buffer;

/// What makes the order, with what only this kind is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OrderKind {
    /// `DistributedSampler(shuffle=True)` with `set_epoch`.
    TorchDistributed,
    /// `DataLoader(shuffle=True)`, or a `RandomSampler`, in one process. The source is not `Reseeded` and not `Built`.
    TorchRandom { source: RandomSource, count: Count },
    /// `randperm` of a fresh generator seeded with seed + epoch.
    TorchRandperm,
    /// `SubsetRandomSampler`: permutations straight from the default generator, from its output `offset`, `between` outputs apart.
    TorchSubset { offset: u64, between: u64 },
    /// torchdata's `StatefulDataLoader(shuffle=True)`, seeded from output `offset` of the default generator.
    Torchdata { offset: u64 },
    /// Hugging Face accelerate.
    Accelerate { sampler: AccelerateSampler, split_batches: bool },
    /// The Trainer of transformers.
    HfTrainer { split_batches: bool },
    /// Lightning's strategies of several processes: a `DistributedSampler` with the seed `PL_GLOBAL_SEED`; with an
    /// uneven tail its `UnrepeatedDistributedSampler`, whose seed is the epoch alone.
    Lightning,
    /// timm's `RepeatAugSampler`.
    TimmRepeatAug { repeats: u32 },
    /// `RASampler` of torchvision's reference scripts.
    TorchvisionRepeatAug { repeats: u32 },
    /// `np.random.RandomState`, `np.random.seed`.
    NumpyLegacy { again: Again },
    /// `np.random.default_rng`.
    NumpyGenerator { again: Again },
    /// `random.shuffle`.
    PythonShuffle { again: Again },
    /// `random.sample(range(n), k)`; `None`: k = n.
    PythonSample { k: Option<u32>, again: Again },
    /// MosaicML Streaming: the order in which shards of `samples` samples are first needed.
    Mosaic { algorithm: mosaic::Algorithm, nodes: u32, block: u32, samples: u32 },
    /// WebDataset's order of shards.
    Webdataset { buffer: Buffer, deterministic: bool },
    /// The samplers of wids; `chunk` 1: shards.
    Wids { chunk: u32, shuffle: bool, shuffle_first: bool },
    /// DALI's file reader.
    Dali { files: Files, stick_to_shard: bool },
    /// DLIO, MLPerf Storage.
    Dlio { loader: Loader, change: bool },
    /// grain's `shuffle`.
    Grain,
    /// No shuffling; with a world, `DistributedSampler(shuffle=False)`.
    Sequential,
    /// A file names the samples in the order they are read.
    List,
    /// Nothing declared: what the mount can find out by itself (in this version nothing: a cached mount).
    Auto,
    /// A cached mount, and nothing is to be found out either.
    None,
}

/// Which sampler accelerate's `prepare` leaves or puts in place of `RandomSampler`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccelerateSampler {
    /// `use_seedable_sampler=True`: seed + epoch.
    Seedable,
    /// The default in several processes: one generator for all epochs, seeded from this output of the default generator at `prepare`.
    Default { offset: u64 },
    /// One generator for all epochs, with the order's seed: a given one; up to 0.34 also the default in several processes, with the seed
    /// 67280421310721 of a `torch.Generator()` that nobody seeded.
    Generator,
}

/// Name of each kind and the keys that not every kind takes, in the order `Display` writes them.
const KINDS: [(&str, &[&str]); 24] = [
    ("torch-distributed", &["seed", "world", "rank", "tail"]),
    ("torch-random", &["seed", "generator", "offset", "stride", "between", "num_samples", "replacement"]),
    ("torch-randperm", &["seed"]),
    ("torch-subset", &["seed", "offset", "between"]),
    ("torchdata", &["seed", "offset"]),
    ("accelerate", &["seed", "world", "rank", "tail", "sampler", "offset", "split_batches"]),
    ("hf-trainer", &["seed", "world", "rank", "tail", "split_batches"]),
    ("lightning", &["seed", "world", "rank", "tail"]),
    ("timm-repeat-aug", &["world", "rank", "repeats"]),
    ("torchvision-repeat-aug", &["seed", "world", "rank", "repeats"]),
    ("numpy-legacy", &["seed", "world", "rank", "tail", "again"]),
    ("numpy-generator", &["seed", "world", "rank", "tail", "again"]),
    ("python-shuffle", &["seed", "seed_text", "world", "rank", "tail", "again"]),
    ("python-sample", &["seed", "seed_text", "world", "rank", "tail", "again", "k"]),
    ("mosaic", &["seed", "algorithm", "nodes", "block", "shard_samples"]),
    ("webdataset", &["seed", "seed_text", "world", "rank", "buffer", "initial", "deterministic"]),
    ("wids", &["seed", "world", "rank", "chunk", "shuffle", "shuffle_first"]),
    ("dali", &["world", "rank", "shuffle", "stick_to_shard", "shuffle_after_epoch", "shuffle_after_epoch_seed", "generator", "again"]),
    ("dlio", &["seed", "world", "rank", "loader", "seed_change_epoch"]),
    ("grain", &["seed", "world", "rank", "tail"]),
    ("sequential", &["world", "rank", "tail"]),
    ("list", &["world", "rank", "tail"]),
    ("auto", &[]),
    ("none", &[]),
];

/// Orders that people ask for and that no declaration can give, with the reason.
const REFUSED: [(&str, &str); 5] = [
    ("torch-weighted", "WeightedRandomSampler draws by weights, which a mount does not know"),
    ("length-grouped", "batches by length depend on what is in the files"),
    ("ffcv", "FFCV reads one container file, whose samples are not files"),
    ("tf-data", "the generator of tf.data.Dataset.shuffle is not reproduced"),
    ("webdataset-resampled", "ResampledShards is seeded with the process id and the time"),
];

/// Words of the libraries that are no keys, the start of the kinds they are of, and what says the same here.
const FOREIGN: [(&str, &str, &str); 13] = [
    ("WDS_SEED", "", "webdataset's WDS_SEED is a text: write seed_text="),
    ("PL_GLOBAL_SEED", "", "write seed="),
    ("PYTHONHASHSEED", "", "it seeds no shuffle: leave it out"),
    ("random_shuffle", "dali", "write shuffle=true or shuffle=false (true is the default); shuffle_after_epoch=true is another order"),
    ("num_shards", "", "write world="),
    ("shard_id", "", "write rank="),
    ("num_replicas", "", "write world="),
    ("world_size", "", "write world="),
    ("local_rank", "", "write rank=, as the whole job counts"),
    ("num_workers", "", "write workers="),
    ("batch_size", "", "write batch="),
    ("num_repeats", "", "write repeats="),
    ("shuffle_seed", "", "write seed="),
];

/// What says the same as a library's own word for it.
pub(super) fn meant_by(name: &str, key: &str) -> Option<&'static str> {
    let found = FOREIGN.iter().find(|(word, of, _)| word.eq_ignore_ascii_case(key) && name.starts_with(of));
    found.map(|&(_, _, meant)| meant)
}

/// Every key that every kind takes, if it takes any.
pub(super) const COMMON: [&str; 16] = [
    "root",
    "files",
    "split",
    "part",
    "split_seed",
    "split_by",
    "indices",
    "batch",
    "workers",
    "prefetch_factor",
    "drop_last",
    "drop_last_batch",
    "start",
    "epoch",
    "epochs",
    "id",
];

/// All keys, for refusals.
pub(super) fn all_keys() -> Vec<&'static str> {
    let mut keys: Vec<&str> = KINDS.iter().flat_map(|(_, keys)| keys.iter().copied()).chain(COMMON).collect();
    let mut seen = std::collections::HashSet::new();
    keys.retain(|key| seen.insert(*key));
    keys
}

/// The kind of this name: the name as the table has it, and its keys.
pub(super) fn find(name: &str) -> Result<(&'static str, &'static [&'static str]), SpecError> {
    if let Some(found) = KINDS.iter().find(|(known, _)| *known == name) {
        return Ok(*found);
    }
    if let Some((_, why)) = REFUSED.iter().find(|(known, _)| *known == name) {
        return refuse(format_args!("{name} cannot be declared: {why}; record an epoch and give it as list:FILE"));
    }
    let names = KINDS.map(|(name, _)| name);
    let meant = nearest(name, names).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
    refuse(format_args!("{name:?} is no kind of order: use one of {}{meant}", names.join(", ")))
}

/// Why a kind does not take a key that others take.
pub(super) fn objection(name: &str, key: &str) -> String {
    match key {
        _ if matches!(name, "auto" | "none") => "declares nothing and takes no keys".to_owned(),
        "seed" => "does not shuffle by a seed: leave seed out".to_owned(),
        "world" | "rank" => "is read by one process: leave world and rank out, or declare torch-distributed or accelerate".to_owned(),
        _ => {
            let takers: Vec<&str> = KINDS.iter().filter(|(_, keys)| keys.contains(&key)).map(|(name, _)| *name).collect();
            format!("does not take it, only {}", takers.join(", "))
        }
    }
}

/// A word of a table of named values.
fn word<T: Copy>(pairs: &Pairs, key: &str, known: &[(&str, T)], default: T) -> Result<T, SpecError> {
    pairs.word(key, known).map(|value| value.unwrap_or(default))
}

fn name_of<T: PartialEq>(known: &[(&'static str, T)], value: &T) -> &'static str {
    known.iter().find(|(_, known)| known == value).map_or("", |(name, _)| name)
}

/// Where `torch-random` takes its randomness from.
fn source(pairs: &Pairs) -> Result<RandomSource, SpecError> {
    let (offset, stride, between) = (pairs.number("offset", OUTPUTS)?, pairs.number("stride", OUTPUTS)?, pairs.number("between", OUTPUTS)?);
    let (source, counts) = match pairs.get("generator") {
        None | Some("default") => {
            let (offset, stride) = (offset.unwrap_or(RandomSource::OFFSET), stride.unwrap_or(RandomSource::STRIDE));
            (RandomSource::Default { offset, stride }, [true, true, false])
        }
        Some("stream") => {
            let (offset, between) = (offset.unwrap_or(RandomSource::BASE_SEED), between.unwrap_or(RandomSource::BASE_SEED));
            (RandomSource::Stream { offset, between }, [true, false, true])
        }
        Some("loader") => (RandomSource::Loader, [false; 3]),
        Some("sampler") => (RandomSource::Sampler, [false; 3]),
        Some(text) => return refuse(format_args!("generator={text} is unknown: use default, loader, sampler or stream")),
    };
    for (key, counts) in ["offset", "stride", "between"].into_iter().zip(counts) {
        if !counts && pairs.get(key).is_some() {
            let with = if key == "between" { "generator=stream" } else { "generator=default" };
            return refuse(format_args!("{key} counts outputs of the default generator: leave it out, or write {with}"));
        }
    }
    Ok(source)
}

/// What DALI's file reader does to its list.
fn dali_files(pairs: &Pairs) -> Result<Files, SpecError> {
    if !pairs.flag("shuffle_after_epoch")? {
        if let Some(key) = ["shuffle_after_epoch_seed", "generator", "again"].into_iter().find(|key| pairs.get(key).is_some()) {
            return refuse(format_args!("{key} belongs to shuffle_after_epoch=true: add that, or leave {key} out"));
        }
        return Ok(if pairs.flag_or("shuffle", true)? { Files::Shuffled } else { Files::Listed });
    }
    for key in ["shuffle", "stick_to_shard"] {
        if pairs.flag(key)? {
            return refuse(format_args!("DALI takes shuffle_after_epoch=true and {key}=true never together: leave one out"));
        }
    }
    let seed: Option<i64> = pairs.number("shuffle_after_epoch_seed", i128::from(i64::MIN)..=i128::from(i64::MAX))?;
    let known = Again::ALL.into_iter().filter(|(_, again)| matches!(again, Again::InPlace | Again::Reseeded)).collect::<Vec<_>>();
    Ok(Files::EachEpoch {
        seed: seed.map_or(dali::SEED, i64::cast_unsigned),
        generator: word(pairs, "generator", &dali::Generator::ALL, dali::Generator::default())?,
        again: word(pairs, "again", &known, Again::InPlace)?,
    })
}

impl OrderKind {
    /// The kind named `name`, told what `pairs` say. What they say was checked to be keys of this kind.
    pub(super) fn parse(name: &str, pairs: &Pairs) -> Result<Self, SpecError> {
        let positive = || 1..=*U32.end();
        let again = || word(pairs, "again", &Again::ALL, Again::default());
        let repeats = || Ok(pairs.number("repeats", positive())?.unwrap_or(3)); // both libraries' default
        Ok(match name {
            "torch-distributed" => Self::TorchDistributed,
            "torch-random" => {
                let count = Count { num_samples: pairs.number("num_samples", positive())?, replacement: pairs.flag("replacement")? };
                let source = source(pairs)?;
                if count != Count::default() && matches!(source, RandomSource::Stream { .. }) {
                    return refuse("num_samples and replacement are not known of torch up to 1.8: leave them out, or generator=stream");
                }
                Self::TorchRandom { source, count }
            }
            "torch-randperm" => Self::TorchRandperm,
            "torch-subset" => Self::TorchSubset {
                offset: pairs.number("offset", OUTPUTS)?.unwrap_or(RandomSource::BASE_SEED),
                between: pairs.number("between", OUTPUTS)?.unwrap_or(RandomSource::BASE_SEED),
            },
            "torchdata" => Self::Torchdata { offset: pairs.number("offset", OUTPUTS)?.unwrap_or(RandomSource::FIRST_SEED) },
            "accelerate" => {
                let offset: Option<u64> = pairs.number("offset", OUTPUTS)?;
                let built = AccelerateSampler::Default { offset: offset.unwrap_or(RandomSource::FIRST_SEED) };
                let known = [("seedable", AccelerateSampler::Seedable), ("default", built), ("generator", AccelerateSampler::Generator)];
                let sampler = word(pairs, "sampler", &known, AccelerateSampler::Seedable)?;
                if offset.is_some() && sampler != built {
                    return refuse("offset counts outputs of the default generator: leave it out, or write sampler=default");
                }
                Self::Accelerate { sampler, split_batches: pairs.flag("split_batches")? }
            }
            "hf-trainer" => Self::HfTrainer { split_batches: pairs.flag("split_batches")? },
            "lightning" => Self::Lightning,
            "timm-repeat-aug" => Self::TimmRepeatAug { repeats: repeats()? },
            "torchvision-repeat-aug" => Self::TorchvisionRepeatAug { repeats: repeats()? },
            "numpy-legacy" => Self::NumpyLegacy { again: again()? },
            "numpy-generator" => Self::NumpyGenerator { again: again()? },
            "python-shuffle" => Self::PythonShuffle { again: again()? },
            "python-sample" => Self::PythonSample { k: pairs.number("k", positive())?, again: again()? },
            "mosaic" => Self::Mosaic {
                algorithm: word(pairs, "algorithm", &mosaic::Algorithm::ALL, mosaic::Algorithm::default())?,
                nodes: pairs.number("nodes", positive())?.unwrap_or(1),
                // Below 4 a block would have no sample.
                block: pairs.number("block", 4..=i128::from(i32::MAX))?.unwrap_or(mosaic::Config::BLOCK),
                samples: match pairs.number("shard_samples", positive())? {
                    Some(samples) => samples,
                    None => return refuse("mosaic needs shard_samples=: the samples of a shard, as index.json says"),
                },
            },
            "webdataset" => {
                let size = pairs.number("buffer", positive())?.unwrap_or(100); // what `shardshuffle=True` means
                let initial = pairs.number("initial", positive())?.unwrap_or(100); // the default of `shuffle`
                Self::Webdataset { buffer: Buffer { size, initial }, deterministic: pairs.flag("deterministic")? }
            }
            "wids" => Self::Wids {
                chunk: pairs.number("chunk", positive())?.unwrap_or(1),
                shuffle: pairs.flag_or("shuffle", true)?,
                shuffle_first: pairs.flag("shuffle_first")?,
            },
            "dali" => Self::Dali { files: dali_files(pairs)?, stick_to_shard: pairs.flag("stick_to_shard")? },
            "dlio" => {
                let loader = word(pairs, "loader", &Loader::ALL, Loader::default())?;
                Self::Dlio { loader, change: pairs.flag_or("seed_change_epoch", true)? }
            }
            "grain" => Self::Grain,
            "sequential" => Self::Sequential,
            "list" => Self::List,
            "auto" => Self::Auto,
            _ => Self::None,
        })
    }

    /// The word for it in specifications and statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TorchDistributed => "torch-distributed",
            Self::TorchRandom { .. } => "torch-random",
            Self::TorchRandperm => "torch-randperm",
            Self::TorchSubset { .. } => "torch-subset",
            Self::Torchdata { .. } => "torchdata",
            Self::Accelerate { .. } => "accelerate",
            Self::HfTrainer { .. } => "hf-trainer",
            Self::Lightning => "lightning",
            Self::TimmRepeatAug { .. } => "timm-repeat-aug",
            Self::TorchvisionRepeatAug { .. } => "torchvision-repeat-aug",
            Self::NumpyLegacy { .. } => "numpy-legacy",
            Self::NumpyGenerator { .. } => "numpy-generator",
            Self::PythonShuffle { .. } => "python-shuffle",
            Self::PythonSample { .. } => "python-sample",
            Self::Mosaic { .. } => "mosaic",
            Self::Webdataset { .. } => "webdataset",
            Self::Wids { .. } => "wids",
            Self::Dali { .. } => "dali",
            Self::Dlio { .. } => "dlio",
            Self::Grain => "grain",
            Self::Sequential => "sequential",
            Self::List => "list",
            Self::Auto => "auto",
            Self::None => "none",
        }
    }

    /// Whether an order is declared, so that there is a sampler.
    #[must_use]
    pub const fn is_declared(self) -> bool {
        !matches!(self, Self::Auto | Self::None)
    }

    /// The order with the same epochs (as far as one can tell) whose batches are dealt to the processes of a job.
    #[must_use]
    pub const fn dealt_in_batches(self) -> Option<Self> {
        let sampler = match self {
            Self::Accelerate { .. } | Self::HfTrainer { .. } => return Some(self),
            Self::TorchDistributed | Self::TorchRandperm => AccelerateSampler::Seedable,
            Self::TorchRandom { source: RandomSource::Default { offset, .. }, .. } => AccelerateSampler::Default { offset },
            Self::TorchRandom { source: RandomSource::Sampler, .. } => AccelerateSampler::Generator,
            _ => return None,
        };
        Some(Self::Accelerate { sampler, split_batches: false })
    }

    /// How its list is shuffled again, where one is.
    #[must_use]
    pub const fn again(self) -> Option<Again> {
        match self {
            Self::NumpyLegacy { again }
            | Self::NumpyGenerator { again }
            | Self::PythonShuffle { again }
            | Self::PythonSample { again, .. }
            | Self::Dali { files: Files::EachEpoch { again, .. }, .. } => Some(again),
            Self::Webdataset { deterministic, .. } => Some(if deterministic { Again::Reseeded } else { Again::Never }),
            _ => None,
        }
    }

    /// The order whose list is shuffled again in this way; others, and those that cannot be, stay what they are.
    #[must_use]
    pub const fn shuffled(self, again: Again) -> Self {
        match self {
            Self::NumpyLegacy { .. } => Self::NumpyLegacy { again },
            Self::NumpyGenerator { .. } => Self::NumpyGenerator { again },
            Self::PythonShuffle { .. } => Self::PythonShuffle { again },
            Self::PythonSample { k, .. } => Self::PythonSample { k, again },
            Self::Webdataset { buffer, .. } if matches!(again, Again::Reseeded | Again::Never) => {
                Self::Webdataset { buffer, deterministic: matches!(again, Again::Reseeded) }
            }
            // It has a new generator for each epoch.
            Self::Dali { files: Files::EachEpoch { seed, generator, .. }, stick_to_shard }
                if matches!(again, Again::InPlace | Again::Reseeded) =>
            {
                Self::Dali { files: Files::EachEpoch { seed, generator, again }, stick_to_shard }
            }
            _ => self,
        }
    }

    /// Whether it is dealt to the ranks of a world.
    #[must_use]
    pub fn has_world(self) -> bool {
        self.takes("world")
    }

    pub(super) fn takes(self, key: &str) -> bool {
        KINDS.iter().any(|(name, keys)| *name == self.name() && keys.contains(&key))
    }

    /// What only this kind is told, as `:key=value` parts.
    pub(super) fn write(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flag = |f: &mut fmt::Formatter<'_>, key: &str, value: bool| if value { write!(f, ":{key}=true") } else { Ok(()) };
        match self {
            Self::TorchRandom { source, count } => {
                match source {
                    RandomSource::Default { offset, stride } => write!(f, ":generator=default:offset={offset}:stride={stride}")?,
                    RandomSource::Stream { offset, between } => write!(f, ":generator=stream:offset={offset}:between={between}")?,
                    RandomSource::Loader => f.write_str(":generator=loader")?,
                    RandomSource::Sampler | RandomSource::Reseeded | RandomSource::Built { .. } => f.write_str(":generator=sampler")?,
                }
                if let Some(num_samples) = count.num_samples {
                    write!(f, ":num_samples={num_samples}")?;
                }
                flag(f, "replacement", count.replacement)
            }
            Self::TorchSubset { offset, between } => write!(f, ":offset={offset}:between={between}"),
            Self::Torchdata { offset } => write!(f, ":offset={offset}"),
            Self::Accelerate { sampler, split_batches } => {
                match sampler {
                    AccelerateSampler::Seedable => {}
                    AccelerateSampler::Default { offset } => write!(f, ":sampler=default:offset={offset}")?,
                    AccelerateSampler::Generator => f.write_str(":sampler=generator")?,
                }
                flag(f, "split_batches", split_batches)
            }
            Self::HfTrainer { split_batches } => flag(f, "split_batches", split_batches),
            Self::TimmRepeatAug { repeats } | Self::TorchvisionRepeatAug { repeats } => write!(f, ":repeats={repeats}"),
            Self::NumpyLegacy { again } | Self::NumpyGenerator { again } | Self::PythonShuffle { again } => {
                write!(f, ":again={}", name_of(&Again::ALL, &again))
            }
            Self::PythonSample { k, again } => {
                write!(f, ":again={}", name_of(&Again::ALL, &again))?;
                k.map_or(Ok(()), |k| write!(f, ":k={k}"))
            }
            Self::Mosaic { algorithm, nodes, block, samples } => {
                let algorithm = name_of(&mosaic::Algorithm::ALL, &algorithm);
                write!(f, ":algorithm={algorithm}:nodes={nodes}:block={block}:shard_samples={samples}")
            }
            Self::Webdataset { buffer, deterministic } => {
                write!(f, ":buffer={}:initial={}:deterministic={deterministic}", buffer.size, buffer.initial)
            }
            Self::Wids { chunk, shuffle, shuffle_first } => {
                write!(f, ":chunk={chunk}:shuffle={shuffle}:shuffle_first={shuffle_first}")
            }
            Self::Dali { files: Files::EachEpoch { seed, generator, again }, .. } => {
                let (generator, again) = (name_of(&dali::Generator::ALL, &generator), name_of(&Again::ALL, &again));
                let seed = seed.cast_signed();
                write!(f, ":shuffle_after_epoch=true:shuffle_after_epoch_seed={seed}:generator={generator}:again={again}")
            }
            Self::Dali { files, stick_to_shard } => write!(f, ":shuffle={}:stick_to_shard={stick_to_shard}", files == Files::Shuffled),
            Self::Dlio { loader, change } => write!(f, ":loader={}:seed_change_epoch={change}", name_of(&Loader::ALL, &loader)),
            Self::TorchDistributed | Self::TorchRandperm | Self::Lightning | Self::Grain => Ok(()),
            Self::Sequential | Self::List | Self::Auto | Self::None => Ok(()),
        }
    }
}

impl fmt::Display for OrderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_its_kinds() {
        for (name, keys) in KINDS {
            let needed = if name == "mosaic" { vec![("shard_samples".to_owned(), "5".to_owned())] } else { Vec::new() };
            let kind = OrderKind::parse(name, &Pairs::unchecked(needed)).unwrap();
            assert_eq!(kind.name(), name);
            assert!(keys.iter().all(|key| kind.takes(key) && !COMMON.contains(key)), "{name}");
            assert!(REFUSED.iter().all(|(refused, _)| *refused != name));
        }
    }
}
