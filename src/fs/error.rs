//! The errno table: what a failure of the store, the cache or ourselves is called towards programs. This is the only place that decides it.
//!
//! Two rules: an object that is gone or changed is told apart from a store that fails (programs and NFS clients treat `ESTALE` as "look
//! again"), and everything that is the network's mood is `EIO`, because that is what a failing disk would say.

pub use rustix::io::Errno;

use crate::types::ErrorKind;

/// Every attempt to change anything.
pub const READ_ONLY: Errno = Errno::ROFS;
/// No such name, or an inode that this mount never gave out.
pub const NO_ENTRY: Errno = Errno::NOENT;
/// A handle that is not open.
pub const BAD_HANDLE: Errno = Errno::BADF;
/// Another version than the one that was opened.
pub const STALE: Errno = Errno::STALE;
/// No bytes within the read deadline, a panic, or bytes that are not what they should be.
pub const IO: Errno = Errno::IO;

/// What open(2) says when the store refuses the bytes of a name that the manifest has.
///
/// A deleted object is `ENOENT`: the name is gone, as on every other file system where a file is removed between readdir and open.
#[must_use]
pub const fn at_open(kind: ErrorKind) -> Errno {
    match kind {
        ErrorKind::NotFound => NO_ENTRY,
        ErrorKind::Denied => Errno::ACCESS,
        ErrorKind::Changed => STALE,
        ErrorKind::Shutdown => Errno::NOTCONN,
        ErrorKind::Throttled
        | ErrorKind::Timeout
        | ErrorKind::Network
        | ErrorKind::Corrupt
        | ErrorKind::NoSpace
        | ErrorKind::Invalid
        | ErrorKind::Server
        | ErrorKind::Io => IO,
    }
}

/// What read(2) says. A file that is open cannot be "not found", and its permission was settled at open: these are `ESTALE` and `EIO`.
#[must_use]
pub const fn at_read(kind: ErrorKind) -> Errno {
    match kind {
        ErrorKind::NotFound | ErrorKind::Changed => STALE,
        ErrorKind::Shutdown => Errno::NOTCONN,
        ErrorKind::Denied
        | ErrorKind::Throttled
        | ErrorKind::Timeout
        | ErrorKind::Network
        | ErrorKind::Corrupt
        | ErrorKind::NoSpace
        | ErrorKind::Invalid
        | ErrorKind::Server
        | ErrorKind::Io => IO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gone_and_changed_are_told_apart_from_failing() {
        assert_eq!((at_open(ErrorKind::NotFound), at_read(ErrorKind::NotFound)), (Errno::NOENT, Errno::STALE));
        assert_eq!((at_open(ErrorKind::Changed), at_read(ErrorKind::Changed)), (Errno::STALE, Errno::STALE));
        assert_eq!((at_open(ErrorKind::Denied), at_read(ErrorKind::Denied)), (Errno::ACCESS, Errno::IO));
        for kind in [ErrorKind::Throttled, ErrorKind::Timeout, ErrorKind::Network, ErrorKind::Server, ErrorKind::Corrupt] {
            assert_eq!((at_open(kind), at_read(kind)), (Errno::IO, Errno::IO), "{kind:?}");
        }
    }
}
