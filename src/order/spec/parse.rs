//! From a text or a table to a checked specification.
//!
//! Text: parts separated by `:`, the kind first. A part that is not `word=...` belongs to the value before it, so that
//! `files=list:/a/b` and roots with a colon need no quoting. No value may contain a comma: `mount -o` splits there; a table may.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use crate::order::spec::{OrderKind, OrderSpec, SpecError, nearest};
use crate::order::torch::RandomSource;
use crate::types::{Rank, SampleRule};

/// More processes than any job has; bounds the list of ranks to 4 MiB.
const WORLD_MAX: u32 = 1 << 20;

/// Every key, for refusals.
const KEYS: [&str; 17] = [
    "seed",
    "world",
    "rank",
    "generator",
    "offset",
    "stride",
    "root",
    "files",
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

fn refuse<T>(why: impl Display) -> Result<T, SpecError> {
    Err(SpecError(format!("order: {why}")))
}

impl OrderKind {
    pub(super) const fn has_seed(self) -> bool {
        matches!(self, Self::TorchDistributed | Self::TorchRandom | Self::TorchRandperm)
    }

    pub(crate) const fn has_world(self) -> bool {
        matches!(self, Self::TorchDistributed | Self::Sequential | Self::List)
    }

    /// Why this kind does not take a key that others take.
    fn objection(self, key: &str) -> Option<&'static str> {
        match key {
            _ if !self.is_declared() => Some("declares nothing and takes no keys"),
            "seed" if !self.has_seed() => Some("does not shuffle: leave seed out"),
            "world" | "rank" if !self.has_world() => Some("is read by one process: leave world and rank out, or declare torch-distributed"),
            "generator" | "offset" | "stride" if self != Self::TorchRandom => {
                Some("has no generator of its own: only torch-random takes this key")
            }
            _ => None,
        }
    }
}

impl FromStr for OrderKind {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        if let Some((_, kind)) = Self::ALL.iter().find(|(name, _)| *name == text) {
            return Ok(*kind);
        }
        let names = Self::ALL.map(|(name, _)| name);
        let meant = nearest(text, names).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
        refuse(format_args!("{text:?} is no kind of order: use one of {}{meant}", names.join(", ")))
    }
}

impl FromStr for OrderSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        if text.contains(',') {
            return refuse(format_args!(
                "no value may contain a comma (mount splits there) in {text:?}: join ranks with +, write paths in an [[order]] table"
            ));
        }
        let mut parts = text.split(':');
        let kind = parts.next().unwrap_or_default();
        let mut pairs: Vec<(String, String)> = Vec::new();
        let mut argument: Option<String> = None;
        for part in parts {
            match (part.split_once('='), pairs.last_mut()) {
                (Some((key, value)), _) if is_word(key) => pairs.push((key.to_owned(), value.to_owned())),
                (_, Some((_, value))) => value.extend([":", part]),
                (_, None) => match &mut argument {
                    Some(text) => text.extend([":", part]),
                    None => argument = Some(part.to_owned()),
                },
            }
        }
        checked(kind, argument.as_deref(), pairs)
    }
}

fn is_word(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// A value of a table as a text: one parser for both forms.
#[derive(Deserialize)]
#[serde(untagged, expecting = "order: a value is a text, a whole number, true or false")]
enum Scalar {
    Flag(bool),
    Number(i64),
    Text(String),
}

impl<'de> Deserialize<'de> for OrderSpec {
    /// An `[[order]]` table: `kind` and the keys of the text form. Unknown keys are refused.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut table = BTreeMap::<String, Scalar>::deserialize(deserializer)?.into_iter().map(|(key, value)| match value {
            Scalar::Flag(flag) => (key, flag.to_string()),
            Scalar::Number(number) => (key, number.to_string()),
            Scalar::Text(text) => (key, text),
        });
        let mut pairs: Vec<(String, String)> = table.by_ref().collect();
        let Some(place) = pairs.iter().position(|(key, _)| key == "kind") else {
            return Err(serde::de::Error::custom("order: a table needs a kind, e.g. kind = \"torch-distributed\""));
        };
        let (_, kind) = pairs.remove(place);
        let (kind, argument) = kind.split_once(':').map_or((kind.as_str(), None), |(kind, argument)| (kind, Some(argument)));
        checked(kind, argument, pairs).map_err(serde::de::Error::custom)
    }
}

/// Key-value pairs that are known, given once and taken by the kind.
struct Pairs(Vec<(String, String)>);

impl Pairs {
    fn check(kind: OrderKind, pairs: Vec<(String, String)>) -> Result<Self, SpecError> {
        for (place, (key, _)) in pairs.iter().enumerate() {
            if !KEYS.contains(&key.as_str()) {
                let meant =
                    nearest(key, KEYS).map_or_else(|| format!("the keys are {}", KEYS.join(", ")), |k| format!("did you mean {k}?"));
                return refuse(format_args!("unknown key {key:?}: {meant}"));
            }
            if pairs[..place].iter().any(|(earlier, _)| earlier == key) {
                return refuse(format_args!("{key} is given twice: give it once"));
            }
            if let Some(objection) = kind.objection(key) {
                return refuse(format_args!("{key}: {kind} {objection}"));
            }
        }
        Ok(Self(pairs))
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    fn number<T: TryFrom<i128>>(&self, key: &str, range: RangeInclusive<i128>) -> Result<Option<T>, SpecError> {
        let Some(text) = self.get(key) else { return Ok(None) };
        let value = text.parse::<i128>().ok().filter(|value| range.contains(value)).and_then(|value| T::try_from(value).ok());
        match value {
            Some(value) => Ok(Some(value)),
            None => refuse(format_args!("{key}={text} is not a whole number from {} to {}", range.start(), range.end())),
        }
    }

    fn flag(&self, key: &str) -> Result<bool, SpecError> {
        match self.get(key) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(text) => refuse(format_args!("{key}={text} is neither true nor false")),
        }
    }
}

const U32: RangeInclusive<i128> = 0..=u32::MAX as i128;
const U64: RangeInclusive<i128> = 0..=u64::MAX as i128;

fn checked(kind: &str, argument: Option<&str>, pairs: Vec<(String, String)>) -> Result<OrderSpec, SpecError> {
    let kind: OrderKind = kind.parse()?;
    let pairs = Pairs::check(kind, pairs)?;
    let files = files(kind, argument, &pairs)?;
    let root = root(pairs.get("root").unwrap_or_default())?;
    let (world, ranks) = ranks(&pairs)?;
    let batch = pairs.number("batch", 1..=*U32.end())?;
    // Where no DistributedSampler is at work, drop_last can only be the DataLoader's.
    let by_sampler = kind == OrderKind::TorchDistributed || world > 1;
    let drop_last = pairs.flag("drop_last")?;
    let drop_last_batch = pairs.flag("drop_last_batch")? || (drop_last && !by_sampler);
    if drop_last_batch && batch.is_none() {
        return refuse("the last, incomplete batch is to be dropped, but batch= is not given: add batch=SIZE");
    }
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
        seed: seed(kind, &pairs)?,
        source: source(&pairs)?,
        world,
        ranks,
        drop_last: drop_last && by_sampler,
        drop_last_batch,
        batch,
        workers: pairs.number("workers", U32)?,
        prefetch_factor: pairs.number("prefetch_factor", 1..=*U32.end())?,
        start: pairs.number("start", U64)?.unwrap_or(0),
        epoch: pairs.number("epoch", U64)?.unwrap_or(0),
        epochs: pairs.number("epochs", 1..=*U64.end())?,
    })
}

fn files(kind: OrderKind, argument: Option<&str>, pairs: &Pairs) -> Result<SampleRule, SpecError> {
    let given = match pairs.get("files").map(str::parse) {
        Some(Ok(rule)) => Some(rule),
        Some(Err(error)) => return refuse(format_args!("files: {error}")),
        None => None,
    };
    match (kind, argument, given) {
        (OrderKind::List, Some(path), None) if !path.is_empty() => Ok(SampleRule::List(path.into())),
        (OrderKind::List, None, Some(rule @ SampleRule::List(_))) => Ok(rule),
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

/// torch takes seeds from -2^63 to 2^64 - 1, negative ones as two's complement.
fn seed(kind: OrderKind, pairs: &Pairs) -> Result<u64, SpecError> {
    let seed = pairs.number::<i128>("seed", i128::from(i64::MIN)..=i128::from(u64::MAX))?;
    match (kind, seed) {
        (_, Some(seed)) => {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "two's complement is what torch does")]
            let seed = seed as u64;
            Ok(seed)
        }
        // DistributedSampler's own default is 0; the others follow whatever the program set.
        (OrderKind::TorchRandom | OrderKind::TorchRandperm, None) => {
            refuse(format_args!("{kind} needs seed=: the number given to torch.manual_seed; without one no epoch can be known"))
        }
        (_, None) => Ok(0),
    }
}

fn source(pairs: &Pairs) -> Result<RandomSource, SpecError> {
    let (offset, stride) = (pairs.number("offset", U64)?, pairs.number("stride", U64)?);
    let given = match pairs.get("generator") {
        None | Some("default") => {
            let (offset, stride) = (offset.unwrap_or(RandomSource::OFFSET), stride.unwrap_or(RandomSource::STRIDE));
            return Ok(RandomSource::Default { offset, stride });
        }
        Some("loader") => RandomSource::Loader,
        Some("sampler") => RandomSource::Sampler,
        Some(text) => return refuse(format_args!("generator={text} is unknown: use default, loader or sampler")),
    };
    if offset.is_some() || stride.is_some() {
        return refuse("offset and stride count outputs of the default generator: leave them out, or write generator=default");
    }
    Ok(given)
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
mod tests {
    use super::*;

    fn spec(text: &str) -> OrderSpec {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn the_example_of_the_manual() {
        let spec =
            spec("torch-distributed:seed=0:world=8:rank=0-7:root=train:files=imagefolder:batch=256:workers=8:drop_last=false:start=0");
        assert_eq!(spec.kind, OrderKind::TorchDistributed);
        assert_eq!((spec.seed, spec.world, spec.ranks.as_slice()), (0, 8, [0, 1, 2, 3, 4, 5, 6, 7].as_slice()));
        assert_eq!((spec.root.as_str(), spec.id.as_str(), &spec.files), ("train", "train", &SampleRule::ImageFolder));
        assert_eq!((spec.batch, spec.workers, spec.drop_last, spec.start), (Some(256), Some(8), false, 0));
    }

    #[test]
    fn what_is_printed_parses_to_the_same() {
        for text in [
            "auto",
            "none",
            "sequential",
            "sequential:world=4:rank=1+3:drop_last=true",
            "list:/data/a:b.txt:root=x",
            "torch-distributed",
            "torch-distributed:world=16:rank=8-11+15:seed=-1:root=/a/b/:files=list:c:epoch=3:start=5:epochs=90:id=train",
            "torch-random:seed=18446744073709551615:offset=13005:stride=6:batch=4:drop_last=true",
            "torch-random:seed=1:generator=loader:workers=0:prefetch_factor=4",
            "torch-random:seed=1:generator=sampler:files=sorted",
            "torch-randperm:seed=42:batch=7:drop_last_batch=true",
        ] {
            let first = spec(text);
            assert_eq!(spec(&first.to_string()), first, "{text} -> {first}");
        }
        assert_eq!(spec("list:/data/a:b.txt").files, SampleRule::List("/data/a:b.txt".into()));
        assert_eq!(spec("torch-distributed:world=16:rank=8-11+15").ranks_text(), "8-11+15");
        assert_eq!(spec("torch-distributed:seed=-1").seed, u64::MAX);
        assert_eq!(spec("torch-distributed:world=3").ranks, [0, 1, 2]);
    }

    #[test]
    fn drop_last_is_the_samplers_where_there_is_one() {
        let sampler = spec("torch-distributed:world=2:drop_last=true");
        assert_eq!((sampler.drop_last, sampler.drop_last_batch), (true, false));
        let loader = spec("sequential:drop_last=true:batch=4");
        assert_eq!((loader.drop_last, loader.drop_last_batch), (false, true));
    }

    /// Each refusal names the bad part and the remedy, in one line.
    #[test]
    fn bad_specifications_are_refused_by_name() {
        for (text, part, remedy) in [
            ("", "\"\"", "torch-distributed, torch-random"),
            ("torch-distribute", "\"torch-distribute\"", "did you mean torch-distributed?"),
            ("torch-distributed:seed=x", "seed=x", "whole number"),
            ("torch-distributed:seed=18446744073709551616", "seed=18446744073709551616", "18446744073709551615"),
            ("torch-distributed:world=0", "world=0", "from 1"),
            ("torch-distributed:world=8:rank=8", "rank 8", "world=8"),
            ("torch-distributed:world=8:rank=0-4294967295", "rank 4294967295", "world=8"),
            ("torch-distributed:world=8:rank=3-1", "3-1", "1-3"),
            ("torch-distributed:world=8:rank=1+1", "rank 1", "twice"),
            ("torch-distributed:world=8:rank=0-7+0-7+0-7", "rank 0", "twice"),
            ("torch-distributed:world=8:rank=", "\"\"", "0-7"),
            ("torch-distributed:world=8:rank=0,2", "comma", "+"),
            ("torch-distributed:sed=1", "\"sed\"", "did you mean seed?"),
            ("torch-distributed:colour=1", "\"colour\"", "prefetch_factor"),
            ("torch-distributed:seed=1:seed=2", "seed", "twice"),
            ("torch-distributed:seed", "\"seed\"", "key=value"),
            ("torch-distributed:batch=0", "batch=0", "from 1"),
            ("torch-distributed:drop_last=yes", "drop_last=yes", "true nor false"),
            ("torch-distributed:drop_last_batch=true", "batch", "add batch=SIZE"),
            ("torch-distributed:files=glob", "\"glob\"", "imagefolder, sorted or list:FILE"),
            ("torch-distributed:root=../x", "root=../x", "root=train"),
            ("torch-distributed:root=a//x", "root=a//x", "root=train"),
            ("torch-distributed:id=", "id=", "leave it out"),
            ("torch-distributed:generator=loader", "generator", "torch-random"),
            ("torch-random", "torch-random", "seed="),
            ("torch-random:seed=1:world=2", "world", "torch-distributed"),
            ("torch-random:seed=1:generator=me", "generator=me", "default, loader or sampler"),
            ("torch-random:seed=1:generator=loader:stride=2", "stride", "generator=default"),
            ("sequential:seed=1", "seed", "leave seed out"),
            ("list", "list", "list:FILE"),
            ("list:", "list", "list:FILE"),
            ("list:a:files=sorted", "list", "without files="),
            ("auto:root=x", "root", "no keys"),
        ] {
            let error = text.parse::<OrderSpec>().expect_err(text).to_string();
            assert!(error.contains(part) && error.contains(remedy) && !error.contains('\n'), "{text}: {error}");
        }
    }

    #[derive(Deserialize, Debug)]
    struct File {
        order: Vec<OrderSpec>,
    }

    #[test]
    fn tables_say_the_same_as_texts() {
        let file: File = toml::from_str(
            "[[order]]\nkind = 'torch-distributed'\nseed = -1\nworld = 8\nrank = '0+2'\nroot = 'a,b'\ndrop_last = true\n\
             [[order]]\nkind = 'list'\nfiles = 'list:/x'\n[[order]]\nkind = 'list:/x'\n[[order]]\nkind = 'torch-distributed'\nworld = 4\nrank = 3\n",
        )
        .unwrap();
        let mut first = spec("torch-distributed:seed=-1:world=8:rank=0+2:drop_last=true");
        (first.root, first.id) = ("a,b".to_owned(), "a,b".to_owned());
        let third = spec("torch-distributed:world=4:rank=3");
        assert_eq!(file.order, [first, spec("list:/x"), spec("list:/x"), third]);
    }

    #[test]
    fn tables_are_refused_like_texts() {
        for (table, part) in [
            ("seed = 1", "needs a kind"),
            ("kind = 'torch-distributed'\nworlds = 8", "did you mean world?"),
            ("kind = 'torch-distributed'\nworld = 8\nrank = 8", "rank 8 is not below world=8"),
            ("kind = 'torch-distributed'\nseed = 1.5", "a text, a whole number, true or false"),
        ] {
            let error = toml::from_str::<File>(&format!("[[order]]\n{table}\n")).expect_err(table).to_string();
            assert!(error.contains(part), "{table}: {error}");
        }
    }

    #[test]
    fn orders_get_names_of_their_own() {
        let mut specs = ["sequential", "sequential:id=a-2", "sequential:id=a", "sequential", "sequential:id=a", "sequential"].map(spec);
        crate::order::spec::make_ids_distinct(&mut specs);
        assert_eq!(specs.map(|spec| spec.id), ["sequential", "a-2", "a", "sequential-2", "a-3", "sequential-3"]);
    }

    #[test]
    fn a_sampler_is_made_or_refused_by_name() {
        assert_eq!(spec("torch-distributed:world=4:rank=0-1").sampler(10).unwrap().len(), 6);
        assert_eq!(spec("torch-random:seed=1:batch=4:drop_last=true").sampler(10).unwrap().len(), 8);
        for (text, n, part) in [
            ("auto", 10, "auto declares no order"),
            ("torch-distributed", 0, "check root= and files="),
            ("torch-distributed:world=8:drop_last=true", 7, "check world="),
            ("sequential:start=11", 10, "start=11"),
        ] {
            let error = spec(text).sampler(n).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
