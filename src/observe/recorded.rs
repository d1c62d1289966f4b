//! Orders of earlier epochs and runs, kept beside the cache: of one manifest, with the numbering they are in. What a run has read once is a
//! prediction for the next (a fixed seed that nobody knows, a forgotten `set_epoch`, DALI).
//!
//! A file is one line of JSON, the places as `u32` little-endian, and a line with the xxh3 of all before it. It is written beside its name and
//! moved there; one that is cut, changed or of another version is passed over with a note. The folder has a budget in bytes; the
//! files written longest ago go first.
//!
//! Not here: whether a recorded order fits (`order::infer`, `plan/belief`).

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::dataset::file::Hashing;
use crate::order::spec::OrderSpec;
use crate::types::{Epoch, SampleIndex, SampleRule};

/// The version this program writes, and the only one it reads.
const VERSION: u32 = 1;
/// Longest first line: a root of 4,096 bytes and a specification with it again, escaped six-fold.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// `{"xxh3":"0123456789abcdef"}` and its line end.
const TAIL_BYTES: usize = 28;
/// Files in the folder at most, whatever their sizes: specifications take only some hundred bytes.
const FILES_MAX: usize = 4096;
/// Default budget of the folder: four epochs of the largest datasets (14 M samples, 57 MB each), or forty of ImageNet, with room to spare.
pub const BYTES_MAX: u64 = 512 << 20;
const ENDING: &str = "order";

/// What an order is.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// A specification: it knows every epoch.
    Spec(Box<OrderSpec>),
    /// The samples of one epoch in the order they were read.
    Places(Vec<SampleIndex>),
}

/// One recorded order.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// [`crate::dataset::Manifest::id`].
    pub manifest_id: String,
    /// The numbering: directory below the mount, rule, number of samples.
    pub root: String,
    pub rule: SampleRule,
    pub n: u32,
    /// Epoch of the run, 0-based; the first one that a specification was seen in.
    pub epoch: Epoch,
    pub content: Content,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    belady_order: u32,
    manifest_id: String,
    root: String,
    files: String,
    n: u32,
    epoch: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spec: Option<String>,
    /// Number of places that follow.
    places: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tail {
    xxh3: String,
}

/// Why a file is no recorded order.
#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    #[error("it cannot be read or written: {0}")]
    Io(#[from] io::Error),
    #[error("it is no recorded order: its first line is not that of one")]
    NotAnOrder,
    #[error("it has format {0}, this version reads {VERSION}")]
    Version(u32),
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
}

impl Recorded {
    /// Places that a file may have: a padded epoch, or one with three repeats of each sample (repeated augmentation).
    const fn places_max(n: u32) -> u64 {
        4 * n as u64 + 1024
    }

    /// Writes the file.
    ///
    /// # Errors
    /// What `out` reports; more places than an epoch can have.
    pub fn write(&self, out: impl Write) -> Result<(), RecordedError> {
        let mut out = Hashing { inner: out, hash: Xxh3::new() };
        let (spec, places) = match &self.content {
            Content::Spec(spec) => (Some(spec.to_string()), &[][..]),
            Content::Places(places) => (None, &places[..]),
        };
        if places.len() as u64 > Self::places_max(self.n) || places.iter().any(|place| *place >= self.n) {
            return Err(RecordedError::Damaged("more places than its samples allow"));
        }
        let head = Head {
            belady_order: VERSION,
            manifest_id: self.manifest_id.clone(),
            root: self.root.clone(),
            files: self.rule.to_string(),
            n: self.n,
            epoch: self.epoch,
            spec,
            places: places.len() as u64,
        };
        line(&mut out, &head)?;
        let mut bytes = [0; 16 << 10];
        for part in places.chunks(bytes.len() / 4) {
            for (four, place) in bytes.chunks_exact_mut(4).zip(part) {
                four.copy_from_slice(&place.to_le_bytes());
            }
            out.write_all(&bytes[..part.len() * 4])?;
        }
        let tail = Tail { xxh3: format!("{:016x}", out.hash.digest()) };
        line(&mut out, &tail)?;
        Ok(out.flush()?)
    }

    /// Reads a file that [`Self::write`] wrote, of `length` bytes.
    ///
    /// # Errors
    /// When it is not one, is of another version, or is damaged. Never takes more memory than `length`, and the first line's bound.
    pub fn read(input: impl Read, length: u64) -> Result<Self, RecordedError> {
        let mut input = BufReader::new(input);
        let mut hash = Xxh3::new();
        let (head, first) = head(&mut input)?;
        hash.update(&first);
        if head.places > Self::places_max(head.n) {
            return Err(RecordedError::Damaged("more places than its samples allow"));
        }
        if length != first.len() as u64 + head.places * 4 + TAIL_BYTES as u64 {
            return Err(RecordedError::Damaged("its length is not what its first line says"));
        }
        let mut places = Vec::with_capacity(usize::try_from(head.places).map_err(|_| RecordedError::Damaged("its length"))?);
        let mut bytes = [0; 16 << 10];
        let mut left = head.places * 4;
        while left > 0 {
            let part = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
            input.read_exact(&mut bytes[..part])?;
            hash.update(&bytes[..part]);
            places.extend(bytes[..part].as_chunks::<4>().0.iter().map(|four| u32::from_le_bytes(*four)));
            left -= part as u64;
        }
        let mut tail = Vec::new();
        input.take(TAIL_BYTES as u64 + 1).read_to_end(&mut tail)?;
        let tail: Tail = serde_json::from_slice(&tail).map_err(|_| RecordedError::Damaged("its last line"))?;
        if tail.xxh3 != format!("{:016x}", hash.digest()) {
            return Err(RecordedError::Damaged("its checksum does not match its content"));
        }
        if places.iter().any(|place| *place >= head.n) {
            return Err(RecordedError::Damaged("a place is no sample"));
        }
        let rule = head.files.parse().map_err(|_| RecordedError::Damaged("its sample rule is unknown"))?;
        let content = match head.spec {
            Some(spec) => Content::Spec(Box::new(spec.parse().map_err(|_| RecordedError::Damaged("its specification is unknown"))?)),
            None => Content::Places(places),
        };
        Ok(Self { manifest_id: head.manifest_id, root: head.root, rule, n: head.n, epoch: head.epoch, content })
    }
}

/// The first line, parsed and as it is.
fn head(input: &mut impl io::BufRead) -> Result<(Head, Vec<u8>), RecordedError> {
    /// Other versions may have other fields.
    #[derive(Deserialize)]
    struct AnyHead {
        belady_order: u32,
    }
    let mut first = Vec::new();
    io::BufRead::read_until(&mut input.take(HEAD_BYTES_MAX as u64), b'\n', &mut first)?;
    let any: AnyHead = serde_json::from_slice(&first).map_err(|_| RecordedError::NotAnOrder)?;
    if any.belady_order != VERSION {
        return Err(RecordedError::Version(any.belady_order));
    }
    Ok((serde_json::from_slice(&first).map_err(|_| RecordedError::Damaged("its first line"))?, first))
}

fn line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// A folder of recorded orders. All its functions block.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    bytes_max: u64,
}

/// A file of the folder: all but its places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub file: PathBuf,
    pub root: String,
    pub rule: SampleRule,
    pub n: u32,
    pub epoch: Epoch,
    /// Whether it is a specification.
    pub is_spec: bool,
    /// Bytes of the file; its places take as many in memory.
    pub bytes: u64,
}

impl Folder {
    /// The folder at `path`, which need not be there yet, with at most `bytes_max` bytes ([`BYTES_MAX`]) in it.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, bytes_max: u64) -> Self {
        Self { path: path.into(), bytes_max }
    }

    /// Keeps an order: in place of an earlier one of the same manifest, numbering and epoch. Afterwards the folder is within its budget.
    ///
    /// # Errors
    /// What the disk says; an order that is larger than the budget by itself.
    pub fn save(&self, order: &Recorded) -> Result<PathBuf, RecordedError> {
        fs::create_dir_all(&self.path)?;
        let numbering = format!("{}\0{}\0{}", order.root, order.rule, order.n);
        let what = match order.content {
            Content::Spec(_) => "s",
            Content::Places(_) => "p",
        };
        let id = id(&order.manifest_id);
        let name = format!("{id}-{:016x}-{what}{}.{ENDING}", xxh3_64(numbering.as_bytes()), order.epoch);
        let (file, part) = (self.path.join(&name), self.path.join(format!(".{name}.{}.part", std::process::id())));
        let written = (|| {
            let out = File::create(&part)?;
            let mut out = io::BufWriter::new(out);
            order.write(&mut out)?;
            let out = out.into_inner().map_err(io::IntoInnerError::into_error)?;
            if out.metadata()?.len() > self.bytes_max {
                return Err(RecordedError::Damaged("it is larger than all recorded orders may be"));
            }
            out.sync_all()?;
            Ok(fs::rename(&part, &file)?)
        })();
        if let Err(error) = written {
            // best effort: the next save cleans up what stays
            let _ = fs::remove_file(&part);
            return Err(error);
        }
        self.keep_budget(&file);
        Ok(file)
    }

    /// What is kept of a manifest, and what is damaged, for people. Of damaged files nothing else is done: they go when the budget is full.
    #[must_use]
    pub fn of_manifest(&self, manifest_id: &str) -> (Vec<Found>, Vec<String>) {
        let (mut found, mut notes) = (Vec::new(), Vec::new());
        let prefix = format!("{}-", id(manifest_id));
        let files = self.files().into_iter().map(|(_, _, file)| file);
        for file in files.filter(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))) {
            match look(&file) {
                Ok((head_id, one)) if head_id == manifest_id => found.push(one),
                Ok(_) => {}
                Err(error) => notes.push(format!("the recorded order {} is not used: {error}", file.display())),
            }
        }
        found.sort_by(|a, b| (&a.root, a.n, a.epoch, &a.file).cmp(&(&b.root, b.n, b.epoch, &b.file)));
        (found, notes)
    }

    /// (last written, bytes, file) of the folder's orders, the oldest first.
    fn files(&self) -> Vec<(std::time::SystemTime, u64, PathBuf)> {
        let Ok(entries) = fs::read_dir(&self.path) else { return Vec::new() };
        let mut files: Vec<_> = entries
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                let is_ours = path.extension().is_some_and(|ending| ending == ENDING || ending == "part");
                let meta = fs::metadata(&path).ok().filter(|meta| is_ours && meta.is_file())?;
                Some((meta.modified().ok()?, meta.len(), path))
            })
            .collect();
        files.sort();
        files
    }

    /// Removes the oldest until the rest fits; `kept` stays.
    fn keep_budget(&self, kept: &Path) {
        let files = self.files();
        let (mut bytes, mut count) = (files.iter().map(|file| file.1).sum::<u64>(), files.len());
        for (_, size, path) in files {
            if bytes <= self.bytes_max && count <= FILES_MAX {
                break;
            }
            // A file that cannot be removed is tried again at the next save.
            if path != kept && fs::remove_file(&path).is_ok() {
                bytes -= size;
                count -= 1;
            }
        }
    }
}

/// Reads a file of a recorded order: one of a [`Folder`], or one that a user hands in.
///
/// # Errors
/// As [`Recorded::read`].
pub fn load(file: &Path) -> Result<Recorded, RecordedError> {
    let input = File::open(file)?;
    let length = input.metadata()?.len();
    Recorded::read(input, length)
}

/// The manifest's id and the rest of the first line.
fn look(file: &Path) -> Result<(String, Found), RecordedError> {
    let input = File::open(file)?;
    let bytes = input.metadata()?.len();
    let (head, first) = head(&mut BufReader::new(input))?;
    if bytes != first.len() as u64 + head.places * 4 + TAIL_BYTES as u64 {
        return Err(RecordedError::Damaged("its length is not what its first line says"));
    }
    let rule = head.files.parse().map_err(|_| RecordedError::Damaged("its sample rule is unknown"))?;
    let is_spec = head.spec.is_some();
    Ok((head.manifest_id, Found { file: file.to_owned(), root: head.root, rule, n: head.n, epoch: head.epoch, is_spec, bytes }))
}

/// An id that is a part of a file's name, whatever a damaged or foreign one says.
fn id(manifest_id: &str) -> String {
    manifest_id.chars().filter(char::is_ascii_alphanumeric).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn order(epoch: u64, places: Vec<u32>) -> Recorded {
        let rule = "natural@jpg".parse().unwrap();
        Recorded { manifest_id: "a1b2".into(), root: "train".into(), rule, n: 1000, epoch, content: Content::Places(places) }
    }

    fn bytes(order: &Recorded) -> Vec<u8> {
        let mut bytes = Vec::new();
        order.write(&mut bytes).unwrap();
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Recorded, RecordedError> {
        Recorded::read(bytes, bytes.len() as u64)
    }

    fn spec(text: &str) -> Recorded {
        Recorded { content: Content::Spec(Box::new(text.parse().unwrap())), ..order(0, vec![]) }
    }

    #[test]
    fn specifications_are_kept_as_text() {
        let kept = spec("torch-distributed:seed=3:world=8:rank=0+2:root=train:files=natural@jpg");
        assert_eq!(read(&bytes(&kept)).unwrap(), kept);
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_refused() {
        for good in [bytes(&order(3, (0..50).collect())), bytes(&spec("sequential:root=train"))] {
            for end in 0..good.len() {
                assert!(read(&good[..end]).is_err(), "cut at {end}");
            }
            for place in 0..good.len() {
                let mut damaged = good.clone();
                damaged[place] ^= 1;
                assert!(read(&damaged).is_err(), "byte {place}");
            }
            assert!(read(&[&good[..], b"x"].concat()).is_err());
        }
    }

    #[test]
    fn refusals_say_what_it_is_and_take_no_memory() {
        let text = String::from_utf8(bytes(&spec("sequential"))).unwrap();
        let refusal = |text: &str| read(text.as_bytes()).unwrap_err().to_string();
        assert!(refusal("").contains("no recorded order"));
        assert!(refusal(&"x".repeat(200_000)).contains("no recorded order"));
        assert!(refusal(&text.replacen("\"belady_order\":1", "\"belady_order\":2", 1)).contains("format 2"));
        // A first line that promises more than is there.
        assert!(refusal(&text.replacen("\"places\":0", "\"places\":4000", 1)).contains("length"));
        assert!(refusal(&text.replacen("\"places\":0", "\"places\":400000000000", 1)).contains("samples allow"));
        assert!(bytes_of_wrong(order(0, vec![1000])).contains("samples allow"));
    }

    fn bytes_of_wrong(order: Recorded) -> String {
        order.write(Vec::new()).unwrap_err().to_string()
    }

    #[test]
    fn a_folder_gives_back_what_it_keeps() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().join("orders"), BYTES_MAX);
        assert_eq!(folder.of_manifest("a1b2"), (vec![], vec![]));
        for epoch in [1, 0] {
            folder.save(&order(epoch, vec![5, 4, 3])).unwrap();
        }
        folder.save(&spec("sequential:root=train")).unwrap();
        folder.save(&Recorded { manifest_id: "other".into(), ..order(0, vec![1]) }).unwrap();
        // In place of the earlier one.
        folder.save(&order(0, vec![9, 8])).unwrap();
        let (found, notes) = folder.of_manifest("a1b2");
        assert_eq!((found.len(), notes.len()), (3, 0));
        let of_epoch_0 = found.iter().find(|one| one.epoch == 0 && !one.is_spec).unwrap();
        assert_eq!(load(&of_epoch_0.file).unwrap(), order(0, vec![9, 8]));
        assert_eq!((of_epoch_0.n, of_epoch_0.root.as_str(), of_epoch_0.rule.to_string().as_str()), (1000, "train", "natural@jpg"));
        assert_eq!(found.iter().filter(|one| one.is_spec).count(), 1);
        assert_eq!(folder.of_manifest("../a1b2").0.len(), 0, "the id in the file is another");
    }

    #[test]
    fn damaged_files_are_passed_over_with_a_note() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path(), BYTES_MAX);
        let file = folder.save(&order(0, vec![1, 2, 3])).unwrap();
        folder.save(&order(1, vec![1, 2, 3])).unwrap();
        let good = fs::read(&file).unwrap();
        fs::write(&file, &good[..good.len() - 5]).unwrap();
        let (found, notes) = folder.of_manifest("a1b2");
        assert_eq!((found.len(), notes.len()), (1, 1));
        assert!(notes[0].contains("not used") && notes[0].contains("length"), "{notes:?}");
        // Damage that only reading finds.
        let mut changed = good;
        let place = changed.len() - TAIL_BYTES - 1;
        changed[place] ^= 1;
        fs::write(&file, &changed).unwrap();
        assert!(load(&file).unwrap_err().to_string().contains("damaged"));
    }

    #[test]
    fn the_folder_stays_within_its_budget() {
        let dir = tempfile::tempdir().unwrap();
        let size = bytes(&order(0, (0..1000).collect())).len() as u64;
        let folder = Folder::new(dir.path(), 3 * size + 100);
        fs::write(dir.path().join(".left.7.part"), [0; 100]).unwrap();
        for epoch in 0..8 {
            folder.save(&order(epoch, (0..1000).rev().collect())).unwrap();
            let total: u64 = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
            assert!(total <= 3 * size + 100);
        }
        let epochs: Vec<u64> = folder.of_manifest("a1b2").0.iter().map(|one| one.epoch).collect();
        assert!(epochs.contains(&7) && epochs.len() == 3, "{epochs:?}");
        assert!(Folder::new(dir.path(), 100).save(&order(9, (0..1000).collect())).is_err());
        assert_eq!(folder.of_manifest("a1b2").0.len(), 3, "what was there is still there");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(places in proptest::collection::vec(0u32..1000, 0..2000), epoch in any::<u64>(), root in "[a-zé/ \"]{0,20}") {
            let kept = Recorded { root, ..order(epoch, places) };
            prop_assert_eq!(read(&bytes(&kept)).unwrap(), kept);
        }
    }
}
