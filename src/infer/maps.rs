//! The candidate maps of one group's opens, each computed when it is first asked for: to number a large dataset takes tenths of a second a map.
//!
//! Not here: which numberings there are (`dataset/maps`).

use std::sync::Arc;

use crate::dataset::Manifest;
use crate::dataset::maps::{CandidateMap as Map, Maps, NamesText};
use crate::plan::Seen;
use crate::types::FileIndex;

/// Maps that a search tries.
pub(super) const MAPS_MAX: usize = 12;
/// Opens that they are made from: enough for every rule.
const LOOKED_AT: usize = 512;
/// Bytes of a set that is kept while an order is followed: what is found in the next pass is found in the same maps.
const KEPT_BYTES: usize = 4 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct MapSet {
    computed: Vec<Map>,
    rest: Maps,
    texts: usize,
}

impl MapSet {
    pub(super) fn new(manifest: &Arc<Manifest>, opens: &[Seen], texts: &[NamesText]) -> Self {
        Self { computed: Vec::new(), rest: Maps::new(manifest, &files(opens), texts), texts: texts.len() }
    }

    /// Whether these opens would have the same maps.
    pub(super) fn suits(&self, opens: &[Seen], texts: &[NamesText]) -> bool {
        self.texts == texts.len() && self.rest.suits(&files(opens))
    }

    /// Computes it where it was not asked for yet.
    pub(super) fn get(&mut self, at: usize) -> Option<Map> {
        while self.computed.len() <= at.min(MAPS_MAX - 1) {
            self.computed.push(self.rest.next()?);
        }
        self.computed.get(at).cloned()
    }

    pub(super) const fn computed(&self) -> &[Map] {
        self.computed.as_slice()
    }

    /// Whether another map costs nothing: there is none.
    pub(super) fn is_all(&self) -> bool {
        self.computed.len() >= MAPS_MAX || self.rest.pending().next().is_none()
    }

    pub(super) fn is_small(&self) -> bool {
        self.computed.iter().map(Map::bytes).sum::<usize>() <= KEPT_BYTES
    }
}

fn files(opens: &[Seen]) -> Vec<FileIndex> {
    opens.iter().map(|seen| seen.file).take(LOOKED_AT).collect()
}
