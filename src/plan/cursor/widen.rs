//! An order that is followed, and is dealt to more ranks of this node than was known: its passes go on, and the opens that showed it are
//! played to them.

use std::sync::Arc;

use super::super::pass::EpochIndex;
use super::super::{EpochFiles, Seen};
use super::Cursor;
use crate::types::Epoch;

impl Cursor {
    /// `epochs`: the wider order of the current epoch and of those after it, in sequence; rank `i` of the old one is rank `new[i]`. False:
    /// not followed, or no such order.
    pub(crate) fn widen(&mut self, epochs: Vec<(Epoch, Arc<EpochFiles>)>, new: &[u32], opens: &[Seen], sizes: &[u64]) -> bool {
        if !self.is_locked() {
            return false;
        }
        let indices: Vec<Arc<EpochIndex>> =
            epochs.into_iter().map(|(epoch, files)| Arc::new(EpochIndex::new(epoch, files, sizes))).collect();
        let wide = |pass: &super::Pass| {
            let index = indices.iter().find(|index| index.epoch == pass.index.epoch)?;
            pass.widened(Arc::clone(index), new)
        };
        let Some(passes) = self.passes.iter().map(wide).collect::<Option<std::collections::VecDeque<_>>>() else { return false };
        self.passes = passes;
        self.rivals.clear();
        self.forget_opening();
        if let Some(closing) = self.closing.take() {
            self.row(closing.count);
        }
        self.known.clear();
        self.depth = None;
        let round = self.round();
        self.next_use.reset(round);
        for pass in &self.passes {
            self.next_use.push(&pass.index.order.files);
            for place in (0..pass.len()).filter(|&place| place < pass.tail || pass.is_opened(place)) {
                self.next_use.take(pass.file(place), pass.round);
            }
        }
        for index in indices {
            self.known.insert(index.epoch, index);
        }
        self.rekey = true;
        self.succeed_if_known();
        // They were observed when they came.
        let counted = (self.observed, self.predicted);
        for seen in opens {
            if let Some(choice) = self.locate(seen.file, seen.process).filter(super::Choice::is_in_stream) {
                self.assign(seen.now, seen.process, seen.file, sizes[seen.file.at()], seen.outcome, &choice);
            }
        }
        (self.observed, self.predicted) = counted;
        true
    }
}
