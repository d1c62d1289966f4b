//! The training loops: `tests/support/loader_matrix.py` as child processes, the log of their opens, and their words.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::Failure;
use crate::rig::{User, as_user};

/// Debian's, with Debian's torch: `apt-get install python3-torch python3-torchvision`.
const PYTHON: &str = "/usr/bin/python3";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/loader_matrix.py");

/// Without torch there is nothing to show.
pub(crate) fn need_torch() -> Result<(), Failure> {
    let output = as_user(User::Root, PYTHON).args(["-c", "import torch, torchvision"]).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("PyTorch is missing at {PYTHON}: apt-get install python3-torch python3-torchvision").into())
}

/// One open by a reader, in the order of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Open {
    /// Seconds since 1970, just before the open.
    pub(crate) at: f64,
    pub(crate) pid: u32,
    /// Of a file of the validation set.
    pub(crate) validation: bool,
}

/// Programs at work that read the mount, each with a process group of its own.
#[derive(Debug)]
pub(crate) struct Readers {
    children: Vec<Child>,
    log: tempfile::TempDir,
}

impl Readers {
    pub(crate) fn new() -> Result<Self, Failure> {
        Ok(Self { children: Vec::new(), log: tempfile::Builder::new().prefix("belady-inference-").tempdir()? })
    }

    /// Starts the script on the training set below a mount.
    pub(crate) fn train(&mut self, mount: &Path, arguments: &[String], environment: &[(&str, String)]) -> Result<(), Failure> {
        let mut command = as_user(User::Root, PYTHON);
        command.arg(SCRIPT).arg(mount.join("train")).arg("--log").arg(self.log.path());
        command.args(arguments).envs(environment.iter().map(|(name, value)| (name, value)));
        // One thread each, as torchrun sets it.
        command.env("OMP_NUM_THREADS", "1");
        self.start(command)
    }

    /// Starts any program.
    pub(crate) fn start(&mut self, mut command: std::process::Command) -> Result<(), Failure> {
        let number = self.children.len();
        let (said, complained) = (File::create(self.said(number))?, File::create(self.complaints(number))?);
        self.children.push(command.stdin(Stdio::null()).stdout(said).stderr(complained).process_group(0).spawn()?);
        Ok(())
    }

    fn said(&self, number: usize) -> PathBuf {
        self.log.path().join(format!("said.{number}"))
    }

    fn complaints(&self, number: usize) -> PathBuf {
        self.log.path().join(format!("complaints.{number}"))
    }

    /// Whether all have ended; an error when one of them failed.
    pub(crate) fn have_ended(&mut self) -> Result<bool, Failure> {
        let mut ended = true;
        for (number, child) in self.children.iter_mut().enumerate() {
            match child.try_wait()? {
                None => ended = false,
                Some(status) if status.success() => {}
                Some(status) => {
                    let text = std::fs::read_to_string(self.log.path().join(format!("complaints.{number}")))?;
                    let tail: Vec<&str> = text.lines().rev().take(8).collect();
                    return Err(format!("a reader ended with {status}: {}", tail.into_iter().rev().collect::<Vec<_>>().join("\n")).into());
                }
            }
        }
        Ok(ended)
    }

    /// What they said so far, line by line.
    pub(crate) fn words(&self) -> Result<Vec<Value>, Failure> {
        let mut words = Vec::new();
        for number in 0..self.children.len() {
            let text = std::fs::read_to_string(self.said(number))?;
            words.extend(text.lines().filter_map(|line| serde_json::from_str(line).ok()));
        }
        Ok(words)
    }

    /// All opens so far.
    pub(crate) fn opens(&self) -> Result<Vec<Open>, Failure> {
        let mut opens = Vec::new();
        for entry in std::fs::read_dir(self.log.path())? {
            let path = entry?.path();
            let Some(pid) = path.file_name().and_then(|name| name.to_str()?.strip_prefix("opens.")?.parse().ok()) else { continue };
            for line in std::fs::read_to_string(&path)?.lines() {
                // The last line may be half written.
                let Some((at, kind)) = line.split_once(' ') else { continue };
                let Ok(at) = at.parse() else { continue };
                opens.push(Open { at, pid, validation: kind == "v" });
            }
        }
        opens.sort_by(|a, b| a.at.total_cmp(&b.at));
        Ok(opens)
    }

    /// Ends what still runs, workers included.
    pub(crate) fn end(&mut self) {
        for child in &mut self.children {
            if matches!(child.try_wait(), Ok(Some(_))) {
                continue;
            }
            // Not waited for yet, so the group is still the child's.
            if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                let _gone = kill_process_group(group, Signal::KILL);
            }
            // An open that the mount holds ends first: that is a second at most.
            let _status = child.wait();
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.end();
    }
}

/// Opens of the training set only.
pub(crate) fn of_training(opens: Vec<Open>) -> Vec<Open> {
    opens.into_iter().filter(|open| !open.validation).collect()
}

/// How many opens had come when the last of the first epoch's processes opened its first file: `processes` are expected.
pub(crate) fn opens_with_all(opens: &[Open], processes: usize) -> Option<usize> {
    let mut seen = Vec::new();
    for (number, open) in opens.iter().enumerate() {
        if !seen.contains(&open.pid) {
            seen.push(open.pid);
            if seen.len() == processes {
                return Some(number + 1);
            }
        }
    }
    None
}
