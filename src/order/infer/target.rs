//! What a candidate generator is tested against: a sighting, and what is supposed about how its opens lie in the order.
//!
//! Source: field notes «orders» §5c. Three forms. *Prefix*: the first places, in order. *Streams*: place p of the order is among the first
//! p + 1 files of some stream, and every stream rises; batch size, workers, world size and which ranks are here stay open. *Unordered*:
//! the first places are among the opens, and the opens lie closer to the front than chance puts them.
//!
//! A target gives *gates*, single draws that are tested for many seeds at once, and a whole check for the few seeds that pass them.
//!
//! Not here: resumed epochs (a first place > 63 for all ranks: `dictionary::whole_orders` finds them), and who tries which seeds.

use std::collections::{BTreeSet, HashMap};

use super::Sighting;
use super::lanes::Modulus;
use super::outputs::LAST_OUTPUT;
use super::replay::{Replay, SEARCHABLE_BELOW, draws};
use super::words::Lazy;
use crate::types::SampleIndex;

/// Places between two observed ones, where one process reads everything: batches under way (2 · 8 workers · 256) twice over.
const REACH: u32 = 8192;
/// The largest world that is recognised: the second file of a rank lies so many places after its first.
pub const WORLD_MAX: u32 = 4096;
/// First ranks of this node that are tried.
pub const FIRST_PLACES: u32 = 64;
/// Gates in a row, each evaluated where the one before let something pass.
const GATES_MAX: usize = 4;
/// One seed in so many may reach the whole check (1 µs against 10 ns for the gates).
const ENOUGH: f64 = 20_000.0;

/// One draw that the right generator must have made.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    /// Which output of the generator.
    pub(crate) output: u32,
    pub(crate) modulus: Modulus,
    /// Allowed values of output % modulus, rising.
    pub(crate) residues: Vec<u32>,
    /// Samples v below the gate's place p: the place holds v where draw v put it into the slot that draw p takes.
    pub(crate) displaced: Vec<SampleIndex>,
    /// The place p.
    pub(crate) place: u32,
}

/// How opens are supposed to lie in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One rank reads all places, from the first on.
    Whole,
    /// Only some ranks of a distributed run are here. The first of them reads this place first (its rank), one of the first 623.
    Ranks { first_place: u32 },
    /// ... and the rank after it is here, too: many fewer seeds pass.
    Node { first_place: u32 },
}

#[derive(Clone, Debug)]
enum Check {
    /// Without the last place of a whole order, which takes no draw.
    Prefix {
        draws: Vec<u32>,
        places: u32,
    },
    Streams(Known),
    Unordered(Known),
}

/// A sighting with one supposition. Built once, shared by all threads.
#[derive(Clone, Debug)]
pub struct Target {
    /// Which sighting of the caller's slice.
    pub sighting: usize,
    /// Outputs that the generator gave before the permutation: 0 for a sampler's own or a fresh one, 2 for DataLoader's own.
    pub offset: u32,
    pub layout: Layout,
    n: u32,
    gates: Vec<Gate>,
    check: Check,
}

/// Opens, found by sample.
#[derive(Clone, Debug)]
struct Known {
    /// A bit for each sample that was opened.
    opened: Vec<u64>,
    /// Sample → index of its first open.
    opens: HashMap<SampleIndex, u32>,
    /// For each open its stream and its number in the stream, repeated opens left out (`u32::MAX`).
    streams: Vec<(u32, u32)>,
    /// The samples of each stream in order.
    files: Vec<Vec<SampleIndex>>,
    distinct: u32,
}

impl Known {
    fn new(sighting: &Sighting) -> Self {
        let streams = sighting.opens.iter().map(|&(stream, _)| stream as usize + 1).max().unwrap_or(0);
        let mut known = Self {
            opened: vec![0; (sighting.n as usize).div_ceil(64)],
            opens: HashMap::new(),
            streams: Vec::with_capacity(sighting.opens.len()),
            files: vec![Vec::new(); streams],
            distinct: 0,
        };
        for (open, &(stream, sample)) in (0u32..).zip(&sighting.opens) {
            if known.has(sample) {
                known.streams.push((stream, u32::MAX));
                continue;
            }
            known.opened[sample as usize / 64] |= 1 << (sample % 64);
            known.opens.insert(sample, open);
            let files = &mut known.files[stream as usize];
            known.streams.push((stream, u32::try_from(files.len()).expect("no more files than opens, which a u32 counts")));
            files.push(sample);
            known.distinct += 1;
        }
        known
    }

    fn has(&self, sample: SampleIndex) -> bool {
        self.opened[sample as usize / 64] >> (sample % 64) & 1 == 1
    }

    /// The first `depth` files of every stream.
    fn fronts(&self, depth: usize) -> BTreeSet<SampleIndex> {
        self.files.iter().flat_map(|files| files.iter().take(depth)).copied().collect()
    }
}

/// Opens that may disagree with an order (probes, another job): one in 64, rounded down.
const fn strays_allowed(opens: u32) -> u32 {
    opens / 64
}

/// Whether torch's front can be searched for at all, and every open is a sample.
fn searchable(sighting: &Sighting) -> bool {
    (2..SEARCHABLE_BELOW).contains(&sighting.n)
        && !sighting.opens.is_empty()
        && sighting.opens.iter().all(|&(_, sample)| sample < sighting.n)
}

impl Target {
    /// The first places of the order, exactly. None when `order` is empty or no beginning of a permutation of `n` searchable samples.
    #[must_use]
    pub fn prefix(sighting: usize, n: u32, order: &[SampleIndex], offset: u32) -> Option<Self> {
        if !(2..SEARCHABLE_BELOW).contains(&n) || order.is_empty() {
            return None;
        }
        let mut draws = draws(n, order)?;
        let places = u32::try_from(draws.len()).expect("at most n");
        draws.truncate(n as usize - 1);
        let gates = (0u32..).zip(&draws).map(|(place, &draw)| Gate {
            output: offset.saturating_add(place),
            modulus: Modulus::new(n - place),
            residues: vec![draw],
            displaced: Vec::new(),
            place,
        });
        let gates = enough(gates);
        Some(Self { sighting, offset, layout: Layout::Whole, n, gates, check: Check::Prefix { draws, places } })
    }

    /// Streams that rise, however many workers and whatever batch size. None without opens, or when the streams are not known.
    #[must_use]
    pub fn streams(index: usize, sighting: &Sighting, offset: u32, layout: Layout) -> Option<Self> {
        if !searchable(sighting) || !sighting.streams_known {
            return None;
        }
        let n = sighting.n;
        let known = Known::new(sighting);
        let gate = |place: u32, depth: usize| gate_of(n, offset, place, &known.fronts(depth));
        let gates = match layout {
            Layout::Whole => {
                enough((0..4.min(n - 1)).map(|place| gate(place, place as usize + 1)).filter(|gate| gate.displaced.is_empty()))
            }
            Layout::Ranks { first_place } if first_place + 1 < n && first_place <= LAST_OUTPUT => vec![gate(first_place, 1)],
            Layout::Node { first_place } if first_place + 2 < n && first_place < LAST_OUTPUT => {
                vec![gate(first_place, 1), gate(first_place + 1, 1)]
            }
            Layout::Ranks { .. } | Layout::Node { .. } => return None,
        };
        Some(Self { sighting: index, offset, layout, n, gates, check: Check::Streams(known) })
    }

    /// Opens of unknown streams. None for fewer than 32: the first places need not be among them.
    #[must_use]
    pub fn unordered(index: usize, sighting: &Sighting, offset: u32) -> Option<Self> {
        if !searchable(sighting) || sighting.opens.len() < 32 {
            return None;
        }
        let n = sighting.n;
        let known = Known::new(sighting);
        let all: BTreeSet<SampleIndex> = known.opens.keys().copied().collect();
        let gates = (0..4.min(n - 1)).map(|place| gate_of(n, offset, place, &all)).filter(|gate| gate.displaced.is_empty());
        let gates = enough(gates);
        Some(Self { sighting: index, offset, layout: Layout::Whole, n, gates, check: Check::Unordered(known) })
    }

    /// Samples.
    #[must_use]
    pub const fn n(&self) -> u32 {
        self.n
    }

    pub(crate) fn gates(&self) -> &[Gate] {
        &self.gates
    }

    /// The place of every open in the order that `seed` gives, or None when the order is not this one. The form decides how far it looks:
    /// a wrong seed costs about 1 to 10 µs, the right one a few ns for each place up to the last open's.
    pub(crate) fn places(&self, seed: u32, replay: &mut Replay) -> Option<Vec<Option<u32>>> {
        let mut outputs = Lazy::new(seed);
        outputs.skip(self.offset);
        self.places_of(&mut outputs, replay)
    }

    fn places_of(&self, outputs: &mut Lazy, replay: &mut Replay) -> Option<Vec<Option<u32>>> {
        match &self.check {
            Check::Prefix { draws, places } => {
                let right = (0u32..).zip(draws).all(|(place, &draw)| outputs.output() % (self.n - place) == draw);
                right.then(|| (0..*places).map(Some).collect())
            }
            Check::Streams(known) => self.rising(known, outputs, replay),
            Check::Unordered(known) => self.near_the_front(known, outputs, replay),
        }
    }

    /// Every stream rises and no gap is too long, but for a few strays.
    fn rising(&self, known: &Known, outputs: &mut Lazy, replay: &mut Replay) -> Option<Vec<Option<u32>>> {
        let (first, reach) = match self.layout {
            Layout::Whole => (0, REACH),
            Layout::Ranks { first_place } | Layout::Node { first_place } => (first_place, 2 * WORLD_MAX),
        };
        let mut places = vec![None; known.streams.len()];
        let mut heads = vec![0u32; known.files.len()];
        let allowed = strays_allowed(known.distinct);
        let (mut placed, mut strays, mut last) = (0, 0, first);
        replay.begin(self.n);
        for place in 0..self.n {
            let sample = replay.next(outputs);
            if !known.has(sample) {
                if place > last + reach {
                    break;
                }
                continue;
            }
            let open = known.opens[&sample] as usize;
            let (stream, number) = known.streams[open];
            let head = &mut heads[stream as usize];
            if number < *head {
                continue; // counted when it was passed over
            }
            strays += number - *head;
            // Before the first place of the first rank here nothing is read.
            if place < first {
                strays += 1;
            } else {
                places[open] = Some(place);
                placed += 1;
                last = place;
            }
            *head = number + 1;
            if strays > allowed {
                return None;
            }
            if placed + strays == known.distinct {
                return Some(places);
            }
        }
        (known.distinct - placed <= allowed).then_some(places)
    }

    /// The opens, but for a few strays, lie within so short a front that one generator in 2^32 does not bring them there by chance.
    fn near_the_front(&self, known: &Known, outputs: &mut Lazy, replay: &mut Replay) -> Option<Vec<Option<u32>>> {
        let wanted = known.distinct - strays_allowed(known.distinct);
        let mut places = vec![None; known.streams.len()];
        let mut placed = 0;
        replay.begin(self.n);
        let window = self.n.min(known.distinct.saturating_add(REACH));
        for place in 0..window {
            let sample = replay.next(outputs);
            if known.has(sample) {
                places[known.opens[&sample] as usize] = Some(place);
                placed += 1;
                if placed == wanted {
                    let share = f64::from(place + 1) / f64::from(self.n);
                    // Each stray left off can be any of the opens.
                    let chosen = f64::from(known.distinct - wanted) * f64::from(known.distinct).ln();
                    return (-f64::from(wanted) * share.ln() - chosen > UNLIKELY).then_some(places);
                }
            }
            // Cheap refusals: after as many places as there are opens, a fourth of them must have come, unless chance would bring that.
            if place == known.distinct && f64::from(placed) < f64::from(known.distinct) / 16.0 {
                return None;
            }
        }
        None
    }
}

/// ln(2^32) and a factor of 1000.
const UNLIKELY: f64 = 22.2 + 6.9;

fn gate_of(n: u32, offset: u32, place: u32, samples: &BTreeSet<SampleIndex>) -> Gate {
    Gate {
        output: offset.saturating_add(place),
        modulus: Modulus::new(n - place),
        residues: samples.range(place..).map(|&sample| sample - place).collect(),
        displaced: samples.range(..place).copied().collect(),
        place,
    }
}

/// As many gates as it takes to let few seeds pass.
fn enough(gates: impl Iterator<Item = Gate>) -> Vec<Gate> {
    let mut taken: Vec<Gate> = Vec::new();
    let mut factor = 1.0;
    for gate in gates {
        if taken.len() == GATES_MAX || factor > ENOUGH || gate.output > LAST_OUTPUT {
            break;
        }
        factor *= f64::from(gate.modulus.modulus) / (gate.residues.len() as f64).max(1.0);
        taken.push(gate);
    }
    taken
}
