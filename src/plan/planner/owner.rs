//! Whose open is it? Several orders may hold a file near where their readers are.

use super::Planner;
use crate::plan::OrderIndex;
use crate::plan::cursor::{Choice, Cursor};
use crate::types::{FileIndex, QuickMap};

/// Votes a process can gather for an order: so much likelier it goes on there than in another. By chance, one open in twenty or so of another
/// job is near the front of an order.
const VOTES_MAX: u32 = 16;
/// Processes remembered; more than the readers of any node.
const PROCESSES_MAX: usize = 4096;

/// What each process reads: the order that most of its last opens were of (Boyer and Moore's majority vote).
#[derive(Debug, Default)]
pub(super) struct Readers(QuickMap<u32, (OrderIndex, u32)>);

impl Readers {
    fn votes(&self, process: u32, order: OrderIndex) -> u32 {
        self.0.get(&process).map_or(0, |&(of, votes)| if of == order { votes } else { 0 })
    }

    /// The order it reads.
    fn order(&self, process: u32) -> Option<OrderIndex> {
        self.0.get(&process).filter(|(_, votes)| *votes > 0).map(|&(order, _)| order)
    }

    /// An open of this order. Processes of unknown id are many.
    fn opened(&mut self, process: u32, order: OrderIndex) {
        if process == 0 {
            return;
        }
        if self.0.len() >= PROCESSES_MAX && !self.0.contains_key(&process) {
            self.0.clear();
        }
        let (of, votes) = self.0.entry(process).or_insert((order, 0));
        match (*of == order, *votes) {
            (true, _) => *votes = (*votes + 1).min(VOTES_MAX),
            (false, 0) => (*of, *votes) = (order, 1),
            (false, _) => *votes -= 1,
        }
    }
}

impl Planner {
    /// The order an open is of, and where in it; or the one it speaks against.
    pub(super) fn owner(&mut self, file: FileIndex, process: u32) -> Option<(OrderIndex, Choice)> {
        let sights: Vec<Option<Choice>> = self.orders.iter().map(|order| order.locate(file, process)).collect();
        let in_stream = || (0..sights.len()).filter_map(|order| sights[order].filter(Choice::is_in_stream).map(|choice| (order, choice)));
        let weight = |&(order, choice): &(OrderIndex, Choice)| choice.ratio() * f64::from(1 + self.readers.votes(process, order));
        let likely = in_stream().filter(|(_, choice)| choice.ratio() >= 1.0).max_by(|a, b| weight(a).total_cmp(&weight(b)));
        if let Some((order, _)) = likely {
            self.readers.opened(process, order);
            return likely;
        }
        // Unlikely everywhere: it speaks against the order this process reads, or else against the one the file is in.
        let knows = |order: &Cursor| order.is_locked() && order.knows(process);
        let reads = self.readers.order(process).filter(|&order| self.orders.get(order).is_some_and(knows));
        match reads.or_else(|| self.orders.iter().position(knows)) {
            Some(order) => sights[order].map(|choice| (order, choice)),
            None => in_stream().max_by(|a, b| a.1.ratio().total_cmp(&b.1.ratio())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_reads_what_most_of_its_last_opens_were_of() {
        let mut readers = Readers::default();
        for _ in 0..10 {
            readers.opened(7, 1);
        }
        readers.opened(7, 0);
        assert_eq!((readers.order(7), readers.votes(7, 0), readers.votes(7, 1)), (Some(1), 0, 9), "one by chance");
        (0..20).for_each(|_| readers.opened(7, 0));
        assert_eq!((readers.order(7), readers.votes(7, 1)), (Some(0), 0));
        readers.opened(0, 1);
        assert_eq!(readers.order(0), None);
        (1..10_000).for_each(|process| readers.opened(process, 0));
        assert!(readers.0.len() <= PROCESSES_MAX);
    }
}
