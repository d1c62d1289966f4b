//! Orders found out from recorded opens of unmodified PyTorch scripts, by the state machine that the daemon runs.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belady::infer::InferConfig;
use belady::infer::verify::{Logged, Report, manifest_of, verify};
use belady::observe::log::parse;
use belady::order::mt19937::Mt19937;
use belady::order::spec::OrderSpec;
use belady::order::torch::randperm;

use crate::support::opens::{Die, loaders};

/// Without the searches that take minutes.
const QUICK: InferConfig = InferConfig { threads: 1, exhaustive: false, deep: true, patient: false };
/// Only the first step of the dictionary.
const BRIEF: InferConfig = InferConfig { deep: false, ..QUICK };

fn recorded(name: &str) -> Vec<Logged> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/opens").join(name);
    let output = Command::new("gzip").arg("-dc").arg(&path).output().expect("gzip");
    assert!(output.status.success(), "{}", path.display());
    let log = parse(output.stdout.as_slice()).expect("text");
    assert_eq!(log.skipped, 0);
    log.opens.into_iter().map(|open| Logged { at: Duration::from_secs_f64(open.seconds), process: open.thread, path: open.path }).collect()
}

fn report(opens: &[Logged]) -> Report {
    let began = Instant::now();
    let manifest = Arc::new(manifest_of(opens));
    verify(&manifest, opens, QUICK, &|| began.elapsed(), &|_| {})
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

fn path(sample: u32) -> String {
    format!("train/c{:02}/img_{sample:06}.png", sample / 100)
}

fn logged(opens: &[(u32, u32)]) -> Vec<Logged> {
    let at = |place: usize| Duration::from_micros(100 * place as u64);
    opens.iter().enumerate().map(|(place, &(process, sample))| Logged { at: at(place), process, path: path(sample) }).collect()
}

/// As a mount would: all files of the dataset are listed, whichever are opened.
fn report_of(n: u32, opens: &[(u32, u32)]) -> Report {
    report_with(BRIEF, n, opens)
}

fn report_with(config: InferConfig, n: u32, opens: &[(u32, u32)]) -> Report {
    let began = Instant::now();
    let all: Vec<(u32, u32)> = (0..n).map(|sample| (0, sample)).collect();
    verify(&Arc::new(manifest_of(&logged(&all))), &logged(opens), config, &|| began.elapsed(), &|_| {})
}

/// Epoch seeds of `DataLoader(shuffle=True)` after `torch.manual_seed(seed)`.
fn default_order(n: u32, seed: u64, output: u64) -> Vec<u32> {
    let mut generator = Mt19937::new(seed);
    generator.skip(output);
    let seed = generator.random(); // the low word of the 64 bits that it draws
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

/// The stride between two epochs, whatever it is, is told by the second epoch's first opens: nothing is lost, and nothing found anew.
#[test]
fn the_usual_strides_are_told_without_losing_the_order() {
    let n = 1_000;
    for (strides, workers) in [([2, 2], 4), ([4, 4], 2), ([6, 6], 2), ([1_004; 2], 1), ([3_004; 2], 1), ([4, 6], 2)] {
        let (mut opens, mut die, mut output) = (Vec::new(), Die(23), 3);
        for epoch in 0..3 {
            opens.extend(loaders(&[default_order(n, 42, output)], workers, 32, 10 + 10 * epoch, &mut die));
            output += strides.get(epoch as usize).copied().unwrap_or(0);
        }
        let report = report_of(n, &opens);
        let text = format!("{strides:?}: {report:#?}");
        assert!(!report.events.iter().any(|(_, what)| what.contains("; lost;")), "{text}");
        assert!(
            report.orders.len() == 1 && report.orders[0].order.contains(&format!(":stride={}", strides[1])) || strides[1] == 4,
            "{text}"
        );
        assert!(report.predicted_fraction > 0.995, "{text}");
    }
}

/// What the ranks of a DistributedSampler read, one list a rank.
fn dealt(n: u32, seed: u64, world: u32, ranks: std::ops::Range<u32>) -> Vec<Vec<u32>> {
    let order = randperm(n, &mut Mt19937::new(seed));
    let steps = n.div_ceil(world);
    let at = |place: u32| order[(place % n) as usize];
    ranks.map(|rank| (0..steps).map(|step| at(step * world + rank)).collect()).collect()
}

#[test]
fn any_node_of_a_distributed_run_is_found() {
    for (n, world, ranks, workers) in [(20_000, 128, 120..128, 2), (20_000, 16, 3..4, 4), (6_000, 4, 0..4, 1)] {
        let (mut opens, mut die) = (Vec::new(), Die(3));
        for epoch in 0..3u32 {
            opens.extend(loaders(&dealt(n, u64::from(epoch), world, ranks.clone()), workers, 8, 1 + 1_000 * epoch, &mut die));
        }
        let report = report_of(n, &opens);
        let text = format!("{n} {world} {ranks:?}: {report:#?}");
        assert_eq!(report.state, "locked", "{text}");
        let order = &report.orders[0];
        let last = ranks.end - 1;
        let wanted = if ranks.len() == 1 { last.to_string() } else { format!("{}-{last}", ranks.start) };
        assert_eq!((order.kind.as_str(), order.world, order.ranks.as_str()), ("torch-distributed", world, wanted.as_str()), "{text}");
        assert!(order.locked_after <= 160 && report.predicted_fraction > 0.97, "{text}");
    }
}

/// Nobody waits for a search.
const PATIENT: InferConfig = InferConfig { patient: true, ..QUICK };

/// Seeds that nobody listed: five digits, a date, a number of the far end.
#[test]
fn any_seed_of_five_digits_and_any_date_is_found() {
    let default = |seed: u64, output: u64| (0..2u64).map(|epoch| vec![default_order(3_000, seed, output + 4 * epoch)]).collect::<Vec<_>>();
    let sampler = |seed: u64| (0..2u64).map(|epoch| dealt(9_000, seed + epoch, 8, 2..4)).collect::<Vec<_>>();
    let given =
        |seed: u64| (0..2u64).map(|epoch| vec![made(&format!("torch-random:generator=loader:seed={seed}"), 3_000, epoch)]).collect();
    let far = |seed: u64| (0..2u64).map(|epoch| dealt(9_984, seed + epoch, 384, 304..312)).collect::<Vec<_>>();
    let cases = [
        ("torch-random:seed=54321:generator=default:offset=3", 3_000, default(54_321, 3), QUICK),
        ("torch-random:seed=20231107:generator=default:offset=5", 3_000, default(20_231_107, 5), QUICK),
        ("torch-random:seed=4294967295:generator=default:offset=1", 3_000, default(u64::from(u32::MAX), 1), QUICK),
        ("torch-distributed:seed=65535:world=8:rank=2-3", 9_000, sampler(65_535), QUICK),
        ("torch-distributed:seed=19991231:world=8:rank=2-3", 9_000, sampler(19_991_231), QUICK),
        ("torch-random:seed=27183:generator=loader", 3_000, given(27_183), QUICK),
        // ... where somebody pays for it
        ("torch-distributed:seed=46368:world=384:rank=304-311", 9_984, far(46_368), PATIENT),
    ];
    for (wanted, n, epochs, config) in cases {
        let (mut opens, mut die) = (Vec::new(), Die(53));
        for (first, ranks) in (1..).step_by(1_000).zip(&epochs) {
            opens.extend(loaders(ranks, 2, 16, first, &mut die));
        }
        let report = report_with(config, n, &opens);
        let shown = format!("{wanted}: {report:#?}");
        assert_eq!((report.state, report.orders.len()), ("locked", 1), "{shown}");
        assert!(report.orders[0].order.starts_with(wanted), "{shown}");
        assert!(report.orders[0].locked_after <= 256 && report.predicted_fraction > 0.9, "{shown}");
    }
}

#[test]
fn a_resumed_run_is_found_in_mid_epoch_whatever_its_world() {
    let n = 12_288;
    let (mut opens, mut die) = (Vec::new(), Die(5));
    // epoch 2 of a run on 96 ranks, which is taken up again at the same sample with 128 ranks, then with 64
    let mut first_process = 1;
    for (world, from, to) in [(96u32, 0, 4_608), (128, 4_608, 9_216), (64, 9_216, 12_288)] {
        let steps = |places: Vec<u32>| places[(from / world) as usize..(to / world) as usize].to_vec();
        let ranks: Vec<Vec<u32>> = dealt(n, 2, world, 8..16).into_iter().map(steps).collect();
        opens.extend(loaders(&ranks, 2, 8, first_process, &mut die));
        first_process += 100;
    }
    let began_again: Vec<usize> = (1..3).map(|run| opens.iter().position(|open| open.0 > 100 * run).expect("a run")).collect();
    let report = report_of(n, &opens);
    let text = format!("{began_again:?}: {report:#?}");
    let worlds: Vec<(u64, &str)> = report
        .events
        .iter()
        .filter(|(_, what)| what.contains(": locked"))
        .map(|(at, what)| (*at, what.split(":world=").nth(1).and_then(|rest| rest.split(':').next()).unwrap_or("none")))
        .collect();
    for (world, began) in [("128", began_again[0]), ("64", began_again[1])] {
        let (at, _) = worlds.iter().find(|(_, found)| *found == world).unwrap_or_else(|| panic!("world {world}: {text}"));
        // 16 workers have all begun within some 80 opens
        assert!((*at as usize) < began + 160, "world {world} at {at}: {text}");
    }
}

#[test]
fn a_forgotten_set_epoch_and_a_recorded_order_are_followed() {
    let (mut opens, mut die) = (Vec::new(), Die(11));
    // a shuffle that nobody can know, the same every epoch
    let mut order: Vec<u32> = (0..2_000).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, die.below(i + 1));
    }
    for epoch in 0..3 {
        opens.extend(loaders(&[order.clone()], 2, 16, 1 + 10 * epoch, &mut die));
    }
    let report = report_of(2_000, &opens);
    let text = format!("{report:#?}");
    assert_eq!(report.orders.len(), 1, "{text}");
    assert!(report.orders[0].locked_after > 2_000 && report.orders[0].locked_after < 2_300, "{text}");
    assert!(report.predicted_fraction > 0.9, "{text}");
}

#[test]
fn train_and_validation_are_followed_apart() {
    let (mut opens, mut die) = (Vec::new(), Die(13));
    let mut log = Vec::new();
    for epoch in 0..3u32 {
        let train = loaders(&[default_order(1_500, 42, 3 + 6 * u64::from(epoch))], 2, 32, 1 + 10 * epoch, &mut die);
        let val = loaders(&[(0..300).collect()], 2, 32, 5 + 10 * epoch, &mut die);
        opens.push((train, val));
    }
    for (train, val) in &opens {
        log.extend(logged(train));
        log.extend(logged(val).into_iter().map(|open| Logged { path: open.path.replace("train/", "val/"), ..open }));
    }
    for (place, open) in log.iter_mut().enumerate() {
        open.at = Duration::from_micros(100 * place as u64);
    }
    let began = Instant::now();
    let report = verify(&Arc::new(manifest_of(&log)), &log, BRIEF, &|| began.elapsed(), &|_| {});
    let text = format!("{report:#?}");
    let found: Vec<(&str, &str, &str)> =
        report.orders.iter().map(|order| (order.root.as_str(), order.kind.as_str(), order.state)).collect();
    assert!(found.contains(&("train", "torch-random", "locked")) && found.contains(&("val", "sequential", "locked")), "{text}");
    assert!(report.predicted_fraction > 0.93, "{text}");
}

/// `find | md5sum`, `rsync` and a loader that does not shuffle read in the order of the listing: that is what they are, and nothing else.
/// A few samples that a program looks at before it trains, in its own process.
#[test]
fn samples_that_were_looked_at_before_hide_no_order() {
    let n = 1_500;
    for (probes, workers) in [(2, 1), (5, 1), (4, 2), (8, 2)] {
        // of one process the trainer itself reads
        let (mut opens, mut die) = ((0..probes).map(|k| (if workers > 1 { 9 } else { 10 }, k * 37)).collect::<Vec<_>>(), Die(7));
        for epoch in 0..2 {
            let first = if workers > 1 { 10 + 10 * epoch } else { 10 };
            opens.extend(loaders(&[default_order(n, 3, 3 + 4 * u64::from(epoch))], workers, 32, first, &mut die));
        }
        let report = report_of(n, &opens);
        let text = format!("{probes} before, {workers} workers: {report:#?}");
        assert_eq!((report.state, report.orders.len()), ("locked", 1), "{text}");
        assert!(report.orders[0].locked_after <= 64 + 8 && report.predicted_fraction > 0.98, "{text}");
    }
}

/// A sweep: jobs that differ in what they learn with, and read the same order at the same time, each at its own pace.
#[test]
fn jobs_that_read_the_same_order_at_once_are_found() {
    let (n, mut die) = (1_100, Die(5));
    for (jobs, workers) in [(2, 1), (2, 2)] {
        let of_job: Vec<Vec<(u32, u32)>> = (0..jobs)
            .map(|job| {
                let epochs =
                    (0..2).flat_map(|epoch| loaders(&[default_order(n, 42, 3 + 4 * epoch)], workers, 32, 10 + 100 * job, &mut die));
                epochs.collect()
            })
            .collect();
        let (mut at, mut opens) = (vec![0; of_job.len()], Vec::new());
        while at.iter().zip(&of_job).any(|(&at, all)| at < all.len()) {
            let job = die.below(of_job.len());
            // none is far ahead of the others
            let last = at.iter().min().copied().unwrap();
            if at[job] < of_job[job].len() && at[job] < last + 40 {
                opens.push(of_job[job][at[job]]);
                at[job] += 1;
            }
        }
        let report = report_of(n, &opens);
        let text = format!("{jobs} jobs of {workers} workers: {report:#?}");
        assert_eq!((report.state, report.orders.len()), ("locked", 1), "{text}");
        assert!(report.orders[0].locked_after <= 160, "{text}");
        assert!(report.predicted_fraction > 0.8, "{text}");
    }
}

#[test]
fn a_walk_is_sequential_and_no_more() {
    let opens: Vec<(u32, u32)> = (0..1_000).map(|sample| (7, sample)).collect();
    let report = report_of(1_000, &opens);
    assert_eq!(report.orders.len(), 1, "{report:#?}");
    assert_eq!(report.orders[0].kind, "sequential", "{report:#?}");
    assert!(report.predicted_fraction > 0.99, "{report:#?}");
}

/// An order of another library, as its specification makes it.
fn made(text: &str, n: u32, epoch: u64) -> Vec<u32> {
    text.parse::<OrderSpec>().expect(text).sampler(n).expect(text).order(epoch).places
}

#[test]
fn orders_of_other_libraries_are_found_and_followed_through_epochs() {
    for text in [
        "numpy-legacy:seed=42:again=in-place",
        "numpy-generator:seed=1234:again=reseeded",
        "python-shuffle:seed=0:again=permutation",
        "dali",
        "dali:shuffle_after_epoch=true",
        "dali:shuffle_after_epoch=true:generator=mt19937:again=reseeded",
        "torchdata:workers=2:seed=42",
    ] {
        let (mut opens, mut die) = (Vec::new(), Die(17));
        for epoch in 0..3u32 {
            opens.extend(loaders(&[made(text, 2_000, u64::from(epoch))], 2, 16, 1 + 10 * epoch, &mut die));
        }
        let report = report_of(2_000, &opens);
        let shown = format!("{text}: {report:#?}");
        assert_eq!((report.state, report.orders.len()), ("locked", 1), "{shown}");
        assert!(report.orders[0].order.starts_with(text.split(':').next().expect("a kind")), "{shown}");
        assert!(report.orders[0].locked_after <= 128 && report.predicted_fraction > 0.97, "{shown}");
    }
}

/// Opens do not say whether one reader is a worker or the process that trains.
#[test]
fn of_one_reader_no_workers_are_claimed() {
    for text in ["torch-random:seed=42:generator=default:offset=3", "numpy-legacy:seed=42:again=in-place"] {
        let (mut opens, mut die) = (Vec::new(), Die(17));
        for epoch in 0..2u64 {
            opens.extend(loaders(&[made(text, 2_000, epoch)], 1, 16, 7, &mut die));
        }
        let report = report_of(2_000, &opens);
        let shown = format!("{text}: {report:#?}");
        assert_eq!((report.state, report.orders.len()), ("locked", 1), "{shown}");
        assert!(!report.orders[0].order.contains("workers="), "{shown}");
    }
}

/// The first epoch of a list that is shuffled says nothing of how it is shuffled again.
#[test]
fn how_a_list_is_shuffled_again_is_held_open_until_it_is() {
    for (text, n, workers, batch, process) in [
        ("numpy-legacy:seed=1:again=in-place", 896u32, 4, 224, 1),
        ("numpy-generator:seed=42:again=reseeded", 1_000, 2, 16, 1),
        ("python-shuffle:seed=0:again=in-place", 1_000, 1, 32, 0),
        ("python-sample:seed=0:again=permutation", 500, 2, 32, 1),
    ] {
        let (mut opens, mut die) = (Vec::new(), Die(17));
        for epoch in 0..3u32 {
            let read = loaders(&[made(text, n, u64::from(epoch))], workers, batch, 1 + 10 * epoch, &mut die);
            opens.extend(read.into_iter().map(|(reader, sample)| (reader * process, sample)));
        }
        let report = report_of(n, &opens);
        let shown = format!("{text}, {workers} workers: {report:#?}");
        assert_eq!((report.state, report.orders.len()), ("locked", 1), "{shown}");
        assert!(report.events.iter().all(|(_, what)| !what.contains(": lost;")), "{shown}");
        assert_eq!(report.orders[0].predicted, report.orders[0].later, "{shown}");
        assert!(text.split(':').all(|part| report.orders[0].order.contains(part)), "{shown}");
    }
}

/// `pipe:cat` opens each shard in a process of its own, which is gone before anybody can ask whose child it was.
#[test]
fn shards_that_are_each_read_by_a_process_of_its_own_are_found() {
    let n = 600;
    let log: Vec<Logged> = (0..3u64)
        .flat_map(|epoch| randperm(n, &mut Mt19937::new(42 + epoch)))
        .zip(1u32..)
        .map(|(shard, open)| Logged {
            at: Duration::from_millis(u64::from(open) * 10),
            process: 1_000 + open,
            path: format!("shards/{shard:05}.tar"),
        })
        .collect();
    let report = verify(&Arc::new(manifest_of(&log)), &log, BRIEF, &|| Duration::ZERO, &|_| {});
    let order = &report.orders[0];
    assert_eq!((report.state, order.seed, order.world), ("locked", 42, 1), "{report:#?}");
    assert!(order.locked_after <= 260 && order.predicted == order.later, "{order:#?}");
}

/// What webdataset's workers open, half a second apart: each has shards of its own, and they advance nearly together.
fn shards(text: &str, n: u32, workers: u32, epochs: u32, die: &mut Die) -> Vec<Logged> {
    let mut log: Vec<Logged> = Vec::new();
    for epoch in 0..epochs {
        let places = made(text, n, u64::from(epoch));
        let mut streams: Vec<Vec<u32>> = (0..workers).map(|_| Vec::new()).collect();
        for shard in places.into_iter().rev() {
            streams[(shard % workers) as usize].push(shard);
        }
        while let Some(most) = streams.iter().map(Vec::len).max().filter(|&most| most > 0) {
            let near: Vec<usize> = (0..streams.len()).filter(|&worker| streams[worker].len() + 1 >= most && most > 0).collect();
            let worker = die.pick(&near);
            let Some(shard) = streams[worker].pop() else { continue };
            let process = 100 * (epoch + 1) + u32::try_from(worker).expect("few");
            log.push(Logged { at: Duration::from_millis(500 * log.len() as u64), process, path: format!("shards/{shard:05}.tar") });
        }
    }
    log
}

/// `WebDataset(urls, shardshuffle=…)` without a seed takes one of a million; with `WDS_SEED` it is a text.
#[test]
fn shards_of_webdataset_are_found_whatever_its_seed() {
    for (text, n, workers, wanted) in [
        ("webdataset:seed=70123:workers=4", 600, 4, "webdataset:seed=70123:world=1:rank=0:buffer=100:initial=100:deterministic=false"),
        ("webdataset:seed=1999:buffer=1000", 600, 1, "webdataset:seed=1999:world=1:rank=0:buffer=1000:initial=100:deterministic=false"),
        ("webdataset:seed=31337:deterministic=true:workers=3", 600, 3, "webdataset:seed=31337:"),
        ("webdataset:seed_text=42:workers=2", 600, 2, "webdataset:seed_text=42:"),
        ("webdataset:seed=2718:workers=2", 90, 2, "webdataset:seed=2718:"),
    ] {
        let log = shards(text, n, workers, 3, &mut Die(53));
        assert_eq!(log.len(), 3 * n as usize, "{text}");
        let report = verify(&Arc::new(manifest_of(&log)), &log, BRIEF, &|| Duration::ZERO, &|_| {});
        let shown = format!("{text}: {report:#?}");
        assert_eq!((report.state, report.orders.len()), ("locked", 1), "{shown}");
        assert!(report.orders[0].order.starts_with(wanted), "{shown}");
        assert!(report.orders[0].locked_after <= 128 && report.predicted_fraction > 0.97, "{shown}");
    }
}

#[test]
fn the_command_explains_a_log() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/opens/seed42-workers2.tsv.gz");
    let log = tempfile::NamedTempFile::new().expect("a temporary file");
    let unpacked = Command::new("gzip").arg("-dc").arg(path).stdout(log.reopen().expect("the file")).status().expect("gzip");
    assert!(unpacked.success());
    let output = crate::support::belady::run(&["order", "verify", "--quick", "--json", "--log", log.path().to_str().expect("plain")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["state"], "locked", "{report:#}");
    assert!(report["predicted_fraction"].as_f64().expect("a fraction") > 0.99, "{report:#}");
    assert!(report["search_seconds"].as_f64().expect("seconds") > 0.0, "{report:#}");
    assert!(report["orders"][0]["order"].as_str().expect("a text").starts_with("torch-random:seed=42"), "{report:#}");
}

/// `SubsetRandomSampler` of all, or torch before 1.9: permutations straight from the default generator, from which a validation loader's base seed
/// is drawn in between.
#[test]
fn a_generator_that_runs_on_is_followed_whatever_draws_between() {
    let (n, mut opens, mut die) = (2_000, Vec::new(), Die(23));
    for epoch in 0..3u32 {
        let order = made("torch-random:seed=42:generator=stream:offset=2:between=4", n, u64::from(epoch));
        opens.extend(loaders(&[order], 2, 16, 1 + 10 * epoch, &mut die));
    }
    let report = report_of(n, &opens);
    let shown = format!("{report:#?}");
    assert_eq!((report.state, report.orders.len()), ("locked", 1), "{shown}");
    assert!(report.orders[0].order.starts_with("torch-random:seed=42:generator=stream:offset=2:between=4"), "{shown}");
    assert!(report.orders[0].locked_after <= 128 && report.predicted_fraction > 0.97, "{shown}");
}

/// Deep in the stream of a seed that nobody would guess, read by workers with a batch size that nobody told.
#[test]
#[cfg_attr(debug_assertions, ignore = "minutes without optimisations; its parts have tests of their own in order/infer")]
fn an_order_deep_in_a_stream_is_found_by_linear_algebra() {
    let (n, mut opens, mut die) = (40_000u32, Vec::new(), Die(29));
    // torchdata's loader with workers: every second permutation of one generator is read
    let between = n - 1;
    for epoch in 0..2u32 {
        let text = format!("torch-random:seed=3141592653:generator=stream:offset={between}:between={between}");
        opens.extend(loaders(&[made(&text, n, u64::from(epoch))], 3, 48, 1 + 10 * epoch, &mut die));
    }
    // so slowly that this search is worth it, and so fast that the one through all seeds is not
    let mut log = logged(&opens);
    log.iter_mut().zip(0..).for_each(|(open, place)| open.at = Duration::from_millis(place));
    let all: Vec<(u32, u32)> = (0..n).map(|sample| (0, sample)).collect();
    let began = Instant::now();
    let config = InferConfig { exhaustive: true, ..QUICK };
    let report = verify(&Arc::new(manifest_of(&logged(&all))), &log, config, &|| began.elapsed(), &|_| {});
    let shown = format!("{report:#?}");
    assert_eq!((report.state, report.orders.len()), ("locked", 1), "{shown}");
    let wanted = format!("torch-random:seed=3141592653:generator=stream:offset={between}:between={between}");
    assert!(report.orders[0].order.starts_with(&wanted), "{shown}");
    assert!(report.orders[0].locked_after <= 25_000 && report.predicted_fraction > 0.97, "{shown}");
}

/// What ranks read of a global order whose batches are dealt in turn (accelerate), one list a rank.
fn batches(text: &str, n: u32, epoch: u64, (batch, world): (usize, usize), ranks: std::ops::Range<usize>) -> Vec<Vec<u32>> {
    let order = made(text, n, epoch);
    ranks.map(|rank| order.chunks(batch).skip(rank).step_by(world).flatten().copied().collect()).collect()
}

#[test]
fn a_node_of_a_job_that_accelerate_deals_batches_to_is_found() {
    for (text, n, batch, world, ranks, workers, wanted) in [
        // the Trainer, second of two nodes
        ("torch-randperm:seed=42", 6_144u32, 8, 4, 2..4, 2, "accelerate:seed=42:world=4:rank=2-3"),
        // one generator for all epochs, seeded at `prepare`
        ("accelerate:sampler=default:seed=7:offset=1", 6_144, 8, 4, 2..4, 2, "accelerate:seed=7:world=4:rank=2-3:sampler=default:offset=1"),
    ] {
        let (mut opens, mut die) = (Vec::new(), Die(31));
        for epoch in 0..3u32 {
            let ranks = batches(text, n, u64::from(epoch), (batch, world), ranks.clone());
            opens.extend(loaders(&ranks, workers, batch, 1 + 100 * epoch, &mut die));
        }
        let report = report_of(n, &opens);
        let shown = format!("{text} {ranks:?}: {report:#?}");
        assert_eq!((report.state, report.orders.len()), ("locked", 1), "{shown}");
        assert!(report.orders[0].order.starts_with(wanted), "{shown}");
        assert!(report.orders[0].locked_after <= 512 && report.predicted_fraction > 0.97, "{shown}");
    }
}

#[test]
fn a_loader_over_a_part_of_the_dataset_is_found() {
    for text in [
        "torch-random:seed=0:split=1602+401:part=0", // 0.8 of 2003
        "torch-subset:seed=7:split=401+1602:part=1:split_by=numpy-legacy:split_seed=7:between=4",
    ] {
        let (mut opens, mut die) = (Vec::new(), Die(37));
        for epoch in 0..2u32 {
            opens.extend(loaders(&[made(text, 2_003, u64::from(epoch))], 2, 16, 1 + 10 * epoch, &mut die));
        }
        let report = report_of(2_003, &opens);
        let shown = format!("{text}: {report:#?}");
        assert_eq!((report.state, report.orders.len()), ("locked", 1), "{shown}");
        let found: OrderSpec = report.orders[0].order.parse().expect("an order");
        let wanted: OrderSpec = text.parse().expect("an order");
        assert_eq!((found.kind, found.seed, found.subset), (wanted.kind, wanted.seed, wanted.subset), "{shown}");
        assert!(report.orders[0].locked_after <= 160 && report.predicted_fraction > 0.97, "{shown}");
    }
}

#[test]
fn draws_with_replacement_are_found() {
    let text = "torch-random:seed=42:stride=6:replacement=true";
    let (mut opens, mut die) = (Vec::new(), Die(41));
    for epoch in 0..3u32 {
        opens.extend(loaders(&[made(text, 2_000, u64::from(epoch))], 2, 16, 1 + 10 * epoch, &mut die));
    }
    let report = report_of(2_000, &opens);
    let shown = format!("{report:#?}");
    assert_eq!((report.state, report.orders.len()), ("locked", 1), "{shown}");
    assert!(report.orders[0].order.starts_with("torch-random:seed=42:generator=default:offset=3:stride=6:replacement=true"), "{shown}");
    assert!(report.orders[0].locked_after <= 128 && report.predicted_fraction > 0.95, "{shown}");
}

#[test]
fn repeated_augmentation_is_found() {
    for (world, ranks) in [(8u32, 0..8u32), (16, 8..16), (4, 2..3)] {
        let (mut opens, mut die) = (Vec::new(), Die(43));
        for epoch in 0..3u32 {
            let of = |rank: u32| made(&format!("timm-repeat-aug:world={world}:rank={rank}"), 6_000, u64::from(epoch));
            opens.extend(loaders(&ranks.clone().map(of).collect::<Vec<_>>(), 1, 16, 1 + 100 * epoch, &mut die));
        }
        let report = report_of(6_000, &opens);
        let shown = format!("{world} {ranks:?}: {report:#?}");
        assert_eq!((report.state, report.orders.len()), ("locked", 1), "{shown}");
        let order = &report.orders[0];
        assert_eq!((order.kind.as_str(), order.world), ("timm-repeat-aug", world), "{shown}");
        assert!(order.locked_after <= 256 && report.predicted_fraction > 0.95, "{shown}");
    }
}

/// A generator that nobody knows, and whose seed is always the same.
#[test]
fn a_run_again_follows_the_epochs_of_an_earlier_one() {
    let mut die = Die(47);
    let mut shuffled = || {
        let mut rest: Vec<u32> = (0..2_000).collect();
        std::iter::repeat_with(|| rest.swap_remove(die.below(rest.len()))).take(2_000).collect::<Vec<u32>>()
    };
    let epochs = [shuffled(), shuffled()];
    // one thread reads; it is another one in the second run
    let opens: Vec<(u32, u32)> =
        (1..3u32).flat_map(|run| epochs.iter().flatten().map(move |&sample| (run, sample)).collect::<Vec<_>>()).collect();
    let report = report_of(2_000, &opens);
    let shown = format!("{report:#?}");
    let locked: Vec<u64> = report.events.iter().filter(|(_, what)| what.contains(": locked")).map(|(at, _)| *at).collect();
    assert!((4_000..4_400).contains(&locked[0]) && report.predicted_fraction > 0.99, "{shown}");
    assert!(report.orders.len() == 1 && !report.events.iter().any(|(_, what)| what.contains(": lost")), "{shown}");
}

/// All that a program opened, libraries and its own code among them: the dataset is found in it, and said.
#[test]
fn the_command_finds_the_samples_in_what_strace_wrote() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/opens/strace-seed42-workers2.gz");
    let log = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut text = Command::new("gzip").arg("-dc").arg(path).output().expect("gzip").stdout;
    text.extend(b"12 openat(AT_FDCWD, \"/home/us\n\x00\x01 words\n");
    std::fs::write(log.path(), text).expect("the file");
    let verify = |more: &[&str]| {
        let all = [&["order", "verify", "--quick", "--json", "--log", log.path().to_str().expect("plain")], more].concat();
        crate::support::belady::run(&all)
    };
    let output = verify(&[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&report["state"], &report["files"]), (&"locked".into(), &1_200.into()), "{report:#}");
    assert!(report["assumed"].as_str().expect("a text").contains("below /home/user/data/train: 1200 of "), "{report:#}");
    assert_eq!(report["damaged_lines"], 2, "{report:#}");
    assert!(report["orders"][0]["order"].as_str().expect("a text").starts_with("torch-random:seed=42"), "{report:#}");
    assert!(report["orders"][0]["locked_after"].as_u64().expect("a number") <= 128, "{report:#}");
    let nowhere = verify(&["--root", "/nowhere"]);
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("opens is below /nowhere (--root)"));
    std::fs::write(log.path(), "").expect("the file");
    assert!(String::from_utf8_lossy(&verify(&[]).stderr).contains("it is empty"));
    std::fs::write(log.path(), "no\nlog\n").expect("the file");
    assert!(String::from_utf8_lossy(&verify(&[]).stderr).contains("none of its 2 lines is an open"));
}
