//! A pass over an order that turns out to be dealt to more ranks here: the same readers, at the same files, with other ones between.

use std::sync::Arc;

use super::{EpochIndex, Last, Pass, Recent};

impl Pass {
    /// The same pass over `index`, in which rank `i` of this one is rank `new[i]`. `None`: it is no such order.
    pub(crate) fn widened(&self, index: Arc<EpochIndex>, new: &[u32]) -> Option<Self> {
        let (old_stride, stride) = (self.index.order.stride.max(1), index.order.stride.max(1));
        if new.len() != old_stride as usize || new.iter().any(|&rank| rank >= stride) {
            return None;
        }
        let place = |place: u32| place / old_stride * stride + new[(place % old_stride) as usize];
        let is_same = |old: u32| index.order.files.get(place(old) as usize) == Some(&self.file(old));
        // Every place of theirs: an order that differs anywhere would be followed wrongly.
        if !(0..self.len()).all(is_same) {
            return None;
        }
        let whole_steps = |place: u32| place / old_stride * stride;
        let distance = |places: u32| places.div_ceil(old_stride) * stride;
        let mut pass = Self::new(index, self.round, self.start.map(whole_steps));
        (pass.belief, pass.density, pass.count) = (self.belief, self.density.clone(), self.count.clone());
        for old in (0..self.len()).filter(|&old| self.is_opened(old)) {
            let at = place(old);
            pass.opened[at as usize / 64] |= 1 << (at % 64);
        }
        (pass.opened_count, pass.runs, pass.opens, pass.begun) = (self.opened_count, self.runs, self.opens, self.begun);
        let moved = |last: &Last| Last { place: place(last.place), marked: last.marked.map(place) };
        pass.last = self.last.iter().map(|(&process, last)| (process, moved(last))).collect();
        pass.jump = if self.jump.is_multiple_of(old_stride) { self.jump / old_stride * stride } else { 0 };
        pass.tail = whole_steps(self.tail);
        pass.high = self.high.checked_sub(1).map_or(0, |last| place(last) + 1);
        for (rank, recent) in self.recent.iter().enumerate() {
            let places = recent.places.iter().map(|&(at, old)| (at, place(old))).collect();
            pass.recent[new[rank] as usize] = Recent { opens: recent.opens, places };
        }
        pass.front = self.front;
        pass.front = if pass.begun { pass.find_front() } else { whole_steps(self.front) };
        // Ranks that come now have nothing of theirs fetched yet.
        pass.scan = pass.front;
        (pass.widest, pass.widest_before) = (distance(self.widest), distance(self.widest_before));
        let gaps = |gaps: &std::collections::VecDeque<(u64, Option<u32>)>| gaps.iter().map(|&(at, gap)| (at, gap.map(place))).collect();
        (pass.early, pass.late) = (gaps(&self.early), gaps(&self.late));
        Some(pass)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Expected;
    use super::*;
    use crate::plan::EpochFiles;
    use crate::types::FileIndex;

    #[test]
    fn readers_are_where_they_were_and_the_new_rank_is_at_the_front() {
        // ranks 0 and 2 of 4, then 0 to 2
        let dealt = |ranks: &[u32]| {
            let files = (0..100).flat_map(|step| ranks.iter().map(move |rank| FileIndex(step * 4 + rank))).collect();
            Arc::new(EpochIndex::new(0, Arc::new(EpochFiles { files, stride: ranks.len() as u32 }), &[1; 400]))
        };
        let mut pass = Pass::new(dealt(&[0, 2]), 0, None);
        for place in 20..60 {
            pass.mark(place, 1 + place % 2, Expected::Next);
        }
        let wide = pass.widened(dealt(&[0, 1, 2]), &[0, 2]).unwrap();
        assert_eq!((wide.opened_count(), wide.runs, wide.front(), wide.scan), (40, 2, 30, 30));
        assert!((0..100).all(|place| wide.is_opened(place * 3) == pass.is_opened(place * 2) && !wide.is_opened(place * 3 + 1)));
        let (next, before) = (wide.sight(FileIndex(30 * 4 + 2), 2), pass.sight(FileIndex(30 * 4 + 2), 2));
        assert_eq!((next.place, before.place), (Some(92), Some(61)));
        assert!(next.is_predicted() && wide.sight(FileIndex(11 * 4 + 1), 9).is_predicted(), "{next:?}");
        // ranks of another order
        assert!(pass.widened(dealt(&[1, 2, 3]), &[0, 1]).is_none());
    }
}
