//! The reader as a process of its own: this program, started again with [`WORD`] and a job. It reads, and prints what it took as JSON.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use belady::demo::dataset::Entry;
use belady::demo::process::thread_cpu;
use belady::demo::reader::{Compare, Reading, Share};
use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};

use crate::rig::{User, as_user};
use crate::{Failure, scene};

/// First argument of the child.
pub(crate) const WORD: &str = "--belady-epoch-reader";
/// Read(2) in pieces of this size: the buffer stays in the processor's second cache, so that it is the file that is measured.
const PIECE_BYTES: usize = 1 << 20;

/// What to read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// Mount point, or the local copy.
    pub(crate) root: PathBuf,
    pub(crate) files: u32,
    pub(crate) mean_bytes: u64,
    pub(crate) order: String,
    pub(crate) epoch: u64,
    /// Only so many of the epoch.
    pub(crate) first: usize,
    pub(crate) threads: usize,
    /// Each so-many-th file is compared byte for byte; [`usize::MAX`]: the first.
    pub(crate) compare_every: usize,
    pub(crate) how: How,
}

/// How to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum How {
    /// File by file, each whole.
    Files,
    /// The first file of the dataset from begin to end, its pages dropped before: the page cache of the mount must not do the work.
    StreamCold,
    /// The same with whatever pages there are.
    Stream,
}

/// What it took.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Found {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
impl Found {
    pub(crate) fn files_per_second(&self) -> f64 {
        self.files as f64 / self.seconds
    }

    pub(crate) fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.seconds
    }

    /// Milliseconds of CPU for one file.
    pub(crate) fn per_file(&self, cpu_seconds: f64) -> f64 {
        cpu_seconds * 1e3 / self.files.max(1) as f64
    }
}

/// A reader at work.
pub(crate) fn start(job: &Job, user: User) -> Result<std::process::Child, Failure> {
    let mut command = as_user(user, &std::env::current_exe()?);
    Ok(command.arg(WORD).arg(serde_json::to_string(job)?).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?)
}

/// Waits for it.
pub(crate) fn finish(child: std::process::Child) -> Result<Found, Failure> {
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(format!("the reader ended with {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// All of it.
pub(crate) fn read(job: &Job, user: User) -> Result<Found, Failure> {
    finish(start(job, user)?)
}

/// The child's side.
pub(crate) async fn serve(job: &str) -> Result<(), Failure> {
    let job: Job = serde_json::from_str(job)?;
    let entries = scene::dataset(job.files, job.mean_bytes).entries;
    let found = match job.how {
        How::Files => files(job, entries).await?,
        How::Stream | How::StreamCold => stream(&job, &entries[0])?,
    };
    crate::show(&serde_json::to_string(&found)?)
}

async fn files(job: Job, entries: Vec<Entry>) -> Result<Found, Failure> {
    let order = scene::places(&job.order, job.files, job.epoch, job.first)?;
    let compare = Compare::Every(job.compare_every);
    let reading = Reading { root: job.root, entries: entries.into(), order, threads: job.threads, share: Share::Cursor, compare };
    let measured = reading.run().await?;
    Ok(Found {
        files: measured.files,
        bytes: measured.bytes,
        seconds: measured.elapsed.as_secs_f64(),
        cpu_seconds: measured.cpu.unwrap_or_default().as_secs_f64(),
        p50_ms: measured.p50.as_secs_f64() * 1e3,
        p99_ms: measured.p99.as_secs_f64() * 1e3,
    })
}

fn stream(job: &Job, entry: &Entry) -> Result<Found, Failure> {
    let (mut buffer, mut position) = (vec![0; PIECE_BYTES], 0_u64);
    let path = job.root.join(&entry.key);
    if job.how == How::StreamCold {
        fadvise(File::open(&path)?, 0, None, Advice::DontNeed)?;
    }
    let (begun, cpu_before) = (Instant::now(), thread_cpu().unwrap_or_default());
    let mut file = File::open(&path)?;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        if job.compare_every != usize::MAX {
            compare(entry, position, &buffer[..read])?;
        }
        position += read as u64;
    }
    let (seconds, cpu) = (begun.elapsed().as_secs_f64(), thread_cpu().unwrap_or_default());
    if position != entry.content.size() {
        return Err(format!("{}: {position} bytes of {}", path.display(), entry.content.size()).into());
    }
    let cpu_seconds = cpu.saturating_sub(cpu_before).as_secs_f64();
    Ok(Found { files: 1, bytes: position, seconds, cpu_seconds, p50_ms: seconds * 1e3, p99_ms: seconds * 1e3 })
}

fn compare(entry: &Entry, mut position: u64, mut bytes: &[u8]) -> Result<(), Failure> {
    while !bytes.is_empty() {
        let piece = entry.content.piece(position, position + bytes.len() as u64);
        if bytes[..piece.len()] != *piece {
            return Err(format!("{}: wrong bytes after {position}", entry.key).into());
        }
        position += piece.len() as u64;
        bytes = &bytes[piece.len()..];
    }
    Ok(())
}

/// A program's output, where it succeeds.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    let output = command.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}
