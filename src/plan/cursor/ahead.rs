//! What will be read next: to fetch, and to show.

use std::time::Duration;

use super::super::pass::Pass;
use super::Cursor;
use super::turn::Pause;
use crate::plan::Way;
use crate::types::{Epoch, FileIndex};

/// Readers that opened nothing of an ending epoch for as long as so many opens took before, and [`SILENT`], have left out what is left of it.
const SILENT_OPENS: f64 = 64.0;
/// More than a batch takes to compute; a pause between two epochs is longer.
const SILENT: Duration = Duration::from_millis(200);

impl Cursor {
    /// A pass by its number: 0 the current one, 1 the successor, then the rivals.
    pub(crate) fn pass(&self, number: usize) -> &Pass {
        if number < 2 { &self.passes[number] } else { &self.rivals[number - 2].pass }
    }

    pub(super) fn pass_mut(&mut self, number: usize) -> &mut Pass {
        if number < 2 { &mut self.passes[number] } else { &mut self.rivals[number - 2].pass }
    }

    /// The next place to fetch, unless `most` are ahead: pass (see [`Self::pass`]), place and seconds until it is read. `skip` says which files need no fetch.
    pub(crate) fn next_missing(
        &mut self,
        now: Duration,
        pause: Pause,
        most: Option<u32>,
        steps: &mut u32,
        mut skip: impl FnMut(FileIndex, u32) -> bool,
    ) -> Option<(usize, u32, f64)> {
        if !self.is_locked() || self.resting || most.is_some_and(|most| self.ahead_places() >= most) {
            return None;
        }
        let starts = self.starts(now, pause);
        for (number, &start) in starts.iter().enumerate().take(self.passes.len()) {
            // by which way it goes on is not known: first what is read first by each of them
            while let Some(turn) = self.turn(number) {
                let (at, pass) = (self.opening[self.pass(turn).looked], self.pass_mut(turn));
                if *steps == 0 {
                    return None;
                }
                if at < pass.len() && !pass.is_opened(at) && !skip(pass.file(at), pass.round) {
                    return Some((turn, at, start));
                }
                pass.looked += 1;
                *steps -= 1;
            }
            if number == 1 && self.next_way().is_some() {
                return None; // until it is known, too
            }
            let pass = &mut self.passes[number];
            let front = pass.front();
            pass.scan_from(front);
            while pass.scan < pass.len() {
                if *steps == 0 {
                    return None;
                }
                let place = pass.scan;
                if !pass.is_opened(place) && (self.turn.is_stopped_at(pass.round, place) || !skip(pass.file(place), pass.round)) {
                    return Some((number, place, start + self.rate.seconds_for(pass.opens_until(place))));
                }
                pass.scan += 1;
                *steps -= 1;
            }
        }
        None
    }

    /// Of the passes that may come next, the one of whose front least was looked at. Once one of them is opened, the likeliest; and the one that
    /// came, to the end of what is known of the sequence.
    fn turn(&self, number: usize) -> Option<usize> {
        if !self.is_contested() || number != 1 {
            let pass = &self.passes[number];
            return (self.came == Some(pass.round) && pass.looked < self.opening.len()).then_some(number);
        }
        let successor = self.passes.get(1).map(|pass| (1, pass, pass.belief.ln()));
        let rivals = (2..).zip(&self.rivals).filter(|(_, rival)| rival.likely).map(|(number, rival)| (number, &rival.pass, rival.ln()));
        let all = || successor.into_iter().chain(rivals.clone());
        let best = all().map(|(_, _, ln)| ln).fold(f64::NEG_INFINITY, f64::max);
        let begun = all().any(|(_, pass, _)| pass.has_come());
        let front = |pass: &Pass| self.opening.len().min(if begun { usize::MAX } else { pass.front_places() });
        let open = all().filter(|&(_, pass, ln)| pass.looked < front(pass) && (!begun || ln >= best));
        open.min_by_key(|(_, pass, _)| pass.looked).map(|(number, ..)| number)
    }

    /// Of the places opened first that were looked at in this pass, the one of a file.
    fn looked_at(&self, pass: &Pass, file: FileIndex) -> Option<usize> {
        let fetched = &self.opening[..pass.looked.min(self.opening.len())];
        let unopened = pass.index.places(file).iter().filter(|&&place| !pass.is_opened(place));
        unopened.filter_map(|place| fetched.iter().position(|opened| opened == place)).min()
    }

    /// The passes that are fetched in the sequence of their opening: those that may come next, or the one that came.
    fn sequenced(&self) -> impl Iterator<Item = usize> {
        let (came, contested) = (self.came, self.is_contested());
        let passes = self.passes.iter().enumerate().filter(move |(number, pass)| came == Some(pass.round) || *number == 1 && contested);
        passes.map(|(number, _)| number).chain((2..2 + self.rivals.len()).filter(move |_| contested))
    }

    /// Round of such a pass, of which it is taken for granted that this file is here.
    pub(super) fn is_of_an_opening(&self, file: FileIndex) -> Option<u32> {
        self.sequenced().map(|number| self.pass(number)).find(|pass| self.looked_at(pass, file).is_some()).map(|pass| pass.round)
    }

    /// A place that was fetched, or cannot be, is passed.
    pub(crate) fn leave(&mut self, number: usize, place: u32) {
        let sequenced = self.sequenced().any(|of| of == number);
        let first = self.opening.get(self.pass(number).looked).filter(|_| sequenced).copied();
        let pass = self.pass_mut(number);
        if first == Some(place) {
            pass.looked += 1;
        } else if place == pass.scan {
            pass.scan += 1;
        }
    }

    /// A file that was passed by prefetch is missing after all.
    pub(crate) fn rewind(&mut self, file: FileIndex) {
        for pass in &mut self.passes {
            let back = pass.index.places(file).iter().copied().find(|&place| !pass.is_opened(place) && place >= pass.front());
            if let Some(place) = back {
                pass.scan = pass.scan.min(place);
                break;
            }
        }
        for number in self.sequenced().collect::<Vec<_>>() {
            if let Some(looked) = self.looked_at(self.pass(number), file) {
                self.pass_mut(number).looked = looked;
            }
        }
    }

    /// A file that was fetched for a place further than where prefetch is in a pass.
    pub(crate) fn furthest(&mut self, number: usize) -> Option<FileIndex> {
        let pass = self.pass_mut(number);
        pass.pop_beyond().map(|place| pass.file(place))
    }

    /// Places that prefetch has gone past and that are to come.
    pub(crate) fn ahead_places(&self) -> u32 {
        let passes = self.passes.iter().chain(self.rivals.iter().map(|rival| &rival.pass));
        passes.map(|pass| pass.opens_until(pass.scan) + u32::try_from(pass.looked).unwrap_or(u32::MAX)).sum()
    }

    /// What was fetched ahead is let go. True if there was anything.
    fn let_ahead_go(&mut self) -> bool {
        if self.ahead_places() == 0 {
            return false;
        }
        let mut ahead: Vec<FileIndex> = Vec::new();
        for pass in self.passes.iter_mut().chain(self.rivals.iter_mut().map(|rival| &mut rival.pass)) {
            ahead.extend(fetched(&self.opening, pass));
            (pass.scan, pass.looked) = (pass.front(), 0);
        }
        self.stale.extend(ahead);
        true
    }

    /// ... and nothing more asked for until [`Self::wake`] or an open.
    pub(crate) fn rest(&mut self) -> bool {
        self.resting = true;
        self.let_ahead_go()
    }

    /// Between two passes, and nobody has come for the next one yet.
    pub(crate) fn waits(&self, now: Duration) -> bool {
        self.is_between() && self.rate.silence(now) > SILENT && self.rate.opens_missed(now) > SILENT_OPENS
    }

    pub(crate) const fn wake(&mut self) {
        self.resting = false;
    }

    pub(crate) const fn is_resting(&self) -> bool {
        self.resting
    }

    /// Nobody reads it any more, as far as silence can tell.
    pub(crate) fn is_silent(&self, now: Duration) -> bool {
        self.rate.is_silent(now, self.is_between())
    }

    /// Unopened places from the front on. What is left of a pass that its readers have left (`drop_last`, lost events) comes last.
    pub(crate) fn upcoming(&self, now: Duration, limit: usize) -> Vec<(Epoch, FileIndex)> {
        let left = self.passes.front().is_some_and(Pass::is_ending)
            && self.rate.silence(now) > SILENT
            && self.rate.opens_missed(now) > SILENT_OPENS;
        let (current, next) = (self.passes.iter().take(1), self.passes.iter().skip(1));
        let later = current.clone().filter(|_| left);
        let sequence = current.filter(|_| !left).chain(next).chain(later);
        sequence.flat_map(|pass| unopened(pass, limit)).take(limit).collect()
    }

    /// ... of the other passes that may come next, by the way that leads there.
    pub(crate) fn perhaps(&self, limit: usize) -> Vec<(Way, Vec<FileIndex>)> {
        let ways = self.rivals.iter().filter(|rival| rival.likely);
        ways.filter_map(|rival| Some((rival.way?, unopened(&rival.pass, limit).map(|(_, file)| file).collect()))).collect()
    }
}

/// What prefetch has gone past in a pass, of places to come.
pub(super) fn fetched<'a>(opening: &'a [u32], pass: &'a Pass) -> impl Iterator<Item = FileIndex> {
    let front = opening.iter().copied().take(pass.looked);
    front.chain(pass.front()..pass.scan).filter(|&place| place < pass.len()).map(|place| pass.file(place))
}

fn unopened(pass: &Pass, limit: usize) -> impl Iterator<Item = (Epoch, FileIndex)> {
    let places = (pass.front()..pass.len()).filter(|&place| !pass.is_opened(place));
    places.map(|place| (pass.index.epoch, pass.file(place))).take(limit)
}
