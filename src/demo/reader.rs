//! A reader as a training program is one: threads that open, read whole and close files in a given order, with what it took.
//!
//! Lengths are always checked. Contents are compared where asked for; the comparison is no part of the latencies, but of the threads'
//! time: a run that measures throughput compares a sample.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::dataset::Entry;

/// Read(2) in pieces of this size: what Python's and C's buffered readers do for a whole file is near it.
const READ_BYTES: usize = 1 << 20;

/// What a run of reads took.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    pub files: u64,
    pub bytes: u64,
    pub elapsed: Duration,
    /// CPU time of the reading side, where it could be told.
    pub cpu: Option<Duration>,
    /// From open to close of one file: half of them took no longer ...
    pub p50: Duration,
    /// ... and 99 of 100 no longer than this.
    pub p99: Duration,
    pub max: Duration,
}

impl Measured {
    /// From the latency of each file.
    #[must_use]
    pub fn new(bytes: u64, elapsed: Duration, cpu: Option<Duration>, mut latencies: Vec<Duration>) -> Self {
        latencies.sort_unstable();
        // Nearest rank.
        let at = |percent: usize| latencies.get((latencies.len() * percent).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default();
        Self { files: latencies.len() as u64, bytes, elapsed, cpu, p50: at(50), p99: at(99), max: at(100) }
    }

    /// Files in a second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub fn files_per_second(&self) -> f64 {
        self.files as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Bytes in a second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Which files are compared byte for byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    All,
    /// Each so-many-th.
    Every(usize),
}

/// How threads share the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Whoever is free takes the next file.
    Cursor,
    /// Thread t of T takes batches t, t+T, ... of so many files, as DataLoader's workers do.
    Batches(usize),
}

/// One run: what to read, from where, and how.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Folder that the keys are relative to.
    pub root: PathBuf,
    /// Files by sample number.
    pub entries: Arc<[Entry]>,
    /// Sample numbers in the order of reading.
    pub order: Arc<[u32]>,
    pub threads: usize,
    pub share: Share,
    pub compare: Compare,
}

/// Stops the threads when dropped: whoever waits for them may be cancelled.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl Reading {
    /// Reads all of it. Cancelled, it leaves threads behind that end with the file they are at.
    ///
    /// # Errors
    /// When a file cannot be read, or is not what it should be; names the file.
    pub async fn run(self) -> io::Result<Measured> {
        let stop = StopOnDrop(Arc::default());
        let (stopped, reading) = (Arc::clone(&stop.0), Arc::new(self));
        tokio::task::spawn_blocking(move || all_threads(&reading, &stopped)).await.map_err(io::Error::other)?
    }

    /// The places in the order that thread `thread` reads: `turn` counts its own (batches) or everybody's (cursor).
    fn place(&self, thread: usize, turn: usize) -> usize {
        match self.share {
            Share::Cursor => turn,
            Share::Batches(size) => {
                let size = size.max(1);
                (turn / size * self.threads + thread) * size + turn % size
            }
        }
    }
}

fn all_threads(reading: &Arc<Reading>, stop: &Arc<AtomicBool>) -> io::Result<Measured> {
    let (cursor, begun) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let mut threads = Vec::with_capacity(reading.threads);
    for thread in 0..reading.threads.max(1) {
        let (reading, stop, cursor) = (Arc::clone(reading), Arc::clone(stop), Arc::clone(&cursor));
        threads.push(thread::Builder::new().name(format!("reader-{thread}")).spawn(move || {
            let part = one_thread(&reading, thread, &cursor, &stop);
            if part.is_err() {
                stop.store(true, Relaxed);
            }
            part
        })?);
    }
    let (mut latencies, mut bytes, mut cpu, mut failure) = (Vec::new(), 0, Some(Duration::ZERO), None);
    for thread in threads {
        match thread.join().map_err(|_| io::Error::other("a reader thread panicked"))? {
            Ok(part) => {
                latencies.extend(part.latencies);
                bytes += part.bytes;
                cpu = cpu.zip(part.cpu).map(|(all, one)| all + one);
            }
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    let elapsed = begun.elapsed();
    match failure {
        Some(error) => Err(error),
        None => Ok(Measured::new(bytes, elapsed, cpu, latencies)),
    }
}

/// What one thread read.
#[derive(Default)]
struct Part {
    latencies: Vec<Duration>,
    bytes: u64,
    cpu: Option<Duration>,
}

fn one_thread(reading: &Reading, thread: usize, cursor: &AtomicUsize, stop: &AtomicBool) -> io::Result<Part> {
    let mut part = Part { latencies: Vec::with_capacity(reading.order.len() / reading.threads.max(1) + 1), ..Part::default() };
    let mut buffer = Vec::with_capacity(READ_BYTES);
    let mut own_turn = 0;
    while !stop.load(Relaxed) {
        let turn = match reading.share {
            Share::Cursor => cursor.fetch_add(1, Relaxed),
            Share::Batches(_) => own_turn,
        };
        own_turn += 1;
        let place = reading.place(thread, turn);
        let Some(sample) = reading.order.get(place) else { break };
        let entry = &reading.entries[*sample as usize];
        let path = reading.root.join(&entry.key);
        let begun = Instant::now();
        read_whole(&path, &mut buffer).map_err(|error| io::Error::new(error.kind(), format!("reading {}: {error}", path.display())))?;
        part.latencies.push(begun.elapsed());
        part.bytes += buffer.len() as u64;
        let compared = match reading.compare {
            Compare::All => true,
            Compare::Every(n) => place.is_multiple_of(n.max(1)),
        };
        if buffer.len() as u64 != entry.content.size() || (compared && !entry.content.matches(&buffer)) {
            let (got, wanted) = (buffer.len(), entry.content.size());
            let text = format!("{} is not what the store holds: {got} bytes read, {wanted} expected", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
    }
    part.cpu = super::process::thread_cpu();
    Ok(part)
}

/// Open, fstat, read, close: what `open(path, "rb").read()` does.
fn read_whole(path: &Path, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.clear();
    File::open(path)?.read_to_end(buffer).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::dataset::DatasetSpec;

    fn written(root: &Path) -> Reading {
        let dataset = DatasetSpec { files: 60, classes: 3, mean_bytes: 3_000, ..DatasetSpec::default() }.build();
        for entry in &dataset.entries {
            let path = root.join(&entry.key);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, entry.content.to_bytes()).unwrap();
        }
        Reading {
            root: root.to_owned(),
            entries: dataset.entries.into(),
            order: (0..60).rev().collect(),
            threads: 4,
            share: Share::Cursor,
            compare: Compare::All,
        }
    }

    #[tokio::test]
    async fn every_file_is_read_once_however_the_order_is_shared() {
        let directory = tempfile::tempdir().unwrap();
        let reading = written(directory.path());
        let bytes: u64 = reading.entries.iter().map(|entry| entry.content.size()).sum();
        for share in [Share::Cursor, Share::Batches(1), Share::Batches(7), Share::Batches(100)] {
            let measured = Reading { share, ..reading.clone() }.run().await.unwrap();
            assert_eq!((measured.files, measured.bytes), (60, bytes), "{share:?}");
            assert!(measured.p50 <= measured.p99 && measured.p99 <= measured.max);
        }
    }

    #[test]
    fn batches_are_dealt_as_dataloader_deals_them() {
        let directory = tempfile::tempdir().unwrap();
        let reading = Reading { threads: 2, share: Share::Batches(3), ..written(directory.path()) };
        let places: Vec<usize> = (0..6).map(|turn| reading.place(1, turn)).collect();
        assert_eq!(places, [3, 4, 5, 9, 10, 11]);
    }

    #[tokio::test]
    async fn a_wrong_byte_a_short_file_and_a_missing_file_are_noticed_and_named() {
        for (damage, wanted) in [(0, "is not what the store holds"), (1, "is not what the store holds"), (2, "No such file")] {
            let directory = tempfile::tempdir().unwrap();
            let reading = written(directory.path());
            let path = directory.path().join(&reading.entries[33].key);
            let mut bytes = std::fs::read(&path).unwrap();
            match damage {
                0 => bytes[500] ^= 1,
                1 => bytes.truncate(bytes.len() - 1),
                _ => std::fs::remove_file(&path).unwrap(),
            }
            if damage < 2 {
                std::fs::write(&path, bytes).unwrap();
            }
            let error = reading.run().await.unwrap_err().to_string();
            assert!(error.contains(wanted) && error.contains(path.to_str().unwrap()), "{error}");
        }
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let measured = Measured::new(0, Duration::from_secs(2), None, (1..=200).map(Duration::from_millis).collect());
        assert_eq!((measured.p50.as_millis(), measured.p99.as_millis(), measured.max.as_millis()), (100, 198, 200));
        assert!((measured.files_per_second() - 100.0).abs() < 1e-9);
        assert_eq!(Measured::new(0, Duration::ZERO, None, Vec::new()).max, Duration::ZERO);
    }
}
