//! Where processes begin to read: a piece after the last one's (a loader's batches, what `xargs -n` hands out), so that the next one's first open
//! is known before it comes, however far the slowest is behind.

/// Distances remembered: the last one may be of two pieces, where processes come in another sequence.
const REMEMBERED: usize = 2;
/// Pieces of processes that are still starting, or whose first open was lost.
const AWAITED: u32 = 3;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Begins {
    /// The furthest place at which one began.
    furthest: Option<u32>,
    /// Distances of the last ones from the furthest before them.
    pieces: [Option<u32>; REMEMBERED],
}

impl Begins {
    /// A process has begun at a place where it was expected.
    pub(super) fn note(&mut self, place: u32) {
        match self.furthest {
            Some(before) if place <= before => return,
            Some(before) => self.pieces = [self.pieces[1], Some(place - before)],
            None => {}
        }
        self.furthest = Some(place);
    }

    /// Whether the next process begins here.
    pub(super) fn is_next(&self, place: u32) -> bool {
        let Some(ahead) = self.furthest.and_then(|furthest| place.checked_sub(furthest)) else { return false };
        ahead > 0 && self.pieces.iter().flatten().any(|&piece| ahead.is_multiple_of(piece) && ahead / piece <= 1 + AWAITED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_piece_is_known_from_two() {
        let mut begins = Begins::default();
        for place in [0, 36, 100] {
            assert!(!begins.is_next(place));
            begins.note(place);
        }
        for (place, next) in [(136, true), (164, true), (165, false), (292, true), (356, true), (420, false)] {
            assert_eq!(begins.is_next(place), next, "{place}");
        }
        // the one between comes last
        begins.note(228);
        begins.note(164);
        assert!(begins.is_next(292) && !begins.is_next(164));
    }
}
