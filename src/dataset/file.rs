//! A manifest as a file, so that a mount can start without listing and nodes can be given the same namespace.
//!
//! JSON lines. First `{"belady_manifest":1,"prefix":…,"files":…,"id":…,"hidden":{reason:[keys,example]}}` (`hidden` is what the listing
//! held and no path can show), then one object a line as `[key,size,etag,mtime]` in key order, then empty directories as their markers
//! (`key` ends with `/`), and last `{"xxh3":…}`, the hash of all bytes before that line. A file that was cut or changed is refused.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::dataset::naming::{Hidden, HiddenKeys};
use crate::dataset::{Manifest, build};
use crate::types::ObjectMeta;

/// The version this program writes, and the only one it reads.
const VERSION: u32 = 1;

/// Longer than any line can be: a key of 1,024 bytes (a path of 4,096 for `file://`), escaped six-fold, twice over. Bounds the memory
/// that a file without line ends can take.
const LINE_BYTES_MAX: u64 = 1 << 16;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    belady_manifest: u32,
    prefix: String,
    files: u64,
    id: String,
    hidden: BTreeMap<String, (u64, String)>,
}

#[derive(Serialize, Deserialize)]
struct Line<'a>(#[serde(borrow)] std::borrow::Cow<'a, str>, u64, #[serde(borrow)] std::borrow::Cow<'a, str>, i64);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tail {
    xxh3: String,
}

/// Why a file is not a manifest. It must be made anew.
#[derive(Debug, thiserror::Error)]
pub enum ManifestFileError {
    #[error("the manifest cannot be read")]
    Io(#[from] io::Error),
    #[error("this is not a manifest: its first line is not that of one")]
    NotAManifest,
    #[error("the manifest has format {0}, this version reads {VERSION}")]
    Version(u32),
    #[error("the manifest ends early, after line {line}: copy it again")]
    Cut { line: usize },
    #[error("line {line} of the manifest is damaged: copy it again")]
    Damaged { line: usize },
    #[error("the manifest is damaged: its {what} does not match its content; copy it again")]
    Mismatch { what: &'static str },
}

impl Manifest {
    /// Writes the manifest. Two manifests of the same namespace are the same bytes.
    ///
    /// # Errors
    /// What `out` reports.
    pub fn save(&self, out: impl Write) -> io::Result<()> {
        let mut out = Hashing { inner: out, hash: Xxh3::new() };
        let hidden = self.hidden.iter().map(|(reason, keys, example)| (reason.name().to_owned(), (keys, example.to_owned())));
        let head = Head {
            belady_manifest: VERSION,
            prefix: self.prefix.to_string(),
            files: self.len() as u64,
            id: self.id.clone(),
            hidden: hidden.collect(),
        };
        line(&mut out, &head)?;
        for object in &self.objects {
            line(&mut out, &Line((&*object.key).into(), object.size, (&*object.etag).into(), object.mtime_seconds))?;
        }
        for dir in self.dirs.iter().skip(1).filter(|dir| dir.entries.is_empty()) {
            let marker = format!("{}{}/", self.prefix, dir.path);
            line(&mut out, &Line(marker.into(), 0, "".into(), dir.mtime_seconds))?;
        }
        let tail = Tail { xxh3: format!("{:016x}", out.hash.digest()) };
        line(&mut out, &tail)?;
        out.flush()
    }

    /// Reads a manifest that [`Self::save`] wrote.
    ///
    /// # Errors
    /// When it is not one, is of another version, or is damaged.
    pub fn load(mut input: impl BufRead) -> Result<Self, ManifestFileError> {
        let mut hash = Xxh3::new();
        let mut text = Vec::new();
        read_line(&mut input, &mut text, 1).map_err(|error| match error {
            ManifestFileError::Io(error) => ManifestFileError::Io(error),
            _ => ManifestFileError::NotAManifest,
        })?;
        let head = head(&text)?;
        let mut objects = Vec::new();
        let mut line = 1;
        let tail = loop {
            hash.update(&text);
            read_line(&mut input, &mut text, line + 1)?;
            line += 1;
            if text.starts_with(b"{") {
                break serde_json::from_slice::<Tail>(&text).map_err(|_| ManifestFileError::Damaged { line })?;
            }
            let Line(key, size, etag, mtime_seconds) = serde_json::from_slice(&text).map_err(|_| ManifestFileError::Damaged { line })?;
            objects.push(ObjectMeta { key: Arc::from(&*key), size, etag: Arc::from(&*etag), mtime_seconds });
        };
        if format!("{:016x}", hash.digest()) != tail.xxh3 {
            return Err(ManifestFileError::Mismatch { what: "checksum" });
        }
        let manifest = build::build(&head.prefix, objects, hidden_keys(head.hidden)?);
        if manifest.id != head.id || manifest.len() as u64 != head.files || *manifest.prefix != *head.prefix {
            return Err(ManifestFileError::Mismatch { what: "id" });
        }
        Ok(manifest)
    }
}

fn line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

fn head(text: &[u8]) -> Result<Head, ManifestFileError> {
    /// Other versions may have other fields.
    #[derive(Deserialize)]
    struct AnyHead {
        belady_manifest: u32,
    }
    let any: AnyHead = serde_json::from_slice(text).map_err(|_| ManifestFileError::NotAManifest)?;
    if any.belady_manifest != VERSION {
        return Err(ManifestFileError::Version(any.belady_manifest));
    }
    serde_json::from_slice(text).map_err(|_| ManifestFileError::Damaged { line: 1 })
}

/// The next line with its line end; `number` is its number.
fn read_line(input: &mut impl BufRead, text: &mut Vec<u8>, number: usize) -> Result<(), ManifestFileError> {
    text.clear();
    let read = io::Read::take(input, LINE_BYTES_MAX).read_until(b'\n', text)? as u64;
    match text.last() {
        Some(b'\n') => Ok(()),
        _ if read == LINE_BYTES_MAX => Err(ManifestFileError::Damaged { line: number }),
        _ => Err(ManifestFileError::Cut { line: number - 1 }),
    }
}

fn hidden_keys(reasons: BTreeMap<String, (u64, String)>) -> Result<HiddenKeys, ManifestFileError> {
    let mut hidden = HiddenKeys::default();
    for (name, (keys, example)) in reasons {
        let (_, reason) =
            Hidden::ALL.iter().find(|(known, _)| *known == name).ok_or(ManifestFileError::Mismatch { what: "list of hidden keys" })?;
        hidden.add(*reason, keys, &example);
    }
    Ok(hidden)
}

/// Hashes what goes through.
pub(crate) struct Hashing<W> {
    pub(crate) inner: W,
    pub(crate) hash: Xxh3,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Node;

    fn object(key: &str, size: u64, mtime_seconds: i64) -> ObjectMeta {
        ObjectMeta { key: key.into(), size, etag: format!("\"{size}\"").into(), mtime_seconds }
    }

    fn odd_manifest() -> Manifest {
        let objects = vec![
            object("p/a/1.jpg", 5, 100),
            object("p/a/x\ny\t\"z\"", 6, 200),
            object("p/é\u{1}", 7, 0),
            object("p/empty/", 0, 300),
            object("p/empty/deep/", 3, 400),
            object("p/a//b", 1, 1),
            object("p/a", 1, 1),
        ];
        Manifest::build("p", objects)
    }

    fn saved(manifest: &Manifest) -> Vec<u8> {
        let mut bytes = Vec::new();
        manifest.save(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_is_saved_loads_to_the_same() {
        for manifest in [odd_manifest(), Manifest::default()] {
            let loaded = Manifest::load(saved(&manifest).as_slice()).unwrap();
            assert_eq!((loaded.id(), loaded.prefix(), loaded.len()), (manifest.id(), manifest.prefix(), manifest.len()));
            assert_eq!(loaded.objects, manifest.objects);
            assert_eq!(saved(&loaded), saved(&manifest));
            assert_eq!((loaded.hidden_keys(), loaded.total_bytes()), (manifest.hidden_keys(), manifest.total_bytes()));
            for (a, b) in loaded.dirs.iter().zip(&manifest.dirs) {
                assert_eq!((&a.path, a.ino, a.mtime_seconds, &a.entries), (&b.path, b.ino, b.mtime_seconds, &b.entries));
            }
            assert_eq!(loaded.entries, manifest.entries);
        }
        let manifest = odd_manifest();
        assert_eq!(manifest.hidden_keys(), 3, "a//b, the shadowed a, the marker with content");
        let Some(Node::Dir(empty)) = manifest.find("empty") else { panic!("the marker makes a directory") };
        assert_eq!(manifest.dir_mtime_seconds(empty), 400);
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_refused() {
        let bytes = saved(&odd_manifest());
        for end in 0..bytes.len() {
            assert!(Manifest::load(&bytes[..end]).is_err(), "cut at {end}");
        }
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1;
            assert!(Manifest::load(damaged.as_slice()).is_err(), "byte {place}");
        }
    }

    #[test]
    fn refusals_say_what_it_is() {
        let text = String::from_utf8(saved(&odd_manifest())).unwrap();
        let refusal = |text: &str| Manifest::load(text.as_bytes()).unwrap_err().to_string();
        assert!(refusal("").contains("not a manifest"));
        assert!(refusal("key,size\n").contains("not a manifest"));
        assert!(refusal(&"x".repeat(100_000)).contains("not a manifest"));
        assert!(refusal(&text.replacen(":1,", ":2,", 1)).contains("format 2"));
        assert!(refusal(&text.replacen(",5,", ",6,", 1)).contains("checksum"));
        assert!(refusal(&text.replacen("\n[", "\n(", 1)).contains("line 2"));
        let cut = text.lines().take(3).collect::<Vec<_>>().join("\n") + "\n";
        assert!(refusal(&cut).contains("after line 3"));
    }
}
