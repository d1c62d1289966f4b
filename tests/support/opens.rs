//! Opens as programs make them, from a die that is the same in every run: loaders and their workers, pools, walks, noise. Pure.

use std::collections::VecDeque;

/// xorshift64*.
pub(crate) struct Die(pub(crate) u64);

impl Die {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let out = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(out).expect("31 bits") % n
    }

    pub(crate) fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high + 1 - low)
    }

    /// True `percent` times in a hundred.
    pub(crate) fn falls(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    /// All of 0 to n - 1.
    pub(crate) fn shuffled(&mut self, n: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..u32::try_from(n).expect("small")).collect();
        self.shuffle(&mut order);
        order
    }
}

/// The opens of one epoch of DataLoaders: each rank's places in batches, dealt to its workers, which are at most two batches ahead.
pub(crate) fn loaders(ranks: &[Vec<u32>], workers: usize, batch: usize, first_process: u32, die: &mut Die) -> Vec<(u32, u32)> {
    struct Worker {
        process: u32,
        rank: usize,
        batches: VecDeque<VecDeque<u32>>,
    }
    let mut all: Vec<Worker> = Vec::new();
    for (rank, places) in ranks.iter().enumerate() {
        for worker in 0..workers {
            let process = first_process + u32::try_from(all.len()).expect("few");
            let batches = places.chunks(batch).skip(worker).step_by(workers).map(|batch| batch.iter().copied().collect()).collect();
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
        opens.push((worker.process, front.pop_front().expect("no batch is empty")));
        if front.is_empty() {
            worker.batches.pop_front();
            taken[w] += 1;
        }
    }
}

/// A pool of threads over one list: which of them takes the next is chance, and a few overtake each other.
pub(crate) fn pool(order: &[u32], threads: usize, first_process: u32, die: &mut Die) -> Vec<(u32, u32)> {
    let mut opens: Vec<(u32, u32)> =
        order.iter().map(|&sample| (first_process + u32::try_from(die.below(threads)).expect("few"), sample)).collect();
    for at in 1..opens.len() {
        // a thread is held up between taking a task and its open
        let back = die.below(threads.min(at + 1));
        if die.falls(30) && opens[at - back..at].iter().all(|open| open.0 != opens[at].0) {
            opens[at - back..=at].rotate_right(1);
        }
    }
    opens
}

/// `tf.data`: a buffer over a list, each next one taken from it at random.
pub(crate) fn buffered(list: &[u32], size: usize, die: &mut Die) -> Vec<u32> {
    let (front, rest) = list.split_at(size.min(list.len()));
    let mut buffer = front.to_vec();
    let mut out = Vec::with_capacity(list.len());
    for &next in rest {
        let at = die.below(buffer.len());
        out.push(std::mem::replace(&mut buffer[at], next));
    }
    die.shuffle(&mut buffer);
    out.extend(buffer);
    out
}

/// `tf.data`: several lists in turns, a block of each; one that ends makes room for the next.
pub(crate) fn interleaved(lists: &[Vec<u32>], cycle: usize, block: usize) -> Vec<u32> {
    let mut waiting: VecDeque<VecDeque<u32>> = lists.iter().map(|list| list.iter().copied().collect()).collect();
    let mut turning: VecDeque<VecDeque<u32>> = VecDeque::new();
    let mut out = Vec::new();
    loop {
        while turning.len() < cycle
            && let Some(list) = waiting.pop_front()
        {
            turning.push_back(list);
        }
        let Some(mut list) = turning.pop_front() else { return out };
        out.extend((0..block).map_while(|_| list.pop_front()));
        if !list.is_empty() {
            turning.push_back(list);
        }
    }
}

/// Two programs at once.
pub(crate) fn beside<T>(one: Vec<T>, other: Vec<T>, die: &mut Die) -> Vec<T> {
    let (mut left, mut right) = (VecDeque::from(one), VecDeque::from(other));
    let mut out = Vec::with_capacity(left.len() + right.len());
    while !left.is_empty() && !right.is_empty() {
        let from = if die.below(left.len() + right.len()) < left.len() { &mut left } else { &mut right };
        out.extend(from.pop_front());
    }
    out.into_iter().chain(left).chain(right).collect()
}
