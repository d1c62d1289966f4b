//! A tier that shrank: what is in it goes, the least worth first, until it fits. Nothing here knows orders: what is due last is the planner's word.

use super::{Class, OPEN, QUEUED, Residency};
use crate::plan::Action;
use crate::types::FileIndex;

impl Residency {
    /// A tier may hold this much from now on. What is above it stays until it is shed.
    pub(crate) fn set_capacity(&mut self, tier: usize, bytes: u64) {
        if let Some(tier) = self.tiers.get_mut(tier) {
            tier.capacity = bytes;
        }
    }

    fn is_full(&self, tier: usize) -> bool {
        self.tiers[tier].used() > self.tiers[tier].capacity
    }

    /// Some tier holds more than it may.
    pub(crate) fn is_above(&self) -> bool {
        (0..self.tiers.len()).any(|tier| self.is_full(tier))
    }

    /// Lets go of disposables and of the worst kept of the tiers that hold too much, in at most `steps` steps; the steps left.
    /// Open ones become disposable, and go when they are released.
    pub(crate) fn shed_used(&mut self, mut steps: u32, out: &mut Vec<Action>) -> u32 {
        for tier in 0..self.tiers.len() {
            while self.is_full(tier) && steps > 0 {
                steps -= 1;
                if let Some(file) = self.tiers[tier].queue.pop_front() {
                    self.unset(file, QUEUED);
                    let entry = self.entries[file.at()];
                    if entry.class == Class::Disposable && usize::from(entry.tier) == tier && entry.flags & OPEN == 0 {
                        self.gone(file);
                        out.push(Action::Retire { file });
                    }
                } else if let Some(&worst) = self.tiers[tier].keys.last() {
                    self.change(worst.file(), Class::Disposable, worst.round());
                } else {
                    break;
                }
            }
        }
        steps
    }

    /// Lets go of a file whose use is still to come, if it lies in a tier that holds too much and nobody reads it.
    pub(crate) fn shed_ready(&mut self, file: FileIndex, out: &mut Vec<Action>) {
        let entry = self.entries[file.at()];
        if entry.class == Class::Ready && entry.flags & OPEN == 0 && self.is_full(usize::from(entry.tier)) {
            self.gone(file);
            out.push(Action::Retire { file });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::next_use::FAR;

    fn books(files: u32) -> Residency {
        let mut books = Residency::new(&[1000], vec![100; files as usize].into());
        for file in (0..files).map(FileIndex) {
            books.present(file, 0, file.0);
        }
        books
    }

    #[test]
    fn the_worst_kept_go_first_and_open_ones_when_released() {
        let mut books = books(8);
        books.opened(FileIndex(7));
        books.set_capacity(0, 500);
        let mut out = Vec::new();
        books.shed_used(100, &mut out);
        assert_eq!(out, [6, 5, 4].map(|file| Action::Retire { file: FileIndex(file) }), "the latest uses, but for the one being read");
        assert_eq!((books.used(0), books.class(FileIndex(7))), (500, Class::Disposable));
        books.set_capacity(0, 300);
        out.clear();
        assert!(books.released(FileIndex(7)));
        books.shed_used(100, &mut out);
        assert_eq!(out, [7, 3].map(|file| Action::Retire { file: FileIndex(file) }));
        assert!(!books.is_above());
        books.check();
    }

    #[test]
    fn it_stops_after_its_steps_and_goes_on_later() {
        let mut books = books(10);
        books.set_capacity(0, 0);
        let mut out = Vec::new();
        for _ in 0..20 {
            books.shed_used(3, &mut out);
            assert!(out.len() <= 20);
        }
        assert_eq!((out.len(), books.used(0)), (10, 0));
        books.check();
    }

    #[test]
    fn what_is_still_to_be_used_goes_only_when_asked_and_not_while_read() {
        let mut books = Residency::new(&[1000], vec![100; 3].into());
        for file in (0..3).map(FileIndex) {
            books.asked(file, 0, 1, false);
            books.fetched(file, 0, true, Some(1));
        }
        books.opened(FileIndex(1));
        books.set_capacity(0, 0);
        let mut out = Vec::new();
        books.shed_used(100, &mut out);
        assert_eq!(out, []);
        (0..3).for_each(|file| books.shed_ready(FileIndex(file), &mut out));
        assert_eq!(out, [0, 2].map(|file| Action::Retire { file: FileIndex(file) }));
        assert_eq!((books.wasted.files, books.used(0)), (2, 100));
        assert_ne!(books.round(FileIndex(1)), FAR);
        books.check();
    }
}
