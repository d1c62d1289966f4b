//! Which part of a dataset a file belongs to: what reads one part for one job has an order of its own.
//!
//! Not here: the numberings of its files (`dataset/maps`).

use std::collections::HashSet;

use crate::dataset::{DirIndex, Manifest, Node};

/// Words that directories of the parts of a dataset begin with.
const PARTS: [&str; 8] = ["train", "val", "test", "dev", "eval", "trn", "tst", "unlabeled"];
/// A directory with more entries holds classes, and not the parts of a dataset.
const PARTS_MAX: usize = 16;

/// Which root each file belongs to: the part of a dataset, or what all files are below.
#[derive(Debug)]
pub(super) struct Roots {
    parts: HashSet<String>,
    base: String,
}

impl Roots {
    pub(super) fn new(manifest: &Manifest) -> Self {
        let mut parts = HashSet::new();
        let mut open = vec![DirIndex::ROOT];
        // Three levels down: `data/imagenet/train`. Deeper ones are classes.
        for _ in 0..3 {
            let mut below = Vec::new();
            for dir in open {
                let dirs: Vec<(&str, DirIndex)> = manifest
                    .children(dir)
                    .take(PARTS_MAX * 4)
                    .filter_map(|(name, node)| match node {
                        Node::Dir(child) => Some((name, child)),
                        Node::File(_) => None,
                    })
                    .collect();
                if dirs.len() > PARTS_MAX {
                    continue;
                }
                let named: Vec<DirIndex> = dirs.iter().filter(|(name, _)| is_part(name)).map(|&(_, dir)| dir).collect();
                // `train` among `airplane`, `car`, `ship` is a class
                if named.len() * 2 >= dirs.len() {
                    parts.extend(named.iter().map(|&dir| manifest.dir_path(dir).to_owned()));
                }
                below.extend(dirs.into_iter().map(|(_, dir)| dir).filter(|dir| !parts.contains(manifest.dir_path(*dir))));
            }
            open = below;
        }
        Self { parts, base: base(manifest) }
    }

    pub(super) fn of<'a>(&'a self, path: &'a str) -> &'a str {
        if !self.parts.is_empty() {
            for (at, _) in path.match_indices('/') {
                if self.parts.contains(&path[..at]) {
                    return &path[..at];
                }
            }
        }
        &self.base
    }
}

fn is_part(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    PARTS.iter().any(|part| name.starts_with(part))
}

/// The deepest directory that all files are below, of which classes are the directories.
fn base(manifest: &Manifest) -> String {
    let mut dir = DirIndex::ROOT;
    loop {
        let mut children = manifest.children(dir).take(2);
        match (children.next(), children.next()) {
            (Some((_, Node::Dir(only))), None) if manifest.children(only).all(|(_, node)| matches!(node, Node::Dir(_))) => dir = only,
            _ => return manifest.dir_path(dir).to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ObjectMeta;

    fn manifest(paths: &[&str]) -> Manifest {
        let object = |path: &&str| ObjectMeta { key: (*path).into(), size: 1, etag: "".into(), mtime_seconds: 0 };
        Manifest::build("", paths.iter().map(object).collect())
    }

    #[test]
    fn parts_of_a_dataset_are_roots_and_classes_are_not() {
        for (paths, path, root) in [
            (&["train/a/1.jpg", "train/b/1.jpg", "val/a/1.jpg"][..], "train/a/1.jpg", "train"),
            (&["d/train/a/1.jpg", "d/val/a/1.jpg"], "d/val/a/1.jpg", "d/val"),
            (&["airplane/1.jpg", "car/1.jpg", "train/1.jpg"], "train/1.jpg", ""),
            (&["a/1.jpg", "b/2.jpg"], "a/1.jpg", ""),
            (&["images/a/1.jpg", "images/b/2.jpg"], "images/a/1.jpg", "images"),
            (&["1.jpg", "2.jpg"], "1.jpg", ""),
        ] {
            let manifest = manifest(paths);
            assert_eq!(Roots::new(&manifest).of(path), root, "{paths:?}");
        }
    }
}
