//! The real program as a child process, mounted on a temporary directory, unmounted whatever happens to the test.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use belady::demo::server::Server;

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_belady");

/// A mounted belady.
#[derive(Debug)]
pub(crate) struct Belady {
    pub(crate) dir: PathBuf,
    child: Option<Child>,
    _home: tempfile::TempDir,
}

/// `belady` with these arguments and an environment without anybody's credentials or settings.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(args).env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::null());
    // nothing may ask the metadata service of whatever cloud the tests run in
    command.env("AWS_EC2_METADATA_DISABLED", "true").env("RUST_BACKTRACE", "1");
    command
}

/// Runs `belady` to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    command(args).output().expect("the program starts")
}

impl Belady {
    /// Mounts `url` with `args` in the foreground, and returns when the mount answers. Panics with the program's words when it does not.
    pub(crate) fn mount(url: &str, args: &[&str]) -> Self {
        Self::try_mount(url, args).unwrap_or_else(|words| panic!("no mount: {words}"))
    }

    /// As [`Self::mount`], or what the program said.
    pub(crate) fn try_mount(url: &str, args: &[&str]) -> Result<Self, String> {
        Self::try_mount_by(&[], url, args)
    }

    /// ... started by another program.
    fn try_mount_by(by: &[&str], url: &str, args: &[&str]) -> Result<Self, String> {
        let home = tempfile::tempdir().expect("a temporary directory");
        let dir = home.path().join("mnt");
        std::fs::create_dir(&dir).expect("a mount point");
        let mut all = vec!["mount", url, dir.to_str().expect("a plain path"), "--foreground"];
        all.extend(args);
        let mut starting = command(&all);
        if let Some((first, rest)) = by.split_first() {
            starting = Command::new(first);
            starting.args(rest).arg(PROGRAM).args(&all).env("AWS_EC2_METADATA_DISABLED", "true").stdin(Stdio::null());
        }
        let mut child = starting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("stdout is text");
        if line.is_empty() {
            let mut words = String::new();
            child.stderr.take().expect("piped").read_to_string(&mut words).expect("stderr is text");
            child.wait().expect("the child ends");
            return Err(words);
        }
        let stderr = child.stderr.take().expect("piped");
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                eprintln!("[belady] {line}");
            }
        });
        Ok(Self { dir, child: Some(child), _home: home })
    }

    /// A mount of the server's bucket, by its test credentials or anonymously.
    pub(crate) fn mount_bucket(server: &Server, args: &[&str]) -> Self {
        Self::mount_bucket_by(&[], server, args)
    }

    /// ... started by another program (`unshare`).
    pub(crate) fn mount_bucket_by(by: &[&str], server: &Server, args: &[&str]) -> Self {
        let url = format!("s3://{}", server.bucket());
        let endpoint = server.url();
        let mut all = vec!["--endpoint-url", &endpoint, "--no-sign-request", "--region", "us-east-1"];
        all.extend(args);
        Self::try_mount_by(by, &url, &all).unwrap_or_else(|words| panic!("no mount: {words}"))
    }

    /// `.belady/stats.json`, parsed.
    pub(crate) fn stats(&self) -> serde_json::Value {
        let text = std::fs::read_to_string(self.dir.join(".belady/stats.json")).expect("the stats file reads");
        serde_json::from_str(&text).expect("the stats are JSON")
    }

    /// One number of the stats, by path: `/reads/opens`.
    pub(crate) fn stat(&self, pointer: &str) -> f64 {
        self.stats().pointer(pointer).and_then(serde_json::Value::as_f64).unwrap_or_else(|| panic!("no number at {pointer}"))
    }

    /// Waits until `done` says so, at most a minute: for counters that settle a moment after the read they count.
    pub(crate) fn wait_for(&self, what: &str, done: impl Fn(&serde_json::Value) -> bool) {
        let began = std::time::Instant::now();
        loop {
            let stats = self.stats();
            if done(&stats) {
                return;
            }
            assert!(began.elapsed().as_secs() < 60, "waited a minute for: {what}; stats: {stats:#}");
            std::thread::yield_now();
        }
    }

    /// The daemon.
    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(self.child.as_ref().expect("mounted"))
    }

    /// kill -9, and the dead mount taken away; the mount point stays for another.
    pub(crate) fn kill(mut self) {
        let mut child = self.child.take().expect("mounted");
        child.kill().expect("our child");
        child.wait().expect("our child");
        detach(&self.dir);
    }

    /// The daemon's exit status, when it ends by itself.
    pub(crate) fn wait(mut self) -> i32 {
        self.child.take().expect("mounted").wait().expect("our child").code().unwrap_or(-1)
    }

    /// `belady umount`, and the daemon's exit status.
    pub(crate) fn unmount(mut self) -> i32 {
        let answer = run(&["umount", self.dir.to_str().expect("a plain path")]);
        assert!(answer.status.success(), "umount: {}", String::from_utf8_lossy(&answer.stderr));
        let status = self.child.take().expect("mounted").wait().expect("our child");
        assert!(!is_mounted(&self.dir), "still mounted");
        status.code().unwrap_or(-1)
    }
}

impl Drop for Belady {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            detach(&self.dir);
            // a panicking test must not leave a daemon behind
            drop(child.kill());
            drop(child.wait());
            detach(&self.dir);
        }
    }
}

fn detach(dir: &Path) {
    let _ = rustix::mount::unmount(dir, rustix::mount::UnmountFlags::DETACH);
}

/// Whether something is mounted there.
pub(crate) fn is_mounted(dir: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("proc is mounted");
    mounts.lines().any(|line| line.split(' ').nth(4) == dir.to_str())
}
