//! Why a mount or unmount did not happen: one line each, with what to do about it.

use std::io;
use std::path::PathBuf;

/// A failure to mount or unmount.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error("{path} does not exist: create it first (mkdir -p {path})", path = .0.display())]
    Missing(PathBuf),
    #[error("{path} is not a directory: belady mounts over a directory", path = .0.display())]
    NotADirectory(PathBuf),
    #[error("{path} is not empty, and a mount would hide what is in it: choose an empty directory", path = .0.display())]
    NotEmpty(PathBuf),
    #[error("{path} is a belady mount already: unmount it first (belady umount {path})", path = .0.display())]
    AlreadyMounted(PathBuf),
    #[error("{path} is a dead {kind} mount (its daemon is gone): unmount it first (umount -l {path})", path = path.display())]
    DeadMount { path: PathBuf, kind: String },
    #[error("{path} cannot be used: {source}", path = path.display())]
    Unusable { path: PathBuf, source: io::Error },
    #[error(
        "/dev/fuse is missing or is not the FUSE device: load the module (modprobe fuse), or give the container the device (docker run --device /dev/fuse)"
    )]
    NoDevice,
    #[error("/dev/fuse may not be opened: run as root, or make it readable and writable for you (chmod 666 /dev/fuse)")]
    DeviceDenied,
    #[error(
        "mounting was refused: run as root, or install fusermount3 (package fuse3); in a container also needed: --cap-add SYS_ADMIN and \
         --security-opt apparmor=unconfined"
    )]
    Denied,
    #[error("--allow-other needs the line user_allow_other in /etc/fuse.conf (or root): add it, or mount with --no-allow-other")]
    AllowOther,
    #[error("{path} is busy (open files or a working directory in it): close them first", path = .0.display())]
    Busy(PathBuf),
    #[error("{path} is not mounted", path = .0.display())]
    NotMounted(PathBuf),
    #[error("mounting {path} failed: {reason}", path = path.display())]
    Mount { path: PathBuf, reason: String },
    #[error("unmounting {path} failed: {reason}", path = path.display())]
    Unmount { path: PathBuf, reason: String },
}

impl MountError {
    /// What the library's error means. `device_exists`: whether /dev/fuse does, and is the device of that name.
    pub(super) fn from_library(path: PathBuf, error: io::Error, device_exists: bool) -> Self {
        let text = error.to_string().trim().replace('\n', "; "); // the helper's words end a line
        if text.contains("user_allow_other") {
            return Self::AllowOther;
        }
        if !device_exists {
            return Self::NoDevice;
        }
        // The device's own refusal has an errno; the helper's is a text, or the helper is not there at all.
        match (error.kind(), error.raw_os_error()) {
            (io::ErrorKind::PermissionDenied, Some(_)) => Self::DeviceDenied,
            (io::ErrorKind::NotFound, _) => Self::Denied,
            _ if text.contains("Operation not permitted") || text.contains("Permission denied") => Self::Denied,
            _ => Self::Mount { path, reason: text },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_library_says_becomes_a_line_with_a_remedy() {
        let say = |error, device_exists| MountError::from_library(PathBuf::from("/data"), error, device_exists).to_string();
        let helper = |text: &str| io::Error::other(text.to_owned());
        for (error, device_exists, remedy) in [
            (io::Error::from_raw_os_error(13), true, "chmod 666 /dev/fuse"),
            (io::Error::from_raw_os_error(2), false, "modprobe fuse"),
            (io::Error::from_raw_os_error(2), true, "fusermount3"),
            (helper("fusermount3: mount failed: Operation not permitted"), true, "SYS_ADMIN"),
            (
                io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    "fusermount3: option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf",
                ),
                true,
                "/etc/fuse.conf",
            ),
            (helper("fusermount3: something else\n"), true, "something else"),
        ] {
            let text = say(error, device_exists);
            assert!(text.contains(remedy) && !text.contains('\n'), "{text}");
        }
    }
}
