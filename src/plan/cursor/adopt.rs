//! An order that was inferred: it takes the place of what this cursor followed, and the opens that proved it are played back to it.

use std::sync::Arc;

use super::super::belief::Belief;
use super::super::next_use::Round;
use super::super::pass::{EpochIndex, Pass};
use super::super::{EpochFiles, OrderConfig, OrderState, Seen};
use super::Cursor;
use crate::types::Epoch;

impl Cursor {
    /// Follows `files`, the order of `epoch`, from where `opens` (in their order, of this order's readers) lead. Locked afterwards, or lost. The opens were counted as accesses when they came; here they are counted in the epoch's row.
    pub(crate) fn adopt(
        &mut self,
        config: OrderConfig,
        (epoch, files): (Epoch, Arc<EpochFiles>),
        opens: &[Seen],
        sizes: &[u64],
        capacity: u64,
        round: Round,
    ) {
        let mut fresh = Self::new(config, sizes.len(), capacity);
        // What the old order's successor claimed was claimed wrongly, or is played back.
        let ended = self.passes.pop_front().map(|pass| pass.count);
        for count in self.closing.take().map(|pass| pass.count).into_iter().chain(ended) {
            self.row(count);
        }
        std::mem::swap(&mut fresh.done, &mut self.done);
        // Opens that are played back were there before: they are not observed twice.
        let counted = (self.observed, self.predicted);
        *self = fresh;
        let index = Arc::new(EpochIndex::new(epoch, files, sizes));
        self.known.insert(epoch, Arc::clone(&index));
        self.candidates.push(Pass::new(Arc::clone(&index), round, None));
        for seen in opens {
            if self.is_locked() {
                let Some(choice) = self.locate(seen.file, seen.process) else { continue };
                if choice.is_in_stream() {
                    let size = sizes[seen.file.at()];
                    self.assign(seen.now, seen.process, seen.file, size, seen.outcome, &choice);
                }
                self.judge();
                if self.state == OrderState::Lost {
                    (self.observed, self.predicted) = counted;
                    return;
                }
            } else {
                self.search(seen.file, seen.process, round);
            }
        }
        (self.observed, self.predicted) = counted;
        if self.state == OrderState::Searching
            && let Some(pass) = self.candidates.pop()
        {
            // It is proved by more than the planner weighs: that its readers are few ranks of a known world.
            self.belief = Belief::trusted();
            self.lock(pass);
        }
        if self.is_locked() {
            self.count_anew(opens, sizes);
            self.note = format!("locked after {} opens: epoch {epoch}, place {}", opens.len(), self.passes.front().map_or(0, Pass::front));
        }
    }

    /// The row of the current pass, from the opens played back: those before the lock count as well.
    fn count_anew(&mut self, opens: &[Seen], sizes: &[u64]) {
        let Some(pass) = self.passes.front_mut() else { return };
        let mut counted = std::collections::HashSet::new();
        pass.count = super::super::EpochCount { epoch: pass.index.epoch, ..super::super::EpochCount::default() };
        for seen in opens {
            let opened = pass.index.places(seen.file).iter().any(|&place| pass.is_opened(place));
            if opened && counted.insert(seen.file) {
                pass.count.count(seen.now, seen.outcome, sizes[seen.file.at()]);
            }
        }
    }

    /// Nothing is known of this order any more, and its memory is given back.
    pub(crate) fn abandon(&mut self, why: &str) {
        self.lose(why, false);
        self.candidates = Vec::new();
        self.known.clear();
        self.next_use = super::NextUse::new(0);
    }
}
