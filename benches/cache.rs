//! What a warm open and a fill cost in the cache alone: `cargo bench --bench cache`.

use std::hint::black_box;
use std::sync::Arc;

use belady::cache::{CacheConfig, Lookup, Placement, TieredCache, tier_counters};
use belady::stats::Stats;
use belady::types::ObjectId;
use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};

const FILE_BYTES: u64 = 110_000; // ImageNet's mean
const FILES: u64 = 2000;

fn cache(memory_in_heap: bool) -> Arc<TieredCache> {
    let config = CacheConfig { memory: Some(1 << 30), memory_in_heap, ..CacheConfig::default() };
    let stats = Arc::new(Stats { tiers: tier_counters(&config), ..Stats::default() });
    TieredCache::new(config, stats).expect("no disk is involved").0
}

fn id(n: u64) -> ObjectId {
    ObjectId { key: format!("train/n{:08}/{n}.JPEG", n % 1000).into(), etag: "\"d41d8cd98f00b204e9800998ecf8427e\"".into() }
}

fn fill(cache: &TieredCache, id: &ObjectId, body: &Bytes) {
    let room = cache.reserve(FILE_BYTES, Placement::Planned { tier: 0 }).expect("room for all");
    let mut writer = cache.writer(room, id, FILE_BYTES);
    for chunk in body.chunks(16 << 10) {
        writer.write(body.slice_ref(chunk)).expect("in memory");
    }
    drop(writer.finish().expect("complete"));
}

fn benches(c: &mut Criterion) {
    let body = Bytes::from(vec![7; usize::try_from(FILE_BYTES).expect("small")]);
    let ids: Vec<ObjectId> = (0..FILES).map(id).collect();
    for (name, heap) in [("tmpfs", false), ("heap", true)] {
        let warm = cache(heap);
        ids.iter().for_each(|id| fill(&warm, id, &body));
        let mut next = ids.iter().cycle();
        c.bench_function(&format!("{name}: lookup hit"), |b| {
            b.iter(|| {
                let found = warm.lookup(next.next().expect("endless"), FILE_BYTES);
                assert!(matches!(black_box(found), Lookup::Hit(_)));
            });
        });
        c.bench_function(&format!("{name}: opened"), |b| b.iter(|| black_box(warm.opened(next.next().expect("endless")))));
        c.bench_function(&format!("{name}: retire and fill 110 kB"), |b| {
            b.iter(|| {
                let id = next.next().expect("endless");
                warm.retire(id);
                fill(&warm, id, &body);
            });
        });
    }
}

criterion_group!(cache_benches, benches);
criterion_main!(cache_benches);
