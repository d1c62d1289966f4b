//! torch's own samplers, accelerate, torchdata and timm.

use serde_json::Value;

use super::{Computed, TAGS, cases, epochs};

#[test]
fn torch_randperm() {
    let mut computed = Computed::default();
    for tag in TAGS {
        let mut compared = 0;
        for case in cases("torch_randperm", tag) {
            let seed = case["seed"].as_str().unwrap();
            if case["op"] == "same generator, 3 calls" {
                // One generator runs on: its permutations one after the other, with nothing drawn between them.
                for (epoch, record) in (0..).zip(epochs(&case)) {
                    computed.compare(&format!("torch-random:seed={seed}:generator=stream:offset=0:between=0"), &case["n"], epoch, record);
                }
                // Every second one is that of RandomSampler(generator=g), the other its discarded one.
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
        let (mut compared, mut subset) = (0, 0);
        for case in cases("torch_dataloader", tag) {
            let (kind, seed, batch) = (case["case"].as_str().unwrap(), &case["seed"], &case["B"]);
            let mut n = &case["n"];
            let thousand = Value::from(1000);
            let keys = match kind {
                "plain" => String::new(),
                "drop_last" => format!(":batch={batch}:drop_last=true"),
                "with_val_loader_each_epoch" => ":stride=6".to_owned(),
                "persistent_workers" => ":stride=2".to_owned(),
                "generator_given" => ":generator=loader".to_owned(),
                "generator_given_drop_last" => format!(":generator=loader:batch={batch}:drop_last=true"),
                "sampler_generator_given" => ":generator=sampler".to_owned(),
                "replacement" => ":replacement=true:num_samples=500".to_owned(),
                "num_samples_300" => ":num_samples=300".to_owned(),
                "random_split_then_shuffle" => ":split=900+100:part=0".to_owned(),
                "subset_random_sampler_even" => {
                    n = &thousand; // the record counts the indices
                    subset += 1;
                    ":indices=0-998/2".to_owned()
                }
                _ => panic!("{tag}: unknown case {kind}"),
            };
            for (epoch, record) in (0..).zip(epochs(&case)) {
                let kind = if kind == "subset_random_sampler_even" { "torch-subset" } else { "torch-random" };
                computed.compare(&format!("{kind}:seed={seed}{keys}"), n, epoch, record);
                compared += 1;
            }
        }
        assert_eq!((compared, subset), (98 * 3, 6), "{tag}");
    }
}

#[test]
fn accelerate() {
    let mut computed = Computed::default();
    let mut compared = 0;
    for case in cases("accelerate", "t215") {
        let (config, seed) = (case["cfg"].as_str().unwrap(), &case["seed"]);
        let spec = match config {
            // one process: the sampler is left as it is
            "default" => format!("torch-random:seed={seed}"),
            "seedable" => format!("accelerate:seed={seed}"),
            "seedable_data_seed_7" => "accelerate:seed=7".to_owned(),
            "BatchSamplerShard" => {
                let (world, rank, batch, split) = (&case["world"], &case["rank"], &case["B"], &case["split"]);
                format!("accelerate:seed={seed}:world={world}:rank={rank}:batch={batch}:split_batches={split}")
            }
            _ => panic!("unknown case {config}"),
        };
        for (epoch, record) in (0..).zip(epochs(&case)) {
            computed.compare(&spec, &case["n"], epoch, record);
            if config == "BatchSamplerShard" && case["split"] == false && seed == 42 {
                computed.compare(&spec.replace("accelerate:seed=42", "hf-trainer"), &case["n"], epoch, record);
            }
            compared += 1;
        }
    }
    assert_eq!(compared, 36 * 3 + 8 * 2);
}

/// Made by accelerate 0.34 and 1.7 on torch 1.13: `prepare_data_loader` for one of several processes, both samplers, both forms, with and
/// without `even_batches`, short datasets too.
#[test]
fn accelerate_in_several_processes() {
    let mut computed = Computed::default();
    // The default sampler: 0.34 seeds no generator, so it has torch's constant; 1.7 seeds one from the default generator.
    for (file, default) in [
        ("accelerate_shard_034", "accelerate:seed=67280421310721:sampler=generator"),
        ("accelerate_shard_17", "accelerate:seed=42:sampler=default"),
    ] {
        let mut compared = 0;
        for case in cases(file, "deb113") {
            assert_eq!(case["seed"], 42);
            let kind = if case["cfg"] == "seedable" { "accelerate:seed=42" } else { default };
            let ranks = format!("world={}:rank={}:batch={}", case["world"], case["rank"], case["B"]);
            let tail = if case["even"] == false { ":tail=uneven" } else { "" };
            let keys = format!("split_batches={}:drop_last={}{tail}", case["split"], case["drop_last"]);
            for (epoch, record) in (0..).zip(epochs(&case)) {
                computed.compare(&format!("{kind}:{ranks}:{keys}"), &case["n"], epoch, record);
                compared += 1;
            }
        }
        assert_eq!(compared, 60 * 3, "{file}");
    }
}

/// What trainers do with a loader, and how it is declared (`make_trainers.py`: accelerate 1.7, transformers 4.28, Lightning 2.0, torch 1.13).
#[test]
fn trainers() {
    let mut computed = Computed::default();
    let cases = cases("trainers", "deb113");
    assert_eq!(cases.len(), 4 + 4 + 6);
    for case in cases {
        let ranks = || format!("world={}:rank={}", case["world"], case["rank"]);
        let spec = match case["op"].as_str().unwrap() {
            // the first process reads for all, and nothing is dealt
            "dispatch" if case["seedable"] == true => "accelerate:seed=42".to_owned(),
            "dispatch" => "torch-random:seed=42".to_owned(),
            // one generator for all epochs, seeded with data_seed or from the default generator
            "trainer" if case["data_seed"].is_null() => format!("accelerate:seed={}:sampler=default:offset=1", case["seed"]),
            "trainer" => format!("torch-random:seed={}:generator=sampler", case["data_seed"]),
            "lightning" => match case["mode"].as_str().unwrap() {
                "train" => format!("lightning:seed=7:{}", ranks()),
                "validate" => format!("sequential:{}", ranks()),
                "predict" => format!("sequential:tail=uneven:{}", ranks()),
                mode => panic!("unknown mode {mode}"),
            },
            op => panic!("unknown case {op}"),
        };
        for (epoch, record) in (0..).zip(epochs(&case)) {
            computed.compare(&spec, &case["n"], epoch, record);
        }
    }
}

#[test]
fn timm() {
    let mut computed = Computed::default();
    let mut compared = 0;
    for case in cases("timm", "t215") {
        let (world, rank) = (&case["world"], &case["rank"]);
        if case["s"] == "ordered" {
            computed.compare(&format!("sequential:world={world}:rank={rank}"), &case["n"], 0, &case["r"]);
            compared += 1;
            continue;
        }
        assert_eq!(case["s"], "repeataug3");
        for (epoch, record) in epochs(&case).iter().zip(case["r"].as_array().unwrap()) {
            let epoch = epoch.as_u64().unwrap();
            computed.compare(&format!("timm-repeat-aug:world={world}:rank={rank}"), &case["n"], epoch, record);
            compared += 1;
        }
    }
    assert_eq!(compared, 6 + 6 * 3);
}

#[test]
fn torchdata() {
    let mut computed = Computed::default();
    let mut compared = 0;
    for case in cases("torchdata_stateful", "t215") {
        let spec = format!("torchdata:seed={}:workers={}", case["seed"], case["W"]);
        for epoch in 0..3 {
            let (places, found) = computed.order(&spec, 1000, epoch as u64);
            assert_eq!(serde_json::to_value(&places[..8]).unwrap(), case["first"][epoch], "{spec} {epoch}");
            assert_eq!(Value::from(found.as_str()), case["sha"][epoch], "{spec} {epoch}");
            compared += 1;
        }
    }
    assert_eq!(compared, 12);
}
