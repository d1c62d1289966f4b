//! A bucket in memory, behind the `Store` trait: counts its requests, can hold them back, and can change or lose objects.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use belady::store::{Body, Page, Store, StoreError};
use belady::types::{ErrorKind, ObjectId, ObjectMeta};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::sync::watch;

/// The bucket. Reads wait while it is held.
#[derive(Debug)]
pub(crate) struct Bucket {
    objects: Mutex<BTreeMap<String, (Bytes, u64)>>,
    held: watch::Sender<bool>,
    pub(crate) gets: AtomicU64,
    pub(crate) heads: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

impl Bucket {
    /// A bucket of these objects.
    pub(crate) fn of(objects: impl IntoIterator<Item = (String, Vec<u8>)>) -> Arc<Self> {
        let objects = objects.into_iter().map(|(key, body)| (key, (Bytes::from(body), 1))).collect();
        Arc::new(Self {
            objects: Mutex::new(objects),
            held: watch::channel(false).0,
            gets: AtomicU64::new(0),
            heads: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        })
    }

    /// From now on reads wait (`true`), or go on.
    pub(crate) fn hold(&self, hold: bool) {
        self.held.send_replace(hold);
    }

    /// Replaces an object by a new version.
    pub(crate) fn put(&self, key: &str, body: Vec<u8>) {
        let mut objects = self.objects.lock().unwrap();
        let version = objects.get(key).map_or(1, |(_, version)| version + 1);
        objects.insert(key.to_owned(), (body.into(), version));
    }

    pub(crate) fn delete(&self, key: &str) {
        self.objects.lock().unwrap().remove(key);
    }

    pub(crate) fn body(&self, key: &str) -> Bytes {
        self.objects.lock().unwrap()[key].0.clone()
    }

    /// What a listing shows now.
    pub(crate) fn listing(&self) -> Vec<ObjectMeta> {
        self.objects.lock().unwrap().iter().map(|(key, (body, version))| meta(key, body, *version)).collect()
    }
}

fn meta(key: &str, body: &Bytes, version: u64) -> ObjectMeta {
    let mtime_seconds = 1_700_000_000 + i64::try_from(version).unwrap();
    ObjectMeta { key: key.into(), size: body.len() as u64, etag: format!("\"v{version}\"").into(), mtime_seconds }
}

fn missing(key: &str) -> StoreError {
    StoreError::new(ErrorKind::NotFound, format!("{key}: no such object"))
}

#[async_trait]
impl Store for Bucket {
    async fn list(&self, prefix: &str, start_after: Option<&str>, _after: Option<&str>) -> Result<Page, StoreError> {
        let wanted = |object: &ObjectMeta| object.key.starts_with(prefix) && start_after.is_none_or(|after| &*object.key > after);
        Ok(Page { objects: self.listing().into_iter().filter(wanted).collect(), next: None })
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.heads.fetch_add(1, SeqCst);
        let objects = self.objects.lock().unwrap();
        let (body, version) = objects.get(key).ok_or_else(|| missing(key))?;
        Ok(meta(key, body, *version))
    }

    async fn read(&self, id: &ObjectId, range: Range<u64>) -> Result<Body, StoreError> {
        self.gets.fetch_add(1, SeqCst);
        let _ = self.held.subscribe().wait_for(|held| !held).await;
        let (body, version) = self.objects.lock().unwrap().get(&*id.key).cloned().ok_or_else(|| missing(&id.key))?;
        if *id.etag != *format!("\"v{version}\"") {
            return Err(StoreError::new(ErrorKind::Changed, format!("{} changed", id.key)));
        }
        self.bytes.fetch_add(range.end - range.start, SeqCst);
        let body = body.slice(usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap());
        let chunks: Vec<_> = body.chunks(64 << 10).map(|chunk| Ok(body.slice_ref(chunk))).collect();
        Ok(stream::iter(chunks).boxed())
    }
}
