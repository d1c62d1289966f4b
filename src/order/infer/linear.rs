//! A generator's state from 20,000 ordered places, whatever its seed and however much it was used before.
//!
//! Source: field notes «orders» §5e. Where 2^t divides n - i, the low t bits of output i are known exactly, and every output bit is a sum
//! (modulo 2) of the 19,937 state bits: one equation a place on average. For orders that start deep in a stream: `SubsetRandomSampler`, torch
//! before 1.9, a given generator joined late, `StatefulDataLoader` with workers.
//! Costs: about 5 core-s and 115 MB for 20,000 places; one thread. Which bits are known depends on n alone, so hundreds of suppositions about
//! the order (whose turn it is, how large a batch is) are solved together: a bit of the right side each.
//!
//! Needs the exact front of the permutation, without a gap. Not here: how streams are put back in order (`turns`), which seed it was (`rewind`).

use multiversion::multiversion;

use super::Control;
use super::replay::{Draws, SEARCHABLE_BELOW};
use super::words::{MATRIX, SHIFT, WORDS, mixed, temper, untemper};
use crate::types::SampleIndex;

/// Equations between two looks at the stop sign (about 20 ms).
const LOOK_EVERY: usize = 64;
/// Equations beyond those that are needed: each one halves the wrong suppositions that are left.
const MORE: usize = 48;

/// A twister's measures. Smaller ones than torch's are for tests.
#[derive(Clone, Copy, Debug)]
struct Twister {
    /// Even.
    words: usize,
    shift: usize,
}

const TORCH: Twister = Twister { words: WORDS, shift: SHIFT };

impl Twister {
    /// All bits of the words.
    const fn columns(self) -> usize {
        self.words * 32
    }

    /// Bits that outputs depend on: of the oldest word only the upper bit.
    const fn unknowns(self) -> usize {
        self.columns() - 31
    }

    /// Words of a row of coefficients.
    const fn row(self) -> usize {
        self.columns() / 64
    }
}

/// What came out.
#[derive(Clone, Debug)]
pub enum Solved {
    /// The raw words before the permutation's first output, and which order it was. All its places agree.
    State {
        which: usize,
        words: Box<[u32; WORDS]>,
    },
    /// The places determine only so many of 19,937 bits: more are needed.
    TooFew {
        rank: usize,
    },
    /// No generator makes one of these orders: places are missing or not in order, or n is wrong.
    Contradiction,
    Stopped,
}

/// The state of the generator whose `randperm(n)` begins with one of `count` orders. `order(k)` is the k-th supposed front; of those that differ
/// in length the shortest length counts. It is asked for twice.
#[must_use]
pub fn solve(n: u32, count: usize, order: &dyn Fn(usize) -> Vec<SampleIndex>, control: Control<'_>) -> Solved {
    match solve_by(TORCH, n, count, order, control) {
        Outcome::State { which, words } => {
            let mut all = Box::new([0; WORDS]);
            all.copy_from_slice(&words);
            Solved::State { which, words: all }
        }
        Outcome::TooFew { rank } => Solved::TooFew { rank },
        Outcome::Contradiction => Solved::Contradiction,
        Outcome::Stopped => Solved::Stopped,
    }
}

#[derive(Debug)]
enum Outcome {
    State { which: usize, words: Vec<u32> },
    TooFew { rank: usize },
    Contradiction,
    Stopped,
}

/// Right sides: for each known bit, in the order of places, a bit for each supposition.
struct Sides {
    words: usize,
    bits: Vec<u64>,
    /// Suppositions that are fronts of a permutation at all, and are not refuted.
    alive: Vec<u64>,
    places: usize,
}

impl Sides {
    fn new(n: u32, count: usize, order: &dyn Fn(usize) -> Vec<SampleIndex>) -> Self {
        let words = count.div_ceil(64);
        let mut sides = Self { words, bits: Vec::new(), alive: vec![0; words], places: usize::MAX };
        let mut replay = Draws::new(n);
        for which in 0..count {
            let order = order(which);
            // The last place takes no draw.
            let Some(draws) = replay.of(&order).filter(|draws| !draws.is_empty()) else { continue };
            sides.alive[which / 64] |= 1 << (which % 64);
            sides.places = sides.places.min(draws.len()).min(n as usize - 1);
            let mut at = which / 64;
            for (place, &draw) in (0..n - 1).zip(draws) {
                for bit in 0..known(n, place) {
                    if at >= sides.bits.len() {
                        sides.bits.resize(at - at % words + words, 0);
                    }
                    sides.bits[at] |= u64::from(draw >> bit & 1) << (which % 64);
                    at += words;
                }
            }
        }
        if sides.places == usize::MAX {
            sides.places = 0;
        }
        sides
    }

    fn of(&self, equation: usize) -> &[u64] {
        &self.bits[equation * self.words..(equation + 1) * self.words]
    }

    /// What all coefficients vanish from is 0 under a right supposition.
    fn refute(&mut self, rest: &[u64]) {
        self.alive.iter_mut().zip(rest).for_each(|(alive, rest)| *alive &= !rest);
    }

    fn left(&self) -> u32 {
        self.alive.iter().map(|word| word.count_ones()).sum()
    }
}

/// Low bits of the output at a place that its draw tells.
const fn known(n: u32, place: u32) -> u32 {
    (n - place).trailing_zeros()
}

fn solve_by(twister: Twister, n: u32, count: usize, order: &dyn Fn(usize) -> Vec<SampleIndex>, control: Control<'_>) -> Outcome {
    if !(2..SEARCHABLE_BELOW).contains(&n) {
        return Outcome::Contradiction;
    }
    let mut sides = Sides::new(n, count, order);
    let mut equations = Equations::new(twister.columns(), sides.words);
    let mut symbols = Symbols::new(twister);
    let mut row = vec![0; twister.row() + sides.words];
    let (mut number, mut more) = (0, 0);
    for place in 0..sides.places {
        if sides.left() == 0 {
            return Outcome::Contradiction;
        }
        symbols.step();
        for bit in 0..known(n, place as u32) {
            symbols.output_bit(bit, &mut row[..twister.row()]);
            row[twister.row()..].copy_from_slice(sides.of(number));
            number += 1;
            if equations.add(&mut row) == Added::Known {
                sides.refute(&row[twister.row()..]);
                more += usize::from(equations.rank == twister.unknowns());
            }
        }
        if more >= MORE || more > 0 && sides.left() == 1 {
            break;
        }
        if place % LOOK_EVERY == 0 && control.stopped() {
            return Outcome::Stopped;
        }
    }
    if sides.left() == 0 {
        return Outcome::Contradiction;
    }
    if equations.rank < twister.unknowns() {
        return Outcome::TooFew { rank: equations.rank };
    }
    drop(symbols);
    for which in (0..count).filter(|which| sides.alive[which / 64] >> (which % 64) & 1 == 1) {
        let bits = equations.solution(which);
        let words: Vec<u32> = (0..twister.words).map(|word| (bits[word / 2] >> (word % 2 * 32)) as u32).collect();
        let mut check = Running { twister, words: words.clone(), next: 0 };
        let Some(draws) = Draws::new(n).of(&order(which)).map(<[u32]>::to_vec) else { continue };
        if (0..n - 1).zip(&draws).all(|(place, &draw)| check.output() % (n - place) == draw) {
            return Outcome::State { which, words };
        }
    }
    Outcome::Contradiction
}

/// A twister that runs.
struct Running {
    twister: Twister,
    words: Vec<u32>,
    next: usize,
}

impl Running {
    fn output(&mut self) -> u32 {
        let (at, words) = (self.next, self.twister.words);
        self.next = (at + 1) % words;
        self.words[at] = self.words[(at + self.twister.shift) % words] ^ mixed(self.words[at], self.words[self.next]);
        temper(self.words[at])
    }
}

/// Every bit of the last raw words as a sum of the bits of the first ones.
struct Symbols {
    twister: Twister,
    /// A row for each bit of each word: 624 × 32 rows of 312 words, 50 MB.
    rows: Vec<u64>,
    /// The word that the next step replaces.
    next: usize,
    /// Which raw bits each output bit is the sum of.
    tempered: [u32; 32],
}

impl Symbols {
    fn new(twister: Twister) -> Self {
        let row = twister.row();
        let mut rows = vec![0; twister.columns() * row];
        for bit in 0..twister.columns() {
            rows[bit * row + bit / 64] = 1 << (bit % 64);
        }
        let mut tempered = [0; 32];
        for raw in 0..32 {
            for (output, sum) in tempered.iter_mut().enumerate() {
                *sum |= (temper(1 << raw) >> output & 1) << raw;
            }
        }
        debug_assert_eq!(untemper(temper(1)), 1);
        Self { twister, rows, next: 0, tempered }
    }

    fn at(&self, word: usize, bit: usize) -> std::ops::Range<usize> {
        let row = self.twister.row();
        let at = (word * 32 + bit) * row;
        at..at + row
    }

    fn add(&self, word: usize, bit: usize, to: &mut [u64]) {
        xor(to, &self.rows[self.at(word, bit)]);
    }

    /// One word of the twist: s[i] = s[i + 397] ^ mixed(s[i], s[i + 1]), bit by bit.
    fn step(&mut self) {
        let at = self.next;
        let wrapped = |word: usize| word % self.twister.words;
        let (lower, far) = (wrapped(at + 1), wrapped(at + self.twister.shift));
        let upper = self.rows[self.at(at, 31)].to_vec();
        let mut sum = vec![0; self.twister.row()];
        for bit in 0..32 {
            sum.copy_from_slice(&self.rows[self.at(far, bit)]);
            match bit {
                0..30 => self.add(lower, bit + 1, &mut sum),
                30 => xor(&mut sum, &upper),
                _ => {}
            }
            if MATRIX >> bit & 1 == 1 {
                self.add(lower, 0, &mut sum);
            }
            let to = self.at(at, bit);
            self.rows[to].copy_from_slice(&sum);
        }
        self.next = lower;
    }

    /// A bit of the output of the last step.
    fn output_bit(&self, bit: u32, row: &mut [u64]) {
        let word = (self.next + self.twister.words - 1) % self.twister.words;
        row.fill(0);
        for raw in (0..32).filter(|raw| self.tempered[bit as usize] >> raw & 1 == 1) {
            self.add(word, raw, row);
        }
    }
}

/// Equations modulo 2 in echelon form. A row has a bit for each unknown, and words for the right sides.
struct Equations {
    columns: usize,
    sides: usize,
    /// By first unknown.
    pivots: Vec<Option<Box<[u64]>>>,
    rank: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Added {
    New,
    /// It says nothing that the others do not: what is left of its right sides is 0, or they contradict each other.
    Known,
}

impl Equations {
    /// `columns` is a multiple of 64.
    fn new(columns: usize, sides: usize) -> Self {
        Self { columns, sides, pivots: vec![None; columns], rank: 0 }
    }

    fn add(&mut self, row: &mut [u64]) -> Added {
        debug_assert_eq!(row.len(), self.columns / 64 + self.sides);
        for word in 0..self.columns / 64 {
            while row[word] != 0 {
                let column = word * 64 + row[word].trailing_zeros() as usize;
                let Some(pivot) = &self.pivots[column] else {
                    self.pivots[column] = Some(row.into());
                    self.rank += 1;
                    return Added::New;
                };
                xor(&mut row[word..], &pivot[word..]);
            }
        }
        Added::Known
    }

    /// Values of the unknowns under one of the right sides; 0 for those that are free.
    fn solution(&self, side: usize) -> Vec<u64> {
        let words = self.columns / 64;
        let mut bits = vec![0u64; words];
        for column in (0..self.columns).rev() {
            if let Some(pivot) = &self.pivots[column] {
                let sum: u32 = pivot[..words].iter().zip(&bits).map(|(row, bits)| (row & bits).count_ones()).sum();
                let bit = (u64::from(sum) ^ pivot[words + side / 64] >> (side % 64)) & 1;
                bits[column / 64] |= bit << (column % 64);
            }
        }
        bits
    }
}

/// Almost all time goes here.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn xor(to: &mut [u64], from: &[u64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to ^= from;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::order::infer::replay::Replay;
    use crate::order::infer::words::Outputs;
    use crate::order::mt19937::Mt19937;
    use crate::order::torch::randperm;

    static GO: AtomicBool = AtomicBool::new(false);
    const CONTROL: Control<'_> = Control { stop: &GO, threads: 1 };
    /// Small enough for a build without optimisations.
    const SMALL: Twister = Twister { words: 18, shift: 11 };

    impl Outputs for Running {
        fn next_output(&mut self) -> u32 {
            self.output()
        }
    }

    fn small(seed: u64) -> Running {
        let mut dice = Mt19937::new(seed);
        Running { twister: SMALL, words: (0..SMALL.words).map(|_| dice.random()).collect(), next: 0 }
    }

    fn front(n: u32, generator: &mut Running, places: usize) -> Vec<SampleIndex> {
        let mut replay = Replay::new(n);
        replay.begin(n);
        (0..places).map(|_| replay.next(generator)).collect()
    }

    #[test]
    fn symbols_follow_the_generator() {
        let mut generator = small(9);
        let bits: Vec<u64> = generator.words.chunks(2).map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32).collect();
        let mut symbols = Symbols::new(SMALL);
        let mut row = vec![0; SMALL.row()];
        // Past the end of a block: both forms of the twist's indices.
        for at in 0..40 {
            symbols.step();
            let output = generator.output();
            for bit in 0..32 {
                symbols.output_bit(bit, &mut row);
                let sum: u32 = row.iter().zip(&bits).map(|(row, bits)| (row & bits).count_ones()).sum();
                assert_eq!(sum & 1, output >> bit & 1, "output {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn a_running_twister_of_torchs_measures_is_torchs() {
        let mut generator = Mt19937::new(7);
        let words: [u32; WORDS] = std::array::from_fn(|_| generator.random());
        let (mut one, mut other) = (Running { twister: TORCH, words: words.to_vec(), next: 0 }, Mt19937::from_words(words));
        assert!((0..2_000).all(|_| one.output() == other.random()));
    }

    #[test]
    fn the_right_one_of_many_suppositions_is_found() {
        let n = 3_000;
        let mut generator = small(5);
        for _ in 0..1_000 {
            generator.output();
        }
        let mut after = Running { words: generator.words.clone(), ..small(5) };
        after.next = generator.next;
        let right = front(n, &mut generator, 800);
        // 99 orders in which two neighbours are exchanged, and no permutation
        let order = |which: usize| {
            let mut order = right.clone();
            match which {
                70 => {}
                71 => order[5] = order[4],
                _ => order.swap(which * 4, which * 4 + 1),
            }
            order
        };
        let Outcome::State { which, words } = solve_by(SMALL, n, 100, &order, CONTROL) else { panic!("one of them is right") };
        assert_eq!(which, 70);
        let mut found = Running { twister: SMALL, words, next: 0 };
        assert!((0..100).all(|_| found.output() == after.output()));
        let wrong = |which: usize| order(which + usize::from(which >= 70));
        assert!(matches!(solve_by(SMALL, n, 99, &wrong, CONTROL), Outcome::Contradiction));
    }

    #[test]
    fn systems_are_solved_and_contradictions_seen() {
        let mut dice = Mt19937::new(4);
        let secret: Vec<u64> = (0..3).map(|_| dice.random64()).collect();
        let mut equations = Equations::new(192, 1);
        let mut outcomes = [0; 2];
        for _ in 0..220 {
            let mut row: Vec<u64> = (0..3).map(|_| dice.random64()).collect();
            let sum: u32 = row.iter().zip(&secret).map(|(row, bits)| (row & bits).count_ones()).sum();
            // the second right side is the other's opposite: no solution has it
            row.push(u64::from(sum & 1) | u64::from(sum & 1 ^ 1) << 1);
            match equations.add(&mut row) {
                Added::New => outcomes[0] += 1,
                Added::Known => {
                    outcomes[1] += 1;
                    assert_eq!(row[3] & 1, 0);
                }
            }
        }
        assert_eq!(outcomes, [192, 28]);
        assert_eq!(equations.solution(0), secret);
        let sum: u32 = secret.iter().map(|bits| bits.count_ones()).sum();
        let mut row = [!0, !0, !0, u64::from(sum & 1 ^ 1)];
        assert_eq!(equations.add(&mut row), Added::Known);
        assert_eq!(row[3], 1, "contradiction");
    }

    #[test]
    fn too_few_places_say_so() {
        let order = front(30_000, &mut small(5), 40);
        let Outcome::TooFew { rank } = solve_by(SMALL, 30_000, 1, &|_| order.clone(), CONTROL) else { panic!("40 places cannot do") };
        let all: u32 = (0..40).map(|place| known(30_000, place)).sum();
        assert_eq!(rank, all as usize);
        assert!(matches!(solve_by(SMALL, 30_000, 1, &|_| vec![1, 1], CONTROL), Outcome::Contradiction));
        let stop = AtomicBool::new(true);
        assert!(matches!(solve_by(SMALL, 30_000, 1, &|_| order.clone(), Control { stop: &stop, threads: 1 }), Outcome::Stopped));
    }

    /// 6 s with optimisations, minutes without.
    #[test]
    #[cfg_attr(debug_assertions, ignore = "minutes without optimisations; benches/search.rs checks the same")]
    fn a_state_deep_in_a_stream_is_found() {
        let mut generator = Mt19937::new(31_337);
        generator.skip(3_001_000);
        let order = randperm(300_000, &mut generator.clone());
        let front = |places: usize| order[..places].to_vec();
        assert!(matches!(solve(300_000, 1, &|_| front(19_000), CONTROL), Solved::TooFew { rank: 18_900..19_001 }));
        let Solved::State { words, .. } = solve(300_000, 1, &|_| front(20_100), CONTROL) else { panic!("20,100 places are enough") };
        let mut found = Mt19937::from_words(*words);
        assert_eq!(randperm(300_000, &mut found), order);
        let _ = randperm(300_000, &mut generator);
        assert_eq!(found.random64(), generator.random64());
        let mut wrong = front(20_500);
        wrong.swap(3000, 3001);
        assert!(matches!(solve(300_000, 1, &|_| wrong.clone(), CONTROL), Solved::Contradiction));
    }
}
