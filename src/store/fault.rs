//! A store that fails by script, for tests: each rule matches some calls and does one thing to them.
//!
//! The first rule that matches a call acts, and only that one. Rules count the calls they match, so that "the second GET of this key" is exact
//! however tasks interleave.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;

use crate::store::{Body, Page, Store, StoreError};
use crate::types::{ErrorKind, ObjectId, ObjectMeta};

/// Which of the three calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    List,
    Head,
    Read,
}

/// What is done to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails with this kind.
    Fail(ErrorKind),
    /// Its body ends with a network error after so many bytes.
    CutAfter(u64),
    /// Its body stops after so many bytes and never goes on.
    StallAfter(u64),
    /// No answer, ever.
    Hang,
    /// HEAD and listings tell an ETag of another version.
    OtherVersion,
    /// Every byte of the body comes as its complement: wrong bytes of the right length.
    Flip,
    /// HEAD and listings tell one byte more than there is.
    OtherLength,
}

/// One line of the script.
#[derive(Debug)]
pub struct Rule {
    pub operation: Operation,
    /// `None`: any key (of a list: its prefix).
    pub key: Option<String>,
    /// Which of the calls that match, counted from 0.
    pub calls: Range<u64>,
    pub fault: Fault,
    seen: AtomicU64,
}

impl Rule {
    /// `fault` for the `calls` of `operation` on `key`.
    #[must_use]
    pub fn new(operation: Operation, key: Option<&str>, calls: Range<u64>, fault: Fault) -> Self {
        Self { operation, key: key.map(str::to_owned), calls, fault, seen: AtomicU64::new(0) }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn Store>,
    rules: Vec<Rule>,
}

impl Faulty {
    /// `inner`, with the script.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, rules: Vec<Rule>) -> Self {
        Self { inner, rules }
    }

    /// What happens to this call. Failing and hanging happen here.
    async fn fault(&self, operation: Operation, key: &str) -> Result<Option<Fault>, StoreError> {
        let matching = self.rules.iter().filter(|rule| rule.operation == operation && rule.key.as_deref().is_none_or(|k| k == key));
        let mut acting = None;
        for rule in matching {
            let n = rule.seen.fetch_add(1, SeqCst);
            if acting.is_none() && rule.calls.contains(&n) {
                acting = Some(rule.fault);
            }
        }
        match acting {
            Some(Fault::Fail(kind)) => Err(StoreError::new(kind, format!("{operation:?} of {key:?}: a scripted {kind:?}"))),
            Some(Fault::Hang) => std::future::pending().await,
            other => Ok(other),
        }
    }
}

fn lie(fault: Option<Fault>, object: &mut ObjectMeta) {
    match fault {
        Some(Fault::OtherVersion) => object.etag = Arc::from(format!("{}x", object.etag)),
        Some(Fault::OtherLength) => object.size += 1,
        _ => {}
    }
}

/// The first `len` bytes of a body, then `end`.
fn cut(body: Body, len: u64, end: Option<StoreError>) -> Body {
    let first = body.scan(len, |left, chunk| {
        let chunk = chunk.map(|bytes: Bytes| {
            let take = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
            *left -= take as u64;
            bytes.slice(..take)
        });
        let is_empty = matches!(&chunk, Ok(bytes) if bytes.is_empty());
        std::future::ready((!is_empty).then_some(chunk))
    });
    match end {
        Some(error) => first.chain(futures_util::stream::once(std::future::ready(Err(error)))).boxed(),
        None => first.chain(futures_util::stream::pending()).boxed(),
    }
}

#[async_trait]
impl Store for Faulty {
    async fn list(&self, prefix: &str, start_after: Option<&str>, after: Option<&str>) -> Result<Page, StoreError> {
        let fault = self.fault(Operation::List, prefix).await?;
        let mut page = self.inner.list(prefix, start_after, after).await?;
        page.objects.iter_mut().for_each(|object| lie(fault, object));
        Ok(page)
    }

    fn lists_in_ranges(&self) -> bool {
        self.inner.lists_in_ranges()
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        let fault = self.fault(Operation::Head, key).await?;
        let mut object = self.inner.head(key).await?;
        lie(fault, &mut object);
        Ok(object)
    }

    async fn read(&self, id: &ObjectId, range: Range<u64>) -> Result<Body, StoreError> {
        let fault = self.fault(Operation::Read, &id.key).await?;
        let body = self.inner.read(id, range).await?;
        Ok(match fault {
            Some(Fault::CutAfter(len)) => {
                cut(body, len, Some(StoreError::new(ErrorKind::Network, format!("object {:?}: body ended early, by script", id.key))))
            }
            Some(Fault::StallAfter(len)) => cut(body, len, None),
            Some(Fault::Flip) => body.map(|chunk| chunk.map(|bytes| bytes.iter().map(|byte| !byte).collect())).boxed(),
            _ => body,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::directory::DirectoryStore;

    #[tokio::test]
    async fn faults_come_where_the_script_says_and_nowhere_else() {
        let dir = tempfile::tempdir().expect("temp dir");
        std::fs::write(dir.path().join("f"), "12345").expect("write");
        let inner = Arc::new(DirectoryStore::open(dir.path(), Arc::default()).await.expect("opens"));
        let id = inner.head("f").await.expect("there").version();
        let faulty = Faulty::new(
            inner,
            vec![
                Rule::new(Operation::Read, Some("f"), 1..2, Fault::Fail(ErrorKind::Throttled)),
                Rule::new(Operation::Read, None, 2..3, Fault::CutAfter(3)),
                Rule::new(Operation::Read, None, 3..4, Fault::Flip),
                Rule::new(Operation::Head, None, 0..1, Fault::OtherVersion),
                Rule::new(Operation::List, None, 0..1, Fault::OtherLength),
            ],
        );
        let mut got = Vec::new();
        for _ in 0..5 {
            let body = match faulty.read(&id, 0..5).await {
                Ok(body) => body,
                Err(error) => {
                    got.push(Err(error.kind));
                    continue;
                }
            };
            let chunks: Vec<_> = body.collect().await;
            let kind = chunks.iter().find_map(|chunk| chunk.as_ref().err().map(|error| error.kind));
            let bytes = chunks.into_iter().flatten().flatten().collect::<Vec<u8>>();
            got.push(kind.map_or(Ok(bytes.clone()), |kind| if bytes == b"123" { Err(kind) } else { Ok(bytes) }));
        }
        let whole = Ok(b"12345".to_vec());
        let flipped = Ok(b"12345".iter().map(|byte| !byte).collect());
        assert_eq!(got, [whole.clone(), Err(ErrorKind::Throttled), Err(ErrorKind::Network), flipped, whole]);
        assert_ne!(faulty.head("f").await.expect("there").version(), id);
        assert_eq!(faulty.head("f").await.expect("there").version(), id);
        assert_eq!(faulty.list("", None, None).await.expect("listed").objects[0].size, 6);
    }
}
