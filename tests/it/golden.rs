//! Orders equal those of the real libraries, bit for bit: the vectors in `tests/golden` were made by them (torch 2.15 and 1.13, numpy 2.4 and
//! 1.24, CPython 3.11, accelerate 1.15, timm 1.0, torchdata 0.11, MosaicML Streaming 0.13, WebDataset 1.0, grain 0.2, DALI 2.4).
//!
//! Every comparison goes through the specification a user would write, or says why not. Cases are counted: none is passed over unnoticed.

use std::collections::HashMap;
use std::path::PathBuf;

use belady::dataset::Manifest;
use belady::dataset::samples::samples;
use belady::order::spec::OrderSpec;
use belady::types::{ObjectMeta, SampleRule};
use serde_json::Value;

use crate::support::sha256::sha256_hex;

mod libraries;
mod torch;

/// The library versions the vectors were made with.
const TAGS: [&str; 2] = ["t215", "deb113"];

fn cases(name: &str, tag: &str) -> Vec<Value> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.{tag}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let Value::Object(mut file) = serde_json::from_str(&text).unwrap() else { panic!("{name}: not an object") };
    serde_json::from_value(file.remove("cases").unwrap()).unwrap()
}

/// Orders and their digests by specification, so that the second library version need not compute the same again.
#[derive(Default)]
struct Computed(HashMap<(String, u32, u64), (Vec<u32>, String)>);

impl Computed {
    fn order(&mut self, spec: &str, n: u32, epoch: u64) -> &(Vec<u32>, String) {
        self.0.entry((spec.to_owned(), n, epoch)).or_insert_with(|| {
            let parsed: OrderSpec = spec.parse().unwrap();
            // A shard may be empty: then there is no order to declare, and the library yields nothing.
            let places = parsed.sampler(n).map_or_else(|_| Vec::new(), |sampler| sampler.order(epoch).places);
            let digest = digest(&places);
            (places, digest)
        })
    }

    /// Compares what a specification yields in `epoch` with one record.
    #[track_caller]
    fn compare(&mut self, spec: &str, n: &Value, epoch: u64, record: &Value) {
        let n = u32::try_from(n.as_u64().unwrap()).unwrap();
        let (places, digest) = self.order(spec, n, epoch);
        equal(places, digest, record, &format!("{spec} n={n} epoch {epoch}"));
    }
}

/// SHA-256 over little-endian 64-bit numbers, as the vectors have it.
fn digest(places: &[u32]) -> String {
    let bytes: Vec<u8> = places.iter().flat_map(|&sample| u64::from(sample).to_le_bytes()).collect();
    sha256_hex(&bytes)
}

/// The places are those of a record; what is at hand of them is shown where they are not.
#[track_caller]
fn equal(places: &[u32], digest: &str, record: &Value, what: &str) {
    let length = usize::try_from(record["n"].as_u64().unwrap()).unwrap();
    assert_eq!(places.len(), length, "{what}");
    for (key, part) in [("all", places), ("first16", &places[..length.min(16)]), ("last16", &places[length.saturating_sub(16)..])] {
        if let Some(expected) = record.get(key) {
            assert_eq!(&serde_json::to_value(part).unwrap(), expected, "{what}: {key}");
        }
    }
    assert_eq!(digest, record["sha256"].as_str().unwrap(), "{what}");
}

fn epochs(case: &Value) -> &[Value] {
    case["epochs"].as_array().unwrap()
}

#[test]
fn imagefolder() {
    for tag in TAGS {
        let cases = cases("imagefolder", tag);
        assert_eq!(cases.len(), 1, "{tag}");
        for case in &cases {
            let names: Vec<String> = serde_json::from_value(case["files"].clone()).unwrap();
            let objects = names.iter().map(|name| ObjectMeta {
                key: format!("data/train/{name}").into(),
                size: 1,
                etag: "".into(),
                mtime_seconds: 0,
            });
            let manifest = Manifest::build("data", objects.collect());
            let files = samples(&manifest, "train", &SampleRule::ImageFolder, None).unwrap();
            let order: Vec<&str> = files.iter().map(|&file| manifest.path(file).strip_prefix("train/").unwrap()).collect();
            assert_eq!(serde_json::to_value(&order).unwrap(), case["order"], "{tag}");
            let mut classes: Vec<&str> = order.iter().map(|path| path.split_once('/').unwrap().0).collect();
            classes.dedup();
            assert_eq!(serde_json::to_value(&classes).unwrap(), case["classes"], "{tag}");
        }
    }
}
