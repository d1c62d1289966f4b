//! Which file is which sample: the numbering a dataset class gives to the files below its root.
//!
//! Not here: datasets that number something else than files (records in shards, annotation files).

use crate::dataset::names::{coco, listed, named};
use crate::dataset::sequence::{folder, is_image, sequence};
use crate::dataset::{DirIndex, Manifest, Node};
use crate::types::rule::NameFormat;
use crate::types::{FileIndex, SampleRule};

/// Why there is no numbering.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SampleError {
    #[error("root={root}: no such directory in the mount; it has {entries}")]
    NoRoot { root: String, entries: String },
    #[error("no image below class directories in {root:?} ({files} other files): give root=, or files=sorted for files of any kind")]
    NoImages { root: String, files: usize },
    #[error("no file below {root:?} that {rule} takes ({files} other files): give root=, or another files=")]
    NoFiles { root: String, rule: SampleRule, files: usize },
    #[error("the list {list} was not read")]
    ListNotRead { list: String },
    #[error("the list {list} names no file")]
    ListEmpty { list: String },
    #[error(
        "line {line} of the list {list}: no file {path:?} below root={root:?} or from the mount's top (a path that begins with the mount point needs that part left out)"
    )]
    NotInMount { list: String, line: usize, path: String, root: String },
    #[error("{list}: no column or field of it names files below {root:?} or from the mount's top")]
    NamesNothing { list: String, root: String },
    #[error("{list} is not what its ending says: {reason}")]
    NotReadable { list: String, reason: String },
}

/// The file of each sample of the dataset below `root`. `text` is the content of the file that [`SampleRule::names`] says.
///
/// # Errors
/// When there is no such root, no sample, or a listed path is not a file.
pub fn samples(manifest: &Manifest, root: &str, rule: &SampleRule, text: Option<&str>) -> Result<Vec<FileIndex>, SampleError> {
    let root = root.trim_matches('/');
    let Some(Node::Dir(dir)) = manifest.find(root) else {
        return Err(SampleError::NoRoot { root: root.to_owned(), entries: entries_text(manifest) });
    };
    let files = match rule {
        SampleRule::ImageFolder => folder(manifest, dir, is_image),
        SampleRule::DatasetFolder(extensions) => folder(manifest, dir, |name| extensions.passes(name, true)),
        SampleRule::Files(order, extensions) => sequence(manifest, dir, *order, extensions),
        SampleRule::Names(format, file) => {
            let list = file.to_string();
            let Some(text) = text else { return Err(SampleError::ListNotRead { list }) };
            return match format {
                NameFormat::List => listed(manifest, root, list, text),
                NameFormat::Manifest => named(manifest, root, list, text, None),
                NameFormat::Column(column) => named(manifest, root, list, text, Some(column)),
                NameFormat::Coco => coco(manifest, root, list, text, false),
                NameFormat::CocoAnnotated => coco(manifest, root, list, text, true),
            };
        }
    };
    if !files.is_empty() {
        return Ok(files);
    }
    let (root, files) = (root.to_owned(), manifest.files_below(dir).count());
    Err(match rule {
        SampleRule::ImageFolder if files > 0 => SampleError::NoImages { root, files },
        _ => SampleError::NoFiles { root, rule: rule.clone(), files },
    })
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dataset::sequence::IMAGE_EXTENSIONS;
    use crate::types::ObjectMeta;

    fn manifest(paths: &[&str]) -> Manifest {
        let object = |path: &&str| ObjectMeta { key: format!("b/{path}").into(), size: 1, etag: "".into(), mtime_seconds: 0 };
        Manifest::build("b", paths.iter().map(object).collect())
    }

    #[track_caller]
    fn check(paths: &[&str], root: &str, rule: &str, list: Option<&str>, expected: &[&str]) {
        let manifest = manifest(paths);
        let files = samples(&manifest, root, &rule.parse().unwrap(), list).unwrap();
        assert_eq!(files.iter().map(|&file| manifest.path(file)).collect::<Vec<_>>(), expected);
    }

    const TREE: [&str; 11] = [
        "t/c-d/1.jpg",
        "t/c/1.jpg",
        "t/c/z.txt",
        "t/c/s/2.PNG",
        "t/c/s-x/3.webp",
        "t/c/z.Jpeg",
        "t/c0/1.jpg",
        "t/top.jpg",
        "t-2/c/1.jpg",
        "t0/c/1.jpg",
        "v/c/1.jpg",
    ];

    #[test]
    fn image_folder_goes_by_path_strings() {
        check(&TREE, "t", "imagefolder", None, &["t/c/1.jpg", "t/c/z.Jpeg", "t/c/s/2.PNG", "t/c/s-x/3.webp", "t/c-d/1.jpg", "t/c0/1.jpg"]);
        check(&TREE, "/v/", "imagefolder", None, &["v/c/1.jpg"]);
        // Only the end of the name counts.
        check(&["x/.jpg", "x/a.jpg.txt", "x/jpg"], "", "imagefolder", None, &["x/.jpg"]);
    }

    #[test]
    fn sorted_goes_by_bytes() {
        check(&["t/c/1.jpg", "t-2/x", "t/c-d/1.jpg", "t0/x", "s/x"], "t", "sorted", None, &["t/c-d/1.jpg", "t/c/1.jpg"]);
        check(&TREE, "t/c/s", "sorted", None, &["t/c/s/2.PNG"]);
        check(&["b", "a/x"], "", "sorted", None, &["a/x", "b"]);
    }

    #[test]
    fn a_list_may_repeat_and_start_anywhere() {
        let text = "c/1.jpg\r\n\n./top.jpg\nv/c/1.jpg\nc/1.jpg\n";
        check(&TREE, "t", "list:x", Some(text), &["t/c/1.jpg", "t/top.jpg", "v/c/1.jpg", "t/c/1.jpg"]);
    }

    #[test]
    fn refusals_name_the_part() {
        let manifest = manifest(&TREE);
        for (root, rule, list, part) in [
            ("train", "imagefolder", None, "root=train: no such directory in the mount; it has t, t-2, t0, v"),
            ("t/top.jpg", "sorted", None, "root=t/top.jpg"),
            ("t/c/s", "imagefolder", None, "1 other files"),
            ("t", "list:/l.txt", Some("c/1.jpg\nc/9.jpg\n"), "line 2 of the list /l.txt: no file \"c/9.jpg\""),
            ("t", "list:/l.txt", Some("c\n"), "line 1"),
            ("t", "list:/l.txt", Some("\n"), "/l.txt names no file"),
            ("t", "list:/l.txt", None, "/l.txt was not read"),
        ] {
            let error = samples(&manifest, root, &rule.parse().unwrap(), list).unwrap_err().to_string();
            assert!(error.contains(part), "{root} {rule}: {error}");
        }
    }

    /// Python's `sorted(os.walk(class))` spelled out over a set of paths.
    fn naive_image_folder(paths: &[String]) -> Vec<String> {
        let mut keyed: Vec<(String, String, String)> = Vec::new();
        for path in paths {
            let Some((class, rest)) = path.split_once('/') else { continue };
            let (dir, name) = rest.rsplit_once('/').unwrap_or(("", rest));
            let lower = name.to_lowercase();
            if IMAGE_EXTENSIONS.iter().any(|end| lower.ends_with(&format!(".{end}"))) {
                let walked = if dir.is_empty() { class.to_owned() } else { format!("{class}/{dir}") };
                keyed.push((class.to_owned(), walked, name.to_owned()));
            }
        }
        keyed.sort();
        keyed.dedup();
        keyed.into_iter().map(|(_, dir, name)| format!("{dir}/{name}")).collect()
    }

    proptest! {
        #[test]
        fn image_folder_equals_a_naive_one(paths in proptest::collection::vec("([ab.é-]{1,2}/){0,3}[a-c]{0,1}(\\.jpg|\\.PNG|\\.txt|\\.tiff)", 1..40)) {
            let paths: Vec<String> = paths.into_iter().filter(|p| p.split('/').all(|c| c != "." && c != "..")).collect();
            // A file and a directory of one name cannot be on a disk.
            let is_dir = |path: &String| paths.iter().any(|other| other.starts_with(&format!("{path}/")));
            let paths: Vec<String> = paths.iter().filter(|path| !is_dir(path)).cloned().collect();
            let manifest = manifest(&paths.iter().map(String::as_str).collect::<Vec<_>>());
            let ours: Vec<String> = match samples(&manifest, "", &SampleRule::ImageFolder, None) {
                Ok(files) => files.iter().map(|&file| manifest.path(file).to_owned()).collect(),
                Err(_) => Vec::new(),
            };
            prop_assert_eq!(ours, naive_image_folder(&paths));
        }
    }
}
