//! Candidate maps of trees and opens as programs have them.

use super::*;
use crate::types::ObjectMeta;

fn manifest(paths: &[String]) -> Arc<Manifest> {
    let object = |path: &String| ObjectMeta { key: path.as_str().into(), size: 1, etag: "".into(), mtime_seconds: 0 };
    Arc::new(Manifest::build("", paths.iter().map(object).collect()))
}

fn file(manifest: &Manifest, path: &str) -> FileIndex {
    match manifest.find(path) {
        Some(Node::File(file)) => file,
        other => panic!("{path}: {other:?}"),
    }
}

fn maps(manifest: &Arc<Manifest>, opens: &[&str], texts: &[NamesText]) -> Vec<CandidateMap> {
    let opens: Vec<FileIndex> = opens.iter().map(|path| file(manifest, path)).collect();
    Maps::new(manifest, &opens, texts).collect()
}

fn names(maps: &[CandidateMap]) -> Vec<String> {
    maps.iter().map(|map| format!("{}|{}", map.root, map.rule)).collect()
}

/// `train/` and `val/` with classes, and labels beside.
fn tree() -> Vec<String> {
    let mut all = vec!["labels.csv".to_owned(), "train.json".to_owned()];
    for (part, n) in [("train", 40), ("val", 10)] {
        for i in 0..n {
            all.push(format!("{part}/c{}/{i}.jpg", i % 4));
        }
    }
    all
}

#[test]
fn a_plain_tree_has_few_maps_and_the_usual_one_first() {
    let manifest = manifest(&tree());
    let maps = maps(&manifest, &["train/c0/4.jpg", "train/c3/7.jpg", "train/c1/5.jpg"], &[]);
    let found = names(&maps);
    assert_eq!(found[0], "train|imagefolder");
    // sorted, components and walk are the same numbering here
    assert!(!found.iter().any(|name| name.starts_with("train|sorted") || name.starts_with("train|walk")), "{found:?}");
    assert!(found.contains(&"train|natural@jpg".to_owned()) && found.contains(&"train|basename@jpg".to_owned()), "{found:?}");
    assert!(found.contains(&"|imagefolder".to_owned()), "{found:?}");
    assert!(maps.len() <= MAPS_MAX);
    let mut prints: Vec<u64> = maps.iter().map(CandidateMap::fingerprint).collect();
    prints.sort_unstable();
    prints.dedup();
    assert_eq!(prints.len(), maps.len(), "no numbering twice: {found:?}");
}

#[test]
fn one_class_at_first_does_not_hide_the_root() {
    let manifest = manifest(&tree());
    let found = names(&maps(&manifest, &["train/c0/4.jpg", "train/c0/8.jpg"], &[]));
    assert!(found.contains(&"train|imagefolder".to_owned()), "{found:?}");
}

#[test]
fn train_and_val_in_turns_are_two_roots() {
    let manifest = manifest(&tree());
    let found = names(&maps(&manifest, &["train/c0/4.jpg", "val/c3/7.jpg", "train/c1/5.jpg", "val/c1/1.jpg", "train/c2/6.jpg"], &[]));
    for root in ["train|imagefolder", "val|imagefolder"] {
        assert!(found.iter().position(|name| name == root).is_some_and(|place| place < 8), "{root} in {found:?}");
    }
}

#[test]
fn pairs_are_ordered_by_their_first_kind() {
    let mut paths: Vec<String> = (0..20).flat_map(|i| [format!("d/images/{i}.jpg"), format!("d/masks/{i}.png")]).collect();
    paths.push("d/readme.txt".into());
    let manifest = manifest(&paths);
    let opens = ["d/images/3.jpg", "d/masks/3.png", "d/images/12.jpg", "d/masks/12.png", "d/images/7.jpg", "d/masks/7.png"];
    let maps = maps(&manifest, &opens, &[]);
    let (first, n) = (&maps[0], maps[0].len());
    assert_eq!((first.root.as_str(), n), ("d/images", 20), "{:?}", names(&maps));
    assert_eq!(first.index_of(file(&manifest, "d/masks/3.png")), None);
    // Beside each other.
    let paths: Vec<String> = (0..20).flat_map(|i| [format!("d/{i}.jpg"), format!("d/{i}.txt")]).collect();
    let manifest = self::manifest(&paths);
    let maps = self::maps(&manifest, &["d/3.jpg", "d/3.txt", "d/12.jpg", "d/12.txt"], &[]);
    assert_eq!((maps[0].rule.to_string().as_str(), maps[0].len()), ("sorted@jpg", 20), "{:?}", names(&maps));
}

#[test]
fn two_classes_with_the_same_names_are_no_pairs() {
    let paths: Vec<String> = (0..8).flat_map(|i| [format!("d/cats/{i}.jpg"), format!("d/dogs/{i}.jpg")]).collect();
    let manifest = manifest(&paths);
    // A whole small epoch, in a shuffled order.
    let order = [3, 12, 7, 0, 15, 2, 9, 4, 13, 6, 1, 14, 11, 8, 5, 10];
    let opens: Vec<&str> = order.iter().map(|&at: &usize| paths[at].as_str()).collect();
    let maps = maps(&manifest, &opens, &[]);
    assert_eq!((maps[0].root.as_str(), maps[0].rule.to_string().as_str(), maps[0].len()), ("d", "imagefolder", 16), "{:?}", names(&maps));
}

#[test]
fn a_text_that_was_read_comes_first() {
    let manifest = manifest(&tree());
    let csv = "path,label\ntrain/c1/5.jpg,1\ntrain/c0/4.jpg,0\ntrain/c3/7.jpg,3\n";
    let text = NamesText { file: file(&manifest, "labels.csv"), text: csv.into() };
    let maps = maps(&manifest, &["labels.csv", "train/c3/7.jpg", "train/c1/5.jpg"], &[text]);
    assert_eq!(maps[0].rule.to_string(), "manifest:mount:labels.csv");
    assert_eq!(maps[0].index_of(file(&manifest, "train/c0/4.jpg")), Some(1));
    let json = r#"{"images": [{"id": 9, "file_name": "c1/5.jpg"}, {"id": 2, "file_name": "c3/7.jpg"}], "annotations": [{"image_id": 2}]}"#;
    let text = NamesText { file: file(&manifest, "train.json"), text: json.into() };
    let maps = self::maps(&manifest, &["train/c3/7.jpg", "train/c1/5.jpg"], &[text]);
    assert_eq!((maps[0].rule.to_string().as_str(), maps[0].root.as_str()), ("coco:mount:train.json", "train"));
    assert_eq!(maps[0].index_of(file(&manifest, "train/c3/7.jpg")), Some(0));
}

#[test]
fn parts_of_one_text_are_maps_of_their_own() {
    let manifest = manifest(&tree());
    let json = r#"{"train": ["c1/5.jpg", "c3/7.jpg", "c0/4.jpg"], "val": ["c2/6.jpg", "c2/10.jpg"]}"#;
    let text = NamesText { file: file(&manifest, "train.json"), text: json.into() };
    let maps = maps(&manifest, &["train/c3/7.jpg", "train/c2/6.jpg", "train/c1/5.jpg"], &[text]);
    let found = names(&maps);
    assert_eq!(found[..2], ["train|manifest:mount:train.json", "train|manifest@val:mount:train.json"], "{found:?}");
    assert_eq!((maps[0].len(), maps[1].len()), (3, 2));
}

#[test]
fn other_endings_are_a_dataset_folder() {
    let paths: Vec<String> = (0..30).map(|i| format!("d/c{}/{i}.npy", i % 3)).chain(["d/c0/x.json".into()]).collect();
    let manifest = manifest(&paths);
    let found = names(&maps(&manifest, &["d/c0/3.npy", "d/c1/4.npy"], &[]));
    assert_eq!(found[0], "d|datasetfolder@npy");
}

#[test]
fn memory_is_bounded() {
    let manifest = manifest(&tree());
    let opens = [file(&manifest, "train/c0/4.jpg"), file(&manifest, "train/c3/7.jpg")];
    assert_eq!(Maps::new(&manifest, &opens, &[]).within(0).count(), 1);
    assert_eq!(Maps::new(&manifest, &[], &[]).count(), 0);
}

#[test]
fn index_is_the_inverse() {
    for samples in [vec![3, 4, 5, 6], vec![6, 3, 5, 4, 3], vec![9000, 2, 77], vec![], vec![5]] {
        let samples: Vec<FileIndex> = samples.into_iter().map(FileIndex).collect();
        let map = CandidateMap::new("", SampleRule::ImageFolder, samples.clone());
        for file in (0..9100).map(FileIndex) {
            let expected = samples.iter().position(|known| *known == file).map(|place| u32::try_from(place).unwrap());
            assert_eq!(map.index_of(file), expected, "{samples:?} {file:?}");
        }
    }
}
