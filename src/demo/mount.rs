//! A real mount for the demo: this program's own `mount` command as a child process, in a temporary directory. However the demo ends,
//! the child is ended by its process id, what it mounted is unmounted, and the directory is removed.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tokio::time::{Instant, sleep};

use super::DemoError;
use super::process::is_mounted;

/// A listing of a million keys from a slow store takes this long; the demo's takes a second.
const MOUNT_LIMIT: Duration = Duration::from_secs(60);
/// The daemon drains what is under way before it ends.
const END_LIMIT: Duration = Duration::from_secs(15);
/// How often to look whether it is there, or gone.
const LOOK: Duration = Duration::from_millis(20);
/// How much of the child's log a failure shows.
const LOG_LINES: usize = 12;

/// What the demo cannot do without, each with its remedy; empty when all is there.
#[must_use]
pub(super) fn missing() -> Vec<String> {
    let mut missing = Vec::new();
    if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
        missing.push(match error.kind() {
            io::ErrorKind::NotFound => {
                "/dev/fuse is not there: load it (modprobe fuse); in a container, start it with --device /dev/fuse --cap-add SYS_ADMIN"
                    .to_owned()
            }
            _ => format!("/dev/fuse cannot be opened ({error}): run as root, or let this user read and write it (chmod 666 /dev/fuse)"),
        });
    }
    if !is_root() && !runs("fusermount3") {
        missing.push("fusermount3 is not there, and only root mounts without it: install the package fuse3, or run as root".to_owned());
    }
    missing
}

fn is_root() -> bool {
    geteuid().is_root()
}

fn runs(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// A directory of the demo's own, removed with everything in it.
#[derive(Debug)]
struct Directory(PathBuf);

impl Directory {
    fn create() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("belady-demo-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Never through a mount: what is still mounted keeps its directory.
        if !is_mounted(&self.0.join("data")) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// The running mount.
#[derive(Debug)]
pub(super) struct Mount {
    child: Child,
    point: PathBuf,
    log: PathBuf,
    directory: Directory,
}

impl Mount {
    /// Starts `executable mount URL DIR ARGUMENTS` and waits until the kernel shows the mount.
    pub(super) async fn start(executable: &Path, url: &str, arguments: &[String]) -> Result<Self, DemoError> {
        let directory = Directory::create()?;
        let (point, log) = (directory.0.join("data"), directory.0.join("mount.log"));
        std::fs::create_dir(&point)?;
        let output = File::create(&log)?;
        let child = Command::new(executable)
            .arg("mount")
            .arg(url)
            .arg(&point)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // Its own group: Ctrl-C reaches the demo, and the demo ends the mount when its readers are out of it.
            .process_group(0)
            .spawn()
            .map_err(|error| DemoError::Mount(format!("{} cannot be started: {error}", executable.display())))?;
        let mut mount = Self { child, point, log, directory };
        let until = Instant::now() + MOUNT_LIMIT;
        while !is_mounted(&mount.point) {
            if let Some(status) = mount.child.try_wait()? {
                return Err(DemoError::Mount(format!("the mount ended at once ({status}){}", mount.log_tail())));
            }
            if Instant::now() > until {
                return Err(DemoError::Mount(format!("not mounted after {} s{}", MOUNT_LIMIT.as_secs(), mount.log_tail())));
            }
            sleep(LOOK).await;
        }
        Ok(mount)
    }

    pub(super) fn point(&self) -> &Path {
        &self.point
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The end of what the child wrote, on lines of its own.
    pub(super) fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n  ");
        if tail.is_empty() { String::new() } else { format!("; it said:\n  {tail}") }
    }

    /// Ends the child as its user would, and waits for it.
    pub(super) async fn end(mut self) -> Result<(), DemoError> {
        self.signal(Signal::TERM);
        let until = Instant::now() + END_LIMIT;
        let status = loop {
            match self.child.try_wait()? {
                Some(status) => break Some(status),
                None if Instant::now() > until => break None,
                None => sleep(LOOK).await,
            }
        };
        match (status, is_mounted(&self.point)) {
            (Some(status), false) if ended_well(status) => Ok(()),
            (Some(status), false) => Err(DemoError::Mount(format!("the mount ended with {status}{}", self.log_tail()))),
            (Some(_), true) => {
                Err(DemoError::Mount(format!("the mount ended and left {} mounted{}", self.point.display(), self.log_tail())))
            }
            (None, _) => Err(DemoError::Mount(format!("the mount did not end within {} s{}", END_LIMIT.as_secs(), self.log_tail()))),
        }
    }

    fn signal(&self, signal: Signal) {
        // Not waited for yet, so the id is still the child's.
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }
}

/// Ended by itself, or by the signal it was sent.
fn ended_well(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.success() || status.signal() == Some(Signal::TERM.as_raw())
}

impl Drop for Mount {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // The connection dies with the daemon: readers stuck in the mount get an error and `wait` returns.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if is_mounted(&self.point) {
            let unmounted = if is_root() {
                unmount(&self.point, UnmountFlags::DETACH).is_ok()
            } else {
                Command::new("fusermount3").args(["-u", "-z"]).arg(&self.point).status().is_ok_and(|status| status.success())
            };
            if !unmounted {
                eprintln!("belady demo: {} is still mounted: umount it, then remove {}", self.point.display(), self.directory.0.display());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A stand-in for the program: a script.
    fn program(directory: &Path, script: &str) -> PathBuf {
        let path = directory.join("program");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[tokio::test]
    async fn a_mount_that_fails_says_why_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let program = program(directory.path(), "echo \"bucket $2 is not there\" >&2; exit 3");
        let error = Mount::start(&program, "s3://x/", &[]).await.unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("bucket s3://x/ is not there"), "{error}");
        assert!(!std::env::temp_dir().join(format!("belady-demo-{}", std::process::id())).exists());
        let error = Mount::start(Path::new("/nonexistent/belady"), "s3://x/", &[]).await.unwrap_err().to_string();
        assert!(error.contains("/nonexistent/belady cannot be started"), "{error}");
    }
}
