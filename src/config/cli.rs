//! The command line, as typed. It says which words exist; what they mean is checked in [`super::resolve`], together with the environment
//! and the file, so that a user sees all errors at once and one text for each.
//!
//! Only commands that work in this version are here.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::keys::Layer;

/// A bucket mounted as a read-only directory that knows in which order a training run will read it.
#[derive(Debug, Parser)]
#[command(name = "belady", version, max_term_width = 120)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Mount a bucket, or a prefix of it, as a directory
    Mount(Box<MountArgs>),
    /// Unmount a directory
    Umount(UmountArgs),
    /// List the running mounts
    List(ListArgs),
    /// Show whether readers wait, for what, and what the cache does
    Stats(StatsArgs),
    /// Show, check and hand on the order in which files are read
    Order(OrderArgs),
    /// Show what belady brings, on this machine, in a minute: a store of its own, a mount, three shuffled epochs
    Demo(DemoArgs),
}

/// `belady mount URL DIR`.
#[derive(Debug, Args)]
pub struct MountArgs {
    /// s3://bucket[/prefix], ais://bucket[/prefix][?provider=aws] or file:///directory
    pub url: String,
    /// An empty directory
    pub dir: PathBuf,
    /// Read settings from this TOML file (flags and BELADY_* variables win over it)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print every setting in force with its origin, and do not mount
    #[arg(long)]
    pub print_config: bool,
    #[command(flatten)]
    pub options: MountOptions,
    /// Set by `belady mount` when it starts itself in the background; reports over standard input
    #[arg(long, hide = true)]
    pub background_child: bool,
}

/// Settings of a mount; each has a key of the same name in the file and a variable BELADY_* in the environment.
#[derive(Debug, Default, Args)]
pub struct MountOptions {
    /// Address of an S3-compatible store, e.g. http://minio:9000, or of an AIStore proxy (repeatable: the next is asked when one does not answer)
    #[arg(long, value_name = "URL", help_heading = "Store")]
    pub endpoint_url: Vec<String>,
    /// Region of the bucket
    #[arg(long, help_heading = "Store")]
    pub region: Option<String>,
    /// Profile of the AWS configuration files
    #[arg(long, help_heading = "Store")]
    pub profile: Option<String>,
    /// AWS credentials file to use in place of ~/.aws/credentials
    #[arg(long, value_name = "FILE", help_heading = "Store")]
    pub credentials_file: Option<String>,
    /// File of AWS_*=VALUE lines with the credentials
    #[arg(long, value_name = "FILE", help_heading = "Store")]
    pub env_file: Option<String>,
    /// Send requests without a signature (public buckets)
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Store")]
    pub no_sign_request: Option<String>,
    /// Agree to pay for requests to somebody else's bucket
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Store")]
    pub requester_pays: Option<String>,
    /// Name the bucket in the path, not in the host name [default: on with --endpoint-url]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Store")]
    pub force_path_style: Option<String>,
    /// PEM file of the authorities to trust in place of the system's
    #[arg(long, value_name = "FILE", help_heading = "Store")]
    pub ca_bundle: Option<String>,
    /// Tell an AIStore cluster which cloud objects will be read next, so that it fetches them ahead
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Store")]
    pub announce: Option<String>,

    /// Size of the memory tier, e.g. 32GiB; 0 = none [default: a tenth of the free memory]
    #[arg(long, value_name = "SIZE", help_heading = "Cache")]
    pub memory: Option<String>,
    /// Directory of the disk tier; it survives restarts
    #[arg(long, value_name = "DIR", help_heading = "Cache")]
    pub cache_dir: Option<String>,
    /// Size of the disk tier [default: what is free, less a tenth of the disk]
    #[arg(long, value_name = "SIZE", help_heading = "Cache")]
    pub disk: Option<String>,
    /// A further tier, fastest first (repeatable)
    #[arg(long, value_name = "NAME:PATH:SIZE", help_heading = "Cache")]
    pub tier: Vec<String>,

    /// In which order the files will be read: kind[:key=value]..., list:FILE, auto or none (repeatable) [default: auto]
    #[arg(long, value_name = "SPEC", help_heading = "Order")]
    pub order: Vec<String>,
    /// Refuse to mount when the listing is not this one (manifest_id of another node's stats)
    #[arg(long, value_name = "ID", help_heading = "Order")]
    pub expect_manifest: Option<String>,
    /// Look at readers' rank, world size and BELADY_ORDER in their environment, and at nothing else of it [default: on]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Order")]
    pub peek: Option<String>,
    /// Do not look at the environment of readers
    #[arg(long, conflicts_with = "peek", help_heading = "Order")]
    pub no_peek: bool,
    /// Threads that a search for the order may use, a long one at the lowest priority [default: auto, a tenth of the cores]
    #[arg(long, value_name = "N", help_heading = "Order")]
    pub search_threads: Option<String>,
    /// Let a search go through all 2^32 seeds, some 100 core-seconds [default: on]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Order")]
    pub search_exhaustive: Option<String>,
    /// Append every open to this file: seconds, thread and path
    #[arg(long, value_name = "FILE", help_heading = "Order")]
    pub record_opens: Option<String>,

    /// What to do when an object changes in the store: serve-new or fail [default: serve-new]
    #[arg(long, value_name = "WHAT", help_heading = "Reading")]
    pub on_change: Option<String>,
    /// Check cached files against their checksums: once, or always (which turns passthrough off) [default: once]
    #[arg(long, value_name = "WHEN", help_heading = "Reading")]
    pub verify: Option<String>,
    /// A read ends within this time, with bytes or an error [default: 300s]
    #[arg(long, value_name = "TIME", help_heading = "Reading")]
    pub read_deadline: Option<String>,
    /// Bytes per second from the store at most; 0 = no limit [default: 0]
    #[arg(long, value_name = "SIZE", help_heading = "Reading")]
    pub max_bandwidth: Option<String>,
    /// Requests in flight at most [default: 256]
    #[arg(long, value_name = "N", help_heading = "Reading")]
    pub max_requests: Option<String>,
    /// Connections to the store at most [default: 256]
    #[arg(long, value_name = "N", help_heading = "Reading")]
    pub max_connections: Option<String>,

    /// Let other users read the mount [default: on for root]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Mount")]
    pub allow_other: Option<String>,
    /// Let only the mounting user read the mount
    #[arg(long, conflicts_with = "allow_other", help_heading = "Mount")]
    pub no_allow_other: bool,
    /// Owner of the files [default: the mounting user]
    #[arg(long, value_name = "N", help_heading = "Mount")]
    pub uid: Option<String>,
    /// Group of the files [default: the mounting user's]
    #[arg(long, value_name = "N", help_heading = "Mount")]
    pub gid: Option<String>,
    /// Mode of files, octal [default: 0444]
    #[arg(long, value_name = "MODE", help_heading = "Mount")]
    pub file_mode: Option<String>,
    /// Mode of directories, octal [default: 0555]
    #[arg(long, value_name = "MODE", help_heading = "Mount")]
    pub dir_mode: Option<String>,
    /// Serve /metrics, /stats.json and /healthz at this address, e.g. 127.0.0.1:9100 [default: off]
    #[arg(long, value_name = "ADDR:PORT", help_heading = "Mount")]
    pub listen: Option<String>,
    /// Do without a kernel feature (repeatable): passthrough, readdirplus, keep-cache, parallel-dirops, read-ahead, tmpfs
    #[arg(long, value_name = "FEATURE", help_heading = "Mount")]
    pub disable_kernel: Vec<String>,
    /// Do without a way of reading from an ais:// store (repeatable): batch (GetBatch), direct (straight to the target)
    #[arg(long, value_name = "FEATURE", help_heading = "Store")]
    pub disable_store: Vec<String>,
    /// Stay in the foreground, log to standard error
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Mount")]
    pub foreground: Option<String>,
    /// error, warn, info, debug or trace; or target=level parts joined by + [default: info]
    #[arg(long, value_name = "LEVEL", help_heading = "Mount")]
    pub log_level: Option<String>,
    /// Append the log to this file
    #[arg(long, value_name = "FILE", help_heading = "Mount")]
    pub log_file: Option<String>,
}

impl MountOptions {
    /// What was typed, by key.
    #[must_use]
    pub fn layer(&self) -> Layer {
        let no_allow_other = self.no_allow_other.then(|| "false".to_owned());
        let no_peek = self.no_peek.then(|| "false".to_owned());
        let single = [
            ("region", &self.region),
            ("profile", &self.profile),
            ("credentials_file", &self.credentials_file),
            ("env_file", &self.env_file),
            ("no_sign_request", &self.no_sign_request),
            ("requester_pays", &self.requester_pays),
            ("force_path_style", &self.force_path_style),
            ("ca_bundle", &self.ca_bundle),
            ("announce", &self.announce),
            ("memory", &self.memory),
            ("cache_dir", &self.cache_dir),
            ("disk", &self.disk),
            ("expect_manifest", &self.expect_manifest),
            ("peek", if self.no_peek { &no_peek } else { &self.peek }),
            ("search_threads", &self.search_threads),
            ("search_exhaustive", &self.search_exhaustive),
            ("record_opens", &self.record_opens),
            ("on_change", &self.on_change),
            ("verify", &self.verify),
            ("read_deadline", &self.read_deadline),
            ("max_bandwidth", &self.max_bandwidth),
            ("max_requests", &self.max_requests),
            ("max_connections", &self.max_connections),
            ("allow_other", if self.no_allow_other { &no_allow_other } else { &self.allow_other }),
            ("uid", &self.uid),
            ("gid", &self.gid),
            ("file_mode", &self.file_mode),
            ("dir_mode", &self.dir_mode),
            ("listen", &self.listen),
            ("foreground", &self.foreground),
            ("log_level", &self.log_level),
            ("log_file", &self.log_file),
        ];
        let lists = [
            ("endpoint_url", &self.endpoint_url),
            ("tier", &self.tier),
            ("order", &self.order),
            ("disable_kernel", &self.disable_kernel),
            ("disable_store", &self.disable_store),
        ];
        let single = single.into_iter().filter_map(|(name, value)| value.clone().map(|value| (name, vec![value])));
        single.chain(lists.into_iter().filter(|(_, values)| !values.is_empty()).map(|(name, values)| (name, values.clone()))).collect()
    }
}

/// `belady umount DIR`.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// The mount point
    pub dir: PathBuf,
    /// Take it out of the tree now, even while files are open
    #[arg(long)]
    pub lazy: bool,
}

/// `belady list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// One JSON object per mount and line
    #[arg(long)]
    pub json: bool,
}

/// `belady stats DIR`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// The mount point
    pub dir: PathBuf,
    /// All figures as JSON (schema 1)
    #[arg(long)]
    pub json: bool,
    /// Again every so many seconds, with the rates of the time between
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub watch: Option<u64>,
}

/// `belady order ...`.
#[derive(Debug, Args)]
pub struct OrderArgs {
    #[command(subcommand)]
    pub command: OrderCommand,
}

/// What to do with orders.
#[derive(Debug, Subcommand)]
pub enum OrderCommand {
    /// What a mount follows, how sure it is, and why
    Show {
        /// The mount point
        dir: PathBuf,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Find the order behind a log of opens, as a mount would have
    Verify(VerifyArgs),
    /// Write the orders that a mount found, so that other nodes need not search
    Export {
        /// The mount point
        dir: PathBuf,
        /// Where to; standard output if left out
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Tell a mount of orders that another one found; they are followed when its readers' opens prove them
    Import {
        /// The mount point
        dir: PathBuf,
        /// What `export` wrote; `-`: standard input
        file: PathBuf,
    },
}

/// `belady order verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// What --record-opens or strace -f wrote
    #[arg(long, value_name = "FILE")]
    pub log: PathBuf,
    /// Only what is opened below this directory, named as in the log; without it, of what strace wrote, where most files of one kind are
    #[arg(long, value_name = "DIR")]
    pub root: Option<String>,
    /// The dataset's manifest, where one was saved; without it only the files that were opened are known
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,
    /// Some seconds of search at most: likely seeds, without all 2^32, which take minutes where nothing explains the opens; what was left out is told
    #[arg(long)]
    pub quick: bool,
    /// Threads of a search
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `belady demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
    /// Number of files
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub files: u32,
    /// Mean size of a file
    #[arg(long, default_value = "110KB", value_name = "SIZE")]
    pub mean_size: crate::types::ByteSize,
    /// Time to the first byte of the demo's store, milliseconds
    #[arg(long, default_value_t = 20, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub delay_ms: u64,
    /// Epochs to read
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub epochs: u32,
    /// Reader threads
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: u32,
    /// Size of the cache [default: half of the dataset]
    #[arg(long, value_name = "SIZE")]
    pub cache: Option<crate::types::ByteSize>,
    /// Keep the store and the mount running when the table is printed, until Ctrl-C
    #[arg(long)]
    pub keep: bool,
    /// Only serve the demo's store, for other programs, until Ctrl-C
    #[arg(long)]
    pub serve_only: bool,
    /// Port of the demo's store; 0 = a free one
    #[arg(long, default_value_t = 0)]
    pub port: u16,
}

#[cfg(test)]
mod tests {
    use super::super::keys::{KEYS, Kind};
    use super::*;
    use clap::CommandFactory;

    fn mount(words: &[&str]) -> MountArgs {
        match Cli::try_parse_from([&["belady", "mount", "s3://b", "/m"], words].concat()).unwrap().command {
            Command::Mount(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    /// Every key has its flag and reaches the layer under its own name: none can be forgotten in [`MountOptions::layer`].
    #[test]
    fn every_key_is_a_flag() {
        for key in KEYS {
            let flag = format!("--{}=text", key.name.replace('_', "-"));
            assert_eq!(mount(&[&flag]).options.layer(), Layer::from([(key.name, vec!["text".to_owned()])]), "{flag}");
        }
        assert!(mount(&[]).options.layer().is_empty());
    }

    #[test]
    fn switches_need_no_value_and_lists_repeat() {
        for key in KEYS.iter().filter(|key| key.kind == Kind::Switch) {
            let flag = format!("--{}", key.name.replace('_', "-"));
            assert_eq!(mount(&[&flag]).options.layer()[key.name], ["true"], "{flag}");
        }
        assert_eq!(mount(&["--no-allow-other"]).options.layer()["allow_other"], ["false"]);
        assert_eq!(mount(&["--no-peek"]).options.layer()["peek"], ["false"]);
        assert_eq!(mount(&["--order", "a", "--order", "b"]).options.layer()["order"], ["a", "b"]);
    }

    #[test]
    fn watch_has_a_default_pace() {
        let watch = |words: &[&str]| match Cli::try_parse_from([&["belady", "stats", "/m"], words].concat()).map(|cli| cli.command) {
            Ok(Command::Stats(args)) => Some(args.watch),
            _ => None,
        };
        assert_eq!(watch(&[]), Some(None));
        assert_eq!(watch(&["--watch"]), Some(Some(2)));
        assert_eq!(watch(&["--watch", "5"]), Some(Some(5)));
        assert_eq!(watch(&["--watch", "0"]), None);
    }
}
