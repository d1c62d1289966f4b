//! Which file is which sample: the numbering a dataset class gives to the files below its root.
//!
//! Not here: datasets that number something else than files (records in shards, annotation files).

use std::path::Path;

use crate::dataset::{DirIndex, Manifest, Node};
use crate::types::{FileIndex, SampleRule};

/// torchvision's `IMG_EXTENSIONS`; compared without regard to ASCII case.
const IMAGE_EXTENSIONS: [&str; 9] = [".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"];

/// Why there is no numbering.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SampleError {
    #[error("root={root}: no such directory in the mount; it has {entries}")]
    NoRoot { root: String, entries: String },
    #[error("no image below class directories in {root:?} ({files} other files): give root=, or files=sorted for files of any kind")]
    NoImages { root: String, files: usize },
    #[error("no file below {root:?}: give root=")]
    NoFiles { root: String },
    #[error("the list {list} was not read")]
    ListNotRead { list: String },
    #[error("the list {list} names no file")]
    ListEmpty { list: String },
    #[error("line {line} of the list {list}: no file {path:?} in the mount, neither below root={root} nor from its top")]
    NotInMount { list: String, line: usize, path: String, root: String },
}

/// The file of each sample of the dataset below `root`. `list_text` is the content of the file that [`SampleRule::List`] names.
///
/// # Errors
/// When there is no such root, no sample, or a listed path is not a file.
pub fn samples(manifest: &Manifest, root: &str, rule: &SampleRule, list_text: Option<&str>) -> Result<Vec<FileIndex>, SampleError> {
    let root = root.trim_matches('/');
    let Some(Node::Dir(dir)) = manifest.find(root) else {
        return Err(SampleError::NoRoot { root: root.to_owned(), entries: entries_text(manifest) });
    };
    let files = match rule {
        SampleRule::ImageFolder => image_folder(manifest, dir),
        SampleRule::Sorted => manifest.files_below(dir).collect(),
        SampleRule::List(path) => return listed(manifest, root, path, list_text),
    };
    if !files.is_empty() {
        return Ok(files);
    }
    let root = root.to_owned();
    Err(match manifest.files_below(dir).count() {
        0 => SampleError::NoFiles { root },
        files => SampleError::NoImages { root, files },
    })
}

/// `torchvision.datasets.ImageFolder(root).samples`: classes are the directories, sorted; in each `sorted(os.walk(...))`, that is
/// directories in order of their path strings, each one's own files sorted. Python sorts by code point, which is the byte order of UTF-8.
fn image_folder(manifest: &Manifest, root: DirIndex) -> Vec<FileIndex> {
    let mut files = Vec::new();
    for (_, node) in manifest.children(root) {
        let Node::Dir(class) = node else { continue };
        for dir in std::iter::once(class).chain(manifest.dirs_below(class)) {
            files.extend(manifest.children(dir).filter_map(|(name, node)| match node {
                Node::File(file) if is_image(name) => Some(file),
                _ => None,
            }));
        }
    }
    files
}

fn is_image(name: &str) -> bool {
    let name = name.as_bytes();
    IMAGE_EXTENSIONS.iter().any(|end| name.len() >= end.len() && name[name.len() - end.len()..].eq_ignore_ascii_case(end.as_bytes()))
}

/// One path a line, below the root or from the mount's top; empty lines are skipped.
fn listed(manifest: &Manifest, root: &str, list: &Path, text: Option<&str>) -> Result<Vec<FileIndex>, SampleError> {
    let list = list.display().to_string();
    let Some(text) = text else { return Err(SampleError::ListNotRead { list }) };
    let mut files = Vec::new();
    for (line, path) in (1..).zip(text.lines()).filter(|(_, path)| !path.is_empty()) {
        let plain = path.strip_prefix("./").unwrap_or(path);
        let below = if root.is_empty() { None } else { manifest.find(&format!("{root}/{plain}")) };
        match below.or_else(|| manifest.find(plain)) {
            Some(Node::File(file)) => files.push(file),
            _ => return Err(SampleError::NotInMount { list, line, path: path.to_owned(), root: root.to_owned() }),
        }
    }
    if files.is_empty() { Err(SampleError::ListEmpty { list }) } else { Ok(files) }
}

/// The first directories of the mount, to show what a root could be.
fn entries_text(manifest: &Manifest) -> String {
    const SHOWN: usize = 5;
    let dirs = || manifest.children(DirIndex::ROOT).filter(|(_, node)| matches!(node, Node::Dir(_)));
    let names: Vec<&str> = dirs().take(SHOWN).map(|(name, _)| name).collect();
    match dirs().count() {
        0 => "no directories".to_owned(),
        count if count <= SHOWN => names.join(", "),
        count => format!("{} and {} more", names.join(", "), count - SHOWN),
    }
}
