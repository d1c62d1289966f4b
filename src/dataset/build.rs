//! How a listing becomes a tree: place every key, let directories win over files of the same name, sort entries, number nodes.
//!
//! No recursion: keys may be 512 levels deep. Time is that of one sort, which is linear on a listing already in key order.

use std::cmp::Ordering;
use std::collections::HashMap;

use xxhash_rust::xxh3::Xxh3;

use crate::dataset::inode::{InodeTable, ROOT_INO};
use crate::dataset::naming::{Hidden, HiddenKeys, Placement, name_of, normal_prefix, parent_path, place};
use crate::dataset::{DIR_BIT, Dir, DirIndex, Manifest, Node, dir_index, file_index};
use crate::types::ObjectMeta;

/// `hidden` is what an earlier listing already hid: a manifest file does not hold those keys.
pub(super) fn build(prefix: &str, mut objects: Vec<ObjectMeta>, mut hidden: HiddenKeys) -> Manifest {
    let prefix = normal_prefix(prefix);
    objects.sort_by(|a, b| a.key.cmp(&b.key));
    objects.dedup_by(|second, first| second.key == first.key);

    let markers = sort_out(&mut objects, &prefix, &mut hidden);
    let mut dirs = directories(&objects, &prefix, &markers);
    hide_shadowed(&mut objects, &prefix, &dirs, &mut hidden);
    assert!(objects.len() < DIR_BIT as usize && dirs.len() < DIR_BIT as usize, "a manifest holds less than 2^31 files");

    let entries = fill(&mut dirs, &objects, &prefix);
    set_times(&mut dirs, &entries, &objects, &markers);
    let (inos, table) = number(&mut dirs, &objects, &prefix);
    let total_bytes = objects.iter().map(|object| object.size).sum();
    let id = identify(&objects);
    objects.shrink_to_fit();
    Manifest { prefix: prefix.into(), objects, inos, dirs, entries, table, id, hidden, total_bytes }
}

/// Leaves the files in `objects` and returns the directories that have markers, with the markers' times.
fn sort_out(objects: &mut Vec<ObjectMeta>, prefix: &str, hidden: &mut HiddenKeys) -> HashMap<Box<str>, i64> {
    let mut markers = HashMap::new();
    objects.retain(|object| match place(&object.key, prefix) {
        Placement::File(_) => true,
        Placement::Directory(path) => {
            markers.insert(path.into(), object.mtime_seconds);
            if object.size > 0 {
                hidden.count(Hidden::MarkerWithContent, &object.key);
            }
            false
        }
        Placement::Hidden(reason) => {
            hidden.count(reason, &object.key);
            false
        }
        Placement::Outside => false,
    });
    markers
}

/// All directories in byte order of their paths, the root first; entries and numbers are still missing.
fn directories(objects: &[ObjectMeta], prefix: &str, markers: &HashMap<Box<str>, i64>) -> Vec<Dir> {
    let mut paths: Vec<&str> = vec![""];
    let mut before = "";
    for object in objects {
        let parent = parent_path(&object.key[prefix.len()..]);
        // Neighbours in key order mostly share their directory.
        if parent != before {
            paths.extend(with_ancestors(parent));
            before = parent;
        }
    }
    paths.extend(markers.keys().flat_map(|path| with_ancestors(path)));
    paths.sort_unstable();
    paths.dedup();
    let parent_of = |path: &str| paths.binary_search(&parent_path(path)).map_or(DirIndex::ROOT, dir_index);
    paths.iter().map(|&path| Dir { path: path.into(), parent: parent_of(path), ino: ROOT_INO, mtime_seconds: 0, entries: 0..0 }).collect()
}

/// `a/b/c`, `a/b`, `a`.
fn with_ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| Some(parent_path(path))).take_while(|path| !path.is_empty())
}

/// Where a key and a directory have one name, the directory wins.
fn hide_shadowed(objects: &mut Vec<ObjectMeta>, prefix: &str, dirs: &[Dir], hidden: &mut HiddenKeys) {
    // Both are in byte order of their paths: one walk along the two.
    let mut rest = dirs;
    objects.retain(|object| {
        let path = &object.key[prefix.len()..];
        let before = rest.iter().take_while(|dir| *dir.path < *path).count();
        rest = &rest[before..];
        let shadowed = rest.first().is_some_and(|dir| *dir.path == *path);
        if shadowed {
            hidden.count(Hidden::ShadowedByDirectory, &object.key);
        }
        !shadowed
    });
}

/// Puts every node into its directory, entries in byte order of names.
fn fill(dirs: &mut [Dir], objects: &[ObjectMeta], prefix: &str) -> Vec<u32> {
    let parents = file_parents(dirs, objects, prefix);
    let mut counts = vec![0u32; dirs.len()];
    for &parent in parents.iter().chain(dirs.iter().skip(1).map(|dir| &dir.parent)) {
        counts[parent.at()] += 1;
    }
    let mut end = 0;
    for (dir, count) in dirs.iter_mut().zip(counts) {
        dir.entries = end..end;
        end += count;
    }
    let mut entries = vec![0u32; end as usize];
    let files = parents.iter().enumerate().map(|(place, &parent)| (parent, Node::File(file_index(place))));
    let subdirs: Vec<_> = dirs.iter().enumerate().skip(1).map(|(place, dir)| (dir.parent, Node::Dir(dir_index(place)))).collect();
    for (parent, node) in files.chain(subdirs) {
        let range = &mut dirs[parent.at()].entries;
        entries[range.end as usize] = node.packed();
        range.end += 1;
    }
    for dir in &*dirs {
        // Two rising runs, files and directories: a merge for the stable sort.
        entries[dir.entries.start as usize..dir.entries.end as usize].sort_by(|&a, &b| by_name(a, b, dirs, objects));
    }
    entries
}

fn by_name(a: u32, b: u32, dirs: &[Dir], objects: &[ObjectMeta]) -> Ordering {
    // A name has no slash, so that of a file is the same with the prefix before it.
    let name = |packed| match Node::unpacked(packed) {
        Node::File(file) => name_of(&objects[file.at()].key),
        Node::Dir(dir) => name_of(&dirs[dir.at()].path),
    };
    name(a).cmp(name(b))
}

fn file_parents(dirs: &[Dir], objects: &[ObjectMeta], prefix: &str) -> Vec<DirIndex> {
    let mut before = DirIndex::ROOT;
    let parents = objects.iter().map(|object| {
        let path = parent_path(&object.key[prefix.len()..]);
        if *dirs[before.at()].path != *path {
            before = dir_index(dirs.binary_search_by(|dir| (*dir.path).cmp(path)).expect("every file's parents are directories"));
        }
        before
    });
    parents.collect()
}

/// A directory is as new as the newest file below it. Markers count where nothing else is.
fn set_times(dirs: &mut [Dir], entries: &[u32], objects: &[ObjectMeta], markers: &HashMap<Box<str>, i64>) {
    // Parents stand before their children, so going backwards the children are ready.
    for place in (0..dirs.len()).rev() {
        let range = dirs[place].entries.clone();
        let times = entries[range.start as usize..range.end as usize].iter().map(|&entry| match Node::unpacked(entry) {
            Node::File(file) => objects[file.at()].mtime_seconds,
            Node::Dir(dir) => dirs[dir.at()].mtime_seconds,
        });
        let newest = times.max().or_else(|| markers.get(&dirs[place].path).copied());
        dirs[place].mtime_seconds = newest.unwrap_or(0);
    }
}

fn number(dirs: &mut [Dir], objects: &[ObjectMeta], prefix: &str) -> (Vec<u64>, InodeTable) {
    let mut table = InodeTable::with_capacity(dirs.len() + objects.len());
    for place in 1..dirs.len() {
        let number_of = |node| match Node::unpacked(node) {
            Node::Dir(dir) => dirs[dir.at()].ino,
            Node::File(_) => unreachable!("files are numbered after the directories"),
        };
        dirs[place].ino = table.assign(&dirs[place].path, Node::Dir(dir_index(place)).packed(), number_of);
    }
    let mut inos: Vec<u64> = Vec::with_capacity(objects.len());
    for (place, object) in objects.iter().enumerate() {
        let number_of = |node| match Node::unpacked(node) {
            Node::Dir(dir) => dirs[dir.at()].ino,
            Node::File(file) => inos[file.at()],
        };
        let ino = table.assign(&object.key[prefix.len()..], Node::File(file_index(place)).packed(), number_of);
        inos.push(ino);
    }
    (inos, table)
}

/// 128 bits over key, size and ETag of every file in key order, each text behind its length.
fn identify(objects: &[ObjectMeta]) -> String {
    let mut hash = Xxh3::new();
    for object in objects {
        hash.update(&(object.key.len() as u64).to_le_bytes());
        hash.update(object.key.as_bytes());
        hash.update(&object.size.to_le_bytes());
        hash.update(&(object.etag.len() as u64).to_le_bytes());
        hash.update(object.etag.as_bytes());
    }
    format!("{:032x}", hash.digest128())
}
