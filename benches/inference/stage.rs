//! The store, as a process of its own that ends with this one, and a mount of it by the real program.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use belady::cache::charge_of;
use belady::demo::dataset::DatasetSpec;
use belady::demo::server::{FirstByte, Server, ServerConfig};
use serde::{Deserialize, Serialize};

use crate::rig::{BUCKET, Mount, User, as_user, home};
use crate::{Failure, show};

/// First argument of the child.
pub(crate) const WORD: &str = "--belady-inference-store";
/// The program that is measured.
const PROGRAM: &str = env!("CARGO_BIN_EXE_belady");

/// A directory of generated files, spread over as many classes as ImageNet has, or one for each hundred.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Set {
    pub(crate) root: String,
    pub(crate) files: u32,
    pub(crate) mean_bytes: u64,
}

impl Set {
    pub(crate) fn new(root: &str, files: u32, mean_bytes: u64) -> Self {
        Self { root: root.to_owned(), files, mean_bytes }
    }

    fn spec(&self) -> DatasetSpec {
        let classes = (self.files / 100).clamp(1, 1_000);
        DatasetSpec { files: self.files, classes, mean_bytes: self.mean_bytes, root: self.root.clone(), ..DatasetSpec::default() }
    }

    /// Memory for this share of it, as the cache charges it.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "far below 2^52, and a share")]
    pub(crate) fn memory(&self, share: f64) -> u64 {
        let all: u64 = self.spec().build().entries.iter().map(|entry| charge_of(entry.content.size())).sum();
        (all as f64 * share) as u64
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Job {
    sets: Vec<Set>,
    delay_ms: u64,
}

/// The store's process.
#[derive(Debug)]
pub(crate) struct Store {
    child: Child,
    pub(crate) url: String,
}

impl Store {
    pub(crate) fn serve(sets: &[Set], delay_ms: u64) -> Result<Self, Failure> {
        let job = serde_json::to_string(&Job { sets: sets.to_vec(), delay_ms })?;
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg(WORD).arg(job).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let read = BufReader::new(child.stdout.take().ok_or("the store has no output")?).read_line(&mut line);
        let store = Self { child, url: line.trim().to_owned() };
        read?;
        if store.url.is_empty() {
            return Err("the store did not start".into());
        }
        Ok(store)
    }

    /// Resident memory, bytes.
    pub(crate) fn resident(&self) -> u64 {
        resident(self.child.id())
    }

    /// A mount of it by the real program.
    pub(crate) async fn mount(&self, order: &str, memory: u64) -> Result<Mount, Failure> {
        self.mount_with(order, memory, &[]).await
    }

    /// The same with further arguments.
    pub(crate) async fn mount_with(&self, order: &str, memory: u64, more: &[&str]) -> Result<Mount, Failure> {
        let home = home(User::Root)?;
        let mut command = as_user(User::Root, PROGRAM);
        command.env("XDG_RUNTIME_DIR", home.path().join("run"));
        command.args(["mount", &format!("s3://{BUCKET}/")]).arg(home.path().join("mnt"));
        command.args(["--endpoint-url", &self.url, "--no-sign-request", "--region", "us-east-1"]);
        command.args(["--foreground", "--log-level", "warn", "--memory", &memory.to_string(), "--order", order]).args(more);
        Mount::start(command, home, User::Root).await
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Resident memory of a process, bytes; 0 when it is gone.
fn resident(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default() * 1024
}

/// The child's side: serves until its standard input ends.
pub(crate) fn serve(job: &str) -> Result<(), Failure> {
    let job: Job = serde_json::from_str(job)?;
    let config = ServerConfig {
        bucket: BUCKET.to_owned(),
        first_byte: FirstByte::constant(Duration::from_millis(job.delay_ms)),
        ..ServerConfig::default()
    };
    let server = Server::start_with_threads(config, 1)?;
    for set in &job.sets {
        server.add_dataset(&set.spec().build());
    }
    show(&server.url())?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
