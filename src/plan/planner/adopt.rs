//! Orders that were inferred while readers read: taken in, replaced, given up.

use std::sync::Arc;

use super::super::cursor::Cursor;
use super::super::{Action, EpochFiles, OrderConfig, OrderIndex, Seen};
use super::Planner;
use crate::types::Epoch;

impl Planner {
    /// The order that the last open was an expected access of; `None`: of none.
    #[must_use]
    pub const fn claimed(&self) -> Option<OrderIndex> {
        self.claimed
    }

    /// Follows an inferred order: the files of `epoch`, from where `opens` lead. It takes the place of `order`, or is a new one.
    pub fn adopt(
        &mut self,
        order: Option<OrderIndex>,
        config: OrderConfig,
        epoch: (Epoch, Arc<EpochFiles>),
        opens: &[Seen],
        out: &mut Vec<Action>,
    ) -> OrderIndex {
        let number = order.filter(|&number| number < self.orders.len()).unwrap_or_else(|| {
            self.orders.push(Cursor::new(config.clone(), self.sizes.len(), self.books.capacity()));
            self.orders.len() - 1
        });
        let round = self.round();
        let capacity = self.books.capacity();
        let valid = !epoch.1.files.is_empty() && epoch.1.files.iter().all(|file| file.at() < self.sizes.len());
        if valid {
            self.orders[number].adopt(config, epoch, opens, &self.sizes, capacity, round);
        }
        self.step(out);
        number
    }

    /// A followed order is dealt to more ranks here than was known ([`Cursor::widen`]). False: it cannot be, and nothing has changed.
    pub fn widen(
        &mut self,
        order: OrderIndex,
        epochs: Vec<(Epoch, Arc<EpochFiles>)>,
        new: &[u32],
        opens: &[Seen],
        out: &mut Vec<Action>,
    ) -> bool {
        let known = |(_, files): &(Epoch, Arc<EpochFiles>)| files.files.iter().all(|file| file.at() < self.sizes.len());
        let widened =
            epochs.iter().all(known) && self.orders.get_mut(order).is_some_and(|cursor| cursor.widen(epochs, new, opens, &self.sizes));
        self.step(out);
        widened
    }

    /// Gives an inferred order up.
    pub fn abandon(&mut self, order: OrderIndex, why: &str) {
        if let Some(cursor) = self.orders.get_mut(order) {
            cursor.abandon(why);
        }
    }
}
