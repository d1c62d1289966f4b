//! The simulation's readers: threads over one list, and DataLoader workers (field notes: orders §4).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::super::{EpochFiles, Event, OrderState};
use super::{Held, Live, Processes, Rank, Reader, Readers, What, World};
use crate::types::{FileIndex, Outcome};

impl World<'_> {
    pub(super) fn begin(&mut self, number: usize) {
        let run = &self.plan.runs[number];
        let first = Arc::new((run.actual.0)(0));
        let ranks = first.stride as usize;
        let rank_count = match run.readers {
            Readers::Threads { .. } => 1,
            Readers::Loader { .. } => ranks,
        };
        let mut live = Live {
            orders: VecDeque::from([(0, first)]),
            readers: Vec::new(),
            ranks: (0..rank_count).map(|_| Rank::default()).collect(),
            next: run.start_place,
            pass: 0,
            passes_done: 0,
            opens: 0,
            lost_at: None,
            permitted: 0,
        };
        let per_rank = match run.readers {
            Readers::Threads { threads } => threads,
            Readers::Loader { workers, .. } => workers,
        };
        for rank in 0..rank_count {
            live.ranks[rank].dispatched = run.start_place / u32::try_from(ranks).unwrap_or(1);
            for _ in 0..per_rank {
                live.readers.push(Reader { rank, idle: true, process: 0, batches: VecDeque::new(), reading: None });
            }
        }
        self.live.push(live);
        if run.after.is_none() {
            self.wake(number);
            self.live[number].permitted = run.passes;
        } else if run.lead > 0 {
            self.wake(number);
            self.live[number].permitted = run.lead;
        }
    }

    /// Another pass may begin: those who wait for it do.
    fn wake(&mut self, number: usize) {
        if self.live[number].permitted == self.plan.runs[number].passes {
            return;
        }
        self.live[number].permitted += 1;
        let last = self.live[number].permitted - 1;
        match self.plan.runs[number].readers {
            Readers::Threads { .. } => {
                for reader in 0..self.live[number].readers.len() {
                    if std::mem::take(&mut self.live[number].readers[reader].idle) {
                        self.name(number, reader);
                        self.at(self.now + Duration::from_micros(reader as u64), What::Reader(number, reader));
                    }
                }
            }
            Readers::Loader { .. } => {
                for rank in 0..self.live[number].ranks.len() {
                    if self.live[number].ranks[rank].pass == last {
                        self.begin_epoch(number, rank);
                    }
                }
            }
        }
    }

    /// A new process.
    fn name(&mut self, run: usize, reader: usize) {
        self.live[run].readers[reader].process = self.next_process;
        self.next_process += 1;
    }

    fn order_of(&mut self, run: usize, pass: u64) -> Arc<EpochFiles> {
        let live = &mut self.live[run];
        if let Some((_, order)) = live.orders.iter().find(|(p, _)| *p == pass) {
            return Arc::clone(order);
        }
        let order = Arc::new((self.plan.runs[run].actual.0)(pass));
        live.orders.push_back((pass, Arc::clone(&order)));
        if live.orders.len() > 4 {
            live.orders.pop_front();
        }
        order
    }

    fn begin_epoch(&mut self, run: usize, rank: usize) {
        let Readers::Loader { workers, batch: _, prefetch_factor } = self.plan.runs[run].readers else { return };
        let first = rank * workers as usize;
        for reader in first..first + workers as usize {
            self.name(run, reader);
        }
        self.live[run].ranks[rank].batches_out = 0;
        self.live[run].ranks[rank].delivered = 0;
        self.live[run].ranks[rank].complete.clear();
        for _ in 0..workers * prefetch_factor {
            self.dispatch(run, rank);
        }
    }

    /// Hands the next batch of a rank to the worker whose turn it is.
    fn dispatch(&mut self, run: usize, rank: usize) {
        let Readers::Loader { workers, batch, .. } = self.plan.runs[run].readers else { return };
        let pass = self.live[run].ranks[rank].pass;
        let order = self.order_of(run, pass);
        let steps = u32::try_from(order.files.len()).unwrap_or(0) / order.stride;
        let state = &mut self.live[run].ranks[rank];
        if state.dispatched >= steps {
            return;
        }
        let end = (state.dispatched + batch).min(steps);
        let piece = (state.dispatched, end);
        let worker = usize::try_from(state.batches_out % u64::from(workers)).unwrap_or(0) + rank * workers as usize;
        state.dispatched = end;
        state.batches_out += 1;
        state.complete.push_back(false);
        let reader = &mut self.live[run].readers[worker];
        let idle = reader.batches.is_empty();
        reader.batches.push_back(piece);
        if idle {
            // Workers start within microseconds of each other, not in order.
            let jitter = Duration::from_micros(self.dice.next() % 50);
            self.at(self.now + jitter, What::Reader(run, worker));
        }
    }

    /// A reader closes what it had open and opens the next.
    pub(super) fn go_on(&mut self, run: usize, reader: usize) {
        if let Some(file) = self.live[run].readers[reader].reading.take() {
            self.close(file);
        }
        let Some(file) = self.next_file(run, reader) else {
            self.live[run].readers[reader].idle = true;
            return;
        };
        self.live[run].readers[reader].reading = Some(file);
        self.live[run].opens += 1;
        match self.held[file.at()] {
            Held::Here { tier, fresh } => {
                self.held[file.at()] = Held::Here { tier, fresh: false };
                self.has_opened(run, reader, file, if fresh { Outcome::InTime } else { Outcome::Retained });
            }
            Held::Ahead(_) | Held::Demand(_) => {
                self.waiting.entry(file.0).or_default().push((run, reader, self.now));
                // Demand promotes a queued fetch.
                if let Some(place) = self.queue.iter().position(|&queued| queued == file.0) {
                    self.queue.remove(place);
                    self.queue.push_front(file.0);
                }
            }
            Held::No => {
                let tier = self.reserve(self.plan.sizes[file.at()], 0);
                self.held[file.at()] = Held::Demand(tier);
                self.waiting.entry(file.0).or_default().push((run, reader, self.now));
                self.queue.push_front(file.0);
                self.launch();
            }
        }
    }

    fn next_file(&mut self, run: usize, reader: usize) -> Option<FileIndex> {
        if let Readers::Loader { batch, workers, .. } = self.plan.runs[run].readers {
            let rank = self.live[run].readers[reader].rank;
            let order = self.order_of(run, self.live[run].ranks[rank].pass);
            let piece = self.live[run].readers[reader].batches.front_mut()?;
            if piece.0 == piece.1 {
                let end = piece.1;
                self.live[run].readers[reader].batches.pop_front();
                self.batch_read(run, rank, end.div_ceil(batch), workers);
                return self.next_file(run, reader);
            }
            let step = piece.0;
            piece.0 += 1;
            return Some(order.files[step as usize * order.stride as usize + rank]);
        }
        let order = self.order_of(run, self.live[run].pass);
        let live = &mut self.live[run];
        if live.pass >= live.permitted.min(self.plan.runs[run].passes) {
            return None;
        }
        let file = order.files[live.next as usize];
        live.next += 1;
        if live.next as usize == order.files.len() {
            live.next = 0;
            live.pass += 1;
            live.passes_done += 1;
            self.passed(run);
        }
        Some(file)
    }

    /// A batch is complete; `number` batches of the epoch end with it.
    fn batch_read(&mut self, run: usize, rank: usize, number: u32, _workers: u32) {
        let Readers::Loader { batch, .. } = self.plan.runs[run].readers else { return };
        let state = &mut self.live[run].ranks[rank];
        let begun_at =
            if state.pass == 0 { self.plan.runs[run].start_place / u32::try_from(self.live[run].ranks.len()).unwrap_or(1) } else { 0 };
        let state = &mut self.live[run].ranks[rank];
        let index = u64::from(number) - u64::from(begun_at.div_ceil(batch)) - 1;
        if let Some(slot) = usize::try_from(index - state.delivered).ok().and_then(|at| state.complete.get_mut(at)) {
            *slot = true;
        }
        self.deliver(run, rank);
    }

    /// The main process takes the next batch in order, if it is ready and it is idle.
    fn deliver(&mut self, run: usize, rank: usize) {
        let Readers::Loader { batch, .. } = self.plan.runs[run].readers else { return };
        let spec = &self.plan.runs[run];
        let state = &mut self.live[run].ranks[rank];
        if state.busy || state.complete.front() != Some(&true) {
            return;
        }
        state.complete.pop_front();
        state.delivered += 1;
        state.busy = true;
        let slower = 1000 + u32::try_from(rank).unwrap_or(0) * spec.skew_per_mille;
        let busy = spec.compute * batch * slower / 1000;
        self.dispatch(run, rank);
        self.at(self.now + busy, What::Consumed(run, rank));
    }

    pub(super) fn consumed(&mut self, run: usize, rank: usize) {
        let state = &mut self.live[run].ranks[rank];
        state.busy = false;
        let pass = state.pass;
        let order = self.order_of(run, pass);
        let steps = u32::try_from(order.files.len()).unwrap_or(0) / order.stride;
        let state = &mut self.live[run].ranks[rank];
        if state.complete.is_empty() && state.dispatched >= steps {
            state.pass += 1;
            state.dispatched = 0;
            let done = self.live[run].ranks.iter().map(|r| r.pass).min().unwrap_or(0);
            if done > self.live[run].passes_done {
                self.live[run].passes_done = done;
                self.passed(run);
            }
            let live = &self.live[run];
            if live.ranks[rank].pass < live.permitted.min(self.plan.runs[run].passes) {
                self.begin_epoch(run, rank);
            }
        } else {
            self.deliver(run, rank);
        }
    }

    /// A run has finished a pass: runs that come after it take their turn.
    fn passed(&mut self, run: usize) {
        for other in 0..self.plan.runs.len() {
            if self.plan.runs[other].after == Some(run) {
                self.wake(other);
            }
        }
    }

    pub(super) fn has_opened(&mut self, run: usize, reader: usize, file: FileIndex, outcome: Outcome) {
        *self.handles.entry(file.0).or_default() += 1;
        let process = if self.plan.processes == Processes::Known { self.live[run].readers[reader].process } else { 0 };
        if !self.dice.per_mille(self.plan.lost_per_mille) {
            self.tell(Event::Opened { file, process, outcome });
        }
        if self.live[run].lost_at.is_none() && self.planner.order(run).state == OrderState::Lost {
            self.live[run].lost_at = Some(self.live[run].opens);
        }
        let pause = match self.plan.runs[run].readers {
            Readers::Threads { .. } => self.plan.runs[run].compute,
            // A worker decodes: short against the step, so that workers run ahead.
            Readers::Loader { .. } => self.plan.runs[run].compute / 4,
        };
        self.at(self.now + pause, What::Reader(run, reader));
    }

    fn close(&mut self, file: FileIndex) {
        let Some(count) = self.handles.get_mut(&file.0) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.handles.remove(&file.0);
        if let Some((tier, bytes)) = self.retired_open.remove(&file.0) {
            self.used[tier] -= bytes;
        }
        if !self.dice.per_mille(self.plan.lost_per_mille) {
            self.tell(Event::Released { file });
        }
    }
}
