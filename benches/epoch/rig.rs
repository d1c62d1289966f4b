//! The processes of a measurement: the store and a mount. Each is ended by its id, and unmounted, however the measurement ends.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use belady::demo::process::{is_mounted, process_cpu};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{Failure, reader};

/// The program that is measured.
const PROGRAM: &str = env!("CARGO_BIN_EXE_belady");
/// The bucket of the demo's store.
pub(crate) const BUCKET: &str = "demo";
/// `nobody`, on every Linux.
const NOBODY: u32 = 65_534;
/// A mount lists 20,000 keys in a second; a peer may need some.
const MOUNT_LIMIT: Duration = Duration::from_secs(60);
/// A daemon drains what is under way before it ends.
const END_LIMIT: Duration = Duration::from_secs(20);
/// How often to look.
const LOOK: Duration = Duration::from_millis(10);

/// Whose process it is: root has passthrough and a detached tmpfs, others do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    Root,
    Nobody,
}

/// `program` as this user, in an environment without anybody's settings or credentials.
pub(crate) fn as_user(user: User, program: impl AsRef<OsStr>) -> Command {
    let mut command = match user {
        User::Root => Command::new(program),
        User::Nobody => {
            let id = NOBODY.to_string();
            let mut command = Command::new("setpriv");
            command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).arg(program);
            command
        }
    };
    command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command.env("AWS_EC2_METADATA_DISABLED", "true");
    command
}

fn signal(child: &Child, signal: Signal) {
    // Not waited for yet, so the id is still the child's.
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _gone = kill_process(pid, signal);
    }
}

/// The demo's store as a process.
#[derive(Debug)]
pub(crate) struct Store {
    child: Child,
    says: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
}

/// What the store counted over its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) list: u64,
    pub(crate) head: u64,
    pub(crate) get: u64,
}

impl Store {
    pub(crate) fn serve(files: u32, mean_bytes: u64, delay_ms: u64) -> Result<Self, Failure> {
        let mut command = as_user(User::Root, PROGRAM);
        command.args(["demo", "--serve-only", "--files", &files.to_string(), "--mean-size", &mean_bytes.to_string()]);
        command.args(["--delay-ms", &delay_ms.to_string()]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut says = BufReader::new(child.stdout.take().ok_or("the store has no output")?);
        let mut line = String::new();
        says.read_line(&mut line)?;
        let address = line.split_once("http://").and_then(|(_, rest)| rest.split(' ').next()).and_then(|text| text.parse().ok());
        let Some(address) = address else {
            child.kill()?;
            child.wait()?;
            return Err(format!("the store does not say where it is: {line:?}").into());
        };
        Ok(Self { child, says, address })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// CPU seconds so far.
    pub(crate) fn cpu(&self) -> f64 {
        process_cpu(self.child.id()).unwrap_or_default().as_secs_f64()
    }

    /// Ends it, with what it counted.
    pub(crate) fn end(mut self) -> Result<Served, Failure> {
        signal(&self.child, Signal::TERM);
        let mut text = String::new();
        self.says.read_to_string(&mut text)?;
        let number = |name: &str| {
            let before = text.split_once(name)?.0;
            before.rsplit(|byte: char| !byte.is_ascii_digit()).next()?.parse().ok()
        };
        let counted = |name: &str| number(name).ok_or_else(|| format!("the store does not say how many{name}: {text:?}"));
        Ok(Served { list: counted(" LIST")?, head: counted(" HEAD")?, get: counted(" GET")? })
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// A mount, ours or a peer's.
#[derive(Debug)]
pub(crate) struct Mount {
    child: Child,
    user: User,
    pub(crate) dir: PathBuf,
    _home: tempfile::TempDir,
}

/// A directory of the mount's own with `mnt`, `cache` and `run` in it.
pub(crate) fn home(user: User) -> Result<tempfile::TempDir, Failure> {
    let home = tempfile::Builder::new().prefix("belady-epoch-").tempdir()?;
    for name in ["mnt", "cache", "run"] {
        std::fs::create_dir(home.path().join(name))?;
    }
    if user == User::Nobody {
        std::fs::set_permissions(home.path(), PermissionsExt::from_mode(0o755))?;
        for path in [home.path().to_owned(), home.path().join("mnt"), home.path().join("cache"), home.path().join("run")] {
            chown(path, Some(NOBODY), Some(NOBODY))?;
        }
    }
    Ok(home)
}

impl Mount {
    /// `belady mount` of the store's bucket.
    pub(crate) async fn belady(store: &Store, user: User, memory: u64, arguments: &[&str]) -> Result<Self, Failure> {
        let url = store.url();
        let store = ["--endpoint-url", &url, "--no-sign-request", "--region", "us-east-1"];
        Self::of(&format!("s3://{BUCKET}/"), user, memory, &[&store, arguments].concat()).await
    }

    /// `belady mount` of this URL.
    pub(crate) async fn of(url: &str, user: User, memory: u64, arguments: &[&str]) -> Result<Self, Failure> {
        let home = home(user)?;
        let mut command = as_user(user, PROGRAM);
        command.env("XDG_RUNTIME_DIR", home.path().join("run"));
        command.args(["mount", url]).arg(home.path().join("mnt"));
        command.args(["--foreground", "--log-level", "warn", "--memory", &memory.to_string()]).args(arguments);
        Self::start(command, home, user).await
    }

    /// Any program that mounts `home/mnt` and stays in the foreground.
    pub(crate) async fn start(mut command: Command, home: tempfile::TempDir, user: User) -> Result<Self, Failure> {
        let log = home.path().join("log");
        let output = File::create(&log)?;
        let child = command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).spawn()?;
        let mut mount = Self { child, user, dir: home.path().join("mnt"), _home: home };
        let begun = Instant::now();
        while !is_mounted(&mount.dir) {
            let ended = mount.child.try_wait()?;
            if ended.is_some() || begun.elapsed() > MOUNT_LIMIT {
                return Err(format!("no mount ({ended:?}): {}", std::fs::read_to_string(&log)?).into());
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(mount)
    }

    /// CPU seconds so far.
    pub(crate) fn cpu(&self) -> f64 {
        process_cpu(self.child.id()).unwrap_or_default().as_secs_f64()
    }

    /// Peak of its resident memory, bytes.
    pub(crate) fn peak_bytes(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default() * 1024
    }

    /// Whose mount it is: its readers are this user's too.
    pub(crate) fn user(&self) -> User {
        self.user
    }

    /// Its counters, through the mount: only its own user may look into it.
    pub(crate) fn stats(&self) -> Result<Value, Failure> {
        let path = self.dir.join(".belady/stats.json");
        let text = match self.user {
            User::Root => std::fs::read_to_string(path)?,
            User::Nobody => reader::output(as_user(self.user, "cat").arg(path))?,
        };
        Ok(serde_json::from_str(&text)?)
    }

    /// The counters once they have caught up with the reads: outcomes follow opens by a moment.
    pub(crate) async fn settled(&self, accesses: u64) -> Result<Value, Failure> {
        let begun = Instant::now();
        loop {
            let stats = self.stats()?;
            if number(&stats, "/reads/accesses") >= accesses || begun.elapsed() > Duration::from_secs(2) {
                return Ok(stats);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends it as its user would.
    pub(crate) async fn end(mut self) -> Result<(), Failure> {
        signal(&self.child, Signal::TERM);
        let begun = Instant::now();
        while self.child.try_wait()?.is_none() {
            if begun.elapsed() > END_LIMIT {
                return Err("the mount does not end".into());
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _gone = self.child.kill();
            let _status = self.child.wait();
        }
        detach(&self.dir);
    }
}

/// Unmounts what is still there: the temporary directory is about to be removed, and must not be through a mount.
fn detach(dir: &Path) {
    if is_mounted(dir) {
        let _gone = unmount(dir, UnmountFlags::DETACH);
    }
}

/// A number of the counters, by path: `/reads/opens`.
pub(crate) fn number(stats: &Value, pointer: &str) -> u64 {
    stats.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
}
