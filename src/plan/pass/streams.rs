//! Where each process is in a pass, and how likely its next open is by that.

use super::Pass;

/// Processes remembered; more than ranks × workers of any node, a bound for thread pools that never reuse an id.
const PROCESSES_MAX: usize = 4096;
/// Share of the probability, once a process has gone over other workers' batches, given to a jump of the same length: that is what the others do.
const SAME_JUMP: f64 = 0.1;

/// Where a process is in a pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Last {
    /// Of its last open that is in this order, if it was in this pass.
    pub(super) place: u32,
    /// Of its last open that was counted here. Others are coincidences, or will have been the first ones: what lies before them can still be read.
    pub(super) marked: Option<u32>,
}

impl Pass {
    /// Remembers where a process is without counting an open (a hypothesis that was not chosen).
    pub(crate) fn follow(&mut self, process: u32, place: u32) {
        if process != 0 {
            if self.last.len() >= PROCESSES_MAX {
                self.last.clear();
            }
            let marked = self.marked(process);
            self.last.insert(process, Last { place, marked });
        }
    }

    /// The place of a process's last open that was counted here.
    pub(super) fn marked(&self, process: u32) -> Option<u32> {
        self.last.get(&process).and_then(|last| last.marked)
    }

    /// Whether a stream goes on from one place to the other without a gap: in its batch, or to the next one.
    pub(super) fn is_next(&self, from: u32, to: u32) -> bool {
        to.checked_sub(from).is_some_and(|step| step == self.index.order.stride.max(1) || step != 0 && step == self.jump)
    }

    /// An open of what was opened already: of a process that has read nothing else it says where that is.
    pub(crate) fn reopen(&mut self, process: u32, place: u32) {
        let last = self.last.get(&process).copied();
        let is_next = last.is_some_and(|last| self.is_next(last.place, place));
        if is_next || last.is_none_or(|last| last.marked.is_none()) {
            self.follow(process, place);
        }
        if let Some(last) = self.last.get_mut(&process).filter(|_| is_next) {
            last.marked = Some(place);
        }
    }

    pub(super) fn step_or_jump(&self, from: u32, to: u32) -> f64 {
        let step = self.step(from, to);
        match self.jump {
            0 => step,
            jump if to.checked_sub(from) == Some(jump) => (1.0 - SAME_JUMP) * step + SAME_JUMP * f64::from(self.len()),
            _ => (1.0 - SAME_JUMP) * step,
        }
    }

    /// Ratio of going from one place to another: along the rank's own stream in its steps, or across ranks in places.
    fn step(&self, from: u32, to: u32) -> f64 {
        let stride = self.index.order.stride.max(1);
        let distance = from.abs_diff(to).max(1);
        let (share, steps) = if stride == 1 {
            (1.0, distance)
        } else if distance.is_multiple_of(stride) {
            (0.5, distance / stride)
        } else {
            (0.5, distance)
        };
        share * if to > from { self.kernel.forward(steps) } else { self.kernel.backward(steps) }
    }
}
