//! What every store promises (`src/store/mod.rs`), checked the same way over each.
//!
//! [`contract`] takes a store that holds exactly [`objects`], and a [`Writer`] that changes them behind its back.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use belady::store::directory::DirectoryStore;
use belady::store::fault::{Fault, Faulty, Operation, Rule};
use belady::store::listing::list_all;
use belady::store::throttle::{Delays, Throttle};
use belady::store::{Store, StoreError};
use belady::types::{ErrorKind, ObjectId};
use futures_util::StreamExt;

/// Which keys a kind of store can hold: a directory has no `a//b`, nor `p` beside `p/q`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// What is possible as a path.
    Paths,
    /// Whatever S3 allows.
    Any,
}

/// Changes objects behind the store's back.
#[async_trait]
pub(crate) trait Writer: Sync {
    async fn put(&self, key: &str, body: &[u8]);
    async fn delete(&self, key: &str);
}

/// The objects a store under test holds: odd keys, odd sizes, more than two pages.
pub(crate) fn objects(keys: Keys) -> BTreeMap<String, Vec<u8>> {
    let mut names: Vec<String> = [
        "k +%20=a:b#c?d&e@f,g;h'i\"j(k)!~*$.bin",
        "100%.bin",
        "a+b",
        "a b",
        "a%20b",
        "é",
        "e\u{301}",
        "d/x\ny",
        "d/\u{1}",
        "d-/x",
        "d.txt",
        "d/e/f",
        "d0",
        "\\back\\slash",
        "emoji/😀.jpg",
        "<xml>&amp;\"'",
        "sizes/0",
        "sizes/1",
        "sizes/1MiB+1",
    ]
    .map(str::to_owned)
    .to_vec();
    names.push(format!("long/{}", "x".repeat(250)));
    if keys == Keys::Any {
        names.extend(["a//b", "/lead", "a/./d", "a/../e", "p", "p/q", "dir/", "//"].map(str::to_owned));
        names.push(format!("d/{}", "y".repeat(300)));
    }
    names.extend((0..2001).map(|n| format!("many/{n:05}")));
    names.into_iter().map(|name| (name.clone(), body(&name))).collect()
}

fn body(key: &str) -> Vec<u8> {
    let len = match key {
        "sizes/0" | "dir/" => 0,
        "sizes/1" => 1,
        "sizes/1MiB+1" => (1 << 20) + 1,
        _ => 1 + key.len() % 7,
    };
    key.bytes().cycle().take(len).enumerate().map(|(i, byte)| byte ^ u8::try_from(i % 251).expect("below 251")).collect()
}

async fn read(store: &Arc<dyn Store>, id: &ObjectId, range: std::ops::Range<u64>) -> Result<Vec<u8>, StoreError> {
    let mut stream = store.read(id, range).await?;
    let mut all = Vec::new();
    while let Some(chunk) = stream.next().await {
        all.extend_from_slice(&chunk?);
    }
    Ok(all)
}

/// Shows the first difference, not two thousand keys.
fn same<T: PartialEq + std::fmt::Debug>(found: &[T], expected: &[T], what: &str) {
    let first = found.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(found.len().min(expected.len()));
    assert_eq!(found.get(first), expected.get(first), "{what}: entry {first} (found, expected)");
}

/// The promises of [`Store`].
pub(crate) async fn contract(store: Arc<dyn Store>, writer: &dyn Writer, objects: &BTreeMap<String, Vec<u8>>) {
    lists_all_in_order(&store, objects).await;
    heads_and_reads_agree_with_the_listing(&store, objects).await;
    ranges_are_exact(&store, &objects["sizes/1MiB+1"]).await;
    what_is_not_there_is_not_found(&store).await;
    another_version_is_changed(&store, writer).await;
}

async fn lists_all_in_order(store: &Arc<dyn Store>, objects: &BTreeMap<String, Vec<u8>>) {
    for prefix in ["", "d/", "d", "many/", "many/019", "sizes/1MiB+1", "é", "k +%20=a:b#c?d&e", "none/", "many/00000x"] {
        let expected: Vec<_> =
            objects.iter().filter(|(key, _)| key.starts_with(prefix)).map(|(key, body)| (key.as_str(), body.len() as u64)).collect();
        let found = list_all(store, prefix, &|_| {}).await.expect("a complete listing");
        let found: Vec<_> = found.iter().map(|object| (&*object.key, object.size)).collect();
        same(&found, &expected, &format!("prefix {prefix:?}"));
    }
    for start in ["a", "a b", "d/", "d/e/f", "many/00999", "many/02000", "zzz"] {
        let mut found = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let page = store.list("", Some(start), after.as_deref()).await.expect("a page");
            assert!(page.objects.len() <= 1000, "a page is at most 1,000 keys");
            found.extend(page.objects.iter().map(|object| object.key.to_string()));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let expected: Vec<_> = objects.keys().filter(|key| key.as_str() > start).cloned().collect();
        same(&found, &expected, &format!("after {start:?}"));
    }
}

async fn heads_and_reads_agree_with_the_listing(store: &Arc<dyn Store>, objects: &BTreeMap<String, Vec<u8>>) {
    let listed = list_all(store, "", &|_| {}).await.expect("a complete listing");
    for object in listed.iter().filter(|object| !object.key.starts_with("many/") || object.key.ends_with("77")) {
        let head = store.head(&object.key).await.expect("it is there");
        assert_eq!((&head.key, head.size, head.mtime_seconds), (&object.key, object.size, object.mtime_seconds));
        assert_eq!(head.version(), object.version(), "HEAD and listing tell one version");
        if object.size > 0 {
            let bytes = read(store, &object.version(), 0..object.size).await.expect("its bytes");
            assert!(bytes == objects[&*object.key], "bytes of {:?}", object.key);
        }
    }
}

async fn ranges_are_exact(store: &Arc<dyn Store>, body: &[u8]) {
    let id = store.head("sizes/1MiB+1").await.expect("it is there").version();
    let size = body.len();
    for range in [0..1, 0..4096, 1..4097, 4095..4096, 65_536..131_072, size - 1..size, 0..size, 1..size] {
        let bytes = read(store, &id, range.start as u64..range.end as u64).await.expect("within the object");
        assert!(bytes == body[range.clone()], "bytes {range:?}");
    }
    let empty = 7;
    assert_eq!(read(store, &id, empty..empty).await.expect_err("no bytes asked for").kind, ErrorKind::Invalid);
    assert!(read(store, &id, 0..size as u64 + 1).await.is_err(), "more than there is");
    assert!(read(store, &id, size as u64..size as u64 + 1).await.is_err(), "beyond its end");
}

async fn what_is_not_there_is_not_found(store: &Arc<dyn Store>) {
    for key in ["none", "many", "many/", "many/00000/x", "d/x", "é/"] {
        assert_eq!(store.head(key).await.expect_err(key).kind, ErrorKind::NotFound, "HEAD {key:?}");
        let id = ObjectId { key: Arc::from(key), etag: Arc::from("\"e\"") };
        assert_eq!(read(store, &id, 0..1).await.expect_err(key).kind, ErrorKind::NotFound, "GET {key:?}");
    }
}

async fn another_version_is_changed(store: &Arc<dyn Store>, writer: &dyn Writer) {
    let old = store.head("d.txt").await.expect("it is there").version();
    writer.put("d.txt", b"a new body, and longer").await;
    let new = store.head("d.txt").await.expect("it is there");
    assert_ne!(new.version(), old);
    assert_eq!(read(store, &old, 0..1).await.expect_err("the old version").kind, ErrorKind::Changed);
    assert_eq!(read(store, &new.version(), 0..5).await.expect("the new one"), b"a new");
    writer.delete("d.txt").await;
    assert_eq!(read(store, &new.version(), 0..5).await.expect_err("deleted").kind, ErrorKind::NotFound);
    writer.put("d.txt", &body("d.txt")).await;
}

struct DirectoryWriter(PathBuf);

#[async_trait]
impl Writer for DirectoryWriter {
    async fn put(&self, key: &str, body: &[u8]) {
        let path = self.0.join(key);
        std::fs::create_dir_all(path.parent().expect("below the root")).expect("create");
        std::fs::write(path, body).expect("write");
    }
    async fn delete(&self, key: &str) {
        std::fs::remove_file(self.0.join(key)).expect("delete");
    }
}

async fn directory() -> (tempfile::TempDir, DirectoryWriter, Arc<dyn Store>) {
    let dir = tempfile::tempdir().expect("temp dir");
    let writer = DirectoryWriter(dir.path().to_owned());
    for (key, body) in objects(Keys::Paths) {
        writer.put(&key, &body).await;
    }
    let store = DirectoryStore::open(dir.path(), Arc::default()).await.expect("a directory");
    (dir, writer, Arc::new(store))
}

#[tokio::test]
async fn a_directory_keeps_the_contract() {
    let (_dir, writer, store) = directory().await;
    contract(store, &writer, &objects(Keys::Paths)).await;
}

#[tokio::test]
async fn decorators_without_faults_keep_the_contract() {
    let (_dir, writer, store) = directory().await;
    let faulty = Faulty::new(store, vec![Rule::new(Operation::Read, None, 0..0, Fault::Hang)]);
    let slow = Throttle::new(Arc::new(faulty), Delays::default());
    contract(Arc::new(slow), &writer, &objects(Keys::Paths)).await;
}
