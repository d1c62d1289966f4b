//! Sample rules equal what Python and torchvision list on a real mount.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use belady::dataset::samples::samples;
use belady::dataset::{Manifest, Node};
use belady::types::{ObjectMeta, SampleRule};

use crate::support::belady::Belady;

const PYTHON: &str = "/usr/bin/python3";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/sequences.py");

/// Every class needs an image, or `ImageFolder` refuses the tree. `top.jpg` is no sample of it.
const FILES: [&str; 31] = [
    "top.jpg",
    // '-' is before '/': the bucket has c-d/ first, ImageFolder c/.
    "c/1.jpg",
    "c-d/1.jpg",
    "c.x/1.jpg",
    // A file after a subdirectory by name.
    "a/z.jpg",
    "a/sub/x.jpg",
    "a/sub-2/x.jpg",
    "a/sub/deep/y.JPG",
    "a/é.jpg",
    "a/_.jpg",
    "a/A.png",
    "a/note.txt",
    "B/1.bmp",
    // Numbers, and equal keys.
    "n/img10.jpg",
    "n/img2.jpg",
    "n/img02.jpg",
    "n/IMG3.jpg",
    "n/img2.png",
    "n/img2.seg.png",
    "n/img99999999999999999999.jpg",
    // Hidden from glob.
    "n/.hidden.jpg",
    ".dot/1.jpg",
    "n/no ending",
    "n/dot..jpg",
    "n/x.jpg.txt",
    "arrays/b/2.NPY",
    "arrays/b/1.npy",
    "arrays/a/10.npy",
    "arrays/a/9.npy",
    "arrays/a/9.jpg",
    "arrays/stray.npy",
];

const TEXTS: [(&str, &str); 4] = [
    ("labels.csv", "label,file\n1,n/img2.jpg\n0,c/1.jpg\n2,\"a/é.jpg\"\n"),
    ("records.jsonl", "{\"id\": 3, \"image\": {\"path\": \"c-d/1.jpg\"}}\n{\"image\": {\"path\": \"c/1.jpg\"}, \"id\": 1}\n"),
    ("lists.json", r#"{"val": ["c/1.jpg", "a/z.jpg"], "train": ["n/img10.jpg"]}"#),
    (
        "coco.json",
        r#"{"images": [{"id": 20, "file_name": "c/1.jpg"}, {"id": 3, "file_name": "n/img2.jpg"}, {"id": 100, "file_name": "a/z.jpg"}],
            "annotations": [{"id": 1, "image_id": 100}, {"id": 2, "image_id": 20}], "categories": []}"#,
    ),
];

fn write_tree(root: &Path) -> Manifest {
    let mut keys: Vec<(&str, &str)> = FILES.iter().map(|file| (*file, "x")).collect();
    keys.extend(TEXTS);
    for (file, text) in &keys {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let object = |(key, text): &(&str, &str)| ObjectMeta { key: (*key).into(), size: text.len() as u64, etag: "".into(), mtime_seconds: 0 };
    Manifest::build("", keys.iter().map(object).collect())
}

#[test]
fn every_rule_is_what_python_lists_on_the_mount() {
    let source = tempfile::tempdir().unwrap();
    let manifest = write_tree(source.path());
    let mount = Belady::mount(&format!("file://{}", source.path().display()), &["--memory", "16MiB"]);
    let output = Command::new(PYTHON).arg(SCRIPT).arg(&mount.dir).env("LC_ALL", "C.UTF-8").output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            assert!(std::env::var_os("BELADY_TEST_REQUIRE_ALL").is_none(), "{PYTHON}: {error}");
            return eprintln!("left out: no {PYTHON}");
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listed: BTreeMap<String, Vec<String>> = serde_json::from_slice(&output.stdout).unwrap();
    let has_torchvision = listed.contains_key("imagefolder");
    assert!(has_torchvision || std::env::var_os("BELADY_TEST_REQUIRE_ALL").is_none(), "torchvision is missing");
    assert!(listed.len() >= 15, "{:?}", listed.keys());
    for (text, expected) in &listed {
        let rule: SampleRule = text.parse().unwrap();
        let root = if text.starts_with("datasetfolder") { "arrays" } else { "" };
        let names = rule.names().and_then(|names| names.in_mount()).map(|path| std::fs::read_to_string(source.path().join(path)).unwrap());
        let files = samples(&manifest, root, &rule, names.as_deref()).unwrap();
        let ours: Vec<&str> = files.iter().map(|&file| manifest.path(file)).collect();
        assert_eq!(&ours, expected, "{text}");
    }
    assert!(listed["components"] != listed["sorted"] && listed["walk"] != listed["components"] && listed["natural"] != listed["sorted"]);
    assert_eq!(mount.unmount(), 0);
}

/// A list that lies in the bucket is read at the start, and what is wrong with it is one line.
#[test]
fn a_manifest_in_the_mount_declares_an_order() {
    let source = tempfile::tempdir().unwrap();
    let manifest = write_tree(source.path());
    assert!(matches!(manifest.find("labels.csv"), Some(Node::File(_))));
    let url = format!("file://{}", source.path().display());
    let mount = Belady::mount(&url, &["--memory", "16MiB", "--order", "sequential:files=manifest:mount:labels.csv"]);
    let upcoming = || std::fs::read_to_string(mount.dir.join(".belady/order")).unwrap();
    mount.wait_for("the order is shown", |_| upcoming().contains("n/img2.jpg\nc/1.jpg\na/é.jpg\n"));
    assert_eq!(mount.unmount(), 0);
    for (order, words) in [
        ("sequential:files=manifest:mount:gone.csv", "no such file in the mount"),
        ("sequential:files=coco:mount:labels.csv", "is not what its ending says"),
        ("sequential:files=manifest:mount:a/note.txt", "names files"),
    ] {
        let error = Belady::try_mount(&url, &["--memory", "16MiB", "--order", order]).unwrap_err();
        assert!(error.contains(words), "{order}: {error}");
    }
}
