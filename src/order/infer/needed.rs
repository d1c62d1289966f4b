//! How many opens a search needs, so that nobody searches too early: a search that comes too early finds nothing, or many.
//!
//! Source: field notes «orders» §5 («How many opens for uniqueness», «Success over 20 random seeds»).
//!
//! Not here: what to do while waiting.

use super::Sighting;
use super::meet::{MEET_FROM, MEET_OPENS};
use super::replay::SEARCHABLE_BELOW;

/// A way to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One stream, in exact order.
    Prefix,
    /// Streams that rise.
    Streams,
    /// Streams not known.
    Unordered,
    /// Meet in the middle.
    Meet,
    /// Linear algebra.
    Linear,
}

/// Bits a seed has, and margin: fewer than one false seed in 100 searches.
const BITS: f64 = 32.0 + 7.0;
/// From so many opens on every worker of the recorded runs had begun. (All misses of fewer were that worker 0 had not.)
const SETTLED: usize = 128;
/// Or so many after the last new stream.
const SINCE_NEW: usize = 16;
/// The streams form had no false fits from so many opens on.
const STREAMS_LEAST: usize = 12;
/// Ordered places for 19,937 unknown bits, one equation a place on average.
pub const LINEAR_PLACES: usize = 20_000;

/// Opens needed at least for a data set of `n` with opens of `streams` streams; `tried` is the number of seeds' worth of suppositions beside the seed itself
/// (maps × offsets × first places, ≥ 1). None: no number of opens will do.
#[must_use]
pub fn needed(form: Form, n: u32, streams: usize, tried: f64) -> Option<usize> {
    if !(2..SEARCHABLE_BELOW).contains(&n) {
        return None;
    }
    let bits = BITS + tried.max(1.0).log2();
    let samples = f64::from(n);
    let opens = match form {
        Form::Prefix => Some((bits / samples.log2()).ceil()),
        // An open is one of some `streams` next files, a few places early or late: it tells less by that much.
        Form::Streams => {
            let each = (samples / (4.0 * streams.max(1) as f64)).log2();
            (each > 0.1).then(|| (bits / each).ceil().max(STREAMS_LEAST as f64))
        }
        // They lie within the first 8 × as many places.
        Form::Unordered => {
            let each = (samples / (8.0 * SETTLED as f64)).log2().min(8.0);
            if each > 0.3 {
                Some((bits / each).ceil().max(SETTLED as f64))
            } else {
                (samples >= 4.0 * SETTLED as f64).then_some(SETTLED as f64)
            }
        }
        Form::Meet => (n >= MEET_FROM).then_some(MEET_OPENS as f64),
        Form::Linear => (n as usize >= LINEAR_PLACES).then_some(LINEAR_PLACES as f64),
    };
    opens.filter(|&opens| opens <= samples).map(|opens| opens as usize)
}

/// Whether a search of this form may start now: enough opens, and every worker has begun (128 opens, or 16 since the last new stream).
#[must_use]
pub fn ready(form: Form, sighting: &Sighting, tried: f64) -> bool {
    let mut streams = 0;
    let mut last_new = 0;
    for (at, &(stream, _)) in sighting.opens.iter().enumerate() {
        if stream as usize >= streams {
            streams = stream as usize + 1;
            last_new = at;
        }
    }
    let opens = sighting.opens.len();
    let settled = match form {
        Form::Prefix => streams == 1,
        Form::Streams | Form::Meet => opens >= SETTLED || opens > last_new + SINCE_NEW,
        Form::Unordered | Form::Linear => true,
    };
    settled && needed(form, sighting.n, streams, tried).is_some_and(|needed| opens >= needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_draws_needed_are_those_of_the_notes() {
        for (n, opens) in [(1000, 4), (10_000, 3), (1_281_167, 2)] {
            assert_eq!(needed(Form::Prefix, n, 1, 1.0), Some(opens), "{n}");
        }
        assert_eq!(needed(Form::Prefix, 1000, 1, 1e6), Some(6), "more suppositions, more opens");
        assert_eq!(needed(Form::Prefix, 7, 1, 1.0), None, "7 places have 12 bits");
        assert_eq!(needed(Form::Prefix, SEARCHABLE_BELOW, 1, 1.0), None);
    }

    #[test]
    fn streams_wait_for_the_last_worker() {
        let sighting = |opens: Vec<u32>| Sighting { n: 10_000, opens: opens.into_iter().zip(0..).collect(), streams_known: true };
        assert!(!ready(Form::Streams, &sighting(vec![0; 11]), 1.0));
        assert!(ready(Form::Streams, &sighting(vec![0; 17]), 1.0));
        let mut late = vec![0; 40];
        late.push(1);
        assert!(!ready(Form::Streams, &sighting(late.clone()), 1.0));
        assert!(!ready(Form::Prefix, &sighting(late.clone()), 1.0));
        late.extend([0; 16]);
        assert!(ready(Form::Streams, &sighting(late), 1.0));
        let mut many = vec![0; 127];
        many.push(1);
        assert!(ready(Form::Streams, &sighting(many), 1.0));
    }

    #[test]
    fn what_cannot_be_found_is_not_searched_for() {
        assert_eq!(needed(Form::Meet, 49_999, 1, 1.0), None);
        assert_eq!(needed(Form::Meet, 50_000, 1, 1.0), Some(700));
        assert_eq!(needed(Form::Linear, 19_999, 1, 1.0), None);
        assert_eq!(needed(Form::Streams, 30, 8, 1.0), None, "an open of 30 files by 8 workers tells nothing");
        assert_eq!(needed(Form::Unordered, 300, 1, 1.0), None);
        assert_eq!(needed(Form::Unordered, 1000, 1, 1.0), Some(128));
    }
}
