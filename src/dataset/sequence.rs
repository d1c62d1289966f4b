//! The sequences in which programs list files, on this mount. Each is what a line of Python 3.11 yields (named at
//! [`Sequence`]); torchvision's `DatasetFolder` is `torchvision/datasets/folder.py`, `make_dataset`.
//!
//! Python sorts by code point, which is the byte order of UTF-8. Where a key is the same for two files, Python's stable sort keeps the
//! sequence it was given: here that is byte order of the paths.

use std::cmp::Ordering;

use crate::dataset::naming::name_of;
use crate::dataset::{DirIndex, Manifest, Node};
use crate::types::FileIndex;
use crate::types::rule::{Extensions, Sequence};

/// torchvision's `IMG_EXTENSIONS`; compared without regard to ASCII case.
pub(super) const IMAGE_EXTENSIONS: [&str; 9] = ["jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp"];

pub(super) fn is_image(name: &str) -> bool {
    let name = name.as_bytes();
    IMAGE_EXTENSIONS.iter().any(|end| {
        name.len() > end.len()
            && name[name.len() - end.len() - 1] == b'.'
            && name[name.len() - end.len()..].eq_ignore_ascii_case(end.as_bytes())
    })
}

/// `DatasetFolder(root).samples`: classes are the directories, sorted; in each `sorted(os.walk(...))`, that is directories in order of
/// their path strings, each one's own files sorted.
pub(super) fn folder(manifest: &Manifest, root: DirIndex, takes: impl Fn(&str) -> bool) -> Vec<FileIndex> {
    let mut files = Vec::new();
    for (_, node) in manifest.children(root) {
        let Node::Dir(class) = node else { continue };
        for dir in std::iter::once(class).chain(manifest.dirs_below(class)) {
            files.extend(manifest.children(dir).filter_map(|(name, node)| match node {
                Node::File(file) if takes(name) => Some(file),
                _ => None,
            }));
        }
    }
    files
}

/// All files below `root` with one of `extensions`, in this sequence.
pub(super) fn sequence(manifest: &Manifest, root: DirIndex, order: Sequence, extensions: &Extensions) -> Vec<FileIndex> {
    let takes = |file: &FileIndex| extensions.passes(name_of(manifest.path(*file)), false);
    let below = manifest.dir_path(root).len();
    let sorted = || manifest.files_below(root).filter(takes);
    let by = |compare: fn(&str, &str) -> Ordering| {
        let mut files: Vec<FileIndex> = sorted().collect();
        // Stable, and quick where the names already rise within each directory.
        files.sort_by(|a, b| compare(manifest.path(*a), manifest.path(*b)));
        files
    };
    match order {
        Sequence::Sorted => sorted().collect(),
        Sequence::Glob => sorted().filter(|file| !is_hidden(&manifest.path(*file)[below..])).collect(),
        Sequence::Components | Sequence::Walk => {
            let mut files = Vec::new();
            descend(manifest, root, order == Sequence::Walk, &mut |file| {
                if takes(&file) {
                    files.push(file);
                }
            });
            files
        }
        Sequence::Natural => by(natural),
        Sequence::Stem => by(|a, b| stem(a).cmp(stem(b))),
        Sequence::Basename => by(|a, b| name_of(a).cmp(name_of(b))),
    }
}

/// Whether a component begins with a dot: what `*` and `**` of `glob` pass over.
fn is_hidden(path: &str) -> bool {
    path.split('/').any(|component| component.starts_with('.'))
}

/// Every directory's entries by name, directories entered where they stand; `files_first`: after the files. Without recursion: a tree of
/// keys may be 500 directories deep.
fn descend(manifest: &Manifest, root: DirIndex, files_first: bool, add: &mut impl FnMut(FileIndex)) {
    let files = |dir: DirIndex, add: &mut dyn FnMut(FileIndex)| {
        for (_, node) in manifest.children(dir) {
            if let Node::File(file) = node {
                add(file);
            }
        }
    };
    if files_first {
        files(root, add);
    }
    // For each directory on the way down: the entry to look at next.
    let mut stack = vec![(root, 0)];
    while let Some((dir, next)) = stack.last_mut() {
        let Some((_, node)) = manifest.nth_child(*dir, *next) else {
            stack.pop();
            continue;
        };
        *next += 1;
        match node {
            Node::File(file) if !files_first => add(file),
            Node::File(_) => {}
            Node::Dir(below) => {
                if files_first {
                    files(below, add);
                }
                stack.push((below, 0));
            }
        }
    }
}

/// `Path(path).stem`: a name that begins with its only dot, or ends with one, has no suffix.
fn stem(path: &str) -> &str {
    let name = name_of(path);
    match name.rfind('.') {
        Some(dot) if dot > 0 && dot + 1 < name.len() => &name[..dot],
        _ => name,
    }
}

/// The lists that `re.split(r"(\d+)", path)` gives, numbers compared as numbers: texts and numbers take turns, a text first. ASCII digits.
fn natural(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    // What both begin with is passed over at the speed of bytes, back to where the number in it begins.
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let start = a[..same].iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |last| last + 1);
    natural_rest(&a[start..], &b[start..])
}

fn natural_rest(mut a: &[u8], mut b: &[u8]) -> Ordering {
    loop {
        let ((text_a, rest_a), (text_b, rest_b)) = (split(a, false), split(b, false));
        let texts = text_a.cmp(text_b);
        if texts.is_ne() {
            return texts;
        }
        match (rest_a.is_empty(), rest_b.is_empty()) {
            (true, true) => return Ordering::Equal,
            (true, false) => return Ordering::Less,
            (false, true) => return Ordering::Greater,
            (false, false) => {}
        }
        let ((number_a, after_a), (number_b, after_b)) = (split(rest_a, true), split(rest_b, true));
        let (value_a, value_b) = (value(number_a), value(number_b));
        let numbers = value_a.len().cmp(&value_b.len()).then_with(|| value_a.cmp(value_b));
        if numbers.is_ne() {
            return numbers;
        }
        (a, b) = (after_a, after_b);
    }
}

/// The front of a text that is digits, or that is none, and the rest.
fn split(text: &[u8], digits: bool) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(|byte| byte.is_ascii_digit() != digits).unwrap_or(text.len()))
}

/// A number without the zeros before it.
fn value(number: &[u8]) -> &[u8] {
    &number[number.iter().position(|digit| *digit != b'0').unwrap_or(number.len())..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ObjectMeta;
    use proptest::prelude::*;

    fn manifest(paths: &[&str]) -> Manifest {
        let object = |path: &&str| ObjectMeta { key: (*path).into(), size: 1, etag: "".into(), mtime_seconds: 0 };
        Manifest::build("", paths.iter().map(object).collect())
    }

    #[track_caller]
    fn check(paths: &[&str], order: Sequence, expected: &[&str]) {
        let manifest = manifest(paths);
        let files = sequence(&manifest, DirIndex::ROOT, order, &Extensions::ALL);
        assert_eq!(files.iter().map(|&file| manifest.path(file)).collect::<Vec<_>>(), expected);
    }

    /// The traps: `c/` and `c-d/` ('-' is before '/'), a file beside a directory whose name is before its own.
    const TRAPS: [&str; 5] = ["c/1.jpg", "c-d/1.jpg", "a/z.jpg", "a/sub/x.jpg", "a-b/q.jpg"];

    #[test]
    fn the_sequences_part_at_the_traps() {
        check(&TRAPS, Sequence::Sorted, &["a-b/q.jpg", "a/sub/x.jpg", "a/z.jpg", "c-d/1.jpg", "c/1.jpg"]);
        check(&TRAPS, Sequence::Components, &["a/sub/x.jpg", "a/z.jpg", "a-b/q.jpg", "c/1.jpg", "c-d/1.jpg"]);
        check(&TRAPS, Sequence::Walk, &["a/z.jpg", "a/sub/x.jpg", "a-b/q.jpg", "c/1.jpg", "c-d/1.jpg"]);
        check(&["b/x", "a", "b/.h/y", ".c", "b/y."], Sequence::Glob, &["a", "b/x", "b/y."]);
    }

    #[test]
    fn keys_of_names() {
        check(
            &["img10.jpg", "img2.jpg", "img2a.jpg", "IMG3.jpg", "7", "x"],
            Sequence::Natural,
            &["7", "IMG3.jpg", "img2.jpg", "img2a.jpg", "img10.jpg", "x"],
        );
        check(&["v9/1", "v10/1", "v9/01x"], Sequence::Natural, &["v9/1", "v9/01x", "v10/1"]);
        // Beyond 64 bits; equal values keep the order of the paths.
        check(
            &["n99999999999999999999", "n100000000000000000000", "n0100000000000000000000"],
            Sequence::Natural,
            &["n99999999999999999999", "n0100000000000000000000", "n100000000000000000000"],
        );
        check(&["z/a.jpg", "b/a-1.jpg", "c/a.png"], Sequence::Stem, &["c/a.png", "z/a.jpg", "b/a-1.jpg"]);
        check(&["z/a.jpg", "b/a-1.jpg", "c/a.png"], Sequence::Basename, &["b/a-1.jpg", "z/a.jpg", "c/a.png"]);
        assert_eq!((stem("a/.x"), stem("a/x."), stem("x.tar.gz"), stem("x")), (".x", "x.", "x.tar", "x"));
    }

    /// `re.split(r"(\d+)", text)` with numbers as numbers.
    fn tokens(text: &str) -> Vec<(String, u128)> {
        let mut tokens = Vec::new();
        let mut rest = text;
        loop {
            let digits = rest.find(|c: char| c.is_ascii_digit());
            let (before, from) = rest.split_at(digits.unwrap_or(rest.len()));
            if from.is_empty() {
                tokens.push((before.to_owned(), 0));
                return tokens;
            }
            let (number, after) = from.split_at(from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len()));
            // The end of a list is before any number.
            tokens.push((before.to_owned(), number.parse::<u128>().unwrap() + 1));
            rest = after;
        }
    }

    proptest! {
        #[test]
        fn natural_is_the_order_of_the_tokens(a in "[a0-2é/]{0,8}", b in "[a0-2é/]{0,8}") {
            prop_assert_eq!(natural(&a, &b), tokens(&a).cmp(&tokens(&b)));
        }
    }

    #[test]
    fn extensions_choose() {
        let manifest = manifest(&["a.jpg", "b.JPG", "c.txt"]);
        let files = sequence(&manifest, DirIndex::ROOT, Sequence::Walk, &Extensions::new(["jpg"]).unwrap());
        assert_eq!(files, [FileIndex(0)]);
    }
}
