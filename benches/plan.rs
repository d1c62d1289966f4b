//! What one event costs the planner at the size of ImageNet: 1.28 million files, one node, a fifth of the bytes cached.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use belady::plan::{Action, EpochFiles, Event, OrderConfig, Planner, PlannerConfig};
use belady::types::{FileIndex, Outcome};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

const FILES: u32 = 1_281_167;

/// A shuffle of all files, the same in every run.
fn order(epoch: u64) -> Arc<EpochFiles> {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ (epoch + 1);
    let mut files: Vec<FileIndex> = (0..FILES).map(FileIndex).collect();
    for i in (1..files.len()).rev() {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        files.swap(i, usize::try_from(state % (i as u64 + 1)).unwrap());
    }
    Arc::new(EpochFiles { files, stride: 1 })
}

/// A reader that goes through the orders, with a store that answers at once.
struct Driver {
    planner: Planner,
    orders: [Arc<EpochFiles>; 2],
    place: u64,
    now: Duration,
    out: Vec<Action>,
}

impl Driver {
    fn new() -> Self {
        let sizes: Arc<[u64]> = (0..FILES).map(|f| 80_000 + u64::from(f % 997) * 60).collect();
        let capacity = sizes.iter().sum::<u64>() / 5;
        let mut planner = Planner::new(PlannerConfig::new(vec![capacity / 4, capacity / 4 * 3]), sizes);
        planner.add_order(OrderConfig::default());
        let mut driver = Self { planner, orders: [order(0), order(1)], place: 0, now: Duration::ZERO, out: Vec::new() };
        driver.tell(Event::Tick);
        driver
    }

    fn tell(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            self.planner.handle(self.now, event, &mut self.out);
            for action in self.out.drain(..) {
                match action {
                    Action::Fetch { file, tier } => events.push(Event::Fetched { file, tier, ahead: true }),
                    Action::Compute { order, epoch, way } => {
                        events.push(Event::Order {
                            order,
                            epoch,
                            way,
                            files: Arc::clone(&self.orders[usize::try_from(epoch % 2).unwrap()]),
                        });
                    }
                    Action::Retire { .. } => {}
                }
            }
        }
    }

    /// One access: its open, its release, and the fetch it makes room for.
    fn access(&mut self) {
        let files = &self.orders[usize::try_from(self.place / u64::from(FILES) % 2).unwrap()].files;
        let file = files[usize::try_from(self.place % u64::from(FILES)).unwrap()];
        self.place += 1;
        self.now += Duration::from_micros(100);
        self.tell(Event::Opened { file, process: 1, outcome: Outcome::InTime });
        self.tell(Event::Released { file });
    }
}

fn bench(c: &mut Criterion) {
    let mut driver = Driver::new();
    for _ in 0..2 * FILES {
        driver.access();
    }
    c.bench_function("plan/access of 1.28 M files, third epoch on", |b| {
        b.iter(|| black_box(&mut driver).access());
    });
    let sizes: Arc<[u64]> = vec![110_000; FILES as usize].into();
    let epoch = order(0);
    let mut group = c.benchmark_group("plan");
    group.sample_size(10);
    group.bench_function("order of 1.28 M files arrives", |b| {
        b.iter_batched(
            || {
                let mut planner = Planner::new(PlannerConfig::new(vec![1 << 30]), Arc::clone(&sizes));
                planner.add_order(OrderConfig::default());
                planner
            },
            |mut planner| {
                let mut out = Vec::new();
                planner.handle(Duration::ZERO, Event::Order { order: 0, epoch: 0, way: 0, files: Arc::clone(&epoch) }, &mut out);
                (planner, out)
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
