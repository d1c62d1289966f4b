//! How much CPU time an epoch's order and a namespace take. `cargo bench --bench order`.
//!
//! They are computed off the hot path, once an epoch and once a mount; a whole order must be there long before the epoch it is for.
//! Wanted: an ImageNet-sized order (1,281,167) in 60 ms, an ImageNet-21k-sized one (14,197,122) in 1 s.

use std::hint::black_box;
use std::time::Duration;

use belady::dataset::Manifest;
use belady::dataset::samples::samples;
use belady::order::spec::OrderSpec;
use belady::types::{ObjectMeta, SampleRule};
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

/// CPU time of the thread that measures, which does all the work: other programs do not count.
struct Cpu;

impl Measurement for Cpu {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
        Duration::from_nanos(text.split(' ').next().and_then(|first| first.parse().ok()).expect("nanoseconds on a core"))
    }

    fn end(&self, start: Duration) -> Duration {
        self.start() - start
    }

    fn add(&self, one: &Duration, other: &Duration) -> Duration {
        *one + *other
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    #[expect(clippy::cast_precision_loss, reason = "a measurement")]
    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

const IMAGENET: u32 = 1_281_167;
const IMAGENET_21K: u32 = 14_197_122;

fn orders(criterion: &mut Criterion<Cpu>) {
    let mut group = criterion.benchmark_group("order");
    group.sample_size(10).measurement_time(Duration::from_secs(5));
    for (name, n) in [("imagenet", IMAGENET), ("imagenet-21k", IMAGENET_21K)] {
        for text in [
            "torch-distributed:world=8:rank=0-7",
            "torch-distributed:world=64:rank=8-15",
            "torch-random:seed=42",
            "hf-trainer:world=8:rank=0-7:batch=64",
            "timm-repeat-aug:world=8:rank=0-7",
            "numpy-legacy:seed=42:again=reseeded",
            "numpy-generator:seed=42:again=reseeded",
            "python-shuffle:seed=42:again=reseeded",
            "grain:seed=42",
            "dali:world=8:rank=0-7",
            "dali:shuffle_after_epoch=true:again=reseeded:world=8:rank=0-7",
            "webdataset:seed=42:buffer=1000:deterministic=true",
            "wids:seed=42:chunk=2000",
            "torch-random:seed=42:replacement=true",
            "torch-random:seed=42:split=0.8+0.2:part=0",
            "torch-subset:seed=42",
            "torchdata:seed=42:workers=4",
            "accelerate:seed=42:world=8:rank=0-7:batch=64",
            "torchvision-repeat-aug:world=8:rank=0-7",
            "python-sample:seed=42:again=reseeded",
            "dlio",
            "sequential",
            "mosaic:shard_samples=1000:algorithm=naive",
            "mosaic:shard_samples=1000:algorithm=py1s",
            "mosaic:shard_samples=1000:algorithm=py2s",
            "mosaic:shard_samples=1000:algorithm=py1br",
            "mosaic:shard_samples=1000:algorithm=py1e",
        ] {
            // Its files are shards of a thousand samples.
            let n = if text.starts_with("mosaic") { n / 1000 } else { n };
            let spec: OrderSpec = text.parse().expect("the specification is right");
            let sampler = spec.sampler(n).expect("the dataset fits");
            group.bench_function(format!("{name}/{text}"), |bencher| bencher.iter(|| black_box(sampler.order(black_box(3)))));
        }
    }
    let late: OrderSpec = "torch-random:seed=42:generator=loader".parse().expect("the specification is right");
    let sampler = late.sampler(IMAGENET).expect("the dataset fits");
    group.bench_function("imagenet/generator=loader, epoch 89", |bencher| bencher.iter(|| black_box(sampler.order(black_box(89)))));
    group.finish();
}

/// Keys as ImageNet has them: 1,000 classes.
fn listing() -> Vec<ObjectMeta> {
    let object = |i: u32| ObjectMeta {
        key: format!("imagenet/train/n{:08}/n{:08}_{}.JPEG", i / 1282, i / 1282, i % 1282).into(),
        size: 110_000,
        etag: format!("\"{i:032x}\"").into(),
        mtime_seconds: 1_500_000_000,
    };
    (0..IMAGENET).map(object).collect()
}

fn namespace(criterion: &mut Criterion<Cpu>) {
    let mut group = criterion.benchmark_group("dataset");
    group.sample_size(10).measurement_time(Duration::from_secs(5));
    let objects = listing();
    group.bench_function("build", |bencher| {
        bencher.iter_batched(|| objects.clone(), |objects| Manifest::build("imagenet", objects), BatchSize::PerIteration);
    });
    let manifest = Manifest::build("imagenet", objects);
    group.bench_function("imagefolder", |bencher| {
        bencher.iter(|| samples(black_box(&manifest), "train", &SampleRule::ImageFolder, None));
    });
    let numbers: Vec<u64> =
        (0..IMAGENET).step_by(1283).map(|i| manifest.ino(belady::dataset::Node::File(belady::types::FileIndex(i)))).collect();
    group.bench_function("node, 999 numbers", |bencher| bencher.iter(|| numbers.iter().filter_map(|&ino| manifest.node(ino)).count()));
    let mut file = Vec::new();
    manifest.save(&mut file).expect("memory takes every byte");
    group.bench_function("load", |bencher| bencher.iter(|| Manifest::load(black_box(file.as_slice()))));
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(Cpu);
    targets = orders, namespace
}
criterion_main!(benches);
