//! The tree against a naive one, and the reports of `field` notes B01 to B14 by number.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::naming::Hidden;
use super::*;

fn object(key: &str) -> ObjectMeta {
    ObjectMeta { key: key.into(), size: key.len() as u64, etag: "\"e\"".into(), mtime_seconds: key.len() as i64 }
}

fn build(prefix: &str, keys: &[&str]) -> Manifest {
    Manifest::build(prefix, keys.iter().map(|key| object(key)).collect())
}

/// Names in a directory; directories end with a slash.
#[track_caller]
fn names(manifest: &Manifest, dir: &str) -> Vec<String> {
    let Some(Node::Dir(dir)) = manifest.find(dir) else { panic!("{dir:?} is no directory") };
    let name = |(name, node): (&str, Node)| if matches!(node, Node::Dir(_)) { format!("{name}/") } else { name.to_owned() };
    manifest.children(dir).map(name).collect()
}

fn hidden(manifest: &Manifest) -> Vec<(Hidden, u64, &str)> {
    manifest.hidden().iter().collect()
}

#[test]
fn b01_the_directory_wins_over_a_file_of_its_name() {
    let manifest = build("", &["out", "out/x", "out/y", "out-z", "z"]);
    assert_eq!(names(&manifest, ""), ["out/", "out-z", "z"]);
    assert_eq!(names(&manifest, "out"), ["x", "y"]);
    assert_eq!(hidden(&manifest), [(Hidden::ShadowedByDirectory, 1, "out")]);
    assert_eq!(manifest.len(), 4);
    // Hidden keys make no directories.
    assert_eq!(names(&build("", &["a", "a//b"]), ""), ["a"]);
}

#[test]
fn b02_unreachable_keys_are_hidden_and_counted() {
    let manifest = build("", &["a//b", "a/c", "/lead", "a/./d", "a/../e"]);
    assert_eq!(names(&manifest, ""), ["a/"]);
    assert_eq!(names(&manifest, "a"), ["c"]);
    assert_eq!(hidden(&manifest), [(Hidden::EmptyComponent, 2, "/lead"), (Hidden::DotComponent, 2, "a/../e")]);
    assert_eq!(manifest.hidden_keys(), 4);
}

#[test]
fn b03_b05_b12_b13_names_are_exact_bytes() {
    let keys = ["d/\n", "d/A.jpg", "d/a&amp;b", "d/a&b", "d/a.jpg", "d/e\u{301}.txt", "d/x\ny", "d/x ", "d/x.", "d/é.txt", "d/🙂"];
    let manifest = build("", &keys);
    let expected: Vec<&str> = keys.iter().map(|key| &key[2..]).collect();
    assert_eq!(names(&manifest, "d"), expected);
    for (place, key) in keys.iter().enumerate() {
        assert_eq!(manifest.find(key), Some(Node::File(file_index(place))));
    }
}

#[test]
fn b06_long_names_are_hidden_and_their_neighbours_shown() {
    let (long, longest) = (format!("d/{}", "a".repeat(300)), format!("d/{}", "a".repeat(255)));
    let manifest = build("", &[&long, "d/ok", &longest]);
    assert_eq!(names(&manifest, "d"), [&longest[2..], "ok"]);
    assert_eq!(hidden(&manifest), [(Hidden::LongComponent, 1, long.as_str())]);
}

#[test]
fn b07_markers_are_directories() {
    let manifest = build("", &["dir/", "full/", "full/x", "deep/er/"]);
    assert_eq!(names(&manifest, ""), ["deep/", "dir/", "full/"]);
    assert_eq!(
        (names(&manifest, "dir"), names(&manifest, "deep"), names(&manifest, "full")),
        (vec![], vec!["er/".to_owned()], vec!["x".to_owned()])
    );
    assert_eq!(manifest.len(), 1);
    // object() gives every key a size: the bytes of a marker are not reachable, and that is counted.
    assert_eq!(manifest.hidden_keys(), 3);
    let empty = ObjectMeta { size: 0, ..object("dir/") };
    assert_eq!(Manifest::build("", vec![empty]).hidden_keys(), 0);
}

#[test]
fn b08_b09_b10_prefixes() {
    for prefix in ["v1.0", "v1.0/", "/v1.0/"] {
        let manifest = build(prefix, &["v1.0/", "v1.0/a", "v1.0/d/b", "v1.0x", "v1.0.bak/c"]);
        assert_eq!(names(&manifest, ""), ["a", "d/"], "{prefix}");
        assert_eq!((manifest.path(FileIndex(1)), manifest.prefix()), ("d/b", "v1.0/"));
    }
    assert_eq!(names(&build("v1.0//", &["v1.0//a", "v1.0/b"]), ""), ["a"]);
    assert_eq!(names(&build("new/", &[]), ""), [""; 0]);
    let manifest = build("", &["sessions.json", "sessions.json.bak"]);
    assert_eq!((manifest.find("sessions"), manifest.find("sessions.jso")), (None, None));
    assert_eq!(names(&build("sessions", &["sessions.json"]), ""), [""; 0]);
}

#[test]
fn b14_the_deepest_key() {
    let key = ["abc"; 256].join("/");
    assert_eq!(key.len(), 1023);
    let manifest = build("", &[&key, "abc/x"]);
    assert_eq!(manifest.find(&key), Some(Node::File(FileIndex(0))));
    assert_eq!(manifest.dir_count(), 256);
    let mut dir = DirIndex::ROOT;
    for _ in 0..255 {
        let Some(Node::Dir(below)) = manifest.child(dir, "abc") else { panic!("a level is missing") };
        assert_eq!(manifest.parent(below), dir);
        dir = below;
    }
    assert_eq!(manifest.child(dir, "abc"), Some(Node::File(FileIndex(0))));
    assert_eq!(manifest.dir_mtime_seconds(DirIndex::ROOT), 1023);
}

#[test]
fn nul_and_control_names_are_hidden() {
    let manifest = build("p", &["p/a\0b", "p/.belady/stats", "p/x/.belady", "p/.stats"]);
    assert_eq!(names(&manifest, ""), [".stats", "x/"]);
    assert_eq!(hidden(&manifest), [(Hidden::Reserved, 1, "p/.belady/stats"), (Hidden::Nul, 1, "p/a\0b")]);
}

#[test]
fn entries_are_in_order_of_names_not_of_keys() {
    // In key order c-d/ comes before c/, because '-' is before '/'.
    let manifest = build("", &["c-d/1", "c/1", "c.x", "c0"]);
    assert_eq!(names(&manifest, ""), ["c/", "c-d/", "c.x", "c0"]);
}

#[test]
fn the_id_tells_content_from_content() {
    let id = |objects: Vec<ObjectMeta>| Manifest::build("", objects).id().to_owned();
    let base = id(vec![object("a"), object("b")]);
    assert_eq!(base.len(), 32);
    assert_eq!(base, id(vec![object("b"), object("a")]), "the order of the listing does not count");
    assert_eq!(base, id(vec![object("b"), object("a"), object("a")]), "nor does a key listed twice");
    assert_eq!(base, id(vec![ObjectMeta { mtime_seconds: 9, ..object("a") }, object("b")]), "nor do times");
    for other in [
        vec![object("a")],
        vec![ObjectMeta { size: 9, ..object("a") }, object("b")],
        vec![ObjectMeta { etag: "\"f\"".into(), ..object("a") }, object("b")],
        vec![object("a"), object("c")],
    ] {
        assert_ne!(base, id(other));
    }
}

#[test]
fn numbers_do_not_depend_on_the_other_files() {
    let (few, many) = (build("p", &["p/d/x"]), build("", &["a", "d/x", "d/y", "e/z"]));
    for path in ["d", "d/x"] {
        assert_eq!(few.ino(few.find(path).unwrap()), many.ino(many.find(path).unwrap()), "{path}");
    }
}

/// Components that meet every rule, often the same ones.
fn component() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => "[ab]",
        3 => "[a-c./0\n-]{0,3}",
        1 => Just("é".to_owned()),
        1 => Just("\0".to_owned()),
        1 => Just("x".repeat(256)),
    ]
}

fn keys() -> impl Strategy<Value = Vec<String>> {
    let key = proptest::collection::vec(component(), 1..5).prop_map(|components| components.join("/"));
    proptest::collection::vec(key, 0..40)
}

/// The tree as anyone would write it down: directory → name → is it a directory; and the paths of files.
fn naive(keys: &[String]) -> (BTreeMap<String, BTreeMap<String, bool>>, BTreeSet<String>) {
    let shown = |path: &str| path.split('/').all(|c| !matches!(c, "" | "." | "..") && c.len() < 256 && !c.contains('\0'));
    let (mut files, mut dirs) = (BTreeSet::new(), BTreeSet::from([String::new()]));
    for key in keys {
        let path = key.strip_suffix('/').unwrap_or(key);
        if !shown(path) {
            continue;
        }
        if path == key {
            files.insert(path.to_owned());
        } else {
            dirs.insert(path.to_owned());
        }
        for (slash, _) in path.match_indices('/') {
            dirs.insert(path[..slash].to_owned());
        }
    }
    files.retain(|file| !dirs.contains(file));
    let mut tree: BTreeMap<String, BTreeMap<String, bool>> = dirs.iter().map(|dir| (dir.clone(), BTreeMap::new())).collect();
    for (path, is_dir) in dirs.iter().map(|d| (d, true)).chain(files.iter().map(|f| (f, false))).filter(|(path, _)| !path.is_empty()) {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        tree.get_mut(parent).unwrap().insert(name.to_owned(), is_dir);
    }
    (tree, files)
}

proptest! {
    #[test]
    fn the_tree_equals_a_naive_one(keys in keys()) {
        let manifest = Manifest::build("p/", keys.iter().map(|key| object(&format!("p/{key}"))).collect());
        let (tree, files) = naive(&keys);
        for dir in tree.keys() {
            let Some(Node::Dir(found)) = manifest.find(dir) else { return Err(TestCaseError::fail(format!("{dir:?} is missing"))) };
            let below = |path: &&String| dir.is_empty() || path.starts_with(&format!("{dir}/"));
            let expected: Vec<&str> = files.iter().filter(below).map(String::as_str).collect();
            prop_assert_eq!(manifest.files_below(found).map(|file| manifest.path(file)).collect::<Vec<_>>(), expected);
            let expected: Vec<&str> = tree.keys().filter(|path| *path != dir).filter(below).map(String::as_str).collect();
            prop_assert_eq!(manifest.dirs_below(found).map(|dir| manifest.dir_path(dir)).collect::<Vec<_>>(), expected);
        }
        prop_assert_eq!((0..manifest.len()).map(|i| manifest.path(file_index(i)).to_owned()).collect::<Vec<_>>(), files.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(manifest.dir_count(), tree.len());
        let mut numbers = BTreeSet::from([0]);
        for (path, entries) in &tree {
            let Some(Node::Dir(dir)) = manifest.find(path) else { return Err(TestCaseError::fail(format!("{path:?} is missing"))) };
            prop_assert_eq!(manifest.dir_path(dir), path);
            let ino = manifest.ino(Node::Dir(dir));
            prop_assert_eq!(manifest.node(ino), Some(Node::Dir(dir)));
            prop_assert!(numbers.insert(ino) && (ino == ROOT_INO) == path.is_empty());
            prop_assert_eq!(manifest.child_count(dir), entries.len());
            prop_assert_eq!(manifest.nth_child(dir, entries.len()), None);
            for ((k, (name, is_dir)), (listed, node)) in entries.iter().enumerate().zip(manifest.children(dir)) {
                prop_assert_eq!((listed, matches!(node, Node::Dir(_))), (name.as_str(), *is_dir));
                prop_assert_eq!(manifest.nth_child(dir, k), Some((listed, node)));
                prop_assert_eq!(manifest.child(dir, name), Some(node));
                let below = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                prop_assert_eq!(manifest.find(&below), Some(node));
                match node {
                    Node::Dir(child) => prop_assert_eq!(manifest.parent(child), dir),
                    Node::File(file) => {
                        prop_assert_eq!(manifest.path(file), below);
                        let ino = manifest.ino(node);
                        prop_assert!(ino > ROOT_INO && ino < 1 << 63 && numbers.insert(ino));
                        prop_assert_eq!(manifest.node(ino), Some(node));
                    }
                }
            }
            for absent in ["", ".", "..", "zz", "a/b"] {
                prop_assert_eq!(manifest.child(dir, absent), None);
            }
        }
        for absent in [0, 2, 1 << 63, u64::MAX] {
            prop_assert_eq!(manifest.node(absent), None);
        }
    }

    /// Every key is a file, a marker or hidden: none gets lost without being counted.
    #[test]
    fn every_key_is_accounted_for(keys in keys()) {
        let distinct: BTreeSet<_> = keys.iter().filter(|key| !key.is_empty()).collect();
        let markers = distinct.iter().filter(|key| matches!(naming::place(key, ""), naming::Placement::Directory(_))).count();
        let objects = distinct.iter().map(|key| ObjectMeta { size: u64::from(!key.ends_with('/')), ..object(key) });
        let manifest = Manifest::build("", objects.collect());
        prop_assert_eq!(manifest.len() as u64 + manifest.hidden_keys() + markers as u64, distinct.len() as u64);
    }
}
