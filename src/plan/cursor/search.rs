//! A lost order: what is forgotten, and which other epochs, at any place in them, explain the opens.

use std::sync::Arc;

use super::super::belief::{Belief, ELSEWHERE, Verdict};
use super::super::next_use::Round;
use super::super::pass::{EpochIndex, Expected, Pass};
use super::super::{OrderState, Trust};
use super::{Choice, Cursor, EPOCHS_MAX};
use crate::types::{Epoch, FileIndex};

/// Other epochs tried after a loss before starting over from the first.
const TRIED_MAX: Epoch = 256;
/// Opens by which a candidate shows itself wrong.
const TRIAL_OPENS: u32 = 24;

impl Cursor {
    /// The next epoch worth trying after a loss: the one it was in, the one after, then one after the other from 0.
    pub(super) fn trial(&mut self) -> Option<Epoch> {
        let taken = |epoch: Epoch| self.candidates.iter().any(|c| c.index.epoch == epoch);
        for epoch in [self.last_epoch, self.last_epoch + 1] {
            if !taken(epoch) {
                return Some(epoch);
            }
        }
        for _ in 0..EPOCHS_MAX {
            let epoch = self.next_trial;
            self.next_trial = (epoch + 1) % TRIED_MAX;
            if !taken(epoch) {
                return Some(epoch);
            }
        }
        None
    }

    pub(super) fn lose(&mut self, why: &str, strict: bool) {
        let epoch = self.passes.front().map_or(self.last_epoch, |pass| pass.index.epoch);
        let position = self.passes.front().map_or(0, Pass::front);
        self.lost = format!("epoch {epoch} place {position}: {why}");
        self.note.clone_from(&self.lost);
        self.state = OrderState::Lost;
        self.strict = strict;
        self.last_epoch = epoch;
        self.next_trial = 0;
        self.belief = Belief::default();
        self.newcomers = super::Newcomers::default();
        self.rivals.clear();
        self.forget_opening();
        self.rekey = true;
        for pass in std::mem::take(&mut self.passes).into_iter().chain(self.closing.take()) {
            self.row(pass.count);
        }
        for epoch in [epoch, epoch + 1] {
            if let Some(index) = self.known.get(&epoch) {
                self.candidates.push(Pass::new(Arc::clone(index), 0, None));
            }
        }
    }

    /// An inferred order of which no further epoch is known, in a pass of which hardly anything is left.
    pub(super) fn is_over(&self) -> bool {
        self.config.trust == Trust::Inferred && self.passes.len() < 2 && self.epoch_of(self.round() + 1).is_none() && self.is_read()
    }

    /// Hardly anything is left of the current pass, and no other has come.
    pub(super) fn is_read(&self) -> bool {
        let is_read = |pass: &Pass| u64::from(pass.opened_count()) * 16 >= u64::from(pass.len()) * 15;
        self.passes.front().is_some_and(is_read) && self.passes.get(1).is_none_or(|next| !next.has_come())
    }

    /// Whether this open shows that the pass has ended: it was all, or nearly all, and its readers do something else now.
    pub(crate) fn ends_with(&self, choice: &Choice) -> bool {
        self.is_locked() && !choice.is_access() && self.is_over()
    }

    /// The pass was read to its end and nothing more is known: finished, not lost. It is followed again when it is read again.
    pub(crate) fn finish(&mut self) {
        let Some(pass) = self.passes.front() else { return };
        let (index, read, all) = (Arc::clone(&pass.index), pass.opened_count(), pass.len());
        self.lose("", false);
        self.state = OrderState::Searching;
        self.note = format!("finished: {read} of {all} files were read in this order, and what comes after is not known");
        let again = EpochIndex::again(&index);
        self.known.clear();
        self.known.insert(again.epoch, Arc::clone(&again));
        self.last_epoch = again.epoch;
        self.candidates = vec![Pass::new(again, 0, Some(0))];
    }

    /// Not locked: does any candidate explain the opens?
    pub(crate) fn search(&mut self, file: FileIndex, process: u32, round: Round) {
        let strict = self.strict;
        let mut found = None;
        for (number, candidate) in self.candidates.iter_mut().enumerate() {
            let sight = candidate.sight(file, process);
            match sight.place {
                Some(place) if sight.fresh => {
                    candidate.belief.add(sight.ratio);
                    candidate.mark(place, process, if sight.ratio >= 1.0 { Expected::Next } else { Expected::Elsewhere });
                }
                None if candidate.index.is_over(file) && (process == 0 || candidate.knows(process)) => {
                    candidate.belief.add(ELSEWHERE);
                    candidate.density.open(true);
                }
                // Whoever inferred it tells other readers of these files apart; here they may be the same run, dealt to another world.
                None if candidate.index.is_over(file) && self.config.trust == Trust::Inferred => candidate.density.open(true),
                _ => {}
            }
            let own = self.config.trust != Trust::Inferred || candidate.density.is_own();
            if candidate.belief.is_trusted() && own && (!strict || candidate.density.verdict() == Verdict::Fits) {
                found = Some(number);
            } else if candidate.opened_count() > candidate.len() / 2 {
                // It would soon have no unopened place left to be right about.
                *candidate = Pass::new(Arc::clone(&candidate.index), 0, None);
            }
        }
        if let Some(number) = found {
            let mut pass = self.candidates.swap_remove(number);
            pass.round = round;
            self.belief = pass.belief;
            if self.config.trust == Trust::Inferred && self.config.epochs.is_some() && pass.index.epoch > self.config.first_epoch {
                // It came again: it is what its readers do every epoch.
                self.config.epochs = None;
            }
            if self.state == OrderState::Lost {
                self.note = format!("followed again from epoch {} place {} on; lost before: {}", pass.index.epoch, pass.front(), self.lost);
            }
            self.lock(pass);
            return;
        }
        let permanent = [self.last_epoch, self.last_epoch + 1];
        let refuted = |c: &Pass| c.belief.is_lost() && c.opened_count() >= TRIAL_OPENS && !permanent.contains(&c.index.epoch);
        if let Some(number) = self.candidates.iter().position(refuted) {
            let gone = self.candidates.swap_remove(number);
            self.known.remove(&gone.index.epoch);
        }
    }
}
