//! Orders found out from recorded opens of unmodified PyTorch scripts, by the state machine that the daemon runs.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use belady::infer::InferConfig;
use belady::infer::log::{Logged, parse};
use belady::infer::verify::{Report, manifest_of, verify};
use belady::order::mt19937::Mt19937;
use belady::order::torch::randperm;

/// Without the searches that take minutes.
const QUICK: InferConfig = InferConfig { threads: 1, exhaustive: false, patient: false };

fn recorded(name: &str) -> Vec<Logged> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/opens").join(name);
    let output = Command::new("gzip").arg("-dc").arg(&path).output().expect("gzip");
    assert!(output.status.success(), "{}", path.display());
    let (opens, left_out) = parse(&String::from_utf8(output.stdout).expect("text"));
    assert_eq!(left_out, 0);
    opens
}

fn report(opens: &[Logged]) -> Report {
    let began = Instant::now();
    let manifest = Arc::new(manifest_of(opens));
    verify(&manifest, opens, QUICK, &|| began.elapsed())
}

#[test]
fn seeded_scripts_are_found_by_128_opens_and_followed_to_their_end() {
    for (name, seed) in [("seed42-workers0.tsv.gz", 42), ("seed42-workers2.tsv.gz", 42), ("seed123456-workers4.tsv.gz", 123_456)] {
        let report = report(&recorded(name));
        let text = format!("{name}: {report:#?}");
        assert_eq!((report.state, report.orders.len()), ("locked", 1), "{text}");
        let order = &report.orders[0];
        assert_eq!((order.kind.as_str(), order.seed), ("torch-random", seed), "{text}");
        assert!(order.locked_after <= 128, "{text}");
        assert!(report.predicted_fraction > 0.99, "{text}");
    }
}

/// A die that is the same in every run (xorshift64*).
struct Die(u64);

impl Die {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let out = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(out).expect("31 bits") % n
    }
}

/// The opens of one epoch of DataLoaders: each rank's places in batches, dealt to its workers, which are at most two batches ahead.
fn loaders(ranks: &[Vec<u32>], workers: usize, batch: usize, first_process: u32, die: &mut Die) -> Vec<(u32, u32)> {
    struct Worker {
        process: u32,
        rank: usize,
        batches: std::collections::VecDeque<Vec<u32>>,
    }
    let mut all: Vec<Worker> = Vec::new();
    for (rank, places) in ranks.iter().enumerate() {
        for worker in 0..workers {
            let process = first_process + u32::try_from(all.len()).expect("few");
            let batches = places.chunks(batch).skip(worker).step_by(workers).map(<[u32]>::to_vec).collect();
            all.push(Worker { process, rank, batches });
        }
    }
    let mut done = vec![0usize; ranks.len()];
    let mut taken = vec![0usize; all.len()];
    let mut opens = Vec::new();
    loop {
        // a worker may read when its next batch is less than two rounds ahead of the slowest of its rank
        for (rank, done) in done.iter_mut().enumerate() {
            *done = all
                .iter()
                .zip(&taken)
                .filter(|(w, _)| w.rank == rank && !w.batches.is_empty())
                .map(|(_, &t)| t)
                .min()
                .unwrap_or(usize::MAX);
        }
        let ready: Vec<usize> =
            (0..all.len()).filter(|&w| !all[w].batches.is_empty() && taken[w] < done[all[w].rank].saturating_add(2)).collect();
        if ready.is_empty() {
            return opens;
        }
        let w = ready[die.below(ready.len())];
        let worker = &mut all[w];
        let front = worker.batches.front_mut().expect("not empty");
        opens.push((worker.process, front.remove(0)));
        if front.is_empty() {
            worker.batches.pop_front();
            taken[w] += 1;
        }
    }
}

fn path(sample: u32) -> String {
    format!("train/c{:02}/img_{sample:06}.png", sample / 100)
}

fn logged(opens: &[(u32, u32)]) -> Vec<Logged> {
    let at = |place: usize| std::time::Duration::from_micros(100 * place as u64);
    opens.iter().enumerate().map(|(place, &(process, sample))| Logged { at: at(place), process, path: path(sample) }).collect()
}

/// As a mount would: all files of the dataset are listed, whichever are opened.
fn report_of(n: u32, opens: &[(u32, u32)]) -> Report {
    let began = Instant::now();
    let all: Vec<(u32, u32)> = (0..n).map(|sample| (0, sample)).collect();
    verify(&Arc::new(manifest_of(&logged(&all))), &logged(opens), QUICK, &|| began.elapsed())
}

/// Epoch seeds of `DataLoader(shuffle=True)` after `torch.manual_seed(seed)`.
fn default_order(n: u32, seed: u64, output: u64) -> Vec<u32> {
    let mut generator = Mt19937::new(seed);
    generator.skip(output);
    let seed = generator.random();
    randperm(n, &mut Mt19937::new(u64::from(seed)))
}

#[test]
fn persistent_workers_after_a_probe_are_found_and_their_stride_is_learnt() {
    let (mut opens, mut die) = (vec![(9, 0)], Die(7));
    for epoch in 0..3 {
        opens.extend(loaders(&[default_order(1_500, 7, 3 + 2 * epoch)], 2, 32, 10, &mut die));
    }
    let report = report_of(1_500, &opens);
    let text = format!("{report:#?}");
    assert_eq!(report.state, "locked", "{text}");
    assert!(report.orders[0].locked_after <= 128 && report.predicted_fraction > 0.97, "{text}");
    assert!(report.orders[0].order.contains("seed=7:generator=default:offset=3:stride=2"), "{text}");
}
