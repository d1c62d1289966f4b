//! The directory we mount over: what is in the way, and how to get off it again.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::mount::UnmountFlags;

use super::MountError;

/// The type that our mounts have in /proc/mounts.
pub(super) const FS_TYPE: &str = "fuse.belady";

/// A line of /proc/self/mountinfo, as far as we read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MountLine {
    /// Major and minor number of the device, as /sys/class/bdi names it.
    pub(super) device: String,
    pub(super) path: PathBuf,
    pub(super) kind: String,
}

/// How to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Refused while files are open.
    WhenIdle,
    /// Off the tree at once; open files go on working until they are closed.
    Lazy,
}

/// Parses /proc/self/mountinfo (proc_pid_mountinfo(5)).
fn parse_mountinfo(text: &str) -> Vec<MountLine> {
    text.lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let mut fields = left.split(' ');
            let device = fields.nth(2)?.to_owned();
            let path = unescape(fields.nth(1)?);
            Some(MountLine { device, path, kind: right.split(' ').next()?.to_owned() })
        })
        .collect()
}

/// Space, tab, newline and backslash are written in octal there.
fn unescape(field: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// The topmost mount at exactly this path.
pub(super) fn mounted_at(path: &Path) -> Option<MountLine> {
    let text = std::fs::read(Path::new("/proc/self/mountinfo")).ok()?;
    parse_mountinfo(&String::from_utf8_lossy(&text)).into_iter().rfind(|line| line.path == path)
}

/// The path as the kernel writes it. The last component is not looked at: a dead mount answers nothing, not even its name.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Ok(path) => Ok(path),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error()) => {
            let absolute = std::path::absolute(path)?;
            match (absolute.parent(), absolute.file_name()) {
                (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
                _ => Ok(absolute),
            }
        }
        Err(error) => Err(error),
    }
}

/// Checks that the directory can be mounted over; takes a dead mount of ours away first. Returns its resolved path.
pub(super) fn prepare(path: &Path, nonempty: bool) -> Result<PathBuf, MountError> {
    let unusable = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => MountError::Missing(path.to_owned()),
        io::ErrorKind::NotADirectory => MountError::NotADirectory(path.to_owned()),
        _ => MountError::Unusable { path: path.to_owned(), source },
    };
    let resolved = resolve(path).map_err(unusable)?;
    let not_connected = rustix::io::Errno::NOTCONN.raw_os_error();
    // Each round takes one dead mount away; several daemons may have died on the same path, but not endlessly many.
    const DEAD_MAX: usize = 16;
    for _ in 0..DEAD_MAX {
        match std::fs::metadata(&resolved) {
            Err(error) if error.raw_os_error() == Some(not_connected) => {
                let kind = mounted_at(&resolved).map_or_else(|| "FUSE".to_owned(), |line| line.kind);
                if kind != FS_TYPE {
                    return Err(MountError::DeadMount { path: resolved, kind });
                }
                tracing::warn!("{}: a belady mount whose daemon is gone is taken away first", resolved.display());
                unmount(&resolved, Unmount::Lazy)?;
            }
            Err(error) => return Err(unusable(error)),
            Ok(metadata) if !metadata.is_dir() => return Err(MountError::NotADirectory(resolved)),
            Ok(_) => break,
        }
    }
    if mounted_at(&resolved).is_some_and(|line| line.kind == FS_TYPE) {
        return Err(MountError::AlreadyMounted(resolved));
    }
    if !nonempty && std::fs::read_dir(&resolved).map_err(unusable)?.next().is_some() {
        return Err(MountError::NotEmpty(resolved));
    }
    Ok(resolved)
}

/// Unmounts. Not root: through fusermount3. Blocks.
///
/// # Errors
/// Busy, not mounted, or refused.
pub fn unmount(path: &Path, how: Unmount) -> Result<(), MountError> {
    let flags = match how {
        Unmount::WhenIdle => UnmountFlags::empty(),
        Unmount::Lazy => UnmountFlags::DETACH,
    };
    match rustix::mount::unmount(path, flags) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::BUSY) => Err(MountError::Busy(path.to_owned())),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => Err(MountError::NotMounted(path.to_owned())),
        Err(rustix::io::Errno::PERM) => unmount_by_helper(path, how),
        Err(errno) => Err(MountError::Unmount { path: path.to_owned(), reason: io::Error::from(errno).to_string() }),
    }
}

fn unmount_by_helper(path: &Path, how: Unmount) -> Result<(), MountError> {
    let failed = |reason: String| MountError::Unmount { path: path.to_owned(), reason };
    let mut helper = Command::new("fusermount3");
    helper.arg(if how == Unmount::Lazy { "-uz" } else { "-u" }).arg("--").arg(path).stdin(Stdio::null());
    let output = helper.output().map_err(|error| failed(format!("fusermount3 (package fuse3) could not be run: {error}")))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    match output.status.success() {
        true => Ok(()),
        false if said.contains("busy") => Err(MountError::Busy(path.to_owned())),
        false => Err(failed(said)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_is_read_with_its_escapes_and_optional_fields() {
        let text = "36 35 98:0 / / rw,noatime shared:1 master:2 - ext4 /dev/root rw\n\
                    90 36 0:52 / /data/my\\040set ro,nosuid - fuse.belady s3://b/p ro,user_id=0\n\
                    garbage\n";
        let line = |device: &str, path: &str, kind: &str| MountLine { device: device.into(), path: path.into(), kind: kind.into() };
        assert_eq!(parse_mountinfo(text), [line("98:0", "/", "ext4"), line("0:52", "/data/my set", "fuse.belady")]);
        assert_eq!(unescape("a\\134b\\0"), PathBuf::from("a\\b\\0"));
    }

    #[test]
    fn what_is_in_the_way_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), b"x").unwrap();
        std::fs::create_dir(at("empty")).unwrap();
        assert!(matches!(prepare(&at("none"), false), Err(MountError::Missing(_))));
        assert!(matches!(prepare(&at("file"), false), Err(MountError::NotADirectory(_))));
        assert!(matches!(prepare(&at("file/below"), false), Err(MountError::NotADirectory(_))));
        assert!(matches!(prepare(dir.path(), false), Err(MountError::NotEmpty(_))));
        assert!(prepare(dir.path(), true).is_ok());
        assert_eq!(prepare(&at("empty"), false).unwrap(), at("empty").canonicalize().unwrap());
    }

    #[test]
    fn unmounting_what_is_not_mounted_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let error = unmount(dir.path(), Unmount::WhenIdle).unwrap_err();
        // Without the right to unmount, the helper is asked and says it in its own words.
        assert!(matches!(error, MountError::NotMounted(_) | MountError::Unmount { .. }), "{error}");
    }
}
