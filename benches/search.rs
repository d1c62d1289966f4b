//! What the searches for an order's generator cost. `cargo bench --bench search` for the table, or parts of it
//! (`-- seeds dictionary meet default end algebra`), and `-- full` for three searches of all 2^32 seeds (minutes).
//!
//! Times are CPU seconds of this process (user and system), so that other programs do not count; one thread, unless said. Every search must
//! find what was planted, or the program ends with an error.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use belady::order::again::Library;
use belady::order::infer::backward::{Backward, backward};
use belady::order::infer::default_generator::{At, OUTPUTS_OF_COMMON, OUTPUTS_OF_SMALL, locate};
use belady::order::infer::dictionary::{SMALL_SEEDS, common_seeds, epoch_seeds, targets};
use belady::order::infer::exhaustive::{ALL_SEEDS, Seeds, exhaustive, exhaustive_by};
use belady::order::infer::fit::fit;
use belady::order::infer::lanes::CodePath;
use belady::order::infer::linear::{Solved, solve};
use belady::order::infer::meet::{Assume, meet_by};
use belady::order::infer::numbers::numbers;
use belady::order::infer::outputs::outputs_of;
use belady::order::infer::rewind::rewind;
use belady::order::infer::target::{Layout, Target};
use belady::order::infer::turns::Turns;
use belady::order::infer::{Control, Sighting};
use belady::order::mt19937::Mt19937;
use belady::order::numpy::Legacy;
use belady::order::python::Random;
use belady::order::torch::randperm;
use belady::types::SampleIndex;

/// Nobody stops a measurement.
static GO: AtomicBool = AtomicBool::new(false);

/// CPU time of this process so far.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").expect("Linux has it");
    let fields: Vec<&str> = text.rsplit(')').next().expect("the name is in parentheses").split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().expect("user time") + fields[12].parse::<u64>().expect("system time");
    Duration::from_millis(ticks * 10) // 100 ticks a second on every Linux of today
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64, f64) {
    let (start, before) = (Instant::now(), cpu());
    let result = work();
    (result, (cpu() - before).as_secs_f64(), start.elapsed().as_secs_f64())
}

/// The front of an order as DataLoader's workers read it, one open each in turn.
fn sighting(order: &[SampleIndex], batch: usize, workers: usize, opens: usize) -> Sighting {
    let mut queues: Vec<Vec<SampleIndex>> = vec![Vec::new(); workers];
    for (place, &sample) in order.iter().take(2 * opens + batch * workers).enumerate() {
        queues[place / batch % workers].push(sample);
    }
    let turns = (0..).flat_map(|at| (0..workers).map(move |worker| (worker, at)));
    let all = turns.take(opens).map(|(worker, at)| (worker as u32, queues[worker][at]));
    Sighting { n: order.len() as u32, opens: all.collect(), streams_known: true }
}

fn permutation(n: u32, seed: u32) -> Vec<SampleIndex> {
    randperm(n, &mut Mt19937::new(u64::from(seed)))
}

fn row(what: &str, cpu: f64, rest: &str) {
    println!("| {what:<72} | {cpu:>8.4} | {rest:<34} |");
}

fn head() {
    println!("| {:<72} | {:>8} | {:<34} |\n|{:-<74}|{:->10}|{:-<36}|", "what", "core-s", "", "", ":", "");
}

fn seeds_per_second(control: Control<'_>) {
    let order = permutation(10_000, 3_000_000_000);
    let opens = sighting(&order, 32, 4, 128);
    let unordered = Sighting { streams_known: false, ..opens.clone() };
    let prefix = [Target::prefix(0, 10_000, &order[..8], 0).expect("a front")];
    let streams = [Target::streams(0, &opens, 0, Layout::Whole).expect("streams")];
    let both = targets(std::slice::from_ref(&opens), 0);
    let six = targets(&[opens.clone(), mirrored(&opens, 1), mirrored(&opens, 2)], 0);
    let loose = [Target::unordered(0, &unordered, 0).expect("128 opens")];
    let sets: [(&str, &[Target]); 5] = [
        ("exact front", &prefix),
        ("4 streams", &streams),
        ("4 streams, 2 offsets", &both),
        ("4 streams, 2 offsets, 3 maps", &six),
        ("unordered", &loose),
    ];
    let end = 3_000_000_000u64 + 1000;
    for path in CodePath::available() {
        let count: u64 = if path == CodePath::Portable { 1 << 26 } else { 1 << 28 };
        for (name, targets) in &sets {
            let (found, cpu, _) = timed(|| exhaustive_by(path, targets, &Seeds::Range(end - count..end), control, None));
            assert!(found.hits.iter().any(|hit| hit.seed == 3_000_000_000), "{name}");
            let million = count as f64 / cpu / 1e6;
            row(
                &format!("{path:?}, n = 10,000, {name}"),
                cpu,
                &format!("{million:.1} M seeds/core-s, 2^32: {:.0} core-s", 4294.97 / million),
            );
        }
    }
}

/// Opens under another map.
fn mirrored(sighting: &Sighting, shift: u32) -> Sighting {
    let n = sighting.n;
    let opens = sighting.opens.iter().map(|&(stream, sample)| (stream, (n - 1 - sample + shift) % n)).collect();
    Sighting { n, opens, streams_known: true }
}

fn dictionaries(control: Control<'_>) {
    for (n, world, here) in [(1000u32, 8usize, 1usize), (1000, 8, 8), (1_281_167, 64, 8)] {
        let order = permutation(n, 43);
        // Local ranks from rank 3 on (or all), two workers each, in turn.
        let first = if here == world { 0 } else { 3 };
        let mut opens = Vec::new();
        for at in 0..(160 / here / 2).min(n as usize / world / 4) {
            for stream in 0..2 * here {
                let (rank, worker) = (first + stream / 2, stream % 2);
                opens.push((stream as u32, order[((at / 8 * 2 + worker) * 8 + at % 8) * world + rank]));
            }
        }
        let sighting = [Sighting { n, opens, streams_known: true }];
        let targets = targets(&sighting, 64);
        let (found, cpu, _) = timed(|| exhaustive(&targets, SMALL_SEEDS, control, None));
        let best = found.hits.iter().find(|hit| hit.seed == 43).expect("the planted seed");
        let fit = fit(&sighting[0], &best.places);
        assert_eq!((fit.world, fit.ranks.len()), (Some(world as u32), here));
        row(
            &format!("dictionary: 2^22 seeds, 64 first places, n = {n}, {here} of {world} ranks"),
            cpu,
            &format!("{} hits, {} targets", found.hits.len(), targets.len()),
        );
    }
    numbers_people_write(control);
    let seeds = epoch_seeds(&common_seeds(), 1 << 16);
    let order = permutation(10_000, seeds[42 << 16 | 13_005]);
    let opens = [sighting(&order, 32, 4, 128)];
    let targets = targets(&opens, 0);
    let (found, cpu, _) = timed(|| exhaustive(&targets, Seeds::List(&epoch_seeds(&common_seeds(), 1 << 16)), control, None));
    assert!(!found.hits.is_empty());
    row("dictionary: epoch seeds, 150 default generators × 65,536 outputs", cpu, &format!("{} hits", found.hits.len()));
}

/// The step of the dictionary that is free, and the one that is not.
fn numbers_people_write(control: Control<'_>) {
    /// Clock ticks are 10 ms.
    const TIMES: usize = 20;
    let seeds = numbers();
    let count = (TIMES * seeds.len()) as f64 / 1e6;
    for n in [1_000, 20_000, 1_281_167] {
        let opens = sighting(&permutation(n, 20_231_107), 16, 4, 128);
        let whole = [Target::streams(0, &opens, 0, Layout::Whole).expect("streams")];
        let (found, cpu, _) = timed(|| {
            let work = || exhaustive(&whole, Seeds::List(&outputs_of(&seeds, &[1, 3, 5])), control, None);
            (0..TIMES).map(|_| work()).fold(0, |hits, found| hits + found.hits.len())
        });
        row(&format!("numbers as seeds of default generators, 3 outputs, n = {n}, each"), cpu / TIMES as f64, &format!("{found} hits"));
        for streams in [4, 16, 64] {
            let opens = sighting(&permutation(n, 20_231_107), 4, streams, 512);
            let ranks = |first_place| Target::streams(0, &opens, 0, Layout::Ranks { first_place });
            let nodes = |first_place| Target::streams(0, &opens, 0, Layout::Node { first_place });
            let sets: [(&str, Vec<Target>); 2] = [
                ("first places 0..8", (0..8).filter_map(ranks).collect()),
                ("first places 8..512 by 2, two ranks", (8..512).step_by(2).filter_map(nodes).collect()),
            ];
            for (name, all) in &sets {
                let (found, cpu, _) =
                    timed(|| (0..TIMES).map(|_| exhaustive(all, Seeds::List(&seeds), control, None).hits.len()).sum::<usize>());
                row(
                    &format!("numbers, {name}, n = {n}, {streams} streams, each"),
                    cpu / TIMES as f64,
                    &format!("{:.1} M seeds/core-s, {found} hits", count / cpu),
                );
            }
        }
    }
}

fn meeting(control: Control<'_>) {
    for (n, batch, workers) in
        [(14_197_122, 64, 4), (1_281_167, 256, 8), (1_281_167, 64, 4), (1_281_167, 96, 3), (300_000, 64, 3), (100_000, 256, 2)]
    {
        let order = permutation(n, 3_735_928_559);
        let opens = sighting(&order, batch, workers, 700 * workers);
        for path in CodePath::available().into_iter().take(2) {
            let (found, cpu, _) = timed(|| meet_by(path, &opens, 0, Assume::IN_ORDER, control));
            assert_eq!(found.hits.iter().map(|hit| hit.seed).collect::<Vec<_>>(), [3_735_928_559]);
            row(&format!("meet in the middle, {path:?}, n = {n}, B = {batch} of 28, {workers} workers"), cpu, "");
        }
    }
    let wrong = mirrored(&sighting(&permutation(1_281_167, 1), 256, 8, 5600), 1);
    let (found, cpu, _) = timed(|| meet_by(CodePath::best(), &wrong, 0, Assume::IN_ORDER, control));
    assert!(found.hits.is_empty());
    row("meet in the middle, n = 1281167, wrong map: all 28 B and 2 first places", cpu, "nothing, rightly");
}

fn algebra(control: Control<'_>) {
    const N: u32 = 300_000;
    let mut generator = Mt19937::new(31_337);
    generator.skip(3_001_000);
    let order = randperm(N, &mut generator.clone());
    let (few, cpu, _) = timed(|| solve(N, 1, &|_| order[..19_000].to_vec(), control));
    let Solved::TooFew { rank } = few else { panic!("19,000 places cannot do") };
    row("linear algebra, 19,000 places", cpu, &format!("rank {rank}: too few, rightly"));
    let (solved, cpu, _) = timed(|| solve(N, 1, &|_| order[..20_100].to_vec(), control));
    let Solved::State { words, .. } = solved else { panic!("20,100 places are enough: {solved:?}") };
    let mut state = Mt19937::from_words(*words);
    assert!(randperm(N, &mut state) == order);
    let _ = randperm(N, &mut generator);
    assert_eq!(state.random64(), generator.random64());
    row("linear algebra, 20,100 places", cpu, "all later draws right");
    let (found, cpu, _) = timed(|| rewind(&words, u64::MAX, control));
    assert_eq!(found, Some(At { seed: 31_337, offset: 3_001_000 }));
    row("... back to its seed, 3,001,000 outputs before", cpu, "found");
    // 8 workers with batches of 96, of whom two began the other way round
    let workers = [0usize, 1, 3, 2, 4, 5, 6, 7];
    let batches = |worker: usize| order.chunks(96).skip(worker).step_by(8).flatten().copied().take(2_800).collect::<Vec<SampleIndex>>();
    let turns = Turns::new(workers.map(batches).to_vec());
    let (solved, cpu, _) = timed(|| solve(N, turns.len(), &|which| turns.order(which), control));
    let Solved::State { which, .. } = solved else { panic!("one of them is right: {solved:?}") };
    assert!(turns.order(which) == order[..turns.order(which).len()]);
    row("linear algebra, 8 workers", cpu, &format!("the right one of {} turns", turns.len()));
    let mut wrong = order[..20_500].to_vec();
    wrong.swap(3000, 3001);
    let (solved, cpu, _) = timed(|| solve(N, 1, &|_| wrong.clone(), control));
    assert!(matches!(solved, Solved::Contradiction));
    row("linear algebra, 20,500 places, two exchanged", cpu, "contradiction, rightly");
}

fn default_generators(control: Control<'_>) {
    let output = |seed, offset| {
        let mut generator = Mt19937::new(seed);
        generator.skip(offset);
        generator.random()
    };
    let (found, cpu, _) = timed(|| locate(output(1234, 16_000_000), &common_seeds(), OUTPUTS_OF_COMMON, control));
    assert!(found.contains(&At { seed: 1234, offset: 16_000_000 }));
    let rate = |cpu: f64, outputs: u64| format!("{:.1} G outputs/core-s, {} found", outputs as f64 / cpu / 1e9, found.len());
    row("default generator: 150 common seeds × 2^24 outputs", cpu, &rate(cpu, 150 << 24));
    let seeds: Vec<u32> = (0..1 << 16).collect();
    let (found, cpu, _) = timed(|| locate(output(54_321, 60_000), &seeds, OUTPUTS_OF_SMALL, control));
    assert!(found.contains(&At { seed: 54_321, offset: 60_000 }));
    row("default generator: seeds 0..65,536 × 65,536 outputs", cpu, &format!("{:.1} G outputs/core-s, {} found", 4.295 / cpu, found.len()));
}

fn from_the_end(control: Control<'_>) {
    for n in [1000u32, 1_281_167] {
        let count = 1u64 << 26;
        for kind in [Backward::Numpy, Backward::Python] {
            let order = match kind {
                Backward::Numpy => Legacy::seeded(count - 5).permutation(n),
                Backward::Python => Random::seeded(count - 5).permutation(n),
            };
            let (found, cpu, _) = timed(|| backward(kind, &order, 0, 0..count, control, None));
            assert_eq!(found, [count as u32 - 5]);
            let million = count as f64 / cpu / 1e6;
            row(
                &format!("from the end, {kind:?}, n = {n}"),
                cpu,
                &format!("{million:.1} M seeds/core-s, 2^32: {:.0} core-s", 4294.97 / million),
            );
        }
    }
}

/// Three searches of everything, as a mount would do them after 128 opens.
fn full() {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let control = Control { stop: &GO, threads };
    head();
    for seed in [3_929_339_167u32, 2_325_356_911, 473_892_499] {
        let opens = [sighting(&permutation(10_000, seed), 32, 4, 128)];
        let targets = targets(&opens, 0);
        let progress = AtomicU64::new(0);
        let (found, cpu, wall) = timed(|| exhaustive(&targets, ALL_SEEDS, control, Some(&progress)));
        assert_eq!(progress.load(Ordering::Relaxed), 1 << 32);
        let seeds: Vec<_> = found.hits.iter().map(|hit| hit.seed).collect();
        assert_eq!(seeds, [seed], "unique");
        row(
            &format!("all 2^32 seeds, n = 10,000, 4 streams, 128 opens, 2 offsets: {seed}"),
            cpu,
            &format!("{wall:.0} s wall, {threads} threads, unique"),
        );
    }
}

/// One part of the table.
type Part = fn(Control<'_>);

fn main() {
    let control = Control { stop: &GO, threads: 1 };
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let all = wanted.is_empty();
    let wants = |name: &str| all || wanted.iter().any(|wanted| wanted == name);
    if !all && wants("full") {
        full();
    }
    head();
    let parts: [(&str, Part); 6] = [
        ("seeds", seeds_per_second),
        ("dictionary", dictionaries),
        ("meet", meeting),
        ("default", default_generators),
        ("end", from_the_end),
        ("algebra", algebra),
    ];
    for (name, part) in parts {
        if wants(name) {
            part(control);
        }
    }
}
