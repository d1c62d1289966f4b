//! From what a user says to [`Settings`]: validated, typed, complete; the only place where a default value is written.
//!
//! Flag > environment `BELADY_*` > file > the usual `AWS_*` variables > default ([`resolve`]). Everything wrong is told at once. Settings are
//! values, resolved once and handed down: components read no file, no environment and no global. Credentials are not settings: only where
//! they are to be found is; the AWS SDK reads them.

pub mod cli;
pub mod file;
pub mod keys;
pub mod machine;
pub mod mountpoint;
pub mod print;
pub mod resolve;
pub mod values;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::cli::MountArgs;
use crate::config::machine::Machine;
use crate::config::resolve::{Effective, Layers};
use crate::order::spec::OrderSpec;
use crate::types::ByteSize;

/// A training job's data loaders must never be killed for our memory: a tenth of what is free, and a quarter of what the container may still take.
const MEMORY_SHARE_OF_AVAILABLE: u64 = 10;
const MEMORY_SHARE_OF_CGROUP: u64 = 4;
/// Less than this holds no useful look-ahead (256 requests in flight of 1 MiB).
const MEMORY_LEAST: u64 = 256 << 20;
/// File systems slow down, and root's reserve begins, in the last tenth.
const DISK_SHARE_LEFT_FREE: u64 = 10;

/// Defaults as a user would write them; `""` is «not set». Those that depend on the machine are in [`defaults`].
const FIXED_DEFAULTS: [(&str, &str); 28] = [
    ("endpoint_url", ""),
    ("region", ""),
    ("profile", ""),
    ("credentials_file", ""),
    ("env_file", ""),
    ("no_sign_request", "false"),
    ("requester_pays", "false"),
    ("ca_bundle", ""),
    ("cache_dir", ""),
    ("tier", ""),
    ("order", "auto"),
    ("expect_manifest", ""),
    ("peek", "true"),
    ("search_threads", "auto"),
    ("search_exhaustive", "true"),
    ("record_opens", ""),
    ("on_change", "serve-new"),
    ("verify", "once"),
    // As long as the patience of a collective operation (NCCL's watchdog fires later): a longer stall would end the job anyway.
    ("read_deadline", "300s"),
    ("max_bandwidth", "0"),
    // What one machine needs for 100 Gbit/s of 110 KB files at 20 ms is above it, what the SDK's users see as safe below: adapted downwards.
    ("max_requests", "256"),
    ("max_connections", "256"),
    ("file_mode", "0444"),
    ("dir_mode", "0555"),
    ("listen", ""),
    ("disable_kernel", ""),
    ("foreground", "false"),
    ("log_level", "info"),
];

/// The default of a key on this machine, as text, with the settings that decide it.
#[must_use]
pub fn default_of(key: &str, machine: &Machine) -> String {
    match key {
        "memory" => format!("{}MiB", default_memory(machine) >> 20),
        "allow_other" => machine.is_root().to_string(),
        "uid" => machine.uid.to_string(),
        "gid" => machine.gid.to_string(),
        // `auto`: decided by another setting (the endpoint, the disk under cache_dir).
        "disk" | "force_path_style" => "auto".to_owned(),
        "log_file" => String::new(),
        _ => FIXED_DEFAULTS.iter().find(|(name, _)| *name == key).map_or_else(String::new, |(_, value)| (*value).to_owned()),
    }
}

fn default_memory(machine: &Machine) -> u64 {
    let of_cgroup = machine.cgroup_headroom.map_or(u64::MAX, |headroom| headroom / MEMORY_SHARE_OF_CGROUP);
    // What a container uses counts its page cache, which gives way: headroom may be near nothing without need, and the floor holds. But a
    // floor above the container's limit would end in its death.
    let floor = machine.cgroup_limit.map_or(MEMORY_LEAST, |limit| MEMORY_LEAST.min(limit / MEMORY_SHARE_OF_CGROUP));
    (machine.memory_available / MEMORY_SHARE_OF_AVAILABLE).min(of_cgroup).max(floor)
}

/// What fits on the disk under `path`, in whole MiB.
fn default_disk(machine: &Machine, path: &Path) -> Result<ByteSize, String> {
    let (free, total) = (machine.disk)(path)?;
    Ok(ByteSize(free.saturating_sub(total / DISK_SHARE_LEFT_FREE) >> 20 << 20))
}

/// Everything a mount needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// As typed: `s3://bucket[/prefix]` or `file:///directory`.
    pub url: String,
    /// Absolute; symbolic links resolved.
    pub mountpoint: PathBuf,
    pub store: StoreSettings,
    /// Budget of the memory tier; 0 = none.
    pub memory: ByteSize,
    /// Disk tiers, fastest first.
    pub tiers: Vec<TierSettings>,
    pub orders: Orders,
    /// The only listing to mount.
    pub expect_manifest: Option<String>,
    /// Whether to look at the allow-list of names in the environment of readers.
    pub peek: bool,
    /// Where every open is recorded.
    pub record_opens: Option<PathBuf>,
    /// Threads of a search for the order; `None`: a share of the cores.
    pub search_threads: Option<u32>,
    /// Whether all 2^32 seeds may be tried.
    pub search_exhaustive: bool,
    pub on_change: OnChange,
    pub verify: Verify,
    pub read_deadline: Duration,
    /// Bytes per second.
    pub max_bandwidth: Option<ByteSize>,
    pub max_requests: u32,
    pub max_connections: u32,
    pub allow_other: bool,
    pub uid: u32,
    pub gid: u32,
    pub file_mode: u16,
    pub dir_mode: u16,
    pub listen: Option<SocketAddr>,
    pub disable_kernel: Vec<KernelFeature>,
    pub foreground: bool,
    /// A filter in tracing's syntax.
    pub log_level: String,
    pub log_file: Option<PathBuf>,
    /// Where the control sockets of this user's mounts are.
    pub runtime_dir: PathBuf,
    /// Every key with its value in force and its origin, in the order of [`keys::KEYS`].
    pub effective: Vec<Effective>,
}

/// How to reach the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    pub endpoint_url: Option<String>,
    pub region: Option<String>,
    pub profile: Option<String>,
    pub credentials_file: Option<PathBuf>,
    pub env_file: Option<PathBuf>,
    pub no_sign_request: bool,
    pub requester_pays: bool,
    /// `None`: path style with an endpoint, host style without.
    pub force_path_style: Option<bool>,
    pub ca_bundle: Option<PathBuf>,
}

/// One disk tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierSettings {
    pub name: String,
    /// Absolute.
    pub path: PathBuf,
    pub capacity: ByteSize,
    /// The capacity is what was free at start, and not the user's word: what an earlier run left in the directory may be added to it.
    pub automatic: bool,
}

/// What is said of the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Orders {
    /// To be found out, as far as this version can.
    Auto,
    /// A cached mount.
    None,
    /// At least one.
    Declared(Vec<OrderSpec>),
}

/// What to do when an object is another version than the listing said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnChange {
    ServeNew,
    Fail,
}

/// When cached files are checked against their checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Once per life of the daemon, before first use.
    Once,
    /// At every open, which excludes passthrough.
    Always,
}

/// What `--disable-kernel` can switch off, for tests, benchmarks and kernels with a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KernelFeature {
    /// The kernel reads cached files without us.
    Passthrough,
    /// A directory is read together with its attributes.
    ReaddirPlus,
    /// The page cache outlives the open.
    KeepCache,
    /// Names of one directory are looked up in parallel.
    ParallelDirops,
    /// The larger read-ahead of this mount.
    ReadAhead,
    /// The memory tier in a private tmpfs.
    Tmpfs,
}

impl KernelFeature {
    /// All of them, with the words of the option.
    pub const ALL: [(&str, Self); 6] = [
        ("passthrough", Self::Passthrough),
        ("readdirplus", Self::ReaddirPlus),
        ("keep-cache", Self::KeepCache),
        ("parallel-dirops", Self::ParallelDirops),
        ("read-ahead", Self::ReadAhead),
        ("tmpfs", Self::Tmpfs),
    ];
}

impl Settings {
    /// Whether a kernel feature may be used.
    #[must_use]
    pub fn may_use(&self, feature: KernelFeature) -> bool {
        !self.disable_kernel.contains(&feature)
    }
}

/// Settings of `belady mount`, from its arguments, the environment, the file and this machine.
///
/// # Errors
/// All that is wrong, each a line.
pub fn load(args: &MountArgs) -> Result<Settings, Vec<String>> {
    let machine = Machine::here();
    let env = |name: &str| machine::variable(name);
    let layers = Layers::gather(args, &env)?;
    let settings = resolve::resolve(&args.url, &args.dir, layers, &machine)?;
    let errors = resolve::check_files(&settings);
    if errors.is_empty() { Ok(settings) } else { Err(errors) }
}
