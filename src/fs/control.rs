//! `.belady/` in the root of the mount: what `belady stats` shows, for people and scripts that have no socket.
//!
//! Reachable by name and never listed in the root: a training loader would take it for a class of its dataset. Each file is rendered when it is
//! opened and read with `FOPEN_DIRECT_IO`, so that its size (0, as in procfs) does not matter. What the bucket has under the same name is the
//! manifest's matter: where the manifest shows it, it wins.

use std::fmt;
use std::sync::Arc;

/// Name of the directory.
pub const DIRECTORY: &str = ".belady";

/// The files in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlFile {
    /// What `belady stats` prints.
    Stats,
    /// The same as JSON, schema 1.
    StatsJson,
    /// The effective settings.
    Config,
    /// The predicted next files.
    Order,
}

/// In the order of their names, as a listing shows them.
pub(crate) const ALL: [ControlFile; 4] = [ControlFile::Config, ControlFile::Order, ControlFile::Stats, ControlFile::StatsJson];

/// Inode numbers of the directory and its files: the last 256. The manifest leaves the upper half to files that no key backs.
pub(crate) const DIRECTORY_INO: u64 = u64::MAX - 0xff;

impl ControlFile {
    /// Its name in the directory.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stats => "stats",
            Self::StatsJson => "stats.json",
            Self::Config => "config.toml",
            Self::Order => "order",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|file| file.name() == name)
    }

    pub(crate) const fn ino(self) -> u64 {
        DIRECTORY_INO
            + match self {
                Self::Stats => 1,
                Self::StatsJson => 2,
                Self::Config => 3,
                Self::Order => 4,
            }
    }

    pub(crate) fn of_ino(ino: u64) -> Option<Self> {
        ALL.into_iter().find(|file| file.ino() == ino)
    }
}

/// Renders the files. Called on a blocking thread of the runtime, once per open; it may take locks.
#[derive(Clone)]
pub struct ControlFiles(pub Arc<dyn Fn(ControlFile) -> Vec<u8> + Send + Sync>);

impl fmt::Debug for ControlFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ControlFiles")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_back() {
        for file in ALL {
            assert_eq!(ControlFile::named(file.name()), Some(file));
            assert_eq!(ControlFile::of_ino(file.ino()), Some(file));
        }
        assert!(ALL.is_sorted_by_key(|file| file.name()), "a listing is in byte order");
        assert_eq!(ControlFile::of_ino(DIRECTORY_INO), None);
    }
}
