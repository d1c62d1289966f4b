//! Buckets and their objects: names, bytes, checksums, versions, and on which targets a remote object lies.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use belady::demo::dataset::Generated;
use bytes::Bytes;
use md5::{Digest, Md5};
use tokio::sync::OnceCell;

use super::hash::Xxh64;

/// A bucket's identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Bck {
    /// One of `ais`, `aws`, `gcp`, `azure`, `oci`, `ht`.
    pub(crate) provider: String,
    /// Of `@UUID#NAME`; both empty: the global namespace.
    pub(crate) ns_uuid: String,
    pub(crate) ns_name: String,
    pub(crate) name: String,
}

impl Bck {
    /// From a provider or its alias, a namespace as in the query (`@uuid#name`), and a name.
    pub(super) fn new(provider: &str, namespace: &str, name: &str) -> Option<Self> {
        let provider = match provider {
            "" | "ais" => "ais",
            "aws" | "s3" => "aws",
            "gcp" | "gs" => "gcp",
            "azure" | "az" => "azure",
            "oci" | "oc" => "oci",
            "ht" => "ht",
            _ => return None,
        };
        let (uuid, ns_name) = namespace.split_once('#').unwrap_or((namespace, ""));
        let ns_uuid = uuid.strip_prefix('@').unwrap_or(uuid);
        let bad = name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        (!bad).then(|| Self {
            provider: provider.to_owned(),
            ns_uuid: ns_uuid.to_owned(),
            ns_name: ns_name.to_owned(),
            name: name.to_owned(),
        })
    }

    /// From `bucket` or `PROVIDER://[@uuid#ns/]bucket`.
    pub(crate) fn parse(text: &str) -> Self {
        let (provider, rest) = text.split_once("://").unwrap_or(("ais", text));
        let (namespace, name) = match rest.split_once('/') {
            Some((namespace, name)) => (namespace, name),
            None => ("", rest),
        };
        Self::new(provider, namespace, name).unwrap_or_else(|| panic!("{text}: no bucket's name"))
    }

    /// Bytes are fetched from elsewhere when first read.
    pub(crate) fn is_remote(&self) -> bool {
        self.provider != "ais" || !self.ns_uuid.is_empty()
    }

    /// The name that is hashed to choose a target: `provider/@uuid#name/bucket/object`.
    pub(crate) fn uname(&self, key: &str) -> String {
        format!("{}/@{}#{}/{}/{key}", self.provider, self.ns_uuid, self.ns_name, self.name)
    }
}

impl fmt::Display for Bck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.provider.as_str() {
            "aws" => "s3",
            "gcp" => "gs",
            "azure" => "az",
            "oci" => "oc",
            other => other,
        };
        let mut namespace = String::new();
        if !self.ns_uuid.is_empty() {
            namespace += &format!("@{}", self.ns_uuid);
        }
        if !self.ns_name.is_empty() {
            namespace += &format!("#{}", self.ns_name);
        }
        let slash = if namespace.is_empty() { "" } else { "/" };
        write!(f, "{scheme}://{namespace}{slash}{}", self.name)
    }
}

/// An object's bytes.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Bytes(Bytes),
    Generated(Generated),
}

impl Content {
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Generated(generated) => generated.size(),
        }
    }

    /// Bytes from `position`, at least one, at most up to `until`; no copy.
    pub(super) fn piece(&self, position: u64, until: u64) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes.slice(to_usize(position)..to_usize(until)),
            Self::Generated(generated) => generated.piece(position, until),
        }
    }

    pub(super) fn each_piece(&self, start: u64, end: u64, mut take: impl FnMut(&[u8])) {
        let mut position = start;
        while position < end {
            let piece = self.piece(position, end);
            position += piece.len() as u64;
            take(&piece);
        }
    }

    pub(crate) fn to_bytes(&self) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes.clone(),
            Self::Generated(generated) => generated.to_bytes(),
        }
    }
}

/// What is in memory fits.
pub(super) fn to_usize(position: u64) -> usize {
    usize::try_from(position).expect("64-bit targets only")
}

/// A bucket's checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Checksum {
    #[default]
    Xxhash2,
    /// The same function under its older name.
    Xxhash,
    Md5,
    Crc32c,
    None,
}

impl Checksum {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Xxhash2 => "xxhash2",
            Self::Xxhash => "xxhash",
            Self::Md5 => "md5",
            Self::Crc32c => "crc32c",
            Self::None => "none",
        }
    }

    pub(super) fn of_name(name: &str) -> Option<Self> {
        [Self::Xxhash2, Self::Xxhash, Self::Md5, Self::Crc32c, Self::None].into_iter().find(|kind| kind.name() == name)
    }

    /// Of these bytes of an object, as hexadecimal digits.
    pub(super) fn of(self, content: &Content, start: u64, end: u64) -> String {
        match self {
            Self::None => String::new(),
            Self::Xxhash2 | Self::Xxhash => {
                let mut hash = Xxh64::new(0);
                content.each_piece(start, end, |piece| hash.update(piece));
                format!("{:016x}", hash.finish())
            }
            Self::Md5 => {
                let mut hash = Md5::new();
                content.each_piece(start, end, |piece| hash.update(piece));
                hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
            }
            Self::Crc32c => {
                let mut hash = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
                content.each_piece(start, end, |piece| hash.update(piece));
                format!("{:08x}", hash.finalize())
            }
        }
    }
}

/// What a bucket is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BucketSpec {
    pub(crate) checksum: Checksum,
    /// A ranged answer carries the range's checksum, not the object's.
    pub(crate) read_range_checksum: bool,
}

/// One version of an object.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) content: Content,
    pub(crate) version: u64,
    pub(crate) mtime_seconds: i64,
    /// `k=v` shown as `Ais-Custom-Md`; a remote object has its ETag here.
    pub(crate) custom: Vec<(String, String)>,
    pub(super) checksum: Checksum,
    value: OnceLock<String>,
    /// Remote objects: target -> whether its fetch is done. Concurrent readers wait for one fetch.
    present: Mutex<HashMap<String, Arc<OnceCell<()>>>>,
    /// Of a TAR: regular members in their order; the first of equal names counts.
    index: OnceLock<Vec<(String, u64, u64)>>,
}

impl Object {
    pub(super) fn new(content: Content, version: u64, mtime_seconds: i64, checksum: Checksum) -> Self {
        let (custom, value, index) = (Vec::new(), OnceLock::new(), OnceLock::new());
        Self { content, version, mtime_seconds, custom, checksum, value, present: Mutex::default(), index }
    }

    pub(crate) fn size(&self) -> u64 {
        self.content.size()
    }

    /// The checksum of all its bytes.
    pub(crate) fn checksum_value(&self) -> &str {
        self.value.get_or_init(|| self.checksum.of(&self.content, 0, self.content.size()))
    }

    /// Unquoted: of the remote store, else MD5, else `v1-<checksum>-<mtime in base 36>`; none without a checksum.
    pub(crate) fn etag(&self) -> Option<String> {
        if let Some((_, etag)) = self.custom.iter().find(|(name, _)| name == "ETag") {
            return Some(etag.clone());
        }
        match self.checksum {
            Checksum::None => None,
            Checksum::Md5 => Some(self.checksum_value().to_owned()),
            _ => {
                let mtime = u64::try_from(self.mtime_seconds).unwrap_or_default() * 1_000_000_000;
                Some(format!("v1-{}-{}", self.checksum_value(), base36(mtime)))
            }
        }
    }

    fn index(&self) -> &[(String, u64, u64)] {
        self.index.get_or_init(|| {
            let bytes = self.content.to_bytes();
            let mut archive = tar::Archive::new(&bytes[..]);
            let Ok(entries) = archive.entries() else { return Vec::new() };
            let regular = entries.map_while(Result::ok).filter(|entry| entry.header().entry_type().is_file());
            regular
                .map(|entry| (String::from_utf8_lossy(&entry.path_bytes()).into_owned(), entry.raw_file_position(), entry.size()))
                .collect()
        })
    }

    /// Names of a TAR's regular members.
    pub(super) fn members(&self) -> Vec<String> {
        self.index().iter().map(|(name, ..)| name.clone()).collect()
    }

    /// The bytes of a TAR's member.
    pub(super) fn member(&self, path: &str) -> Option<Bytes> {
        let (_, start, size) = self.index().iter().find(|(name, ..)| name == path)?;
        Some(self.content.to_bytes().slice(to_usize(*start)..to_usize(start + size)))
    }

    fn cell(&self, target: &str) -> Arc<OnceCell<()>> {
        Arc::clone(self.present.lock().expect("no holder panics").entry(target.to_owned()).or_default())
    }

    /// Whether this target has it, or (`None`) any has.
    pub(super) fn is_present(&self, target: Option<&str>) -> bool {
        let present = self.present.lock().expect("no holder panics");
        match target {
            Some(target) => present.get(target).is_some_and(|cell| cell.initialized()),
            None => present.values().any(|cell| cell.initialized()),
        }
    }

    /// How many targets have it.
    pub(super) fn copies(&self) -> usize {
        self.present.lock().expect("no holder panics").values().filter(|cell| cell.initialized()).count()
    }

    /// Waits until this target has it; `fetch` runs once.
    pub(super) async fn ensure_present(&self, target: &str, fetch: impl Future<Output = ()>) {
        self.cell(target).get_or_init(|| fetch).await;
    }

    /// This target has it from now on.
    pub(super) fn set_present(&self, target: &str) {
        let _ = self.cell(target).set(());
    }

    pub(super) fn evict(&self) {
        self.present.lock().expect("no holder panics").clear();
    }
}

/// Lower case digits, as Go's `strconv.FormatInt(n, 36)`.
pub(super) fn base36(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit(u32::try_from(number % 36).expect("below 36"), 36).expect("a digit of base 36"));
        number /= 36;
        if number == 0 {
            return digits.iter().rev().collect();
        }
    }
}

/// Keys in byte order.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    pub(super) spec: BucketSpec,
    pub(super) objects: BTreeMap<String, Arc<Object>>,
}

pub(super) type Buckets = BTreeMap<Bck, Bucket>;
