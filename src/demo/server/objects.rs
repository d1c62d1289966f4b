//! The bucket: keys and what stands behind them. Bytes in memory, bytes that are computed when asked for (a dataset of any size costs
//! no memory), or files of a local directory. Every change gives an object a new ETag or time, as a store would.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use xxhash_rust::xxh3::xxh3_128;

use crate::demo::dataset::Generated;

/// Time of the first object put, 2023-11-14: objects carry made-up, rising times so that no test depends on the clock.
pub(super) const FIRST_MTIME_SECONDS: i64 = 1_700_000_000;

/// All objects by key. Rust orders strings by their UTF-8 bytes, which is S3's order of keys.
pub(super) type Objects = BTreeMap<String, Arc<Object>>;

/// One object as it is now.
#[derive(Clone, Debug)]
pub struct Object {
    /// What a GET returns.
    pub content: Content,
    /// With its quotes, as sent.
    pub etag: Arc<str>,
    /// Seconds since 1970.
    pub mtime_seconds: i64,
    /// Stored with the object and returned with it, e.g. Content-Encoding.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// Where the bytes of an object come from.
#[derive(Clone, Debug)]
pub enum Content {
    /// Held in memory.
    Bytes(Bytes),
    /// Computed, always the same.
    Generated(Generated),
    /// Read from a file when asked for.
    File {
        /// Where.
        path: Arc<Path>,
        /// Its length when the directory was added.
        size: u64,
    },
}

impl Content {
    /// Length in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Generated(generated) => generated.size(),
            Self::File { size, .. } => *size,
        }
    }

    /// All bytes.
    ///
    /// # Errors
    /// When the file behind the object cannot be read.
    pub fn to_bytes(&self) -> io::Result<Bytes> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.clone()),
            Self::Generated(generated) => Ok(generated.to_bytes()),
            Self::File { path, size } => read_file(path, 0, usize::try_from(*size).map_err(io::Error::other)?),
        }
    }
}

/// `length` bytes of a file from `offset` on.
pub(super) fn read_file(path: &Path, offset: u64, length: usize) -> io::Result<Bytes> {
    let mut buffer = vec![0; length];
    std::fs::File::open(path)?.read_exact_at(&mut buffer, offset)?;
    Ok(Bytes::from(buffer))
}

/// The ETag of these bytes.
pub(super) fn etag_of(bytes: &[u8]) -> Arc<str> {
    format!("\"{:032x}\"", xxh3_128(bytes)).into()
}

/// All regular files below `root` as objects: key = `prefix` + path below the root.
pub(super) fn scan_directory(root: &Path, prefix: &str) -> io::Result<Vec<(String, Object)>> {
    let mut found = Vec::new();
    let mut waiting: Vec<(PathBuf, String)> = vec![(root.to_owned(), prefix.to_owned())];
    while let Some((directory, prefix)) = waiting.pop() {
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            // Keys are UTF-8; a file whose name is not has no key and is left out.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let metadata = std::fs::metadata(entry.path())?;
            if metadata.is_dir() {
                waiting.push((entry.path(), format!("{prefix}{name}/")));
            } else if metadata.is_file() {
                let key = format!("{prefix}{name}");
                let stamp = format!("{key}\0{}\0{}\0{}", metadata.len(), metadata.mtime(), metadata.mtime_nsec());
                let content = Content::File { path: entry.path().into(), size: metadata.len() };
                found
                    .push((key, Object { content, etag: etag_of(stamp.as_bytes()), mtime_seconds: metadata.mtime(), headers: Vec::new() }));
            }
        }
    }
    Ok(found)
}
