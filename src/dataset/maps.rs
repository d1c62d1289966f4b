//! Candidate maps: the numberings of files that the first opens leave open, to be tried against the same opens. A map is confirmed by an
//! order found in it, never assumed.
//!
//! [`Maps`] hands them out best first and computes each only when it is asked for: it looks at every file below the root, and takes 4 to 8
//! bytes a sample. Two rules that give the same numbering are one map. Their number and their memory are bounded ([`MAPS_MAX`], [`MAPS_BYTES_MAX`]).
//!
//! Which roots and rules, and in which sequence: `roots`. Source: field notes «orders» §3.

use std::collections::VecDeque;
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use crate::dataset::names::columns;
use crate::dataset::samples::samples;
use crate::dataset::{Manifest, Node};
use crate::types::rule::NameFormat;
use crate::types::{FileIndex, SampleIndex, SampleRule};

mod roots;

/// Maps handed out at most. A search tries several at 2 % of its cost each.
pub const MAPS_MAX: usize = 16;
/// Bytes of all maps handed out at most: with 14 M files four maps, with 1.28 M all of them.
pub const MAPS_BYTES_MAX: usize = 512 << 20;
/// Numberings computed at most: those beyond [`MAPS_MAX`] gave one that was there already, or did not have the opens.
const TRIES_MAX: usize = 64;
/// Opens looked at: enough for every rule below, however many are given.
const OPENS_MAX: usize = 4096;
/// A map has at least this share (in percent) of the opens below its root; the others are labels, checks, another program's.
const OPENS_WITHIN_PERCENT: usize = 50;
/// The same of a column of a text: train and val may be read in turns, each named by one.
const OPENS_NAMED_PERCENT: usize = 15;
/// Columns of one text tried, the first included.
const COLUMNS_MAX: usize = 4;

/// A text that a reader read before its first sample, and that may name the samples.
#[derive(Clone, Debug)]
pub struct NamesText {
    /// The file of the mount it was read from.
    pub file: FileIndex,
    /// All of it.
    pub text: Arc<str>,
}

/// Whether a file may be a [`NamesText`]: by its ending. What to keep the text of.
#[must_use]
pub fn may_name_samples(path: &str) -> bool {
    const ENDINGS: [&str; 6] = [".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson"];
    let path = path.to_ascii_lowercase();
    ENDINGS.iter().any(|ending| path.ends_with(ending))
}

/// One numbering.
#[derive(Clone, Debug)]
pub struct CandidateMap {
    /// The dataset's directory below the mount point.
    pub root: String,
    pub rule: SampleRule,
    /// File of each sample.
    pub samples: Arc<[FileIndex]>,
    index: Index,
}

/// File → sample.
#[derive(Clone, Debug)]
enum Index {
    /// The files of the samples follow each other in the manifest, from this one on.
    Run(u32),
    /// Sample + 1 of each file from the first one on; 0: none.
    Dense(u32, Arc<[u32]>),
    /// (file, sample), rising: few samples among many files.
    Sparse(Arc<[(FileIndex, SampleIndex)]>),
}

impl CandidateMap {
    /// The map of these samples.
    #[must_use]
    pub fn new(root: impl Into<String>, rule: SampleRule, samples: impl Into<Arc<[FileIndex]>>) -> Self {
        let samples = samples.into();
        let index = Index::of(&samples);
        Self { root: root.into(), rule, samples, index }
    }

    /// Number of samples.
    #[must_use]
    pub fn len(&self) -> u32 {
        u32::try_from(self.samples.len()).unwrap_or(u32::MAX)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// The sample that is this file; the first one where there are several.
    #[must_use]
    pub fn index_of(&self, file: FileIndex) -> Option<SampleIndex> {
        match &self.index {
            Index::Run(first) => file.0.checked_sub(*first).filter(|sample| *sample < self.len()),
            Index::Dense(first, samples) => samples.get(file.0.checked_sub(*first)? as usize)?.checked_sub(1),
            Index::Sparse(pairs) => {
                let place = pairs.partition_point(|pair| pair.0 < file);
                pairs.get(place).filter(|pair| pair.0 == file).map(|pair| pair.1)
            }
        }
    }

    /// Opens as (stream, sample); those of files that are no samples are left out.
    #[must_use]
    pub fn sight(&self, opens: &[(u32, FileIndex)]) -> Vec<(u32, SampleIndex)> {
        opens.iter().filter_map(|&(stream, file)| Some((stream, self.index_of(file)?))).collect()
    }

    /// Hash of the numbering: the same for two rules that number alike.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hash = Xxh3::new();
        let mut bytes = [0; 4096];
        for part in self.samples.chunks(bytes.len() / 4) {
            for (place, file) in bytes.chunks_exact_mut(4).zip(part) {
                place.copy_from_slice(&file.0.to_le_bytes());
            }
            hash.update(&bytes[..part.len() * 4]);
        }
        hash.digest()
    }

    /// Bytes that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let index = match &self.index {
            Index::Run(_) => 0,
            Index::Dense(_, samples) => samples.len() * 4,
            Index::Sparse(pairs) => pairs.len() * 8,
        };
        self.samples.len() * 4 + index
    }
}

impl Index {
    fn of(samples: &[FileIndex]) -> Self {
        let (Some(least), Some(most)) = (samples.iter().min(), samples.iter().max()) else { return Self::Run(0) };
        let numbered = || (0..).zip(samples);
        if numbered().all(|(sample, file): (u32, _)| file.0.checked_sub(least.0) == Some(sample)) {
            return Self::Run(least.0);
        }
        let span = (most.0 - least.0) as usize + 1;
        if span / 2 > samples.len() {
            let mut pairs: Vec<(FileIndex, SampleIndex)> = numbered().map(|(sample, file)| (*file, sample)).collect();
            pairs.sort_unstable();
            pairs.dedup_by_key(|pair| pair.0);
            return Self::Sparse(pairs.into());
        }
        let mut of = vec![0; span];
        for (sample, file) in numbered() {
            let place = &mut of[(file.0 - least.0) as usize];
            if *place == 0 {
                *place = sample + 1;
            }
        }
        Self::Dense(least.0, of.into())
    }
}

/// The candidate maps, best first.
#[derive(Debug)]
pub struct Maps {
    manifest: Arc<Manifest>,
    opened: Vec<FileIndex>,
    texts: Vec<NamesText>,
    pending: VecDeque<(String, SampleRule)>,
    seen: Vec<u64>,
    bytes: usize,
    bytes_max: usize,
}

impl Maps {
    /// The maps for these first opens, in the order they came, and the texts that were read just before them, in the same order.
    #[must_use]
    pub fn new(manifest: &Arc<Manifest>, opens: &[FileIndex], texts: &[NamesText]) -> Self {
        let opened = opened(opens, texts);
        let pending = roots::rules(manifest, &opened, texts).into_iter().take(TRIES_MAX).collect();
        let manifest = Arc::clone(manifest);
        Self { manifest, opened, texts: texts.to_vec(), pending, seen: Vec::new(), bytes: 0, bytes_max: MAPS_BYTES_MAX }
    }

    /// The same with another bound of their memory; one map is given in any case.
    #[must_use]
    pub const fn within(mut self, bytes_max: usize) -> Self {
        self.bytes_max = bytes_max;
        self
    }

    /// Whether these opens give the same rules, in the same sequence, with the same texts.
    #[must_use]
    pub fn suits(&self, opens: &[FileIndex]) -> bool {
        roots::signature(&self.manifest, &opened(opens, &self.texts)) == roots::signature(&self.manifest, &self.opened)
    }

    /// What is left to try, without computing it.
    pub fn pending(&self) -> impl Iterator<Item = (&str, &SampleRule)> {
        self.pending.iter().map(|(root, rule)| (root.as_str(), rule))
    }

    /// The text that a rule needs.
    fn text(&self, rule: &SampleRule) -> Option<&str> {
        let wanted = rule.names()?.in_mount()?;
        self.texts.iter().find(|text| self.manifest.path(text.file) == wanted).map(|text| &*text.text)
    }

    /// Other columns of the text that name files which were opened: rules of their own, to be tried next.
    fn other_columns(&self, root: &str, rule: &SampleRule) -> Vec<(String, SampleRule)> {
        let (SampleRule::Names(NameFormat::Manifest, file), Some(text)) = (rule, self.text(rule)) else { return Vec::new() };
        let columns = columns(&self.manifest, root, &file.to_string(), text).unwrap_or_default();
        let opened: std::collections::HashSet<FileIndex> = self.opened.iter().copied().collect();
        let others = columns.into_iter().take(COLUMNS_MAX).skip(1).filter(|(_, files)| files.iter().any(|file| opened.contains(file)));
        let rule = |name: &str| Some(SampleRule::Names(NameFormat::column(name)?, file.clone()));
        others.filter_map(|(name, _)| Some((root.to_owned(), rule(&name)?))).collect()
    }

    fn compute(&self, root: &str, rule: &SampleRule) -> Option<CandidateMap> {
        let text = self.text(rule);
        let files = samples(&self.manifest, root, rule, text).ok().filter(|files| files.len() > 1)?;
        let map = CandidateMap::new(root, rule.clone(), files);
        let (mut below, mut within) = (0, 0);
        for &file in &self.opened {
            below += usize::from(is_below(self.manifest.path(file), root));
            within += usize::from(map.index_of(file).is_some());
        }
        let percent = if rule.names().is_some() { OPENS_NAMED_PERCENT } else { OPENS_WITHIN_PERCENT };
        (within > 0 && within * 100 >= below * percent).then_some(map)
    }
}

impl Iterator for Maps {
    type Item = CandidateMap;

    fn next(&mut self) -> Option<CandidateMap> {
        if self.seen.len() >= MAPS_MAX {
            return None;
        }
        while let Some((root, rule)) = self.pending.pop_front() {
            let map = self.compute(&root, &rule);
            for other in self.other_columns(&root, &rule).into_iter().rev() {
                self.pending.push_front(other);
            }
            let Some(map) = map else { continue };
            let fingerprint = map.fingerprint();
            if self.seen.contains(&fingerprint) {
                continue;
            }
            if !self.seen.is_empty() && self.bytes + map.bytes() > self.bytes_max {
                return None;
            }
            self.bytes += map.bytes();
            self.seen.push(fingerprint);
            return Some(map);
        }
        None
    }
}

/// Each file once, without the texts.
fn opened(opens: &[FileIndex], texts: &[NamesText]) -> Vec<FileIndex> {
    let mut known = std::collections::HashSet::new();
    let is_text = |file: &FileIndex| texts.iter().any(|text| text.file == *file);
    opens.iter().take(OPENS_MAX).copied().filter(|file| !is_text(file) && known.insert(*file)).collect()
}

/// Whether a path is below a directory.
fn is_below(path: &str, dir: &str) -> bool {
    dir.is_empty() || path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

/// The directory of a file.
fn directory(manifest: &Manifest, file: FileIndex) -> crate::dataset::DirIndex {
    let dir = manifest.path(file).rsplit_once('/').map_or("", |(dir, _)| dir);
    match manifest.find(dir) {
        Some(Node::Dir(dir)) => dir,
        _ => crate::dataset::DirIndex::ROOT,
    }
}

#[cfg(test)]
mod tests;
