//! A local directory as a store: `file:///directory`.
//!
//! Keys are paths below the root. A version is `size-mtime_ns-inode`: a read compares it before and after each chunk, so that bytes of a file
//! that is being rewritten are an error, not a mix (to within the file system's time stamps). Symbolic links are followed; a link that leads
//! back to a directory above itself is left out, as are names that are not UTF-8 (counted, warned of), dangling links, sockets and the like.
//! A directory that cannot be read fails the listing: a listing is complete or an error.
//!
//! All calls to the file system run off the async threads.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::time::Instant;

use crate::stats::Stats;
use crate::store::{Body, Page, Store, StoreError};
use crate::types::{ErrorKind, ObjectId, ObjectMeta};

/// As S3's pages, so that callers see one behaviour.
const PAGE_MAX_KEYS: usize = 1000;
/// Read at once: large enough that the hop to a blocking thread (some 10 µs) is nothing, small enough to bound memory per reader.
const CHUNK_BYTES: u64 = 512 << 10;
/// Deeper trees are refused: the kernel's PATH_MAX (4,096) ends them anyway, and this bounds the walk's stack.
const DEPTH_MAX: usize = 256;
/// Walks kept between two pages. Each listing needs one; a forgotten one costs only its re-reading.
const WALKS_KEPT: usize = 4;

/// A directory. See the module.
#[derive(Debug)]
pub struct DirectoryStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    stats: Arc<Stats>,
    began: Instant,
    skipped: AtomicU64,
    /// Walks that wait for their next page, under the token that asks for it.
    walks: Mutex<VecDeque<(String, Walk)>>,
}

impl DirectoryStore {
    /// # Errors
    /// `root` is no directory that can be read.
    pub async fn open(root: &Path, stats: Arc<Stats>) -> Result<Self, StoreError> {
        let root = root.to_owned();
        let checked = off_thread(move || {
            // Reading it, not only looking at it: rights may allow one and not the other.
            std::fs::read_dir(&root).map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => {
                    io_error(&error, &format!("directory {} (the path after file:// is taken literally)", root.display()))
                }
                std::io::ErrorKind::NotADirectory => io_error(&error, &format!("{}: file:// needs a directory", root.display())),
                _ => io_error(&error, &format!("directory {}", root.display())),
            })?;
            Ok(root)
        });
        let root = checked.await?;
        Ok(Self { shared: Arc::new(Shared { root, stats, began: Instant::now(), skipped: AtomicU64::new(0), walks: Mutex::default() }) })
    }

    /// Entries that listings left out: names that are not UTF-8, dangling or looping links, what is neither file nor directory.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.shared.skipped.load(Relaxed)
    }
}

/// Runs blocking work on the pool for it.
async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T, StoreError> + Send + 'static) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => Err(StoreError::new(ErrorKind::Io, "a file system call panicked; see the log")),
        Err(_) => Err(StoreError::new(ErrorKind::Shutdown, "the mount is going away")),
    }
}

fn io_error(error: &std::io::Error, what: &str) -> StoreError {
    use std::io::ErrorKind as Io;
    let kind = match error.kind() {
        Io::NotFound | Io::NotADirectory => ErrorKind::NotFound,
        Io::PermissionDenied => ErrorKind::Denied,
        Io::InvalidInput | Io::InvalidFilename => ErrorKind::Invalid,
        _ => ErrorKind::Io,
    };
    StoreError::new(kind, format!("{what}: {error}"))
}

fn describe(key: &str, metadata: &Metadata) -> ObjectMeta {
    ObjectMeta { key: Arc::from(key), size: metadata.len(), etag: Arc::from(version(metadata)), mtime_seconds: metadata.mtime() }
}

fn version(metadata: &Metadata) -> String {
    let mtime_ns = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
    format!("{}-{mtime_ns}-{}", metadata.len(), metadata.ino())
}

/// The path of a key that a listing could have given. Others must not reach above the root, nor name one file in two ways.
fn path_of(root: &Path, key: &str) -> Result<PathBuf, StoreError> {
    let odd = |part: &str| part.is_empty() || part == "." || part == ".." || part.contains('\0');
    if key.split('/').any(odd) {
        return Err(StoreError::new(ErrorKind::NotFound, format!("file {key:?} below {}: no such key is possible", root.display())));
    }
    Ok(root.join(key))
}

/// A place in the tree, walked depth first in byte order of the keys.
#[derive(Debug)]
struct Walk {
    prefix: String,
    /// Innermost last.
    levels: Vec<Level>,
}

#[derive(Debug)]
struct Level {
    /// Device and inode: a directory that is also one of those above it would never end.
    identity: (u64, u64),
    /// What is left of it, last first. Keys; a directory's ends with `/`, which is what sorts it right among its siblings.
    entries: Vec<String>,
}

impl Walk {
    fn start(shared: &Shared, prefix: &str, after: Option<&str>) -> Result<Self, StoreError> {
        let mut walk = Self { prefix: prefix.to_owned(), levels: Vec::new() };
        walk.enter(shared, "", after)?;
        Ok(walk)
    }

    /// Reads one directory (`key` empty or ending with `/`) and goes on inside it. Leaves out what cannot hold a key to be listed.
    fn enter(&mut self, shared: &Shared, key: &str, after: Option<&str>) -> Result<(), StoreError> {
        let path = shared.root.join(key);
        let named = |error: std::io::Error| io_error(&error, &format!("directory {}", path.display()));
        let metadata = std::fs::metadata(&path).map_err(named)?;
        let identity = (metadata.dev(), metadata.ino());
        if self.levels.iter().any(|level| level.identity == identity) {
            shared.skip(&path, "it leads back to a directory above it");
            return Ok(());
        }
        if self.levels.len() >= DEPTH_MAX {
            return Err(StoreError::new(ErrorKind::Io, format!("directory {}: more than {DEPTH_MAX} levels deep", path.display())));
        }
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(&path).map_err(named)? {
            let entry = entry.map_err(named)?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                shared.skip(&entry.path(), "its name is not UTF-8");
                continue;
            };
            let mut kind = entry.file_type().map_err(named)?;
            if kind.is_symlink() {
                match std::fs::metadata(entry.path()) {
                    Ok(target) => kind = target.file_type(),
                    Err(error) => {
                        shared.skip(&entry.path(), &format!("its target: {error}"));
                        continue;
                    }
                }
            }
            let key = if kind.is_dir() {
                format!("{key}{name}/")
            } else if kind.is_file() {
                format!("{key}{name}")
            } else {
                shared.skip(&entry.path(), "it is neither a file nor a directory");
                continue;
            };
            let may_match = key.starts_with(&self.prefix) || (key.ends_with('/') && self.prefix.starts_with(&key));
            let is_past = after.is_none_or(|after| key.as_str() > after || (key.ends_with('/') && after.starts_with(&key)));
            if may_match && is_past {
                entries.push(key);
            }
        }
        entries.sort_unstable_by(|a, b| b.cmp(a));
        self.levels.push(Level { identity, entries });
        Ok(())
    }

    /// The next file; `None` at the end.
    fn next(&mut self, shared: &Shared, after: Option<&str>) -> Result<Option<ObjectMeta>, StoreError> {
        while let Some(level) = self.levels.last_mut() {
            let Some(key) = level.entries.pop() else {
                self.levels.pop();
                continue;
            };
            if key.ends_with('/') {
                self.enter(shared, &key, after)?;
                continue;
            }
            match std::fs::metadata(shared.root.join(&key)) {
                Ok(metadata) => return Ok(Some(describe(&key, &metadata))),
                // Deleted since its directory was read.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(io_error(&error, &format!("file {}", shared.root.join(&key).display()))),
            }
        }
        Ok(None)
    }
}

impl Shared {
    fn skip(&self, path: &Path, why: &str) {
        self.skipped.fetch_add(1, Relaxed);
        tracing::warn!("{} is left out: {why}", path.display());
    }

    fn page(&self, prefix: &str, start_after: Option<&str>, token: Option<&str>) -> Result<Page, StoreError> {
        // A token is the last key given: without its kept walk the tree is read again from there.
        let after = token.or(start_after);
        let kept = token.and_then(|token| self.take_walk(prefix, token));
        let mut walk = match kept {
            Some(walk) => walk,
            None => Walk::start(self, prefix, after)?,
        };
        let mut objects = Vec::new();
        while objects.len() < PAGE_MAX_KEYS {
            match walk.next(self, after)? {
                Some(object) => objects.push(object),
                None => return Ok(Page { objects, next: None }),
            }
        }
        let next = objects.last().map(|object| object.key.to_string());
        if let Some(token) = &next {
            self.keep_walk(token.clone(), walk);
        }
        Ok(Page { objects, next })
    }

    fn take_walk(&self, prefix: &str, token: &str) -> Option<Walk> {
        let mut walks = self.walks.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let at = walks.iter().position(|(kept, walk)| kept == token && walk.prefix == prefix)?;
        walks.remove(at).map(|(_, walk)| walk)
    }

    fn keep_walk(&self, token: String, walk: Walk) {
        let mut walks = self.walks.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        walks.push_back((token, walk));
        if walks.len() > WALKS_KEPT {
            walks.pop_front();
        }
    }
}

/// One read on its way.
struct Reading {
    what: String,
    file: File,
    etag: Arc<str>,
    range: Range<u64>,
    started: Instant,
}

impl Reading {
    /// A chunk, if the file is still the version asked for before and after.
    fn chunk(&self, range: Range<u64>) -> Result<Bytes, StoreError> {
        let len = usize::try_from(range.end - range.start).expect("a chunk is at most CHUNK_BYTES");
        let mut buffer = vec![0; len];
        let read = self.file.read_exact_at(&mut buffer, range.start);
        check_version(&self.what, &self.file, &self.etag)?;
        read.map_err(|error| io_error(&error, &self.what))?;
        Ok(Bytes::from(buffer))
    }
}

fn check_version(what: &str, file: &File, etag: &str) -> Result<(), StoreError> {
    let metadata = file.metadata().map_err(|error| io_error(&error, what))?;
    if !metadata.is_file() {
        return Err(StoreError::new(ErrorKind::NotFound, format!("{what} is not a file")));
    }
    if version(&metadata) != etag {
        return Err(StoreError::new(ErrorKind::Changed, format!("{what} is another version than the one listed")));
    }
    Ok(())
}

#[async_trait]
impl Store for DirectoryStore {
    async fn list(&self, prefix: &str, start_after: Option<&str>, after: Option<&str>) -> Result<Page, StoreError> {
        self.shared.stats.store.list.add(1);
        let (shared, prefix) = (Arc::clone(&self.shared), prefix.to_owned());
        let (start_after, after) = (start_after.map(str::to_owned), after.map(str::to_owned));
        off_thread(move || shared.page(&prefix, start_after.as_deref(), after.as_deref())).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.shared.stats.store.head.add(1);
        let path = path_of(&self.shared.root, key)?;
        let key = key.to_owned();
        off_thread(move || {
            let what = format!("file {}", path.display());
            let metadata = std::fs::metadata(&path).map_err(|error| io_error(&error, &what))?;
            if !metadata.is_file() {
                return Err(StoreError::new(ErrorKind::NotFound, format!("{what} is not a file")));
            }
            Ok(describe(&key, &metadata))
        })
        .await
    }

    async fn read(&self, id: &ObjectId, range: Range<u64>) -> Result<Body, StoreError> {
        self.shared.stats.store.get.add(1);
        let path = path_of(&self.shared.root, &id.key)?;
        let (etag, started, shared) = (Arc::clone(&id.etag), Instant::now(), Arc::clone(&self.shared));
        let reading = off_thread(move || {
            let what = format!("file {}", path.display());
            if range.is_empty() {
                return Err(StoreError::new(ErrorKind::Invalid, format!("{what}: an empty range was asked for")));
            }
            // A file may have become a named pipe, whose open would wait for a writer.
            let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).expect("a small constant");
            let file = File::options().read(true).custom_flags(flags).open(&path).map_err(|error| io_error(&error, &what))?;
            check_version(&what, &file, &etag)?;
            let size = file.metadata().map_err(|error| io_error(&error, &what))?.len();
            if range.end > size {
                return Err(StoreError::new(ErrorKind::Invalid, format!("{what}: bytes up to {} asked for, it has {size}", range.end)));
            }
            Ok(Reading { what, file, etag, range, started })
        });
        let body = futures_util::stream::unfold((Some(reading.await?), shared), |(reading, shared)| async {
            let mut reading = reading?;
            if reading.range.is_empty() {
                let micros = u64::try_from(reading.started.elapsed().as_micros()).unwrap_or(u64::MAX);
                shared.stats.store.latency.record(shared.began.elapsed().as_secs(), micros);
                return None;
            }
            let chunk = reading.range.start..reading.range.end.min(reading.range.start + CHUNK_BYTES);
            reading.range.start = chunk.end;
            let done = off_thread(move || {
                let bytes = reading.chunk(chunk);
                bytes.map(|bytes| (bytes, reading))
            });
            match done.await {
                Ok((bytes, reading)) => {
                    shared.stats.store.bytes.add(bytes.len() as u64);
                    Some((Ok(bytes), (Some(reading), shared)))
                }
                Err(error) => Some((Err(error), (None, shared))),
            }
        });
        Ok(body.boxed())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use super::*;

    async fn over(files: &[&str]) -> (tempfile::TempDir, DirectoryStore) {
        let dir = tempfile::tempdir().expect("temp dir");
        for file in files {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().expect("below the root")).expect("create");
            std::fs::write(path, file).expect("write");
        }
        let store = DirectoryStore::open(dir.path(), Arc::default()).await.expect("a directory");
        (dir, store)
    }

    async fn keys(store: &DirectoryStore, prefix: &str, start_after: Option<&str>) -> Vec<String> {
        let page = store.list(prefix, start_after, None).await.expect("listed");
        assert!(page.next.is_none(), "one page");
        page.objects.iter().map(|object| object.key.to_string()).collect()
    }

    async fn bytes(body: Result<Body, StoreError>) -> Result<Vec<u8>, ErrorKind> {
        let mut body = body.map_err(|error| error.kind)?;
        let mut all = Vec::new();
        while let Some(chunk) = body.next().await {
            all.extend_from_slice(&chunk.map_err(|error| error.kind)?);
        }
        Ok(all)
    }

    #[tokio::test]
    async fn keys_come_in_byte_order_and_ranges_of_them_are_complete() {
        let sorted = ["a!", "a-b/x", "a.txt", "a/b", "a/c/d", "a0", "b"];
        let (_dir, store) = over(&sorted).await;
        assert_eq!(keys(&store, "", None).await, sorted);
        for (n, key) in sorted.iter().enumerate() {
            assert_eq!(keys(&store, "", Some(key)).await, sorted[n + 1..], "after {key}");
        }
        assert_eq!(keys(&store, "a/", None).await, ["a/b", "a/c/d"]);
        assert_eq!(keys(&store, "a/c/", None).await, ["a/c/d"]);
        assert_eq!(keys(&store, "", Some("a/")).await, sorted[3..]);
        assert_eq!(keys(&store, "none/", None).await, Vec::<String>::new());
    }

    #[tokio::test]
    async fn what_is_no_object_is_left_out_and_counted() {
        let (dir, store) = over(&["d/a"]).await;
        std::fs::write(dir.path().join(OsStr::from_bytes(b"d/\xff")), "x").expect("write");
        symlink(dir.path(), dir.path().join("d/loop")).expect("link");
        symlink("nowhere", dir.path().join("d/dangling")).expect("link");
        symlink("a", dir.path().join("d/link")).expect("link");
        std::fs::create_dir(dir.path().join("empty")).expect("create");
        assert_eq!(keys(&store, "", None).await, ["d/a", "d/link"]);
        assert_eq!(store.skipped(), 3);
    }

    #[tokio::test]
    async fn a_file_that_changes_is_noticed_before_and_during_the_read() {
        let (dir, store) = over(&["f"]).await;
        let path = dir.path().join("f");
        std::fs::write(&path, vec![1; 3 << 20]).expect("write");
        let id = store.head("f").await.expect("there").version();
        assert_eq!(bytes(store.read(&id, 1..(2 << 20)).await).await.expect("unchanged").len(), (2 << 20) - 1);

        let mut body = store.read(&id, 0..3 << 20).await.expect("opens");
        body.next().await.expect("a chunk").expect("of the old version");
        File::options().write(true).open(&path).expect("open").set_len(1 << 20).expect("cut");
        assert_eq!(bytes(Ok(body)).await, Err(ErrorKind::Changed));
        assert_eq!(bytes(store.read(&id, 0..1).await).await, Err(ErrorKind::Changed));
    }

    #[tokio::test]
    async fn keys_do_not_reach_above_the_root() {
        let (_dir, store) = over(&["d/f"]).await;
        for key in ["../d/f", "d/../d/f", "/etc/passwd", "d//f", "./d/f", "d", "d/f/g", "d/f/", "", "d/f\0"] {
            assert_eq!(store.head(key).await.expect_err(key).kind, ErrorKind::NotFound, "{key}");
        }
    }

    #[tokio::test]
    async fn pages_go_on_where_they_ended_with_and_without_their_walk() {
        let names: Vec<String> = (0..2500).map(|n| format!("{:02}/{n:05}", n % 7)).collect();
        let (_dir, store) = over(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let mut found = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let page = store.list("", None, token.as_deref()).await.expect("listed");
            found.extend(page.objects.iter().map(|object| object.key.to_string()));
            if found.len() == PAGE_MAX_KEYS {
                store.shared.walks.lock().expect("not poisoned").clear();
            }
            token = page.next;
            if token.is_none() {
                break;
            }
        }
        let mut sorted = names;
        sorted.sort();
        assert_eq!(found, sorted);
    }

    #[tokio::test]
    async fn a_missing_root_is_named() {
        let dir = tempfile::tempdir().expect("temp dir");
        let missing = dir.path().join("none");
        let error = DirectoryStore::open(&missing, Arc::default()).await.expect_err("missing");
        assert!(error.kind == ErrorKind::NotFound && error.to_string().contains("none"), "{error}");
        std::fs::write(&missing, "x").expect("write");
        let error = DirectoryStore::open(&missing, Arc::default()).await.expect_err("a file");
        assert!(error.to_string().contains("needs a directory"), "{error}");
    }
}
