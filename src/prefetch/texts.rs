//! Texts that readers open before their samples and that may name them (a csv, an annotations file): read through the door, where the reader has
//! just brought them, and handed to the inference. Off the read path, bounded in number and bytes.
//!
//! Not here: what a text says (`dataset/maps`).

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::Parts;
use crate::dataset::maps::{NamesText, may_name_samples};
use crate::fetch::{Door, WHOLE_MAX_BYTES};
use crate::types::{FileIndex, ObjectMeta};

/// Texts read at most: more are samples (captions, labels) themselves.
pub(super) const TEXTS_MAX: usize = 8;
/// Bytes of all texts: the names of a million files. They stay in memory while orders are looked for.
const BYTES_MAX: u64 = 64 << 20;
/// Read at once of a text that is not cached whole.
const PART_BYTES: u32 = 1 << 20;
/// Opens of other files after which a text comes too late to name them.
const OPENS_MAX: u32 = 256;

#[derive(Debug)]
pub(super) struct Texts {
    asked: HashSet<FileIndex>,
    bytes: u64,
    /// Opens that were none of texts.
    others: u32,
    give: mpsc::Sender<NamesText>,
}

impl Texts {
    pub(super) fn new(give: mpsc::Sender<NamesText>) -> Self {
        Self { asked: HashSet::new(), bytes: 0, others: 0, give }
    }

    /// Reads the file if it may name samples.
    pub(super) fn opened(&mut self, file: FileIndex, parts: &Parts) {
        if self.others > OPENS_MAX || self.asked.len() >= TEXTS_MAX {
            return;
        }
        if !may_name_samples(parts.manifest.path(file)) {
            self.others += 1;
            return;
        }
        let object = (parts.object)(file);
        if object.size == 0 || self.bytes.saturating_add(object.size) > BYTES_MAX || !self.asked.insert(file) {
            return;
        }
        self.bytes += object.size;
        let (door, give) = (Arc::clone(&parts.door), self.give.clone());
        tokio::spawn(async move {
            match read(&door, &object).await {
                // refused only when the task is gone
                Ok(text) => drop(give.send(NamesText { file, text: text.into() }).await),
                Err(error) => tracing::debug!(key = %object.key, "not looked into for names of samples: {error}"),
            }
        });
    }
}

async fn read(door: &Arc<Door>, object: &ObjectMeta) -> Result<String, String> {
    let mut bytes = Vec::new();
    if object.size <= WHOLE_MAX_BYTES {
        let opened = door.open(object).await.map_err(|error| error.to_string())?;
        bytes.resize(usize::try_from(object.size).map_err(|error| error.to_string())?, 0);
        let read = move || opened.file.read_exact_at(&mut bytes, 0).map(|()| bytes);
        bytes = tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    } else {
        let reader = door.open_large(object);
        while (bytes.len() as u64) < object.size {
            let part = reader.read(bytes.len() as u64, PART_BYTES).await.map_err(|error| error.to_string())?;
            if part.is_empty() {
                return Err("it ends early".to_owned());
            }
            bytes.extend_from_slice(&part);
        }
    }
    String::from_utf8(bytes).map_err(|_| "it is no UTF-8 text".to_owned())
}
