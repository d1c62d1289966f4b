//! A store made slow, for tests and benchmarks: so much time per call, so much per byte, the same each time.
//!
//! Delays are tokio's: under paused time a test of an hour's epoch takes milliseconds.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;

use crate::store::{Body, Page, Store, StoreError};
use crate::types::{ObjectId, ObjectMeta};

/// Delays of a [`Throttle`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Delays {
    /// Before the first byte of a GET.
    pub get: Duration,
    /// Before a page.
    pub list: Duration,
    /// Before a HEAD's answer.
    pub head: Duration,
    /// For each MiB of a body, on each connection by itself.
    pub mebibyte: Duration,
}

/// See the module.
#[derive(Debug)]
pub struct Throttle {
    inner: Arc<dyn Store>,
    delays: Delays,
}

impl Throttle {
    /// `inner`, slower.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, delays: Delays) -> Self {
        Self { inner, delays }
    }
}

/// Waits; not at all for no time (tokio's shortest sleep is a millisecond).
async fn pause(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

#[async_trait]
impl Store for Throttle {
    async fn list(&self, prefix: &str, start_after: Option<&str>, after: Option<&str>) -> Result<Page, StoreError> {
        pause(self.delays.list).await;
        self.inner.list(prefix, start_after, after).await
    }

    fn lists_in_ranges(&self) -> bool {
        self.inner.lists_in_ranges()
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        pause(self.delays.head).await;
        self.inner.head(key).await
    }

    async fn read(&self, id: &ObjectId, range: Range<u64>) -> Result<Body, StoreError> {
        pause(self.delays.get).await;
        let per_mebibyte = self.delays.mebibyte;
        let body = self.inner.read(id, range).await?;
        Ok(body
            .then(move |chunk| async move {
                if let Ok(bytes) = &chunk {
                    let nanos = per_mebibyte.as_nanos() * bytes.len() as u128 / (1 << 20);
                    pause(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))).await;
                }
                chunk
            })
            .boxed())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::store::directory::DirectoryStore;

    #[tokio::test(start_paused = true)]
    async fn calls_and_bytes_take_their_time() {
        let dir = tempfile::tempdir().expect("temp dir");
        std::fs::write(dir.path().join("f"), vec![0; 1 << 20]).expect("write");
        let inner = Arc::new(DirectoryStore::open(dir.path(), Arc::default()).await.expect("opens"));
        let second = Duration::from_secs(1);
        let slow = Throttle::new(inner, Delays { get: second * 3, list: second, head: second * 2, mebibyte: second * 4 });
        let began = Instant::now();
        slow.list("", None, None).await.expect("listed");
        let id = slow.head("f").await.expect("there").version();
        let body = slow.read(&id, 0..1 << 20).await.expect("opens");
        assert_eq!(began.elapsed().as_secs(), 6);
        body.for_each(|_| async {}).await;
        assert_eq!(began.elapsed().as_secs(), 10);
    }
}
