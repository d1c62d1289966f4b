//! A generated dataset in the shape of ImageNet's: `train/<class>/<class>_<number>.JPEG`, log-normal sizes, bytes that are computed
//! when asked for. It costs no memory per byte, no two of its objects are equal, and every byte can be checked without asking a server.
//!
//! The bytes are not images: they are noise, so that nothing on the way can compress or guess them.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::server::fault::{mix, unit};

/// The noise that all objects are cut from. Longer than most objects, so that few share a stretch at the same place.
const NOISE_BYTES: usize = 4 << 20;
/// Each stretch of an object comes from its own place in the noise: an object longer than the noise does not repeat it.
const STRETCH_BYTES: u64 = 1 << 20;
/// An object begins with its own hash: two objects differ even where their noise does not.
const HEAD_BYTES: u64 = 16;
/// Nothing is smaller than a small icon, nor (see [`DatasetSpec::build`]) larger than 32 times the mean: one outlier must not decide a run.
const MIN_BYTES: u64 = 1 << 10;

/// What to generate. The same values give the same keys, sizes and bytes, always.
#[derive(Clone, Debug, PartialEq)]
pub struct DatasetSpec {
    pub files: u32,
    /// Folders; the files are spread evenly.
    pub classes: u32,
    pub mean_bytes: u64,
    /// Of the logarithm of the sizes: 0 gives equal files, ImageNet's is about 0.6.
    pub sigma: f64,
    pub seed: u64,
    /// Folder of all, without slashes at its ends.
    pub root: String,
}

impl Default for DatasetSpec {
    fn default() -> Self {
        Self { files: 2_000, classes: 20, mean_bytes: 110_000, sigma: 0.6, seed: 0, root: "train".to_owned() }
    }
}

/// One file of a dataset.
#[derive(Clone, Debug)]
pub struct Entry {
    pub key: String,
    pub content: Generated,
}

/// The files of a dataset in byte order of their keys, which is ImageFolder's order too.
#[derive(Clone, Debug)]
pub struct Dataset {
    pub entries: Vec<Entry>,
}

impl DatasetSpec {
    /// Names, sizes and places in the noise.
    #[must_use]
    pub fn build(&self) -> Dataset {
        let noise = noise(self.seed);
        let classes = self.classes.clamp(1, self.files.max(1));
        let mut entries: Vec<Entry> = (0..self.files)
            .map(|file| {
                let class = file % classes;
                // WordNet numbers and image numbers have gaps, and their byte order is not the order of their values.
                let class_name = format!("n{:08}", 1_440_764 + u64::from(class) * 3_217);
                let number = u64::from(file / classes) * 7 + mix(self.seed ^ u64::from(file)) % 7;
                let key = format!("{}/{class_name}/{class_name}_{number}.JPEG", self.root);
                let content = Generated::new(Arc::clone(&noise), self.seed, &key, self.size_of(file));
                Entry { key, content }
            })
            .collect();
        entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Dataset { entries }
    }

    /// Log-normal with this mean (Box–Muller).
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "sizes are far below 2^53, and clamped"
    )]
    fn size_of(&self, file: u32) -> u64 {
        let draw = mix(self.seed.rotate_left(17) ^ u64::from(file));
        let (u, v) = (1.0 - unit(draw), unit(!draw));
        let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        let mean = self.mean_bytes as f64;
        let size = mean * (self.sigma * normal - self.sigma * self.sigma / 2.0).exp();
        (size as u64).clamp(MIN_BYTES.min(self.mean_bytes), self.mean_bytes.saturating_mul(32))
    }
}

impl Dataset {
    /// Sum of all sizes.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.content.size()).sum()
    }

    /// What a read of this key must return.
    #[must_use]
    pub fn expected_bytes(&self, key: &str) -> Option<Bytes> {
        let at = self.entries.binary_search_by(|entry| entry.key.as_str().cmp(key)).ok()?;
        Some(self.entries[at].content.to_bytes())
    }
}

/// One object's bytes: its hash, then stretches of noise.
#[derive(Clone, Debug)]
pub struct Generated {
    noise: Bytes,
    head: [u8; 16],
    size: u64,
}

impl Generated {
    fn new(noise: Arc<Bytes>, seed: u64, key: &str, size: u64) -> Self {
        Self { noise: Bytes::clone(&noise), head: xxh3_128_with_seed(key.as_bytes(), seed ^ size).to_be_bytes(), size }
    }

    /// Length in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Its version: changes with seed, key and size.
    #[must_use]
    pub fn etag(&self) -> Arc<str> {
        format!("\"{:032x}\"", u128::from_be_bytes(self.head)).into()
    }

    /// Bytes from `position` on, at least one and at most up to `until`: as many as lie together in the noise (no copy).
    ///
    /// # Panics
    /// Unless `position < until <= size`.
    #[must_use]
    pub fn piece(&self, position: u64, until: u64) -> Bytes {
        assert!(position < until && until <= self.size, "a piece is not empty and lies within the object");
        if position < HEAD_BYTES {
            return Bytes::copy_from_slice(&self.head[position as usize..until.min(HEAD_BYTES) as usize]);
        }
        let (stretch, offset) = (position / STRETCH_BYTES, position % STRETCH_BYTES);
        let id = u64::from_be_bytes(self.head[..8].try_into().expect("8 of 16 bytes"));
        let start = mix(id ^ stretch) % (NOISE_BYTES as u64 - STRETCH_BYTES) + offset;
        let length = (until - position).min(STRETCH_BYTES - offset);
        self.noise.slice(start as usize..(start + length) as usize)
    }

    /// All bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut all = BytesMut::with_capacity(self.size as usize);
        while (all.len() as u64) < self.size {
            all.extend_from_slice(&self.piece(all.len() as u64, self.size));
        }
        all.freeze()
    }

    /// Whether `bytes` are exactly this object's.
    #[must_use]
    pub fn matches(&self, bytes: &[u8]) -> bool {
        let mut position = 0;
        while position < self.size {
            let piece = self.piece(position, self.size);
            let end = position as usize + piece.len();
            if bytes.get(position as usize..end) != Some(&*piece) {
                return false;
            }
            position = end as u64;
        }
        bytes.len() as u64 == self.size
    }
}

fn noise(seed: u64) -> Arc<Bytes> {
    let words = (0..NOISE_BYTES as u64 / 8).map(|word| mix(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ word));
    let mut noise = BytesMut::with_capacity(NOISE_BYTES);
    words.for_each(|word| noise.extend_from_slice(&word.to_le_bytes()));
    Arc::new(noise.freeze())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn spec(files: u32, mean_bytes: u64) -> DatasetSpec {
        DatasetSpec { files, mean_bytes, ..DatasetSpec::default() }
    }

    #[test]
    fn keys_are_distinct_sorted_and_look_like_imagenet() {
        let dataset = spec(1_000, 2_000).build();
        let keys: Vec<&str> = dataset.entries.iter().map(|entry| entry.key.as_str()).collect();
        assert!(keys.is_sorted());
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), 1_000);
        assert!(keys[0].starts_with("train/n01440764/n01440764_") && keys[0].ends_with(".JPEG"), "{}", keys[0]);
        assert_eq!(keys.iter().map(|key| key.split('/').nth(1)).collect::<HashSet<_>>().len(), 20);
    }

    #[test]
    fn sizes_have_the_mean_asked_for() {
        let dataset = spec(20_000, 110_000).build();
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let mean = dataset.total_bytes() as f64 / 20_000.0;
        assert!((mean / 110_000.0 - 1.0).abs() < 0.02, "{mean}");
        let equal = DatasetSpec { sigma: 0.0, ..spec(50, 5_000) }.build();
        assert!(equal.entries.iter().all(|entry| entry.content.size() == 5_000));
    }

    #[test]
    fn bytes_are_the_same_each_time_and_no_two_objects_are_equal() {
        let (dataset, again) = (spec(300, 4_000).build(), spec(300, 4_000).build());
        let mut seen = HashSet::new();
        for (entry, other) in dataset.entries.iter().zip(&again.entries) {
            let bytes = entry.content.to_bytes();
            assert_eq!(bytes.len() as u64, entry.content.size());
            assert_eq!(bytes, other.content.to_bytes());
            assert!(entry.content.matches(&bytes) && dataset.expected_bytes(&entry.key) == Some(bytes.clone()));
            assert!(seen.insert(bytes), "{}", entry.key);
        }
        assert!(!dataset.entries[0].content.matches(&dataset.entries[1].content.to_bytes()));
        assert_eq!(dataset.expected_bytes("train/none"), None);
    }

    #[test]
    fn pieces_of_a_large_object_are_what_the_whole_says() {
        let object = Generated::new(noise(1), 1, "k", 5 * STRETCH_BYTES + 77);
        let whole = object.to_bytes();
        for position in [0, 1, 15, 16, STRETCH_BYTES - 1, STRETCH_BYTES, 3 * STRETCH_BYTES + 5, whole.len() as u64 - 1] {
            let piece = object.piece(position, whole.len() as u64);
            assert_eq!(piece, whole[position as usize..position as usize + piece.len()], "{position}");
        }
        assert_ne!(whole[100..200], whole[STRETCH_BYTES as usize + 100..STRETCH_BYTES as usize + 200], "stretches do not repeat");
        let mut wrong = whole.to_vec();
        *wrong.last_mut().unwrap() ^= 1;
        assert!(object.matches(&whole) && !object.matches(&wrong) && !object.matches(&whole[1..]));
    }
}
