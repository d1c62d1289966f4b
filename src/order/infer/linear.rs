//! A generator's state from 20,000 ordered places, whatever its seed and however much it was used before.
//!
//! Source: field notes «orders» §5e. Where 2^t divides n - i, the low t bits of output i are known exactly, and every output bit is a sum
//! (modulo 2) of the 19,937 state bits: one equation a place on average. For orders that start deep in a stream: `SubsetRandomSampler`, torch
//! before 1.9, a given generator joined late, `StatefulDataLoader` with workers.
//! Costs: about 5 core-s and 115 MB for 20,000 places; one thread.
//!
//! Needs the exact front of the permutation, without a gap. Not here: how streams are put back in order.

use multiversion::multiversion;

use super::Control;
use super::replay::{SEARCHABLE_BELOW, draws};
use super::words::{SHIFT, WORDS, temper, untemper};
use crate::order::mt19937::Mt19937;
use crate::types::SampleIndex;

/// Bits of the state that outputs depend on: of the oldest word only the upper bit.
const UNKNOWNS: usize = 19_937;
/// Columns: all bits of 624 words.
const COLUMNS: usize = WORDS * 32;
/// Equations between two looks at the stop sign (about 20 ms).
const LOOK_EVERY: usize = 64;
const MATRIX: u32 = 0x9908_b0df;

/// What came out.
#[derive(Clone, Debug)]
pub enum Solved {
    /// The generator as it was when the permutation began: its next output is draw 0. All places given agree.
    State(Box<Mt19937>),
    /// The places determine only so many of 19,937 bits: more are needed.
    TooFew {
        rank: usize,
    },
    /// No generator makes this order: places are missing or not in order, or n is wrong.
    Contradiction,
    Stopped,
}

/// The state of the generator whose `randperm(n)` begins with `order`.
#[must_use]
pub fn solve(n: u32, order: &[SampleIndex], control: Control<'_>) -> Solved {
    if !(2..SEARCHABLE_BELOW).contains(&n) {
        return Solved::Contradiction;
    }
    let Some(mut draws) = draws(n, order) else { return Solved::Contradiction };
    // The last place takes no draw.
    draws.truncate(n as usize - 1);
    let mut equations = Equations::new(COLUMNS);
    let mut symbols = Symbols::new();
    let mut row = vec![0; COLUMNS / 64 + 1];
    for (place, &draw) in draws.iter().enumerate() {
        symbols.step();
        let known = (n - place as u32).trailing_zeros();
        for bit in 0..known {
            symbols.output_bit(bit, &mut row);
            row[COLUMNS / 64] = u64::from(draw >> bit & 1);
            if equations.add(&mut row) == Added::Contradiction {
                return Solved::Contradiction;
            }
        }
        if equations.rank == UNKNOWNS {
            break;
        }
        if place % LOOK_EVERY == 0 && control.stopped() {
            return Solved::Stopped;
        }
    }
    if equations.rank < UNKNOWNS {
        return Solved::TooFew { rank: equations.rank };
    }
    let bits = equations.solution();
    let mut words = [0; WORDS];
    for (word, slot) in words.iter_mut().enumerate() {
        *slot = (bits[word / 2] >> (word % 2 * 32)) as u32;
    }
    let generator = Mt19937::from_words(words);
    let mut check = generator.clone();
    let right = (0u32..).zip(&draws).all(|(place, &draw)| check.random() % (n - place) == draw);
    if right { Solved::State(Box::new(generator)) } else { Solved::Contradiction }
}

/// Every bit of the last 624 raw words as a sum of the bits of the first 624.
struct Symbols {
    /// 624 × 32 rows of 312 words, 50 MB.
    rows: Vec<u64>,
    /// The word that the next step replaces.
    next: usize,
    /// Which raw bits each output bit is the sum of.
    tempered: [u32; 32],
}

const ROW: usize = COLUMNS / 64;

impl Symbols {
    fn new() -> Self {
        let mut rows = vec![0; COLUMNS * ROW];
        for bit in 0..COLUMNS {
            rows[bit * ROW + bit / 64] = 1 << (bit % 64);
        }
        let mut tempered = [0; 32];
        for raw in 0..32 {
            for (output, sum) in tempered.iter_mut().enumerate() {
                *sum |= (temper(1 << raw) >> output & 1) << raw;
            }
        }
        debug_assert_eq!(untemper(temper(1)), 1);
        Self { rows, next: 0, tempered }
    }

    fn copy(&self, word: usize, bit: usize, to: &mut [u64]) {
        let at = (word * 32 + bit) * ROW;
        to.copy_from_slice(&self.rows[at..at + ROW]);
    }

    fn add(&self, word: usize, bit: usize, to: &mut [u64]) {
        let at = (word * 32 + bit) * ROW;
        xor(to, &self.rows[at..at + ROW]);
    }

    /// One word of the twist: s[i] = s[i + 397] ^ mixed(s[i], s[i + 1]), bit by bit.
    fn step(&mut self) {
        let at = self.next;
        let wrapped = |word: usize| word % WORDS;
        let (lower, far) = (wrapped(at + 1), wrapped(at + SHIFT));
        let mut upper = vec![0; ROW];
        self.copy(at, 31, &mut upper);
        let mut sum = vec![0; ROW];
        for bit in 0..32 {
            self.copy(far, bit, &mut sum);
            match bit {
                0..30 => self.add(lower, bit + 1, &mut sum),
                30 => xor(&mut sum, &upper),
                _ => {}
            }
            if MATRIX >> bit & 1 == 1 {
                self.add(lower, 0, &mut sum);
            }
            let to = (at * 32 + bit) * ROW;
            self.rows[to..to + ROW].copy_from_slice(&sum);
        }
        self.next = wrapped(at + 1);
    }

    /// A bit of the output of the last step.
    fn output_bit(&self, bit: u32, row: &mut [u64]) {
        let word = (self.next + WORDS - 1) % WORDS;
        let row = &mut row[..ROW];
        row.fill(0);
        for raw in (0..32).filter(|raw| self.tempered[bit as usize] >> raw & 1 == 1) {
            self.add(word, raw, row);
        }
    }
}

/// Equations modulo 2 in echelon form. A row has a bit for each unknown and one more word for the right side.
struct Equations {
    columns: usize,
    /// By first unknown.
    pivots: Vec<Option<Box<[u64]>>>,
    rank: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Added {
    New,
    /// It says nothing that the others do not.
    Known,
    Contradiction,
}

impl Equations {
    /// `columns` is a multiple of 64.
    fn new(columns: usize) -> Self {
        Self { columns, pivots: vec![None; columns], rank: 0 }
    }

    fn add(&mut self, row: &mut [u64]) -> Added {
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
        if row[self.columns / 64] == 0 { Added::Known } else { Added::Contradiction }
    }

    /// Values of the unknowns; 0 for those that are free.
    fn solution(&self) -> Vec<u64> {
        let words = self.columns / 64;
        let mut bits = vec![0u64; words];
        for column in (0..self.columns).rev() {
            if let Some(pivot) = &self.pivots[column] {
                let sum: u32 = pivot[..words].iter().zip(&bits).map(|(row, bits)| (row & bits).count_ones()).sum();
                let bit = (u64::from(sum) ^ pivot[words]) & 1;
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
    use crate::order::torch::randperm;

    #[test]
    fn symbols_follow_the_generator() {
        let words: [u32; WORDS] = {
            let mut dice = Mt19937::new(9);
            std::array::from_fn(|_| dice.random())
        };
        let mut generator = Mt19937::from_words(words);
        let bits: Vec<u64> = words.chunks(2).map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32).collect();
        let mut symbols = Symbols::new();
        let mut row = vec![0; ROW + 1];
        // Past the end of a block: both forms of the twist's indices.
        for at in 0..630 {
            symbols.step();
            let output = generator.random();
            for bit in if at % 210 == 0 || at > 620 { 0..32 } else { 0..0 } {
                symbols.output_bit(bit, &mut row);
                let sum: u32 = row[..ROW].iter().zip(&bits).map(|(row, bits)| (row & bits).count_ones()).sum();
                assert_eq!(sum & 1, output >> bit & 1, "output {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn systems_are_solved_and_contradictions_seen() {
        let mut dice = Mt19937::new(4);
        let secret: Vec<u64> = (0..3).map(|_| dice.random64()).collect();
        let mut equations = Equations::new(192);
        let mut outcomes = [0; 2];
        for _ in 0..220 {
            let mut row: Vec<u64> = (0..3).map(|_| dice.random64()).collect();
            let sum: u32 = row.iter().zip(&secret).map(|(row, bits)| (row & bits).count_ones()).sum();
            row.push(u64::from(sum & 1));
            match equations.add(&mut row) {
                Added::New => outcomes[0] += 1,
                Added::Known => outcomes[1] += 1,
                Added::Contradiction => panic!("these agree"),
            }
        }
        assert_eq!(outcomes, [192, 28]);
        assert_eq!(equations.solution(), secret);
        let sum: u32 = secret.iter().map(|bits| bits.count_ones()).sum();
        assert_eq!(equations.add(&mut [!0, !0, !0, u64::from(sum & 1 ^ 1)]), Added::Contradiction);
    }

    #[test]
    fn too_few_places_say_so() {
        let go = AtomicBool::new(false);
        let control = Control { stop: &go, threads: 1 };
        let order = randperm(30_000, &mut Mt19937::new(5));
        let Solved::TooFew { rank } = solve(30_000, &order[..40], control) else { panic!("40 places cannot do") };
        let known: u32 = (0..40).map(|place| (30_000u32 - place).trailing_zeros()).sum();
        assert_eq!(rank, known as usize);
        assert!(matches!(solve(30_000, &[1, 1], control), Solved::Contradiction));
        let stop = AtomicBool::new(true);
        assert!(matches!(solve(30_000, &order[..40], Control { stop: &stop, threads: 1 }), Solved::Stopped));
    }

    /// 6 s with optimisations, minutes without.
    #[test]
    #[cfg_attr(debug_assertions, ignore = "minutes without optimisations; benches/search.rs checks the same")]
    fn a_state_deep_in_a_stream_is_found() {
        let go = AtomicBool::new(false);
        let control = Control { stop: &go, threads: 1 };
        let mut generator = Mt19937::new(31_337);
        generator.skip(3_001_000);
        let order = randperm(300_000, &mut generator.clone());
        assert!(matches!(solve(300_000, &order[..19_000], control), Solved::TooFew { rank: 18_900..19_001 }));
        let Solved::State(mut found) = solve(300_000, &order[..20_100], control) else { panic!("20,100 places are enough") };
        assert_eq!(randperm(300_000, &mut found), order);
        let _ = randperm(300_000, &mut generator);
        assert_eq!(found.random64(), generator.random64());
        let mut wrong = order[..20_500].to_vec();
        wrong.swap(3000, 3001);
        assert!(matches!(solve(300_000, &wrong, control), Solved::Contradiction));
    }
}
