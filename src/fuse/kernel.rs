//! What the kernel can do for us: each feature is asked for at mount, may be refused or switched off, and each lack has its price named in the
//! stats. Nothing here is needed to work (kernels from 5.14 on); everything here is needed to be fast.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use fuser::{InitFlags, KernelConfig};

/// Features of the kernel that can be switched off with `--disable-kernel`, for tests and benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// The kernel reads cached files itself (6.9, root).
    Passthrough,
    /// A listing brings the attributes too.
    Readdirplus,
    /// Lookups and listings of one directory run side by side.
    ParallelDirops,
    /// The kernel keeps listings.
    CacheDir,
    /// The kernel keeps pages from one open to the next.
    KeepCache,
    /// The kernel reads 1 MiB ahead instead of 128 KiB.
    Readahead,
    /// A descriptor of /dev/fuse for each session thread.
    CloneFd,
    /// 1024 reads in the background at once instead of 16.
    Background,
}

impl Feature {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Passthrough,
        Self::Readdirplus,
        Self::ParallelDirops,
        Self::CacheDir,
        Self::KeepCache,
        Self::Readahead,
        Self::CloneFd,
        Self::Background,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Passthrough => "passthrough",
            Self::Readdirplus => "readdirplus",
            Self::ParallelDirops => "parallel_dirops",
            Self::CacheDir => "cache_dir",
            Self::KeepCache => "keep_cache",
            Self::Readahead => "readahead",
            Self::CloneFd => "clone_fd",
            Self::Background => "background",
        }
    }

    /// What a user wrote: one name, or `all`.
    ///
    /// # Errors
    /// Not a feature: the text lists them.
    pub fn parse(text: &str) -> Result<BTreeSet<Self>, String> {
        if text == "all" { Ok(Self::ALL.into_iter().collect()) } else { Ok(BTreeSet::from([text.parse()?])) }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Feature {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = text.trim().to_ascii_lowercase().replace('-', "_");
        Self::ALL.into_iter().find(|feature| feature.name() == wanted).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("{text:?} is not a kernel feature: use all or one of {names}")
        })
    }
}

/// Requests in the background at once. Readahead counts as background; at 16, the library's default, 64 readers of a store with 20 ms latency
/// got 12 files/s instead of 445.
const MAX_BACKGROUND: u16 = 1024;

/// Depth of file systems below a backing file: 2 is the kernel's limit and lets a cache directory lie on overlayfs (a container's root).
const MAX_STACK_DEPTH: u32 = 2;

/// Asks the kernel for what it offers and we want. Returns whether it will pass reads through.
pub(super) fn negotiate(config: &mut KernelConfig, disable: &BTreeSet<Feature>) -> bool {
    let on = |feature| !disable.contains(&feature);
    // READDIRPLUS without READDIRPLUS_AUTO: AUTO falls back to plain listings after the first block, and then each stat is a LOOKUP.
    let wanted = [
        (Feature::Readdirplus, InitFlags::FUSE_DO_READDIRPLUS),
        (Feature::ParallelDirops, InitFlags::FUSE_PARALLEL_DIROPS),
        (Feature::Passthrough, InitFlags::FUSE_PASSTHROUGH),
    ];
    let mut granted = BTreeSet::new();
    for (feature, flag) in wanted {
        // One at a time: the library refuses all of a set when one bit is unknown to the kernel.
        if on(feature) && config.add_capabilities(flag).is_ok() {
            granted.insert(feature);
        }
    }
    if on(Feature::Background) {
        // Both are in range; a refusal would only leave the defaults.
        let _ = config.set_max_background(MAX_BACKGROUND);
        let _ = config.set_congestion_threshold(MAX_BACKGROUND);
    }
    granted.contains(&Feature::Passthrough) && config.set_max_stack_depth(MAX_STACK_DEPTH).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_read_as_they_print() {
        for feature in Feature::ALL {
            assert_eq!(Feature::parse(&feature.to_string()), Ok(BTreeSet::from([feature])));
        }
        assert_eq!("Keep-Cache".parse(), Ok(Feature::KeepCache));
        assert_eq!(Feature::parse("all").map(|set| set.len()), Ok(Feature::ALL.len()));
        assert!(Feature::parse("warp").is_err_and(|text| text.contains("passthrough, readdirplus")));
    }
}
