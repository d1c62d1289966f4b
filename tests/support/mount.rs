//! A real mount over a bucket in memory. Unmounts when dropped, also on panic.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use belady::cache::{CacheConfig, DiskTier, TieredCache, tier_counters};
use belady::dataset::Manifest;
use belady::fetch::{Door, DoorConfig};
use belady::fs::{BeladyFs, ControlFile, ControlFiles, FsConfig};
use belady::fuse::{Feature, MountConfig, Mounted, Unmount, mount};
use belady::stats::Stats;
use belady::store::Store;
use belady::types::ReadEvent;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::bucket::Bucket;

/// How long a test may wait for anything. Not how long anything takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What a test varies.
pub(crate) struct Setup {
    pub(crate) fs: FsConfig,
    pub(crate) disable: BTreeSet<Feature>,
    /// Whether cached files lie in memory (read inline) or count as a disk's.
    pub(crate) memory: bool,
    pub(crate) control_panics: bool,
}

impl Default for Setup {
    fn default() -> Self {
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        Self { fs: FsConfig::owned_by(uid, gid), disable: BTreeSet::new(), memory: true, control_panics: false }
    }
}

/// The mount, its parts, and the runtime that they run on.
pub(crate) struct TestMount {
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) door: Arc<Door>,
    pub(crate) fs: Arc<BeladyFs>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) mounted: Mounted,
    pub(crate) events: mpsc::Receiver<ReadEvent>,
    mountpoint: PathBuf,
    _directory: tempfile::TempDir,
    pub(crate) runtime: Runtime,
}

/// The door over a bucket: the one place that knows how the parts below `fs` are put together.
fn door_over(bucket: &Arc<Bucket>, tiers: CacheConfig, stats: &Arc<Stats>, runtime: &Runtime, read_deadline: Duration) -> Arc<Door> {
    let (cache, _notes) = TieredCache::new(tiers, Arc::clone(stats)).unwrap();
    cache.recover();
    let config = DoorConfig { max_requests: 64, max_bandwidth: None, read_deadline };
    Door::new(Arc::clone(bucket) as Arc<dyn Store>, cache, Arc::clone(stats), runtime.handle().clone(), config, None)
}

/// One tier with room for everything: in memory, or on a disk.
fn tiers(memory: bool, directory: &Path) -> CacheConfig {
    const ROOM: u64 = 1 << 30;
    let disk = DiskTier { name: "disk".to_owned(), path: directory.join("cache"), bytes: ROOM, namespace: "test".to_owned() };
    if memory {
        CacheConfig { memory: Some(ROOM), ..CacheConfig::default() }
    } else {
        CacheConfig { disks: vec![disk], ..CacheConfig::default() }
    }
}

impl TestMount {
    /// Mounts with the defaults.
    pub(crate) fn of(bucket: Arc<Bucket>) -> Self {
        Self::with(bucket, Setup::default())
    }

    pub(crate) fn with(bucket: Arc<Bucket>, setup: Setup) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let manifest = Arc::new(Manifest::build("", bucket.listing()));
        let directory = tempfile::tempdir().unwrap();
        let mountpoint = directory.path().join("mnt");
        fs::create_dir(&mountpoint).unwrap();
        let tiers = tiers(setup.memory, directory.path());
        let stats = Arc::new(Stats { tiers: tier_counters(&tiers), ..Stats::default() });
        let (sender, events) = mpsc::channel(4096);
        let door = {
            let _inside = runtime.enter();
            door_over(&bucket, tiers, &stats, &runtime, setup.fs.read_deadline)
        };
        let control = ControlFiles(Arc::new(move |file: ControlFile| {
            assert!(!setup.control_panics, "as the test asked for");
            format!("this is {}\n", file.name()).into_bytes()
        }));
        let fs = BeladyFs::new(setup.fs, manifest, Arc::clone(&door), Some(sender), Arc::clone(&stats), control, runtime.handle().clone());
        let config = MountConfig {
            mountpoint: mountpoint.clone(),
            fsname: "test://bucket,with,commas".to_owned(),
            allow_other: rustix::process::getuid().is_root(),
            threads: 2,
            nonempty: false,
            disable: setup.disable,
        };
        let mounted = mount(&fs, config).unwrap();
        Self { bucket, door, fs, stats, mounted, events, mountpoint, _directory: directory, runtime }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.mountpoint
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> std::io::Result<Vec<u8>> {
        fs::read(self.path(name))
    }

    /// Unmounts and waits for the end of the session.
    pub(crate) fn end(self) {
        self.mounted.unmount(Unmount::WhenIdle).unwrap();
        let wait = async { tokio::time::timeout(PATIENCE, self.mounted.wait()).await };
        assert!(self.runtime.handle().block_on(wait).is_ok(), "the session did not end");
    }
}

/// Runs a test on its own thread and gives up on it after [`PATIENCE`]: a process that hangs in a mount cannot be joined.
pub(crate) fn with_deadline(test: impl FnOnce() + Send + 'static) {
    let (done, finished) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    match finished.recv_timeout(PATIENCE) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("the test hangs"),
        // Done, or it panicked and dropped the sender.
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}
