//! A run that is taken up again is looked for in the numbering that is there: to make others takes longer than readers need to begin.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::verify::{Logged, manifest_of};
use super::{Engine, InferConfig, Inference, Rung};
use crate::order::infer::Control;
use crate::order::mt19937::Mt19937;
use crate::order::torch::randperm;
use crate::plan::{Event, OrderState, Planner, PlannerConfig};
use crate::types::{FileIndex, Outcome};

const N: u32 = 8_000;

struct Node {
    engine: Engine,
    now: Duration,
    /// Maps that were there after each look at known orders.
    maps: Vec<usize>,
}

impl Node {
    fn new() -> Self {
        let path = |sample: u32| format!("train/c{}/img_{sample}.png", sample / 100);
        let log: Vec<Logged> = (0..N).map(|sample| Logged { at: Duration::ZERO, process: 0, path: path(sample) }).collect();
        let manifest = Arc::new(manifest_of(&log));
        let sizes: Arc<[u64]> = vec![1; manifest.len()].into();
        let planner = Planner::new(PlannerConfig::new(Vec::new()), Arc::clone(&sizes));
        let config = InferConfig { exhaustive: false, deep: false, ..InferConfig::default() };
        Self { engine: Engine::new(planner, Some(Inference::new(manifest, sizes, config))), now: Duration::ZERO, maps: Vec::new() }
    }

    /// Ranks 0 to 7 of a world, a process each, from a step of an epoch on, so many steps.
    fn read(&mut self, job: u64, epoch: u32, world: u32, steps: std::ops::Range<u32>) {
        let order = randperm(N, &mut Mt19937::new(u64::from(epoch)));
        self.now += Duration::from_secs(3);
        for step in steps {
            for rank in 0..8 {
                self.now += Duration::from_millis(1);
                let (now, file) = (self.now, FileIndex(order[(step * world + rank) as usize % N as usize]));
                let process = u32::try_from(job).unwrap() * 100 + rank;
                let mut out = Vec::new();
                self.engine.handle(now, Event::Opened { file, process, outcome: Outcome::Miss }, &mut out);
                self.engine.compute_here(now, &mut out);
                self.engine.settle(now, |_| Some(job));
                while let Some(search) = self.engine.next_job(true).or_else(|| self.engine.next_job(false)) {
                    let result = search.run(Control { stop: &AtomicBool::new(false), threads: 1 });
                    if result.rung == Rung::Known {
                        self.maps.push(result.maps.as_ref().map_or(0, |maps| maps.computed().len()));
                    }
                    self.engine.finished(now, result, 0.0, &mut out);
                    self.engine.compute_here(now, &mut out);
                }
            }
        }
    }
}

#[test]
fn a_run_that_is_taken_up_again_is_looked_for_in_the_numbering_that_is_there() {
    let mut node = Node::new();
    node.read(1, 0, 32, 0..100);
    assert_eq!(
        node.engine.planner().order(0).state,
        OrderState::Locked,
        "by numbers or by names: files are numbered in the order of the listing"
    );
    node.maps.clear();
    node.read(2, 1, 16, 200..300);
    let followed = &node.engine.followed()[0].spec;
    assert_eq!((node.engine.planner().order(0).epoch, followed.world), (1, 16), "{:?}", node.maps);
    assert!(node.maps.len() >= 2 && node.maps.iter().all(|&maps| maps <= 1), "{:?}", node.maps);
}
