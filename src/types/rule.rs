//! Sample rules: which files below a root are the samples, and in which sequence a dataset class numbers them. What `files=` says.
//!
//! Every rule prints a text that parses to it. No rule's text has a comma (mount splits there).
//!
//! Not here: finding the files (`dataset::samples`), guessing the rule (`dataset::maps`).

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Which files are the samples, and how they are numbered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum SampleRule {
    /// torchvision's `ImageFolder`: class directories, images only.
    #[default]
    ImageFolder,
    /// torchvision's `DatasetFolder(extensions=...)`: the same with other extensions, without regard to case.
    DatasetFolder(Extensions),
    /// Every file below the root with one of the extensions, case counting.
    Files(Sequence, Extensions),
    /// A text names them.
    Names(NameFormat, NameFile),
}

/// In which sequence a program that lists the files itself has them. Python 3.11 on this mount; names compare by code point, which is the
/// byte order of UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sequence {
    /// `sorted` of path strings: `sorted(os.path.join(d, f) for d, _, fs in os.walk(root) for f in fs)`. The bucket's own order.
    Sorted,
    /// The same without what begins with a dot: `sorted(glob.glob(root + "/**", recursive=True))`.
    Glob,
    /// `sorted(Path(root).rglob("*"))`: component by component. Also `glob("/**")` not sorted.
    Components,
    /// Not sorted: `os.walk`, `Path.rglob`, `os.listdir`, in the mount's own fixed order: a directory's files by name, then its
    /// directories by name.
    Walk,
    /// Numbers in the path count as numbers (`img2` before `img10`): `key=lambda p: [int(t) if t.isdigit() else t for t in
    /// re.split(r"(\d+)", p)]`, also `natsorted`.
    Natural,
    /// By name without its last extension, whatever the directory: `key=lambda p: Path(p).stem`.
    Stem,
    /// By name, whatever the directory: `key=os.path.basename`.
    Basename,
}

impl Sequence {
    /// All of them, with the words of the option.
    pub const ALL: [(&str, Self); 7] = [
        ("sorted", Self::Sorted),
        ("glob", Self::Glob),
        ("components", Self::Components),
        ("walk", Self::Walk),
        ("natural", Self::Natural),
        ("stem", Self::Stem),
        ("basename", Self::Basename),
    ];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, sequence)| *sequence == self).map_or("", |(word, _)| word)
    }
}

/// How a text names the samples.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NameFormat {
    /// One path a line; every one must be there.
    List,
    /// By the file's ending: csv and tsv (the column that names most files), json and jsonl (the field that does), anything else lines
    /// with fields between white space. In order of appearance; what names no file is passed over.
    Manifest,
    /// The same, of this column or field: what the first row of a table calls it, or its place from 0; the names of the fields on the way,
    /// joined by dots. Written `manifest@COLUMN`.
    Column(String),
    /// COCO annotations: images in order of their ids, as `torchvision.datasets.CocoDetection` has them.
    Coco,
    /// The same without images that have no annotation, as torchvision's detection references have them.
    CocoAnnotated,
}

impl NameFormat {
    /// All of them, with the words of the option.
    pub const ALL: [(&str, Self); 4] =
        [("list", Self::List), ("manifest", Self::Manifest), ("coco", Self::Coco), ("coco-annotated", Self::CocoAnnotated)];

    /// A column that can be written in a rule.
    #[must_use]
    pub fn column(name: &str) -> Option<Self> {
        (!name.is_empty() && !name.contains([':', ',', '='])).then(|| Self::Column(name.to_owned()))
    }

    fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix("manifest@") {
            Some(column) => Self::column(column),
            None => Self::ALL.into_iter().find(|(known, _)| *known == text).map(|(_, format)| format),
        }
    }
}

impl fmt::Display for NameFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Column(column) => write!(f, "manifest@{column}"),
            _ => f.write_str(Self::ALL.iter().find(|(_, format)| format == self).map_or("", |(word, _)| word)),
        }
    }
}

/// Where the text is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NameFile {
    /// A file of this machine.
    Local(PathBuf),
    /// A file of the mount: its path below the mount point. Written `mount:PATH`.
    Mount(String),
}

impl NameFile {
    const MOUNT: &str = "mount:";

    /// Its path below the mount point, when it is there.
    #[must_use]
    pub fn in_mount(&self) -> Option<&str> {
        match self {
            Self::Mount(path) => Some(path),
            Self::Local(_) => None,
        }
    }
}

impl From<&str> for NameFile {
    fn from(text: &str) -> Self {
        match text.strip_prefix(Self::MOUNT) {
            Some(path) => Self::Mount(path.trim_start_matches('/').to_owned()),
            None => Self::Local(PathBuf::from(text)),
        }
    }
}

impl fmt::Display for NameFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => write!(f, "{}", path.display()),
            Self::Mount(path) => write!(f, "{}{path}", Self::MOUNT),
        }
    }
}

/// Endings of names, without their first dot (`jpg`, `seg.png`), rising; none at all: every file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Extensions(Vec<String>);

impl Extensions {
    /// Every file.
    pub const ALL: Self = Self(Vec::new());
    /// What an ending may not have: separators of the texts it stands in.
    const FORBIDDEN: [char; 6] = ['+', '@', ':', ',', '/', '='];

    /// These endings; leading dots are left off. `None`: one cannot be written in a rule.
    pub fn new<T: AsRef<str>>(endings: impl IntoIterator<Item = T>) -> Option<Self> {
        let mut all = Vec::new();
        for ending in endings {
            let ending = ending.as_ref();
            let ending = ending.trim_start_matches('.');
            if ending.is_empty() || ending.contains(Self::FORBIDDEN) || ending.contains(char::is_whitespace) {
                return None;
            }
            all.push(ending.to_owned());
        }
        all.sort_unstable();
        all.dedup();
        Some(Self(all))
    }

    /// Whether every file passes.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// The endings.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Whether `name` ends with a dot and one of them. `fold`: ASCII case does not count.
    #[must_use]
    pub fn passes(&self, name: &str, fold: bool) -> bool {
        self.is_all() || self.iter().any(|ending| ends_with(name.as_bytes(), ending.as_bytes(), fold))
    }
}

fn ends_with(name: &[u8], ending: &[u8], fold: bool) -> bool {
    let Some(start) = name.len().checked_sub(ending.len()).filter(|start| *start > 0) else { return false };
    let tail = &name[start..];
    name[start - 1] == b'.' && if fold { tail.eq_ignore_ascii_case(ending) } else { tail == ending }
}

impl fmt::Display for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("+"))
    }
}

impl SampleRule {
    /// Every file, in byte order of the full path.
    #[must_use]
    pub const fn sorted() -> Self {
        Self::Files(Sequence::Sorted, Extensions::ALL)
    }

    /// One path a line of a local file.
    #[must_use]
    pub fn list(path: impl Into<PathBuf>) -> Self {
        Self::Names(NameFormat::List, NameFile::Local(path.into()))
    }

    /// The file whose text is needed to find the samples, if one is.
    #[must_use]
    pub const fn names(&self) -> Option<&NameFile> {
        match self {
            Self::Names(_, file) => Some(file),
            _ => None,
        }
    }
}

const IMAGE_FOLDER: &str = "imagefolder";
const DATASET_FOLDER: &str = "datasetfolder";

impl fmt::Display for SampleRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ImageFolder => f.write_str(IMAGE_FOLDER),
            Self::DatasetFolder(extensions) => write!(f, "{DATASET_FOLDER}@{extensions}"),
            Self::Files(sequence, extensions) if extensions.is_all() => f.write_str(sequence.word()),
            Self::Files(sequence, extensions) => write!(f, "{}@{extensions}", sequence.word()),
            Self::Names(format, file) => write!(f, "{format}:{file}"),
        }
    }
}

/// Why a text is not a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no sample rule: write imagefolder, datasetfolder@EXT, sorted, glob, components, walk, natural, stem or basename (each also with @EXT+EXT), or list:FILE, manifest:FILE, manifest@COLUMN:FILE, coco:FILE, coco-annotated:FILE (FILE in the mount: mount:PATH)"
)]
pub struct SampleRuleError {
    text: String,
}

impl FromStr for SampleRule {
    type Err = SampleRuleError;

    fn from_str(text: &str) -> Result<Self, SampleRuleError> {
        parse(text).ok_or_else(|| SampleRuleError { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<SampleRule> {
    if let Some((word, path)) = text.split_once(':') {
        let format = NameFormat::parse(word)?;
        let file = NameFile::from(path);
        return (!path.is_empty() && file != NameFile::Mount(String::new())).then_some(SampleRule::Names(format, file));
    }
    let (word, extensions) = match text.split_once('@') {
        Some((word, endings)) => (word, Extensions::new(endings.split('+'))?),
        None => (text, Extensions::ALL),
    };
    match word {
        IMAGE_FOLDER => extensions.is_all().then_some(SampleRule::ImageFolder),
        DATASET_FOLDER => (!extensions.is_all()).then_some(SampleRule::DatasetFolder(extensions)),
        _ => Sequence::ALL.into_iter().find(|(known, _)| *known == word).map(|(_, sequence)| SampleRule::Files(sequence, extensions)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sample_rules_print_so_that_they_parse() {
        for text in [
            "imagefolder",
            "datasetfolder@npy+npz",
            "sorted",
            "glob@jpg",
            "components",
            "walk@JPEG+jpg",
            "natural@seg.png",
            "stem",
            "basename",
            "list:/a/b:c.txt",
            "list:b",
            "manifest:mount:train/labels.csv",
            "manifest:/home/a@b.json",
            "manifest@train.image path:mount:a.json",
            "coco:mount:annotations/i.json",
            "coco-annotated:x.json",
        ] {
            assert_eq!(text.parse::<SampleRule>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "list",
            "list:",
            "list:mount:",
            "ImageFolder",
            "imagefolder@jpg",
            "datasetfolder",
            "sorted:x",
            "sorted@",
            "sorted@jpg+",
            "sorted@a b",
            "walk@a/b",
            "csv:x",
            "manifest@:x",
            "list@a:x",
        ] {
            assert!(text.parse::<SampleRule>().is_err(), "{text}");
        }
        assert_eq!("sorted@.png+jpg+png".parse::<SampleRule>().unwrap().to_string(), "sorted@jpg+png");
    }

    #[test]
    fn an_extension_is_the_end_after_a_dot() {
        let jpg = Extensions::new(["jpg"]).unwrap();
        for (name, exact, folded) in [
            ("a.jpg", true, true),
            ("a.JPG", false, true),
            ("ajpg", false, false),
            ("jpg", false, false),
            (".jpg", true, true),
            ("a.jpg.txt", false, false),
        ] {
            assert_eq!((jpg.passes(name, false), jpg.passes(name, true)), (exact, folded), "{name}");
        }
        assert!(Extensions::ALL.passes("anything", false));
    }

    proptest! {
        #[test]
        fn whatever_parses_prints_to_the_same(text in "(sorted|walk|natural|list:|manifest:mount:|coco:)(@?[a-z.+]{0,6})") {
            if let Ok(rule) = text.parse::<SampleRule>() {
                prop_assert_eq!(rule.to_string().parse::<SampleRule>().unwrap(), rule);
            }
        }
    }
}
