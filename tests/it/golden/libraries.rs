//! Libraries that are not torch.

use belady::order::mosaic;
use serde_json::Value;

use super::{Computed, TAGS, cases, digest, epochs, equal};

#[test]
fn numpy() {
    let mut computed = Computed::default();
    for tag in TAGS {
        let mut compared = 0;
        for case in cases("numpy", tag) {
            let (op, seed) = (case["op"].as_str().unwrap(), &case["seed"]);
            let kind = if op.starts_with("legacy") { "numpy-legacy" } else { "numpy-generator" };
            match op.trim_start_matches("legacy_").trim_start_matches("pcg64_") {
                "permutation" | "shuffle_list" => {
                    // The first epoch is the same in every form; the long ones are compared in one.
                    let forms = ["permutation", "in-place", "reseeded", "never"];
                    let short = case["n"].as_u64().unwrap() <= 1000;
                    for again in &forms[..if short { 4 } else { 1 }] {
                        computed.compare(&format!("{kind}:seed={seed}:again={again}"), &case["n"], 0, &case["r"]);
                    }
                    compared += 1;
                }
                "permutation_3_epochs" => {
                    for (epoch, record) in (0..).zip(epochs(&case)) {
                        computed.compare(&format!("{kind}:seed={seed}"), &case["n"], epoch, record);
                        compared += 1;
                    }
                }
                _ => panic!("unknown case {op}"),
            }
        }
        assert_eq!(compared, 25 + 20 + 35 + 28 + (5 + 7) * 3, "{tag}");
    }
}

#[test]
fn python() {
    let mut computed = Computed::default();
    for tag in TAGS {
        let mut compared = 0;
        for case in cases("py_random", tag) {
            let (op, seed) = (case["op"].as_str().unwrap(), &case["seed"]);
            match op {
                "shuffle" => computed.compare(&format!("python-shuffle:seed={seed}"), &case["n"], 0, &case["r"]),
                "sample" => computed.compare(&format!("python-sample:seed={seed}:k={}", case["k"]), &case["n"], 0, &case["r"]),
                "shuffle_again_in_place" => {
                    for (epoch, record) in (0..).zip(epochs(&case)) {
                        computed.compare(&format!("python-shuffle:seed={seed}:again=in-place"), &case["n"], epoch, record);
                        compared += 1;
                    }
                    continue;
                }
                _ => panic!("unknown case {op}"),
            }
            compared += 1;
        }
        assert_eq!(compared, 35 + 49 + 7 * 3, "{tag}");
    }
}

/// The rule is compared, not the kind: that one yields shards, in the order in which the samples need them.
#[test]
fn mosaic_streaming() {
    let mut compared = 0;
    for case in cases("mosaic_streaming", "t215") {
        let algorithm = match case["algo"].as_str().unwrap() {
            "naive" => mosaic::Algorithm::Naive,
            "py1s" => mosaic::Algorithm::Py1s,
            "py2s" => mosaic::Algorithm::Py2s,
            "py1br" => mosaic::Algorithm::Py1br,
            "py1e" => mosaic::Algorithm::Py1e,
            other => panic!("unknown algorithm {other}"),
        };
        let number = |key: &str| case[key].as_u64().unwrap();
        let config = mosaic::Config {
            algorithm,
            nodes: u32::try_from(number("ncn")).unwrap(),
            seed: number("seed"),
            block: u32::try_from(number("block")).unwrap(),
        };
        let sizes: Vec<u32> = serde_json::from_value(case["sizes"].clone()).unwrap();
        let places = mosaic::shuffle(&sizes, config, number("epoch"));
        equal(&places, &digest(&places), &case["r"], &format!("{config:?} epoch {}", number("epoch")));
        compared += 1;
    }
    assert_eq!(compared, 30);
}

#[test]
fn webdataset() {
    let mut computed = Computed::default();
    let mut compared = 0;
    for case in cases("webdataset", "t215") {
        let spec = format!("webdataset:seed={}:buffer=100:initial=100", case["seed"]);
        match case["op"].as_str().unwrap() {
            "shuffle100_seed" => {
                // the seed is the same in every epoch
                computed.compare(&spec, &case["n"], 0, &case["r"]);
                computed.compare(&spec, &case["n"], 5, &case["r"]);
                compared += 1;
            }
            "detshuffle100" => {
                for (epoch, record) in (0..).zip(epochs(&case)) {
                    computed.compare(&format!("{spec}:deterministic=true"), &case["n"], epoch, record);
                    compared += 1;
                }
            }
            other => panic!("unknown case {other}"),
        }
    }
    assert_eq!(compared, 4 + 4 * 3);
}

/// Seeds that are texts, and webdataset without one (`make_texts.py`: CPython 3.11, webdataset 1.0.2).
#[test]
fn seeds_that_are_texts() {
    let mut computed = Computed::default();
    let cases = cases("seed_texts", "311");
    assert_eq!(cases.len(), 5 * 3 * 2 + 3 * (1 + 1 + 3) + 2);
    for case in cases {
        let seed = match &case["seed"] {
            Value::String(text) => format!("seed_text={text}"),
            number => format!("seed={number}"),
        };
        let (op, n) = (case["op"].as_str().unwrap(), &case["n"]);
        match op {
            "shuffle_in_place" | "sample" => {
                let kind =
                    if op == "sample" { format!("python-sample:k={}", case["k"]) } else { "python-shuffle:again=in-place".to_owned() };
                for (epoch, record) in (0..).zip(epochs(&case)) {
                    computed.compare(&format!("{kind}:{seed}"), n, epoch, record);
                }
            }
            "wds_seed" | "no_seed" => {
                let spec = format!("webdataset:{seed}:buffer={}:workers={}", case["buffer"], case["workers"]);
                let number = |key: &str| usize::try_from(case[key].as_u64().unwrap()).unwrap();
                // The workers of these cases have as many shards each.
                let (places, _) = computed.order(&spec, u32::try_from(number("n")).unwrap(), 0);
                let own: Vec<u32> = places.iter().copied().skip(number("worker")).step_by(number("workers")).collect();
                equal(&own, &digest(&own), &epochs(&case)[0], &format!("{spec} worker {}", number("worker")));
            }
            other => panic!("unknown case {other}"),
        }
    }
}

/// Made by webdataset 0.2.100, the last versions that had wids.
#[test]
fn wids() {
    let mut computed = Computed::default();
    let mut compared = 0;
    for case in cases("wids", "deb113") {
        let ranks = match case["sampler"].as_str().unwrap() {
            "chunked" | "shardlist" => String::new(),
            "distributed" => format!(":world={}:rank={}", case["world"], case["rank"]),
            other => panic!("unknown case {other}"),
        };
        let spec = format!("wids:seed={}:chunk={}:shuffle_first={}{ranks}", case["seed"], case["chunk"], case["first"]);
        for (epoch, record) in (0..).zip(epochs(&case)) {
            computed.compare(&spec, &case["n"], epoch, record);
            compared += 1;
        }
    }
    assert_eq!(compared, 33 * 3);
}

#[test]
fn grain() {
    let mut computed = Computed::default();
    let cases = cases("grain_index_shuffle", "t215");
    assert_eq!(cases.len(), 16);
    for case in &cases {
        assert_eq!(case["rounds"], 4);
        computed.compare(&format!("grain:seed={}", case["seed"]), &case["n"], 0, &case["r"]);
    }
}

/// What strace saw DALI 2.4 open.
#[test]
fn dali() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/dali_opens.t215.json");
    let record: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut computed = Computed::default();
    let mut compare = |spec: &str, epoch: u64, first: &Value, sha256: &Value| {
        let (places, digest) = computed.order(spec, 2000, epoch);
        assert_eq!(&serde_json::to_value(&places[..64]).unwrap(), first);
        assert_eq!(digest, sha256.as_str().unwrap());
    };
    for epoch in [0, 1, 7] {
        compare("dali", epoch, &record["random_shuffle_first64"], &record["random_shuffle_sha256_epoch0"]);
    }
    let each = record["shuffle_after_epoch"].as_array().unwrap();
    assert_eq!(each.len(), 3);
    for (epoch, record) in (0..).zip(each) {
        compare("dali:shuffle_after_epoch=true", epoch, &record["first64"], &record["sha256"]);
    }
}

/// What the readers of DALI 1.53 and 2.4 gave (`make_dali.py`).
#[test]
fn dali_shuffled_after_each_epoch() {
    let mut computed = Computed::default();
    for (tag, generator, count) in [("153", "mt19937", 11), ("24", "mt19937_64", 41)] {
        let cases = cases("dali_each_epoch", tag);
        assert_eq!(cases.len(), count);
        for case in cases {
            let seed = if case["seed"].is_null() { String::new() } else { format!(":shuffle_after_epoch_seed={}", case["seed"]) };
            let again = if case["checkpointing"] == true { "reseeded" } else { "in-place" };
            let (world, rank) = (&case["world"], &case["rank"]);
            let spec = format!("dali:shuffle_after_epoch=true{seed}:generator={generator}:again={again}:world={world}:rank={rank}");
            for (epoch, record) in (0..).zip(epochs(&case)) {
                computed.compare(&spec, &case["n"], epoch, record);
            }
        }
    }
}
