//! Batches dealt to the processes of a job in turn (accelerate's `BatchSamplerShard`, split batches or not): which ranks are here, of how many.
//!
//! Within a batch places follow each other, so streams alone look like one process's workers. What tells is which batches nobody here reads:
//! worker k of rank r reads batches r + world · (k + workers · j). Not here: places dealt one by one (`proof`).

use std::collections::BTreeSet;

use crate::types::Rank;

/// Batches that a loader hands out before the first of them is delivered, for each worker (`prefetch_factor`).
const AHEAD: u32 = 2;
/// So many workers that have not begun, and half of all, are no coincidence: others have read whole batches meanwhile.
const ABSENT_LEAST: usize = 4;

/// How an order whose places follow each other in every stream is read here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Dealt {
    /// By one process and its workers, or by all ranks: nothing speaks against it.
    Whole,
    /// Some of it is not read here, and more must be seen to tell which.
    Unclear,
    Part {
        batch: u32,
        world: u32,
        ranks: Vec<Rank>,
        /// Of each rank.
        workers: u32,
    },
}

/// Reads it off the places of each stream, from an epoch's beginning on.
pub(super) fn dealt(streams: &[Vec<u32>]) -> Dealt {
    let streams: Vec<Vec<Run>> = streams.iter().map(|places| runs(places)).filter(|runs| !runs.is_empty()).collect();
    let Some(batch) = batch(&streams) else { return Dealt::Whole };
    let numbers: Vec<Vec<u32>> = streams.iter().map(|runs| runs.iter().map(|run| run.first / batch).collect()).collect();
    let first: BTreeSet<u32> = numbers.iter().map(|numbers| numbers[0]).collect();
    let last = numbers.iter().flatten().copied().max().unwrap_or(0);
    let jump = numbers.iter().flat_map(|numbers| numbers.windows(2).map(|pair| pair[1] - pair[0])).min();
    let Some(turn) = jump else { return by_first_batches(batch, &first) };
    let here: BTreeSet<u32> = numbers.iter().flatten().map(|number| number % turn).collect();
    let absent: Vec<u32> = (0..turn).filter(|number| !here.contains(number)).collect();
    if absent.is_empty() || numbers.iter().any(|numbers| numbers.iter().any(|number| number % turn != numbers[0] % turn)) {
        return Dealt::Whole;
    }
    // A loader that waits for its batch hands nothing out beyond what is ahead.
    let certain = absent.iter().any(|&number| last >= number + AHEAD * turn);
    let many = absent.len() >= ABSENT_LEAST && absent.len() * 2 >= turn as usize;
    if !certain && !many {
        return Dealt::Whole;
    }
    let period = |world: &u32| here.iter().all(|&number| here.contains(&((number + world) % turn)));
    let world = (1..=turn).filter(|world| turn.is_multiple_of(*world)).find(period).unwrap_or(turn);
    let ranks: BTreeSet<Rank> = here.iter().map(|number| number % world).collect();
    Dealt::Part { batch, world, ranks: ranks.into_iter().collect(), workers: turn / world }
}

/// Nobody has come to a second batch: the first ones repeat themselves with the world, where ranks have several workers.
fn by_first_batches(batch: u32, first: &BTreeSet<u32>) -> Dealt {
    let last = first.last().copied().unwrap_or(0);
    let absent = (0..last).filter(|number| !first.contains(number)).count();
    if absent < ABSENT_LEAST || absent * 2 < first.len() {
        return Dealt::Whole;
    }
    let fits = |world: &u32| {
        let ranks = first.range(..*world).count();
        let workers = first.len() / ranks.max(1);
        let all = || first.range(..*world).flat_map(|rank| (0..workers as u32).map(move |worker| rank + world * worker));
        workers > 1 && ranks * workers == first.len() && ranks * 2 <= *world as usize && all().all(|number| first.contains(&number))
    };
    match (2..=last).find(fits) {
        Some(world) => {
            let ranks: Vec<Rank> = first.range(..world).copied().collect();
            let workers = u32::try_from(first.len() / ranks.len()).unwrap_or(1);
            Dealt::Part { batch, world, ranks, workers }
        }
        None => Dealt::Unclear,
    }
}

/// Places of one stream that follow each other.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u32,
    len: u32,
}

fn runs(places: &[u32]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for &place in places {
        match runs.last_mut() {
            Some(run) if place == run.first + run.len => run.len += 1,
            // A restart, a probe.
            Some(run) if place < run.first + run.len => {}
            _ => runs.push(Run { first: place, len: 1 }),
        }
    }
    runs
}

/// The batch size: runs that ended are of whole batches, and all runs begin with one. `None`: they do not.
fn batch(streams: &[Vec<Run>]) -> Option<u32> {
    let begins = streams.iter().flatten().fold(0, |common, run| gcd(common, run.first));
    let whole = streams.iter().flat_map(|runs| runs.iter().rev().skip(1)).fold(0, |common, run| gcd(common, run.len));
    let longest = streams.iter().flatten().map(|run| run.len).max().unwrap_or(0);
    let batch = gcd(begins, whole);
    // Batches of one sample are dealt like places.
    (batch > 1 && (whole > 0 || longest <= batch)).then_some(batch)
}

const fn gcd(mut a: u32, mut b: u32) -> u32 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places that the workers of some ranks read first.
    fn streams(batch: u32, world: u32, ranks: &[u32], workers: u32, opens: u32) -> Vec<Vec<u32>> {
        let place = |rank: u32, worker: u32, open: u32| (rank + world * (worker + workers * (open / batch))) * batch + open % batch;
        ranks.iter().flat_map(|&rank| (0..workers).map(move |worker| (0..opens).map(|open| place(rank, worker, open)).collect())).collect()
    }

    #[test]
    fn ranks_of_a_node_are_read_off_the_batches_that_it_reads() {
        for (batch, world, ranks, workers, opens) in [
            (8, 4, vec![2, 3], 2, 30),
            (32, 16, (8..16).collect(), 4, 40),
            (64, 16, (0..8).collect(), 4, 20), // nobody has come to a second batch
            (64, 16, (8..16).collect(), 4, 20),
            (16, 2, vec![1], 1, 80),
            (16, 2, vec![0], 2, 80),
            (7, 3, vec![1, 2], 1, 40),
        ] {
            let wanted = Dealt::Part { batch, world, ranks: ranks.clone(), workers };
            assert_eq!(dealt(&streams(batch, world, &ranks, workers, opens)), wanted, "{batch} {world} {ranks:?}");
        }
    }

    #[test]
    fn workers_of_one_process_are_no_ranks_even_if_one_is_late() {
        for workers in [1, 2, 4, 8] {
            for opens in [3, 16, 40] {
                let mut all = streams(16, 1, &[0], workers, opens);
                assert_eq!(dealt(&all), Dealt::Whole, "{workers} {opens}");
                let late = all.remove(workers as usize / 2);
                if workers > 1 && opens <= 32 {
                    assert_eq!(dealt(&all), Dealt::Whole, "{workers} {opens} {late:?}");
                }
            }
        }
        assert_eq!(dealt(&[]), Dealt::Whole);
    }

    #[test]
    fn one_batch_of_each_rank_does_not_tell_the_world() {
        assert_eq!(dealt(&streams(64, 16, &(8..16).collect::<Vec<_>>(), 1, 20)), Dealt::Unclear);
    }
}
