//! Readers that read what others read at the same time: jobs of a sweep with one seed, ranks that nobody told apart. Each file comes twice then,
//! and no order has that; without the doubles one of them reads it as it is. Pure.

use std::collections::HashSet;

use crate::plan::Seen;
use crate::types::{FileIndex, QuickMap};

/// Processes compared with each other: sweeps on one node.
const PROCESSES_MAX: usize = 64;
/// Files of each process that are compared: of its first ones.
const FIRST_MAX: usize = 128;
/// ... this part of the dataset at most: two orders have few of so few in common by chance, one in eight.
const PART: usize = 8;
/// Files in common, at least.
const COMMON_LEAST: usize = 4;

/// The opens without those of processes which read what another one does, of so many files; `None`: there are no such processes. Of those that read
/// the same the one with most opens stays.
pub(super) fn without_doubles(opens: &[Seen], files: usize) -> Option<Vec<Seen>> {
    let first = FIRST_MAX.min(files / PART);
    let mut firsts: QuickMap<u32, HashSet<FileIndex>> = QuickMap::default();
    let mut count: QuickMap<u32, usize> = QuickMap::default();
    for seen in opens.iter().filter(|seen| seen.process != 0) {
        *count.entry(seen.process).or_default() += 1;
        let of_process = firsts.entry(seen.process).or_default();
        if of_process.len() < first {
            of_process.insert(seen.file);
        }
    }
    let mut processes: Vec<u32> = firsts.keys().copied().collect();
    if processes.len() > PROCESSES_MAX {
        return None;
    }
    processes.sort_unstable_by_key(|process| (std::cmp::Reverse(count[process]), *process));
    let mut kept: Vec<u32> = Vec::new();
    for process in processes {
        let own = &firsts[&process];
        let reads_the_same = |other: &u32| {
            let other = &firsts[other];
            let common = own.intersection(other).count();
            common >= COMMON_LEAST && common * 2 > own.len().min(other.len())
        };
        if !kept.iter().any(reads_the_same) {
            kept.push(process);
        }
    }
    (kept.len() < count.len()).then(|| opens.iter().filter(|seen| kept.contains(&seen.process)).copied().collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::order::mt19937::Mt19937;
    use crate::order::torch::randperm;
    use crate::types::Outcome;

    const FILES: usize = 1_000;

    fn seen(process: u32, file: u32) -> Seen {
        Seen { now: Duration::ZERO, file: FileIndex(file), process, outcome: Outcome::Miss }
    }

    fn shuffled(seed: u64) -> Vec<u32> {
        randperm(FILES as u32, &mut Mt19937::new(seed))
    }

    #[test]
    fn of_two_that_read_the_same_the_one_that_is_ahead_stays() {
        let order = shuffled(3);
        let opens: Vec<Seen> = (0..60).flat_map(|at| [seen(8, order[at]), seen(7, order[at + at / 4])]).collect();
        let one = without_doubles(&opens, FILES).unwrap();
        assert!(one.len() == 60 && one.iter().all(|seen| seen.process == 7), "as many opens: the lower number");
        let ahead: Vec<Seen> = opens.into_iter().chain((75..80).map(|at| seen(8, order[at]))).collect();
        assert!(without_doubles(&ahead, FILES).unwrap().iter().all(|seen| seen.process == 8));
    }

    #[test]
    fn workers_ranks_and_other_orders_are_no_doubles() {
        let (one, other) = (shuffled(3), shuffled(4));
        for opens in [10, 60, 400] {
            let workers: Vec<Seen> = (0..opens).map(|at| seen(at as u32 % 4, one[at])).collect();
            assert!(without_doubles(&workers, FILES).is_none(), "{opens}");
            let both: Vec<Seen> = (0..opens).flat_map(|at| [seen(1, one[at]), seen(2, other[at])]).collect();
            assert!(without_doubles(&both, FILES).is_none(), "{opens}");
        }
        let unknown: Vec<Seen> = (0..60).flat_map(|at| [seen(0, one[at]), seen(0, one[at])]).collect();
        assert!(without_doubles(&unknown, FILES).is_none());
        assert!(without_doubles(&[], FILES).is_none());
    }
}
