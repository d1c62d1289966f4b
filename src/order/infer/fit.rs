//! What a found order says about who reads: world size, ranks, batch size, workers, where the run is, and how strong the proof is.
//!
//! Source: field notes «orders» §4 (how DataLoader deals batches to workers) and §5c; the ratio is design §4's.
//! Costs: microseconds for some hundred opens.
//!
//! Not here: whether a fit is believed (`plan/belief`), and which epoch it is.

use std::collections::BTreeMap;

use super::Sighting;
use crate::types::{Rank, SampleIndex};

/// One stream under a fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamFit {
    pub rank: Rank,
    /// Number among the workers of its rank (it reads the batches b with b mod workers = this, counted from the first batch of the run);
    /// None when it cannot be told.
    pub worker: Option<u32>,
    /// Place of its last open in the global order.
    pub last_place: u32,
}

/// Where observed opens lie in an order, and what follows from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// Samples of the map.
    pub n: u32,
    /// For each open its place in the global order (before it is dealt to ranks); None: not of this order.
    pub places: Vec<Option<u32>>,
    /// Opens with a place.
    pub placed: u32,
    /// Ranks of the whole job. None: too few opens to tell (no stream with three of them). A batch size of 1 with W workers reads like a
    /// world of W, and is taken for one; both read the same files in the same streams.
    pub world: Option<u32>,
    /// Ranks seen here, rising; empty while the world is not known.
    pub ranks: Vec<Rank>,
    /// Samples of a batch of one rank. None: no batch was seen to end, nor two workers of one rank.
    pub batch: Option<u32>,
    /// Reading processes of a rank (1 also when the main process reads itself). None: not known, or batches go to whichever has room.
    pub workers: Option<u32>,
    /// Steps of a rank before the first one seen: 0 in an epoch seen from its start.
    pub first_step: u32,
    /// By stream number; None for one without a placed open, or while the world is not known.
    pub streams: Vec<Option<StreamFit>>,
    /// ln of how much likelier the opens are under this order than from uniform draws.
    pub log_ratio: f64,
}

/// A hypothesis is acted on from this ratio on (design §4).
const BELIEVED_FROM: f64 = 1e6;
/// Share of opens that do not belong to the order even when it is right.
const STRAY: f64 = 1.0 / 64.0;
/// Probability that a stream goes on by the step it is known to make.
const STEP: f64 = 0.9;

impl Fit {
    /// `log_ratio` as it counts after `tried` hypotheses (seeds × maps × offsets) were tried to find this one.
    #[must_use]
    pub fn evidence(&self, tried: f64) -> f64 {
        self.log_ratio - tried.max(1.0).ln()
    }

    /// Whether it may be acted on: 10^6 times likelier than chance, the search included.
    #[must_use]
    pub fn proven(&self, tried: f64) -> bool {
        self.evidence(tried) >= BELIEVED_FROM.ln()
    }
}

/// The fit of a sighting whose opens have these places. `places` is as long as the opens; missing ones count as strays.
#[must_use]
pub fn fit(sighting: &Sighting, places: &[Option<u32>]) -> Fit {
    let mut places = places.to_vec();
    places.resize(sighting.opens.len(), None);
    let streams = streams(sighting, &places);
    let log_ratio = if sighting.streams_known { streams_ratio(sighting, &places) } else { unordered_ratio(sighting.n, &places) };
    let placed = u32::try_from(places.iter().flatten().count()).expect("opens are counted by a u32");
    let mut fit = Fit {
        n: sighting.n,
        places,
        placed,
        world: None,
        ranks: Vec::new(),
        batch: None,
        workers: None,
        first_step: 0,
        streams: vec![None; streams.len()],
        log_ratio,
    };
    fit.world = if sighting.streams_known { world(&streams) } else { Some(1) };
    if let Some(world) = fit.world {
        deal(&mut fit, &streams, world, sighting.streams_known);
    }
    fit
}

/// The fit of a sighting in a whole order (any part of an epoch, for instance a resumed one): each open's place is looked up.
#[must_use]
pub fn fit_whole(sighting: &Sighting, order: &[SampleIndex]) -> Fit {
    let mut place_of = vec![None; sighting.n as usize];
    for (place, &sample) in (0u32..).zip(order) {
        if let Some(slot @ None) = place_of.get_mut(sample as usize) {
            *slot = Some(place);
        }
    }
    let mut places: Vec<_> = sighting.opens.iter().map(|&(_, sample)| place_of.get(sample as usize).copied().flatten()).collect();
    // An open that goes back in its stream is none of the order.
    let mut last: BTreeMap<u32, u32> = BTreeMap::new();
    if sighting.streams_known {
        for (&(stream, _), place) in sighting.opens.iter().zip(&mut places) {
            if let Some(now) = *place {
                match last.get(&stream) {
                    Some(&before) if now <= before => *place = None,
                    _ => drop(last.insert(stream, now)),
                }
            }
        }
    }
    fit(sighting, &places)
}

/// Placed opens by stream, in order.
fn streams(sighting: &Sighting, places: &[Option<u32>]) -> Vec<Vec<u32>> {
    let count = sighting.opens.iter().map(|&(stream, _)| stream as usize + 1).max().unwrap_or(0);
    let mut streams = vec![Vec::new(); count];
    for (&(stream, _), place) in sighting.opens.iter().zip(places) {
        streams[stream as usize].extend(*place);
    }
    streams
}

const fn gcd(mut a: u32, mut b: u32) -> u32 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// What all steps of all streams are multiples of. Two steps can have a common factor by chance; three of one stream seldom.
fn world(streams: &[Vec<u32>]) -> Option<u32> {
    let mut common = 0;
    let mut steps = 0;
    for stream in streams {
        for pair in stream.windows(2) {
            common = gcd(common, pair[1].abs_diff(pair[0]));
            steps += 1;
        }
    }
    (common > 0 && (common == 1 || steps >= 2)).then_some(common)
}

/// Ranks, batches and workers, for a known world.
fn deal(fit: &mut Fit, streams: &[Vec<u32>], world: u32, streams_known: bool) {
    let mut ranks: Vec<Rank> = streams.iter().flatten().map(|place| place % world).collect();
    ranks.sort_unstable();
    ranks.dedup();
    fit.ranks = ranks;
    fit.first_step = streams.iter().flatten().map(|place| place / world).min().unwrap_or(0);
    if streams_known {
        let first_step = fit.first_step;
        let steps: Vec<Vec<u32>> = streams.iter().map(|stream| stream.iter().map(|place| place / world - first_step).collect()).collect();
        let rank = |stream: usize| streams[stream].first().map(|place| place % world);
        (fit.batch, fit.workers) = batches(&steps, &rank);
        for (at, stream) in streams.iter().enumerate() {
            let (Some(&first), Some(&last)) = (stream.first(), stream.last()) else { continue };
            let worker = match (fit.batch, fit.workers) {
                (_, Some(1)) => Some(0),
                (Some(batch), Some(workers)) => Some(steps[at][0] / batch % workers),
                _ => None,
            };
            fit.streams[at] = Some(StreamFit { rank: first % world, worker, last_place: last });
        }
    }
}

/// Batch size and workers of a rank, from steps counted from the run's first.
fn batches(steps: &[Vec<u32>], rank: &dyn Fn(usize) -> Option<Rank>) -> (Option<u32>, Option<u32>) {
    // A jump ends a batch. Runs that end so are whole batches (or several, when a worker got two in a row: hence the shortest jump decides).
    let mut whole = 0;
    let mut longest = 0;
    let mut jumps: Vec<u32> = Vec::new();
    for stream in steps {
        let mut run = 1;
        for pair in stream.windows(2) {
            let passed_over = pair[1] - pair[0] - 1;
            // Workers pass whole batches over; less than the run so far is opens that were lost.
            if passed_over < run {
                run += passed_over + 1;
            } else {
                whole = whole.max(run);
                jumps.push(passed_over);
                run = 1;
            }
        }
        longest = longest.max(run).max(whole);
    }
    // Starts of the streams of one rank lie whole batches apart.
    let mut starts: BTreeMap<Rank, Vec<u32>> = BTreeMap::new();
    for (at, stream) in steps.iter().enumerate() {
        if let (Some(rank), Some(&first)) = (rank(at), stream.first()) {
            starts.entry(rank).or_default().push(first);
        }
    }
    let apart = starts.values().flat_map(|starts| starts.windows(2)).fold(0, |apart, pair| gcd(apart, pair[0].abs_diff(pair[1])));
    let most = starts.values().map(Vec::len).max().unwrap_or(0) as u32;
    let batch = match (jumps.is_empty(), apart) {
        (false, 0) => whole,
        (false, apart) => {
            if whole == apart || apart % whole != 0 {
                gcd(apart, whole)
            } else {
                whole
            }
        }
        (true, 0) => return (None, (most == 1).then_some(1)),
        (true, apart) => apart,
    };
    if batch < longest && jumps.is_empty() {
        return (None, None);
    }
    let workers = jumps.iter().copied().min().map_or(most, |jump| jump / batch + 1);
    // Each worker takes every so-manieth batch, or they are dealt otherwise.
    let constant = |stream: &Vec<u32>| stream.windows(2).all(|pair| pair[0] / batch % workers == pair[1] / batch % workers);
    let dealt = jumps.iter().all(|jump| jump % batch == 0) && steps.iter().all(constant);
    (Some(batch), dealt.then_some(workers))
}

/// Each open against what its stream has shown so far; nothing is fitted afterwards, so nothing needs to be paid for.
fn streams_ratio(sighting: &Sighting, places: &[Option<u32>]) -> f64 {
    let ln_n = f64::from(sighting.n).ln();
    let mut last: BTreeMap<u32, u32> = BTreeMap::new();
    let mut usual = 1;
    let mut ratio = 0.0;
    for (&(stream, _), place) in sighting.opens.iter().zip(places) {
        let Some(place) = *place else {
            ratio += STRAY.ln();
            continue;
        };
        let density = match last.insert(stream, place) {
            // Sums to 1 over all places: 1/((p+1)(p+2)).
            None => 1.0 / (f64::from(place) + 1.0) / (f64::from(place) + 2.0),
            Some(before) => {
                let step = f64::from(place.abs_diff(before).max(1));
                let any = (1.0 - STEP) / step / (step + 1.0);
                let expected = place.wrapping_sub(before) == usual;
                usual = place.abs_diff(before).clamp(1, if usual == 1 { u32::MAX } else { usual });
                any + if expected { STEP } else { 0.0 }
            }
        };
        ratio += (1.0 - STRAY).ln() + density.ln() + ln_n;
    }
    ratio
}

/// All opens within a front whose length is the next power of two (one of 32, which is paid for).
fn unordered_ratio(n: u32, places: &[Option<u32>]) -> f64 {
    let placed = places.iter().flatten().count() as f64;
    let strays = places.len() as f64 - placed;
    let front = places.iter().flatten().max().map_or(1, |&place| place + 1).next_power_of_two();
    let each = (1.0 - STRAY).ln() + (f64::from(n) / f64::from(front)).ln();
    placed * each + strays * STRAY.ln() - 32f64.ln()
}
