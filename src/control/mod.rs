//! The control socket: how the commands talk to a running mount. One socket per mount, in a directory only its user may enter.
//!
//! JSON lines: one [`Request`], one [`Answer`], several per connection. It promises to answer while the mount hangs (nothing here touches the
//! mount point), to talk to nobody but the mount's user and root, and to hold bounded lines and connections. It decides nothing: a
//! [`Handler`] of the daemon does.

pub mod client;
pub mod server;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::stats::snapshot::Snapshot;

/// A request is some 30 bytes; longer lines are a mistake or an attack.
pub(crate) const REQUEST_MAX_BYTES: usize = 4 << 10;
/// An answer with many orders and epochs: a snapshot is some 3 KiB, an epoch 400 bytes.
pub(crate) const ANSWER_MAX_BYTES: usize = 16 << 20;

/// What a command asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// All figures.
    Stats,
    /// What is mounted where by whom.
    Info,
    /// Take the mount away. Answered when it is out of the tree (or cannot be); then the daemon drains and ends, which closes the connection.
    Unmount {
        /// Even while files are open.
        lazy: bool,
    },
    /// An order that another node found, as `--order` takes it: to be tried on this one's opens.
    OrderImport { order: String },
}

/// What the daemon says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    Stats {
        snapshot: Box<Snapshot>,
    },
    Info(Info),
    /// It is done.
    Done,
    /// It is not; the text says why and what to do.
    Error {
        message: String,
    },
}

/// A running mount.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Info {
    pub version: String,
    pub url: String,
    pub mountpoint: PathBuf,
    pub pid: u32,
    pub uptime_seconds: f64,
}

/// Answers requests. Called on a blocking thread, so it may block; several at once.
pub trait Handler: Send + Sync + 'static {
    /// The answer.
    fn handle(&self, request: Request) -> Answer;
}

impl<F: Fn(Request) -> Answer + Send + Sync + 'static> Handler for F {
    fn handle(&self, request: Request) -> Answer {
        self(request)
    }
}

/// Name of a mount: the same for every way to write its (real, absolute) mount point, safe as a file name, short enough for a socket's path.
#[must_use]
pub fn mount_id(mountpoint: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    format!("{:016x}", xxhash_rust::xxh3::xxh3_64(mountpoint.as_os_str().as_bytes()))
}

/// The socket of the mount on `mountpoint`.
#[must_use]
pub fn socket_path(runtime_dir: &Path, mountpoint: &Path) -> PathBuf {
    runtime_dir.join(mount_id(mountpoint)).with_extension("sock")
}

/// The socket of the mount that a (real, absolute) path lies in: of the nearest directory above that has one, or else the path's own.
#[must_use]
pub fn socket_above(runtime_dir: &Path, path: &Path) -> PathBuf {
    let mut sockets = path.ancestors().map(|mountpoint| socket_path(runtime_dir, mountpoint));
    sockets.find(|socket| socket.exists()).unwrap_or_else(|| socket_path(runtime_dir, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_of_the_nearest_mount_above() {
        let run = tempfile::tempdir().unwrap();
        let socket = |mountpoint: &str| socket_path(run.path(), Path::new(mountpoint));
        std::fs::write(socket("/data"), "").unwrap();
        std::fs::write(socket("/data/inner"), "").unwrap();
        for (path, of) in [("/data/train/n01", "/data"), ("/data", "/data"), ("/data/inner/x", "/data/inner"), ("/else/x", "/else/x")] {
            assert_eq!(socket_above(run.path(), Path::new(path)), socket(of), "{path}");
        }
    }

    #[test]
    fn lines_are_as_documented() {
        for (request, line) in [
            (Request::Stats, r#"{"request":"stats"}"#),
            (Request::Info, r#"{"request":"info"}"#),
            (Request::Unmount { lazy: true }, r#"{"request":"unmount","lazy":true}"#),
        ] {
            assert_eq!(serde_json::to_string(&request).unwrap(), line);
            assert_eq!(serde_json::from_str::<Request>(line).unwrap(), request);
        }
        assert!(serde_json::from_str::<Request>(r#"{"request":"shell"}"#).is_err());
        let info = Info { version: "1".into(), url: "u".into(), mountpoint: "/m".into(), pid: 1, uptime_seconds: 0.5 };
        for answer in [Answer::Stats { snapshot: Box::default() }, Answer::Info(info), Answer::Done, Answer::Error { message: "m".into() }]
        {
            assert_eq!(serde_json::from_str::<Answer>(&serde_json::to_string(&answer).unwrap()).unwrap(), answer);
        }
    }

    #[test]
    fn a_mount_has_one_socket_of_a_bounded_length() {
        let dir = Path::new("/run/belady");
        assert_ne!(socket_path(dir, Path::new("/a")), socket_path(dir, Path::new("/b")));
        let long = PathBuf::from("/x".repeat(2000));
        assert!(socket_path(dir, &long).as_os_str().len() < 108, "sockaddr_un takes 107 bytes");
    }
}
