//! Orders equal those of the real libraries, bit for bit: the vectors in `tests/golden` were made by torch 2.15 and 1.13.
//!
//! Every comparison goes through the specification a user would write. A kind of case that is not supported is named in
//! [`UNSUPPORTED`]; one that is neither fails the test, so no vector is passed over unnoticed.

use std::collections::HashMap;
use std::path::PathBuf;

use belady::dataset::Manifest;
use belady::dataset::samples::samples;
use belady::order::spec::OrderSpec;
use belady::types::{ObjectMeta, SampleRule};
use serde_json::Value;

use crate::support::sha256::sha256_hex;

/// The library versions the vectors were made with.
const TAGS: [&str; 2] = ["t215", "deb113"];

/// Cases of `torch_dataloader` that no kind of order declares: repeats, subsets and partial epochs.
const UNSUPPORTED: [&str; 4] = ["replacement", "num_samples_300", "subset_random_sampler_even", "random_split_then_shuffle"];

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
            let bytes: Vec<u8> = places.iter().flat_map(|&sample| u64::from(sample).to_le_bytes()).collect();
            (places, sha256_hex(&bytes))
        })
    }

    /// Compares what a specification yields in `epoch` with one record.
    #[track_caller]
    fn compare(&mut self, spec: &str, n: &Value, epoch: u64, record: &Value) {
        let n = u32::try_from(n.as_u64().unwrap()).unwrap();
        let length = usize::try_from(record["n"].as_u64().unwrap()).unwrap();
        let (places, digest) = self.order(spec, n, epoch);
        assert_eq!(places.len(), length, "{spec} n={n} epoch {epoch}");
        assert_eq!(digest, record["sha256"].as_str().unwrap(), "{spec} n={n} epoch {epoch}");
        for (key, part) in [("all", &places[..]), ("first16", &places[..length.min(16)]), ("last16", &places[length.saturating_sub(16)..])]
        {
            if let Some(expected) = record.get(key) {
                assert_eq!(&serde_json::to_value(part).unwrap(), expected, "{spec} n={n} epoch {epoch}: {key}");
            }
        }
    }
}

fn epochs(case: &Value) -> &[Value] {
    case["epochs"].as_array().unwrap()
}

#[test]
fn torch_randperm() {
    let mut computed = Computed::default();
    for tag in TAGS {
        let mut compared = 0;
        for case in cases("torch_randperm", tag) {
            let seed = case["seed"].as_str().unwrap();
            if case["op"] == "same generator, 3 calls" {
                // One generator runs on: every second permutation is the one RandomSampler(generator=g) uses, the other its discarded one.
                for (call, epoch) in [(0, 0), (2, 1)] {
                    computed.compare(&format!("torch-random:seed={seed}:generator=sampler"), &case["n"], epoch, &epochs(&case)[call]);
                }
            } else {
                computed.compare(&format!("torch-randperm:seed={seed}"), &case["n"], 0, &case["r"]);
            }
            compared += 1;
        }
        assert_eq!(compared, 55, "{tag}");
    }
}

#[test]
fn torch_distributed() {
    let mut computed = Computed::default();
    for tag in TAGS {
        let mut compared = 0;
        for case in cases("torch_distributed", tag) {
            let (world, rank, seed, drop_last) = (&case["world"], &case["rank"], &case["seed"], &case["drop_last"]);
            let spec = format!("torch-distributed:seed={seed}:world={world}:rank={rank}:drop_last={drop_last}");
            for (epoch, record) in epochs(&case).iter().zip(case["r"].as_array().unwrap()) {
                computed.compare(&spec, &case["n"], epoch.as_u64().unwrap(), record);
                compared += 1;
            }
        }
        // 237 cases of four epochs, one of three (set_epoch forgotten), two of ImageNet's length and two epochs.
        assert_eq!(compared, 237 * 4 + 3 + 2 * 2, "{tag}");
    }
}

#[test]
fn torch_dataloader() {
    let mut computed = Computed::default();
    for tag in TAGS {
        let mut compared = 0;
        for case in cases("torch_dataloader", tag) {
            let (kind, seed, batch) = (case["case"].as_str().unwrap(), &case["seed"], &case["B"]);
            let keys = match kind {
                "plain" => String::new(),
                "drop_last" => format!(":batch={batch}:drop_last=true"),
                "with_val_loader_each_epoch" => ":stride=6".to_owned(),
                "persistent_workers" => ":stride=2".to_owned(),
                "generator_given" => ":generator=loader".to_owned(),
                "generator_given_drop_last" => format!(":generator=loader:batch={batch}:drop_last=true"),
                "sampler_generator_given" => ":generator=sampler".to_owned(),
                _ if UNSUPPORTED.contains(&kind) => continue,
                _ => panic!("{tag}: unknown case {kind}"),
            };
            for (epoch, record) in (0..).zip(epochs(&case)) {
                computed.compare(&format!("torch-random:seed={seed}{keys}"), &case["n"], epoch, record);
                compared += 1;
            }
        }
        assert_eq!(compared, (32 + 12 + 5 * 6) * 3, "{tag}");
    }
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
