//! One block of seeds against all gates of all targets: what is shared between targets is computed once.
//!
//! Source: field notes «orders» §5a. The 397 steps are shared by all targets; each further gate costs 1–2 %.
//!
//! Not here: ranges, threads, and the whole check (`exhaustive`).

use super::lanes::{CodePath, LANES, Lanes, Modulus};
use super::outputs::Outputs;
use super::target::{Gate, Target};

/// More residues than this are looked up in a bitmap: one division without branches and a load, instead of five operations each.
const RESIDUES_MAX: usize = 16;

/// A gate, its outputs resolved to slots.
struct Test {
    output: usize,
    modulus: Modulus,
    residues: Vec<u32>,
    /// A bit for each allowed residue when there are many.
    bitmap: Vec<u64>,
    place: u32,
    /// (output slot, modulus, v) of draws that may have displaced a sample v of ours.
    displaced: Vec<(usize, Modulus, u32)>,
}

/// What to compute for each block; shared by all threads.
pub(crate) struct Sieve {
    outputs: Outputs,
    /// One list of tests for each target.
    tests: Vec<Vec<Test>>,
}

/// Memory for one thread's blocks, 1 KiB for each word and output.
pub(crate) struct Scratch {
    words: Vec<Lanes>,
    outputs: Vec<Lanes>,
    computed: Vec<bool>,
    marks: Lanes,
    alive: Lanes,
}

impl Sieve {
    pub(crate) fn new(targets: &[Target], path: CodePath) -> Self {
        let with_displaced = |gate: &Gate| {
            let offset = gate.output - gate.place;
            gate.displaced.iter().map(|&sample| offset + sample).chain([gate.output]).collect::<Vec<_>>()
        };
        let outputs = Outputs::new(targets.iter().flat_map(Target::gates).flat_map(with_displaced), path);
        let number = |output: u32| outputs.number(output);
        let test = |gate: &Gate| {
            let offset = gate.output - gate.place;
            let n = gate.modulus.modulus + gate.place;
            let mut bitmap = Vec::new();
            if gate.residues.len() > RESIDUES_MAX {
                bitmap = vec![0u64; (gate.modulus.modulus as usize).div_ceil(64)];
                for &residue in &gate.residues {
                    bitmap[residue as usize / 64] |= 1 << (residue % 64);
                }
            }
            Test {
                output: number(gate.output),
                modulus: gate.modulus,
                residues: gate.residues.clone(),
                bitmap,
                place: gate.place,
                displaced: gate.displaced.iter().map(|&sample| (number(offset + sample), Modulus::new(n - sample), sample)).collect(),
            }
        };
        let tests = targets.iter().map(|target| target.gates().iter().map(test).collect()).collect();
        Self { outputs, tests }
    }

    pub(crate) fn scratch(&self) -> Scratch {
        Scratch {
            words: self.outputs.words(),
            outputs: vec![Lanes::ZERO; self.outputs.len()],
            computed: vec![false; self.outputs.len()],
            marks: Lanes::ZERO,
            alive: Lanes::ZERO,
        }
    }

    /// Calls `passed(target, lane)` for each of the seeds that passes all gates of a target.
    pub(crate) fn block(&self, seeds: &Lanes, scratch: &mut Scratch, mut passed: impl FnMut(usize, usize)) {
        self.outputs.begin(seeds, &mut scratch.words);
        scratch.computed.fill(false);
        for (target, tests) in self.tests.iter().enumerate() {
            scratch.alive.0.fill(!0);
            let some = tests.iter().all(|test| self.test(test, scratch));
            if some {
                let alive = scratch.alive.0.iter().enumerate().filter(|&(_, &mark)| mark != 0);
                alive.for_each(|(lane, _)| passed(target, lane));
            }
        }
    }

    /// Takes the seeds that fail out of `alive`; false when none is left.
    fn test(&self, test: &Test, scratch: &mut Scratch) -> bool {
        self.compute(test.output, scratch);
        let Scratch { outputs, marks, .. } = scratch;
        let kernels = self.outputs.kernels;
        if test.bitmap.is_empty() {
            (kernels.mark)(&outputs[test.output], test.modulus, &test.residues, marks);
        } else {
            let mut remainders = Lanes::ZERO;
            (kernels.remainder)(&outputs[test.output], test.modulus, &mut remainders);
            for (mark, remainder) in marks.0.iter_mut().zip(&remainders.0) {
                let bit = test.bitmap[*remainder as usize / 64] >> (remainder % 64) & 1;
                *mark = (bit as u32).wrapping_neg();
            }
        }
        if !test.displaced.is_empty() {
            self.mark_displaced(test, scratch);
        }
        let Scratch { marks, alive: kept, .. } = scratch;
        let mut any = 0;
        for lane in 0..LANES {
            kept.0[lane] &= marks.0[lane];
            any |= kept.0[lane];
        }
        any != 0
    }

    /// Place p holds sample v < p where draw v took the slot that draw p takes: v + z_v = p + z_p. (A sample displaced twice is missed:
    /// one seed in (n/p)^2.)
    fn mark_displaced(&self, test: &Test, scratch: &mut Scratch) {
        let mut here = Lanes::ZERO;
        (self.outputs.kernels.remainder)(&scratch.outputs[test.output], test.modulus, &mut here);
        for &(output, modulus, sample) in &test.displaced {
            self.compute(output, scratch);
            let mut there = Lanes::ZERO;
            (self.outputs.kernels.remainder)(&scratch.outputs[output], modulus, &mut there);
            for lane in 0..LANES {
                let same = there.0[lane] + sample == here.0[lane] + test.place;
                scratch.marks.0[lane] |= u32::from(same).wrapping_neg();
            }
        }
    }

    fn compute(&self, output: usize, scratch: &mut Scratch) {
        if !scratch.computed[output] {
            scratch.computed[output] = true;
            self.outputs.output(output, &scratch.words, &mut scratch.outputs[output]);
        }
    }
}
