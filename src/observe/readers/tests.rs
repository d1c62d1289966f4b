//! Jobs as launchers make them, and properties that hold for any facts.

use super::*;
use proptest::prelude::*;

const NOW: Duration = Duration::from_secs(100);
/// Command lines.
const SHELL: u64 = 1;
const TORCHRUN: u64 = 2;
const TRAIN: u64 = 3;

fn process(id: u32, command: u64) -> Process {
    Process { id, start: 1000 + u64::from(id), command, program: command, ..Process::default() }
}

fn spawned(id: u32) -> Process {
    Process { launch: Launch::Spawned, ..process(id, 7000 + u64::from(id)) }
}

fn facts(thread: u32, line: &[Process]) -> ProcFacts {
    ProcFacts { thread, thread_start: u64::from(thread), line: line.to_vec(), ranked: false }
}

/// Opens by these threads in turns, with what is known of each.
fn seen(known: &[ProcFacts], turns: usize) -> (Readers, Vec<(ReaderId, u32)>) {
    let mut readers = Readers::default();
    let mut opens = Vec::new();
    for turn in 0..turns {
        for facts in known {
            let seen = readers.opened(NOW, facts.thread);
            assert_eq!(seen.look, turn == 0);
            if seen.look {
                assert_eq!(readers.learn(facts.clone()), None);
            }
            opens.push((seen.reader, facts.thread));
        }
    }
    (readers, opens)
}

/// The jobs of these opens, each with its rank processes, as they came.
fn jobs<T>(readers: &Readers, opens: &[(ReaderId, T)]) -> Vec<(Job, Vec<Rank>)> {
    let mut jobs: Vec<(Job, Vec<Rank>)> = Vec::new();
    for &(reader, _) in opens {
        let (job, rank) = (readers.job(reader), readers.rank(reader));
        let at = jobs.iter().position(|known| known.0 == job).unwrap_or(jobs.len());
        if at == jobs.len() {
            jobs.push((job, Vec::new()));
        }
        if !jobs[at].1.contains(&rank) {
            jobs[at].1.push(rank);
        }
    }
    jobs
}

fn known(id: u32) -> Rank {
    Rank::Of(Life { process: id, start: 1000 + u64::from(id) })
}

#[test]
fn ranks_of_torchrun_with_forked_workers_are_one_job() {
    let launcher = [process(10, TORCHRUN), process(5, SHELL)];
    let rank = |rank: u32| process(20 + rank, TRAIN);
    let worker = |of: u32, id: u32| facts(id, &[process(id, TRAIN), rank(of), launcher[0].clone(), launcher[1].clone()]);
    let all = [worker(0, 31), worker(0, 32), worker(1, 41), worker(1, 42), facts(21, &[rank(1), launcher[0].clone()])];
    let (readers, opens) = seen(&all, 3);
    let jobs = jobs(&readers, &opens);
    assert_eq!((jobs.len(), &jobs[0].1), (1, &vec![known(20), known(21)]));
    let ranks: Vec<Rank> = opens[..5].iter().map(|&(reader, _)| readers.rank(reader)).collect();
    assert_eq!(ranks, [20, 20, 21, 21, 21].map(known));
}

#[test]
fn two_jobs_of_one_shell_are_two() {
    let shell = process(5, SHELL);
    let all = [facts(20, &[process(20, TRAIN), shell.clone()]), facts(21, &[process(21, TRAIN + 1), shell])];
    let (readers, opens) = seen(&all, 2);
    assert_eq!(jobs(&readers, &opens).iter().map(|(_, ranks)| ranks.clone()).collect::<Vec<_>>(), [[known(20)], [known(21)]]);
}

#[test]
fn ranks_by_number_and_in_wrappers_are_one_job() {
    let launcher = process(10, TORCHRUN);
    // `--local_rank=N`: the command line differs, and the program is the same
    let trainer = |id: u32, program: u64| Process { program, ranked: true, ..process(id, 50 + u64::from(id)) };
    let worker = |id: u32, of: &Process| facts(id, &[Process { id, start: 9, ..of.clone() }, of.clone(), launcher.clone()]);
    let (readers, opens) = seen(&[worker(31, &trainer(21, 3)), worker(32, &trainer(22, 3)), worker(33, &trainer(23, 4))], 1);
    assert_eq!(jobs(&readers, &opens).iter().map(|(_, ranks)| ranks.len()).collect::<Vec<_>>(), [2, 1]);
    // a shell for each rank, which the environment or the shell's text tells
    let shell = |id: u32, ranked: bool| Process { launch: Launch::Mover, ranked, ..process(id, SHELL) };
    let wrapped = |id: u32, environment: bool, text: bool| {
        let line =
            [process(id, TRAIN), shell(id + 100, text), Process { launch: Launch::Wrapper, ..process(id + 200, 8) }, launcher.clone()];
        ProcFacts { ranked: environment, ..facts(id, &line) }
    };
    for (environment, text, wanted) in [(true, false, 1), (false, true, 1), (false, false, 2)] {
        let (readers, opens) = seen(&[wrapped(31, environment, text), wrapped(32, environment, text)], 1);
        assert_eq!(jobs(&readers, &opens).len(), wanted, "{environment} {text}");
    }
}

#[test]
fn movers_are_of_their_parents_rank() {
    // webdataset's pipe:cat in two forked workers: a new process for every shard.
    let trainer = process(20, TRAIN);
    let cat = |id: u32, of: u32| {
        facts(id, &[Process { launch: Launch::Mover, ..process(id, 99) }, process(of, TRAIN), trainer.clone(), process(5, SHELL)])
    };
    let (readers, opens) = seen(&[cat(101, 31), cat(102, 32), cat(103, 31), cat(104, 32)], 1);
    let jobs = jobs(&readers, &opens);
    assert_eq!((jobs.len(), &jobs[0].1), (1, &vec![known(20)]));
}

#[test]
fn spawned_workers_and_spawned_ranks() {
    let trainer = process(20, TRAIN);
    // DataLoader(multiprocessing_context="spawn").
    let (readers, opens) = seen(
        &[facts(31, &[spawned(31), trainer.clone(), process(5, SHELL)]), facts(32, &[spawned(32), trainer.clone(), process(5, SHELL)])],
        1,
    );
    assert_eq!(jobs(&readers, &opens)[0].1, [known(20)]);
    // torch.multiprocessing.spawn, with forked workers below; a rank looks at a sample itself.
    let worker = |id: u32, rank: u32| facts(id, &[Process { id, start: 1, ..spawned(rank) }, spawned(rank), trainer.clone()]);
    let all = [worker(41, 31), worker(42, 32), facts(31, &[spawned(31), trainer.clone()])];
    let (readers, opens) = seen(&all, 1);
    let ranks: Vec<Rank> = opens.iter().map(|&(reader, _)| readers.rank(reader)).collect();
    assert_eq!((jobs(&readers, &opens).len(), ranks), (1, [31, 32, 31].map(known).to_vec()));
    // The fork server stands between.
    let server = Process { launch: Launch::ForkServer, ..process(25, 9) };
    let child = |id: u32| facts(id, &[Process { id, ..server.clone() }, server.clone(), trainer.clone()]);
    let (readers, opens) = seen(&[child(51), child(52)], 1);
    assert_eq!(jobs(&readers, &opens)[0].1, [known(20)]);
}

#[test]
fn a_reused_id_is_another_reader() {
    let mut readers = Readers::default();
    let first = readers.opened(NOW, 31);
    assert!(first.look);
    readers.learn(facts(31, &[process(31, TRAIN)]));
    assert_eq!(readers.opened(NOW + SILENT_FOR / 2, 31), Seen { reader: first.reader, look: false });
    let later = readers.opened(NOW + SILENT_FOR * 2, 31);
    assert_eq!(later, Seen { reader: first.reader, look: true });
    // The same process still: nothing changes, not even when its parent ended and init took its place.
    assert_eq!(readers.learn(facts(31, &[process(31, TRAIN), process(1, SHELL)])), None);
    let other = Process { start: 77, ..process(31, TRAIN) };
    let fresh = readers.learn(facts(31, &[other])).unwrap();
    assert_ne!(fresh, first.reader);
    assert_eq!(readers.opened(NOW + SILENT_FOR * 2, 31).reader, fresh);
    assert_ne!(readers.rank(fresh), readers.rank(first.reader));
}

#[test]
fn what_is_not_known_is_no_error() {
    let mut readers = Readers::default();
    let nobody = readers.opened(NOW, 0);
    assert!(!nobody.look);
    let gone = readers.opened(NOW, 9).reader;
    assert_eq!(readers.learn(facts(9, &[])), None);
    assert_eq!(readers.learn(facts(4711, &[process(4711, TRAIN)])), None, "nobody asked");
    let jobs = jobs(&readers, &[(nobody.reader, 'a'), (gone, 'b'), (nobody.reader, 'c'), (ReaderId(999), 'd')]);
    assert_eq!((jobs.len(), jobs[0].1.as_slice()), (3, &[Rank::Nobody][..]));
}

#[test]
fn readers_are_bounded_and_the_silent_go_first() {
    let mut readers = Readers::default();
    for thread in 1..=20_000 {
        readers.opened(NOW + Duration::from_millis(u64::from(thread)), thread);
        readers.opened(NOW + Duration::from_millis(u64::from(thread)), 1);
        assert!(readers.len() <= READERS_MAX);
    }
    assert!(!readers.opened(NOW + Duration::from_secs(20), 1).look, "the busy one was not forgotten");
    assert!(readers.opened(NOW + Duration::from_secs(20), 2).look, "the silent one was");
}

/// Any process below any others, with few values so that ids and commands meet.
fn any_facts() -> impl Strategy<Value = ProcFacts> {
    let launch = prop_oneof![4 => Just(Launch::Plain), 1 => Just(Launch::Spawned), 1 => Just(Launch::ForkServer), 1 => Just(Launch::Mover), 1 => Just(Launch::Wrapper)];
    let process = (1u32..12, 0u64..3, 0u64..4, launch, any::<bool>()).prop_map(|(id, start, command, launch, ranked)| Process {
        id,
        start,
        command,
        program: command,
        ranked,
        launch,
    });
    (0u32..12, 0u64..2, proptest::collection::vec(process, 0..5), any::<bool>())
        .prop_map(|(thread, thread_start, line, ranked)| ProcFacts { thread, thread_start, line, ranked })
}

proptest! {
    /// Whatever the facts are: everybody has a rank and a job, and whoever is known and has one rank has one job.
    #[test]
    fn ranks_are_of_one_job(all in proptest::collection::vec((any_facts(), 0u64..40), 0..120)) {
        let mut readers = Readers::default();
        let (mut opens, mut now) = (Vec::new(), NOW);
        for (facts, wait) in all {
            now += Duration::from_secs(wait);
            let seen = readers.opened(now, facts.thread);
            prop_assert!(!(facts.thread == 0 && seen.look));
            if seen.look {
                readers.learn(facts);
            }
            opens.push((seen.reader, ()));
        }
        for &(reader, ()) in &opens {
            if let Job::Alone(rank) = readers.job(reader) {
                prop_assert_eq!(rank, readers.rank(reader));
            }
        }
        prop_assert!(jobs(&readers, &opens).iter().all(|(_, ranks)| !ranks.is_empty()));
    }

    /// A node with any number of ranks and workers under any ids is told apart exactly.
    #[test]
    fn a_node_is_told_apart(ranks in 1u32..9, workers in 1u32..9, base in 100u32..1000, stride in 1u32..5) {
        let launcher = process(50, TORCHRUN);
        let mut all = Vec::new();
        for rank in 0..ranks {
            let main = process(base + rank * 100 * stride, TRAIN);
            for worker in 0..workers {
                let id = main.id + 1 + worker * stride;
                all.push(facts(id, &[process(id, TRAIN), main.clone(), launcher.clone()]));
            }
        }
        let (readers, opens) = seen(&all, 2);
        let jobs = jobs(&readers, &opens);
        prop_assert_eq!(jobs.len(), 1);
        let wanted: Vec<Rank> = (0..ranks).map(|rank| known(base + rank * 100 * stride)).collect();
        prop_assert_eq!(&jobs[0].1, &wanted);
    }
}
