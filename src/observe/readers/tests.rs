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

#[test]
fn ranks_of_torchrun_with_forked_workers_are_one_job() {
    let launcher = [process(10, TORCHRUN), process(5, SHELL)];
    let rank = |rank: u32| process(20 + rank, TRAIN);
    let worker = |of: u32, id: u32| facts(id, &[process(id, TRAIN), rank(of), launcher[0].clone(), launcher[1].clone()]);
    let known = [worker(0, 31), worker(0, 32), worker(1, 41), worker(1, 42), facts(21, &[rank(1), launcher[0].clone()])];
    let (readers, opens) = seen(&known, 3);
    let groups = readers.groups(&opens);
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0].ranks, [20, 21].map(|id| Rank::Of(Life { process: id, start: 1000 + u64::from(id) })));
    assert!(groups[0].streams_known);
    assert_eq!(groups[0].rank_of_stream, [0, 0, 1, 1, 1]);
    assert_eq!(groups[0].has_workers, [false, false, false, false, true]);
    assert_eq!(groups[0].opens[..6], [(0, 31), (1, 32), (2, 41), (3, 42), (4, 21), (0, 31)]);
}

#[test]
fn a_look_of_the_trainer_is_set_aside() {
    let trainer = process(20, TRAIN);
    let worker = |id: u32| facts(id, &[process(id, TRAIN), trainer.clone(), process(5, SHELL)]);
    let known = [facts(20, &[trainer.clone(), process(5, SHELL)]), worker(31), worker(32)];
    let (readers, opens) = seen(&known, 1);
    let opens: Vec<_> = opens.into_iter().map(|(reader, thread)| (reader, crate::types::FileIndex(thread * 7))).collect();
    let groups = readers.groups(&opens);
    assert_eq!(crate::observe::leading::aside_of(&groups[0]), [true, false, false]);
    // Alone it is the reader.
    assert_eq!(crate::observe::leading::aside_of(&readers.groups(&opens[..1])[0]), [false]);
}

#[test]
fn two_jobs_of_one_shell_are_two_groups() {
    let shell = process(5, SHELL);
    let known = [facts(20, &[process(20, TRAIN), shell.clone()]), facts(21, &[process(21, TRAIN + 1), shell])];
    let (readers, opens) = seen(&known, 2);
    let groups = readers.groups(&opens);
    assert_eq!(groups.iter().map(|group| group.opens.len()).collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn ranks_by_number_and_in_wrappers_are_one_job() {
    let launcher = process(10, TORCHRUN);
    // `--local_rank=N`: the command line differs, and the program is the same
    let trainer = |id: u32, program: u64| Process { program, ranked: true, ..process(id, 50 + u64::from(id)) };
    let worker = |id: u32, of: &Process| facts(id, &[Process { id, start: 9, ..of.clone() }, of.clone(), launcher.clone()]);
    let (readers, opens) = seen(&[worker(31, &trainer(21, 3)), worker(32, &trainer(22, 3)), worker(33, &trainer(23, 4))], 1);
    assert_eq!(readers.groups(&opens).iter().map(|group| group.ranks.len()).collect::<Vec<_>>(), [2, 1]);
    // a shell for each rank, which the environment or the shell's text tells
    let shell = |id: u32, ranked: bool| Process { launch: Launch::Mover, ranked, ..process(id, SHELL) };
    let wrapped = |id: u32, environment: bool, text: bool| {
        let line =
            [process(id, TRAIN), shell(id + 100, text), Process { launch: Launch::Wrapper, ..process(id + 200, 8) }, launcher.clone()];
        ProcFacts { ranked: environment, ..facts(id, &line) }
    };
    for (environment, text, jobs) in [(true, false, 1), (false, true, 1), (false, false, 2)] {
        let (readers, opens) = seen(&[wrapped(31, environment, text), wrapped(32, environment, text)], 1);
        assert_eq!(readers.groups(&opens).len(), jobs, "{environment} {text}");
    }
}

#[test]
fn movers_are_their_parents_stream() {
    // webdataset's pipe:cat in two forked workers: a new process for every shard.
    let trainer = process(20, TRAIN);
    let cat = |id: u32, of: u32| {
        facts(id, &[Process { launch: Launch::Mover, ..process(id, 99) }, process(of, TRAIN), trainer.clone(), process(5, SHELL)])
    };
    let (readers, opens) = seen(&[cat(101, 31), cat(102, 32), cat(103, 31), cat(104, 32)], 1);
    let groups = readers.groups(&opens);
    assert_eq!((groups.len(), groups[0].ranks.len(), groups[0].streams_known), (1, 1, true));
    assert_eq!(groups[0].opens, [(0, 101), (1, 102), (0, 103), (1, 104)]);
}

#[test]
fn a_pool_of_threads_has_no_order() {
    let trainer = process(20, TRAIN);
    let (readers, opens) = seen(&[facts(20, std::slice::from_ref(&trainer)), facts(22, &[trainer])], 2);
    let groups = readers.groups(&opens);
    assert!(!groups[0].streams_known);
    assert_eq!(groups[0].opens.iter().map(|open| open.0).collect::<Vec<_>>(), [0, 0, 0, 0]);
}

#[test]
fn spawned_workers_and_spawned_ranks() {
    let trainer = process(20, TRAIN);
    // DataLoader(multiprocessing_context="spawn").
    let (readers, opens) = seen(
        &[facts(31, &[spawned(31), trainer.clone(), process(5, SHELL)]), facts(32, &[spawned(32), trainer.clone(), process(5, SHELL)])],
        1,
    );
    assert_eq!(readers.groups(&opens)[0].ranks, [Rank::Of(Life { process: 20, start: 1020 })]);
    // torch.multiprocessing.spawn, with forked workers below; a rank looks at a sample itself.
    let worker = |id: u32, rank: u32| facts(id, &[Process { id, start: 1, ..spawned(rank) }, spawned(rank), trainer.clone()]);
    let known = [worker(41, 31), worker(42, 32), facts(31, &[spawned(31), trainer.clone()])];
    let (readers, opens) = seen(&known, 1);
    let groups = readers.groups(&opens);
    assert_eq!((groups.len(), groups[0].rank_of_stream.as_slice()), (1, &[0, 1, 0][..]), "{groups:?}");
    // The fork server stands between.
    let server = Process { launch: Launch::ForkServer, ..process(25, 9) };
    let child = |id: u32| facts(id, &[Process { id, ..server.clone() }, server.clone(), trainer.clone()]);
    let (readers, opens) = seen(&[child(51), child(52)], 1);
    assert_eq!(readers.groups(&opens)[0].ranks, [Rank::Of(Life { process: 20, start: 1020 })]);
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
    let groups = readers.groups(&[(nobody.reader, 'a'), (gone, 'b'), (nobody.reader, 'c'), (ReaderId(999), 'd')]);
    assert_eq!(groups.len(), 3);
    assert_eq!((groups[0].ranks.as_slice(), groups[0].streams_known), (&[Rank::Nobody][..], false));
    assert!(groups[1].streams_known, "one thread by itself is in order");
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
    #[test]
    fn no_open_is_lost_and_streams_are_dense(known in proptest::collection::vec((any_facts(), 0u64..40), 0..120)) {
        let mut readers = Readers::default();
        let (mut opens, mut now) = (Vec::new(), NOW);
        for (place, (facts, wait)) in known.into_iter().enumerate() {
            now += Duration::from_secs(wait);
            let seen = readers.opened(now, facts.thread);
            prop_assert!(!(facts.thread == 0 && seen.look));
            if seen.look {
                readers.learn(facts);
            }
            opens.push((seen.reader, place));
        }
        let groups = readers.groups(&opens);
        let mut all: Vec<usize> = groups.iter().flat_map(|group| group.opens.iter().map(|open| open.1)).collect();
        all.sort_unstable();
        prop_assert_eq!(all, (0..opens.len()).collect::<Vec<_>>());
        for group in &groups {
            prop_assert!(group.opens.windows(2).all(|pair| pair[0].1 < pair[1].1), "in the order they came");
            let mut next = 0;
            for (stream, _) in &group.opens {
                prop_assert!(*stream <= next);
                next = next.max(stream + 1);
            }
            prop_assert_eq!(group.rank_of_stream.len(), next as usize);
            prop_assert_eq!(group.has_workers.len(), next as usize);
            prop_assert!(group.rank_of_stream.iter().all(|rank| (*rank as usize) < group.ranks.len()));
            prop_assert!(group.streams_known || next == 1);
        }
        // One stream never has opens of two groups: the group is a function of the reader.
        for (reader, place) in &opens {
            let of = groups.iter().filter(|group| group.opens.iter().any(|open| open.1 == *place)).count();
            prop_assert_eq!(of, 1);
            let job = readers.job(*reader);
            prop_assert!(groups.iter().any(|group| group.job == job));
        }
    }

    /// A node with any number of ranks and workers under any ids is told apart exactly.
    #[test]
    fn a_node_is_told_apart(ranks in 1u32..9, workers in 1u32..9, base in 100u32..1000, stride in 1u32..5) {
        let launcher = process(50, TORCHRUN);
        let mut known = Vec::new();
        for rank in 0..ranks {
            let main = process(base + rank * 100 * stride, TRAIN);
            for worker in 0..workers {
                let id = main.id + 1 + worker * stride;
                known.push(facts(id, &[process(id, TRAIN), main.clone(), launcher.clone()]));
            }
        }
        let (readers, opens) = seen(&known, 2);
        let groups = readers.groups(&opens);
        prop_assert_eq!(groups.len(), 1);
        prop_assert_eq!(groups[0].ranks.len(), ranks as usize);
        prop_assert_eq!(groups[0].rank_of_stream.len(), (ranks * workers) as usize);
        prop_assert!(groups[0].rank_of_stream.iter().zip(0..).all(|(rank, stream): (&u32, u32)| *rank == stream / workers));
    }
}
