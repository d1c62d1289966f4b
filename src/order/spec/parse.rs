//! From keys and values to a checked specification.

use crate::order::again::Again;
use crate::order::shard::Tail;
use crate::order::spec::pairs::{EPOCHS, Pairs, U32, U64, refuse};
use crate::order::spec::{OrderKind, OrderSpec, SpecError, kind};
use crate::order::subset::{By, Parts, SplitSeed, Subset};
use crate::types::rule::{NameFile, NameFormat};
use crate::types::{Rank, SampleRule};

/// More processes than any job has; bounds the list of ranks to 4 MiB.
const WORLD_MAX: u32 = 1 << 20;

pub(super) fn checked(name: &str, argument: Option<&str>, pairs: Vec<(String, String)>) -> Result<OrderSpec, SpecError> {
    let (name, keys) = kind::find(name)?;
    let pairs = Pairs::check(name, keys, pairs)?;
    let kind = OrderKind::parse(name, &pairs)?;
    let files = files(kind, argument, &pairs)?;
    let root = root(pairs.get("root").unwrap_or_default())?;
    let (world, ranks) = ranks(&pairs)?;
    let batch = pairs.number("batch", 1..=*U32.end())?;
    let (tail, drop_last_batch) = tail(kind, world, &pairs)?;
    let by_batches = matches!(kind, OrderKind::Accelerate { .. } | OrderKind::HfTrainer { .. });
    match batch {
        None if drop_last_batch => {
            return refuse("the last, incomplete batch is to be dropped, but batch= is not given: add batch=SIZE");
        }
        None if by_batches && world > 1 => return refuse(format_args!("{kind} deals whole batches to its processes: add batch=SIZE")),
        Some(batch) if splits_batches(kind) && batch % world != 0 => {
            return refuse(format_args!(
                "split_batches cuts each batch in {world} pieces: batch={batch} must be a multiple of world={world}"
            ));
        }
        _ => {}
    }
    let seed_text = seed_text(kind, &pairs)?;
    let seed = if seed_text.is_some() { 0 } else { seed(kind, &pairs)? };
    let id = match pairs.get("id") {
        Some("") => return refuse("id= is empty: give a name, or leave it out"),
        Some(id) => id.to_owned(),
        None if root.is_empty() => kind.to_string(),
        None => root.clone(),
    };
    Ok(OrderSpec {
        id,
        kind,
        root,
        files,
        subset: subset(kind, &pairs)?,
        seed,
        seed_text,
        world,
        ranks,
        tail,
        drop_last_batch,
        batch,
        workers: pairs.number("workers", U32)?,
        prefetch_factor: pairs.number("prefetch_factor", 1..=*U32.end())?,
        start: pairs.number("start", U64)?.unwrap_or(0),
        epoch: pairs.number("epoch", EPOCHS)?.unwrap_or(0),
        epochs: pairs.number("epochs", 1..=*U64.end())?,
    })
}

pub(super) const fn splits_batches(kind: OrderKind) -> bool {
    matches!(kind, OrderKind::Accelerate { split_batches: true, .. } | OrderKind::HfTrainer { split_batches: true })
}

/// What a kind does with what does not go evenly into its ranks, unless the user says.
pub(super) const fn usual_tail(kind: OrderKind) -> Tail {
    match kind {
        // A slice indices[rank::world]: nobody pads it.
        OrderKind::NumpyLegacy { .. } | OrderKind::NumpyGenerator { .. } | OrderKind::Grain => Tail::Uneven,
        OrderKind::PythonShuffle { .. } | OrderKind::PythonSample { .. } | OrderKind::Wids { .. } | OrderKind::Dlio { .. } => Tail::Uneven,
        _ => Tail::Pad,
    }
}

/// What the ranks do at the end, and whether each leaves off its last batch.
fn tail(kind: OrderKind, world: u32, pairs: &Pairs) -> Result<(Tail, bool), SpecError> {
    // Where nothing deals to ranks, or deals whole parts, drop_last can only be the DataLoader's.
    let by_sampler = match kind {
        OrderKind::TorchDistributed | OrderKind::Lightning => true,
        _ => world > 1 && kind.takes("tail"),
    };
    let drop_last = pairs.flag("drop_last")?;
    let said = pairs.word("tail", &Tail::ALL)?;
    if drop_last && by_sampler && said.is_some_and(|tail| tail != Tail::Drop) {
        return refuse("drop_last=true and tail= contradict each other: give one of them");
    }
    let tail = if drop_last && by_sampler { Tail::Drop } else { said.unwrap_or(usual_tail(kind)) };
    Ok((tail, pairs.flag("drop_last_batch")? || (drop_last && !by_sampler)))
}

/// Which samples of the dataset the loader has.
fn subset(kind: OrderKind, pairs: &Pairs) -> Result<Option<Subset>, SpecError> {
    if let Some(text) = pairs.get("indices") {
        if pairs.get("split").is_some() {
            return refuse("indices and split both choose samples: give one of them");
        }
        let (range, step) = text.split_once('/').unwrap_or((text, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (Ok(first), Ok(last), Ok(step)) = (first.parse(), last.parse(), step.parse::<u32>()) else {
            return refuse(format_args!("indices={text} is no range: write 0-899, or 0-998/2 for every second one"));
        };
        if first > last || step == 0 {
            return refuse(format_args!("indices={text} is empty or runs backwards: write FIRST-LAST or FIRST-LAST/STEP"));
        }
        return Ok(Some(Subset::Range { first, last, step }));
    }
    let Some(text) = pairs.get("split") else {
        return match ["part", "split_seed", "split_by"].into_iter().find(|key| pairs.get(key).is_some()) {
            Some(key) => refuse(format_args!("{key} belongs to a split: add split=, e.g. split=0.8+0.2")),
            None => Ok(None),
        };
    };
    let parts = parts(text)?;
    let Some(part) = pairs.number("part", 0..=i128::from(u32::MAX))? else {
        return refuse("split= makes several parts: add part=, 0 for the first");
    };
    if part >= parts.len() {
        return refuse(format_args!("part={part}: split={text} has the parts 0 to {}", parts.len() - 1));
    }
    let by = pairs.word("split_by", &By::ALL)?.unwrap_or_default();
    let most = if by == By::NumpyLegacy { i128::from(u32::MAX) } else { i128::from(u64::MAX) };
    let seed = match pairs.number("split_seed", 0..=most)? {
        Some(seed) => SplitSeed::Own(seed),
        None if by == By::Listing => SplitSeed::Own(0),
        None if by == By::Torch && draws_from_default(kind) => SplitSeed::Default,
        None => return refuse("the split is shuffled by a generator of its own: add split_seed="),
    };
    Ok(Some(Subset::Split { by, seed, parts, part }))
}

/// Whether the order's seed is that of torch's default generator, which `random_split` draws from, too.
const fn draws_from_default(kind: OrderKind) -> bool {
    matches!(kind, OrderKind::TorchRandom { .. } | OrderKind::TorchSubset { .. } | OrderKind::Torchdata { .. })
}

fn parts(text: &str) -> Result<Parts, SpecError> {
    let parts: Vec<&str> = text.split('+').collect();
    if let Ok(counts) = parts.iter().map(|part| part.parse::<u32>()).collect() {
        return Ok(Parts::Counts(counts));
    }
    let plain = |part: &&str| part.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let fractions: Option<Vec<f64>> = parts.iter().map(|part| Some(part).filter(|part| plain(part))?.parse().ok()).collect();
    match fractions {
        // What torch allows for rounding.
        Some(fractions) if (fractions.iter().sum::<f64>() - 1.0).abs() < 1e-9 => Ok(Parts::Fractions(fractions)),
        _ => refuse(format_args!("split={text}: write numbers of samples, 900+100, or fractions that make 1, 0.9+0.1")),
    }
}

fn files(kind: OrderKind, argument: Option<&str>, pairs: &Pairs) -> Result<SampleRule, SpecError> {
    let given = match pairs.get("files").map(str::parse) {
        Some(Ok(rule)) => Some(rule),
        Some(Err(error)) => return refuse(format_args!("files: {error}")),
        None => None,
    };
    match (kind, argument, given) {
        (OrderKind::List, Some(path), None) if !path.is_empty() => Ok(SampleRule::Names(NameFormat::List, NameFile::from(path))),
        (OrderKind::List, None, Some(rule @ SampleRule::Names(..))) => Ok(rule),
        (OrderKind::List, Some(_), Some(_)) => refuse("list names its file twice: write list:FILE without files="),
        (OrderKind::List, _, _) => refuse("list needs its file: write list:FILE"),
        (_, Some(argument), _) => refuse(format_args!("{argument:?} after {kind} is not key=value: write e.g. {kind}:seed=0")),
        (_, None, given) => Ok(given.unwrap_or_default()),
    }
}

fn root(text: &str) -> Result<String, SpecError> {
    let root = text.trim_matches('/');
    if !root.is_empty() && root.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return refuse(format_args!("root={text} is not a plain path below the mount point: write e.g. root=train"));
    }
    Ok(root.to_owned())
}

/// How a kind takes its seed: the least, the greatest, and what it is where it is not given (`None`: it must be).
const fn seed_rule(kind: OrderKind) -> (i128, i128, Option<u64>) {
    // torch takes seeds from -2^63 to 2^64 - 1, negative ones as two's complement.
    let (least, most) = match kind {
        // A seed plus epoch must stay below 2^32, or numpy refuses it.
        OrderKind::NumpyLegacy { .. } | OrderKind::Dlio { .. } | OrderKind::Grain => (0, u32::MAX as i128),
        OrderKind::NumpyGenerator { .. } | OrderKind::PythonShuffle { .. } | OrderKind::PythonSample { .. } => (0, u64::MAX as i128),
        OrderKind::Mosaic { .. } | OrderKind::Webdataset { .. } | OrderKind::Wids { .. } => (0, u64::MAX as i128),
        _ => (i64::MIN as i128, u64::MAX as i128),
    };
    let usual = match kind {
        OrderKind::HfTrainer { .. } => Some(42),
        OrderKind::Mosaic { .. } => Some(crate::order::mosaic::Config::SEED),
        OrderKind::Dlio { .. } => Some(123),
        OrderKind::TorchRandom { .. } | OrderKind::TorchRandperm | OrderKind::TorchSubset { .. } | OrderKind::Torchdata { .. } => None,
        OrderKind::Accelerate { .. } | OrderKind::NumpyLegacy { .. } | OrderKind::NumpyGenerator { .. } => None,
        OrderKind::PythonShuffle { .. } | OrderKind::PythonSample { .. } | OrderKind::Webdataset { .. } | OrderKind::Grain => None,
        // DistributedSampler's own default, and that of wids and the reference scripts; some have no seed at all.
        _ => Some(0),
    };
    (least, most, usual)
}

fn seed(kind: OrderKind, pairs: &Pairs) -> Result<u64, SpecError> {
    let (least, most, usual) = seed_rule(kind);
    match (pairs.number::<i128>("seed", least..=most)?, usual) {
        (Some(seed), _) => {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "two's complement is what torch does")]
            let seed = seed as u64;
            Ok(seed)
        }
        (None, Some(usual)) => Ok(usual),
        (None, None) => {
            refuse(format_args!("{kind} needs seed=: the number its generator was seeded with; without one no epoch can be known"))
        }
    }
}

/// A seed that is a text: Python's generator takes one, and an environment variable is one.
fn seed_text(kind: OrderKind, pairs: &Pairs) -> Result<Option<Box<str>>, SpecError> {
    let Some(text) = pairs.get("seed_text") else { return Ok(None) };
    if pairs.get("seed").is_some() {
        return refuse("seed and seed_text both seed the generator: give one of them");
    }
    if kind.again() == Some(Again::Reseeded) {
        return refuse("seed_text is no number that epochs could be added to: give seed=, or leave deterministic and again=reseeded out");
    }
    Ok(Some(text.into()))
}

/// World and local ranks. A node that says nothing of its ranks has all of them.
fn ranks(pairs: &Pairs) -> Result<(u32, Vec<Rank>), SpecError> {
    let world: u32 = pairs.number("world", 1..=i128::from(WORLD_MAX))?.unwrap_or(1);
    let Some(text) = pairs.get("rank") else { return Ok((world, (0..world).collect())) };
    let mut ranks = Vec::new();
    for part in text.split('+') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.parse::<Rank>(), last.parse::<Rank>()) else {
            return refuse(format_args!("rank={text}: {part:?} is not a rank: write 3, 0-7 or 0+2+5"));
        };
        if first > last {
            return refuse(format_args!("rank={text}: {part} runs backwards: write {last}-{first}"));
        }
        if last >= world {
            return refuse(format_args!("rank={text}: rank {last} is not below world={world}: ranks are 0 to {}", world - 1));
        }
        ranks.extend(first..=last);
        if ranks.len() > world as usize {
            break; // A rank is there twice: said below, before the list grows without bound.
        }
    }
    ranks.sort_unstable();
    if let Some(twice) = ranks.windows(2).find(|pair| pair[0] == pair[1]) {
        return refuse(format_args!("rank={text}: rank {} is given twice", twice[0]));
    }
    Ok((world, ranks))
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
