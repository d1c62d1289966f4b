//! The size of a disk tier that nobody gave one: what was free when the cache directory was first used, not what is free beside a full cache.
//! It is written down there, so that a restart does not take the cache's own files for somebody else's.

use std::path::Path;

/// Holds the number, as text.
const FILE: &str = "automatic-bytes";

/// The size to use when `free_bytes` would be right for an empty cache: that, or what was written down at the first start, if that is more
/// and the disk is still large enough.
#[must_use]
pub fn automatic_bytes(cache_dir: &Path, namespace: &str, free_bytes: u64) -> u64 {
    let written = std::fs::read_to_string(cache_dir.join(namespace).join(FILE)).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let disk = rustix::fs::statvfs(cache_dir).map_or(0, |stat| stat.f_blocks.saturating_mul(stat.f_frsize));
    written.filter(|&bytes| bytes <= disk).map_or(free_bytes, |bytes| bytes.max(free_bytes))
}

/// Writes the size down. A failure costs a smaller cache after the next start.
pub fn write_automatic_bytes(cache_dir: &Path, namespace: &str, bytes: u64) {
    let path = cache_dir.join(namespace).join(FILE);
    if let Err(error) = std::fs::write(&path, format!("{bytes}\n")) {
        tracing::warn!(%error, path = %path.display(), "the size of the disk tier is not remembered for the next start");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_cache_keeps_its_size_at_the_next_start() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(dir.path().join("ns")).expect("creates");
        assert_eq!(automatic_bytes(dir.path(), "ns", 900), 900);
        write_automatic_bytes(dir.path(), "ns", 900);
        assert_eq!(automatic_bytes(dir.path(), "ns", 10), 900, "the other 890 are our own files");
        assert_eq!(automatic_bytes(dir.path(), "ns", 2_000), 2_000, "somebody made room");
        write_automatic_bytes(dir.path(), "ns", u64::MAX);
        assert_eq!(automatic_bytes(dir.path(), "ns", 10), 10, "more than the disk has");
    }
}
