//! Which roots and rules the first opens suggest, best first. Cheap but for one look at the names below the root.

use std::collections::HashMap;

use super::{NamesText, directory};
use crate::dataset::naming::name_of;
use crate::dataset::sequence::is_image;
use crate::dataset::{DirIndex, Manifest};
use crate::types::rule::{Extensions, NameFile, NameFormat, Sequence};
use crate::types::{FileIndex, SampleRule};

/// The root is the deepest directory with this share of the opens: the others are another program's, or checks.
const COMMON_PERCENT: usize = 90;
/// A subdirectory with this share of the opens may be a dataset of its own (train and val read in turns).
const PART_PERCENT: usize = 15;
/// Subdirectories that are datasets of their own at most; more are classes.
const PARTS_MAX: usize = 4;
/// Files come in pairs when this share of them has a partner of the same stem among the opens.
const PAIRED_PERCENT: usize = 60;
/// ... and one kind is the first of the two in this share of them: two classes with the same names take turns.
const FIRST_PERCENT: usize = 90;
/// Directories above the first root that are tried: deeper datasets are read by rules that name their root.
const PARENTS_MAX: usize = 4;
/// Endings of one dataset at most; more are no endings but parts of names.
const ENDINGS_MAX: usize = 16;
/// Texts that may name the samples at most, the last ones read.
const TEXTS_MAX: usize = 4;

/// (root, rule), best first, each once.
pub(super) fn rules(manifest: &Manifest, opened: &[FileIndex], texts: &[NamesText]) -> Vec<(String, SampleRule)> {
    let mut rules = Rules { manifest, all: Vec::new() };
    if opened.is_empty() {
        return rules.all;
    }
    // Labels and masks beside images: the primary kind is what the dataset is ordered by.
    let primary = primary_kind(manifest, opened);
    let opened = primary.as_deref().unwrap_or(opened);
    let root = common_root(manifest, opened);
    let above = parents(manifest, root);
    for text in texts.iter().rev().take(TEXTS_MAX) {
        rules.named(text, root, &above);
    }
    let (splits, others): (Vec<DirIndex>, _) = parts(manifest, opened, root).into_iter().partition(|dir| is_split(manifest.dir_path(*dir)));
    let roots: Vec<DirIndex> = std::iter::once(root).chain(splits).chain(above.first().copied()).chain(others).collect();
    // Looking at the names below a root is what costs: once for each.
    let roots: Vec<(DirIndex, Endings)> = roots.into_iter().map(|root| (root, Endings::of(manifest, root, opened))).collect();
    // A directory with nothing else below it than the root numbers files as that does, but for its classes.
    let files = |dir: DirIndex| manifest.files_below(dir).count();
    let is_same = |dir: DirIndex| above.first() == Some(&dir) && files(dir) == files(root);
    for (root, endings) in &roots {
        let root = *root;
        if !endings.of_images {
            rules.add(root, SampleRule::DatasetFolder(endings.seen.clone()));
        } else if primary.is_none() || endings.all_images == endings.seen {
            rules.add(root, SampleRule::ImageFolder);
        }
        if is_same(root) {
            continue;
        }
        for sequence in [Sequence::Sorted, Sequence::Components, Sequence::Walk] {
            rules.add(root, SampleRule::Files(sequence, endings.best(primary.is_some()).clone()));
        }
    }
    for (root, endings) in roots.iter().filter(|(root, _)| !is_same(*root)) {
        let root = *root;
        for sequence in [Sequence::Natural, Sequence::Basename, Sequence::Stem, Sequence::Glob] {
            rules.add(root, SampleRule::Files(sequence, endings.best(primary.is_some()).clone()));
        }
        for extensions in [endings.seen.clone(), Extensions::ALL] {
            for sequence in [Sequence::Sorted, Sequence::Components, Sequence::Walk] {
                rules.add(root, SampleRule::Files(sequence, extensions.clone()));
            }
        }
    }
    for &root in above.iter().skip(1) {
        let endings = Endings::of(manifest, root, opened);
        rules.add(root, SampleRule::ImageFolder);
        rules.add(root, SampleRule::Files(Sequence::Sorted, endings.best(primary.is_some()).clone()));
    }
    rules.all
}

/// What the rules depend on, but for the texts: two sets of opens with the same have the same rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signature {
    root: DirIndex,
    parts: Vec<DirIndex>,
    endings: Extensions,
    paired: bool,
}

pub(super) fn signature(manifest: &Manifest, opened: &[FileIndex]) -> Signature {
    let primary = primary_kind(manifest, opened);
    let opened = primary.as_deref().unwrap_or(opened);
    let root = common_root(manifest, opened);
    let mut parts = parts(manifest, opened, root);
    parts.sort_unstable();
    Signature { root, parts, endings: extensions(opened.iter().map(|file| name_of(manifest.path(*file)))), paired: primary.is_some() }
}

struct Rules<'m> {
    manifest: &'m Manifest,
    all: Vec<(String, SampleRule)>,
}

impl Rules<'_> {
    fn add(&mut self, root: DirIndex, rule: SampleRule) {
        if matches!(&rule, SampleRule::DatasetFolder(extensions) if extensions.is_all()) {
            return;
        }
        let one = (self.manifest.dir_path(root).to_owned(), rule);
        if !self.all.contains(&one) {
            self.all.push(one);
        }
    }

    /// A text that was read: below the root, its own directory and the mount's top.
    fn named(&mut self, text: &NamesText, root: DirIndex, above: &[DirIndex]) {
        let file = || NameFile::Mount(self.manifest.path(text.file).to_owned());
        let is_coco = text.text.contains("\"images\"") && text.text.contains("\"file_name\"");
        let formats: &[NameFormat] = if is_coco { &[NameFormat::Coco, NameFormat::CocoAnnotated] } else { &[NameFormat::Manifest] };
        let rules: Vec<SampleRule> = formats.iter().map(|format| SampleRule::Names(format.clone(), file())).collect();
        let own = directory(self.manifest, text.file);
        for root in [root, own].into_iter().chain(above.first().copied()).chain([DirIndex::ROOT]) {
            for rule in &rules {
                self.add(root, rule.clone());
            }
        }
    }
}

/// The endings of what is read and of what lies there.
struct Endings {
    /// Of the files opened.
    seen: Extensions,
    /// Of all images below the root, as written there; where what is read is no image, that of what is read.
    all_images: Extensions,
    of_images: bool,
}

impl Endings {
    fn of(manifest: &Manifest, root: DirIndex, opened: &[FileIndex]) -> Self {
        let root_path = manifest.dir_path(root);
        let names = opened.iter().map(|file| manifest.path(*file)).filter(|path| super::is_below(path, root_path)).map(name_of);
        let seen = extensions(names.clone());
        let of_images = names.clone().filter(|name| is_image(name)).count() * 2 > names.count();
        let images = || manifest.files_below(root).map(|file| name_of(manifest.path(file))).filter(|name| is_image(name));
        let all_images = if of_images { extensions(images()) } else { seen.clone() };
        Self { seen, all_images, of_images }
    }

    const fn best(&self, paired: bool) -> &Extensions {
        if paired { &self.seen } else { &self.all_images }
    }
}

/// The last endings of names; every file when there are too many of them, or none.
fn extensions<'a>(names: impl Iterator<Item = &'a str>) -> Extensions {
    let mut endings: Vec<&str> = Vec::new();
    for name in names {
        let Some((_, ending)) = name.rsplit_once('.') else { return Extensions::ALL };
        if !endings.contains(&ending) {
            endings.push(ending);
        }
        if endings.len() > ENDINGS_MAX {
            return Extensions::ALL;
        }
    }
    Extensions::new(endings).unwrap_or_default()
}

/// The deepest directory with most of the opens below it.
fn common_root(manifest: &Manifest, opened: &[FileIndex]) -> DirIndex {
    let mut below: HashMap<DirIndex, usize> = HashMap::new();
    for &file in opened {
        let mut dir = directory(manifest, file);
        loop {
            *below.entry(dir).or_default() += 1;
            if dir == DirIndex::ROOT {
                break;
            }
            dir = manifest.parent(dir);
        }
    }
    let most = below.into_iter().filter(|(_, count)| count * 100 >= opened.len() * COMMON_PERCENT).map(|(dir, _)| dir);
    most.max_by_key(|dir| manifest.dir_path(*dir).len()).unwrap_or(DirIndex::ROOT)
}

fn parents(manifest: &Manifest, root: DirIndex) -> Vec<DirIndex> {
    let mut all = Vec::new();
    let mut dir = root;
    while dir != DirIndex::ROOT && all.len() < PARENTS_MAX {
        dir = manifest.parent(dir);
        all.push(dir);
    }
    all
}

/// Subdirectories that share the opens among a few of them: train and val.
fn parts(manifest: &Manifest, opened: &[FileIndex], root: DirIndex) -> Vec<DirIndex> {
    let mut counts: Vec<(DirIndex, usize)> = Vec::new();
    for &file in opened {
        let mut dir = directory(manifest, file);
        while dir != DirIndex::ROOT && manifest.parent(dir) != root {
            dir = manifest.parent(dir);
        }
        if dir == DirIndex::ROOT || dir == root {
            continue;
        }
        match counts.iter_mut().find(|(known, _)| *known == dir) {
            Some((_, count)) => *count += 1,
            None => counts.push((dir, 1)),
        }
    }
    counts.retain(|(_, count)| count * 100 >= opened.len() * PART_PERCENT);
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    if (2..=PARTS_MAX).contains(&counts.len()) { counts.into_iter().map(|(dir, _)| dir).collect() } else { Vec::new() }
}

/// Whether a directory has the name of a dataset's part.
fn is_split(path: &str) -> bool {
    const NAMES: [&str; 5] = ["train", "val", "test", "eval", "dev"];
    let name = name_of(path).to_ascii_lowercase();
    NAMES.iter().any(|known| name.starts_with(known))
}

/// The kind of a file: its directory's first difference from the others is what tells `images/` from `labels/`, its ending `jpg` from `txt`.
type Kind<'m> = (&'m str, &'m str);

/// Where files come in pairs of one stem (image and label), those of the kind that is opened first. `None`: they do not.
fn primary_kind(manifest: &Manifest, opened: &[FileIndex]) -> Option<Vec<FileIndex>> {
    let root = manifest.dir_path(common_root(manifest, opened));
    let kind = |file: FileIndex| -> (Kind<'_>, &str) {
        let path = manifest.path(file);
        let name = name_of(path);
        let (stem, ending) = name.rsplit_once('.').unwrap_or((name, ""));
        let below = path.get(root.len()..).unwrap_or(path).trim_start_matches('/');
        let dir = below.split_once('/').map_or("", |(dir, _)| dir);
        ((dir, ending), stem)
    };
    let mut by_stem: HashMap<&str, Vec<Kind<'_>>> = HashMap::new();
    for &file in opened {
        let (kind, stem) = kind(file);
        by_stem.entry(stem).or_default().push(kind);
    }
    let mut firsts: HashMap<Kind<'_>, usize> = HashMap::new();
    let mut paired = 0;
    for kinds in by_stem.values().filter(|kinds| kinds.len() > 1) {
        // `1.jpg` in every class directory is no pair: there the kinds differ in many ways.
        paired += kinds.len();
        *firsts.entry(kinds[0]).or_default() += 1;
    }
    if paired * 100 < opened.len() * PAIRED_PERCENT {
        return None;
    }
    let pairs: usize = firsts.values().sum();
    let (first, count) = firsts.into_iter().max_by_key(|(kind, count)| (*count, std::cmp::Reverse(*kind)))?;
    if count * 100 < pairs * FIRST_PERCENT {
        return None;
    }
    Some(opened.iter().copied().filter(|file| kind(*file).0 == first).collect())
}
