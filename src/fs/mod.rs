//! The file system as programs see it, on our own types: names, attributes, open files, reads. `fuse/` carries it to the kernel.
//!
//! It promises: a read returns exactly the bytes of one version or an errno, and ends within the read deadline; a directory lists in a fixed
//! order with stable offsets; inode numbers are the manifest's until an object changes, and a new version has a new one. The namespace is complete before the mount answers and does not change, so
//! nothing here asks the store for a name.
//!
//! Methods that are not `async` never wait and touch no disk: they run on the kernel's session threads. The others run on the runtime.
//!
//! Not here: what to fetch ahead (`plan`), where bytes are kept (`cache`), which opens the kernel may serve itself (`fuse/open_mode.rs`).

mod account;
pub mod control;
pub mod error;
mod handle;
mod namespace;
mod open;
mod read;
mod versions;

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime;
use tokio::sync::{Semaphore, mpsc};

pub use control::{ControlFile, ControlFiles};
pub use error::Errno;
pub use handle::{Complete, Handle};
pub use namespace::{Attr, Entry, FileSystemSize, Full, Kind};
pub use open::{Answered, OpenStart, OpenTicket};
pub use read::ReadAnswer;

use crate::dataset::Manifest;
use crate::fetch::Door;
use crate::stats::Stats;
use crate::types::{FileIndex, ObjectMeta, ReadEvent};

/// What happens when an object is another version than the listing said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnChange {
    /// The next open serves the new version; open handles get `ESTALE`.
    #[default]
    ServeNew,
    /// The file is an error from then on: a run must not silently train on two versions.
    Fail,
}

/// How long OPEN waits for a file to be complete. A process that waits in open(2) cannot be killed, one that waits in read(2) can; and most
/// objects of up to 16 MiB are here within a second, so that most first opens get kernel passthrough.
pub const OPEN_HOLD: Duration = Duration::from_secs(1);

/// Preads of disk tiers at once. An NVMe drive is at its best from about 32 on; the kernel may ask for 1024.
const DISK_READS_MAX: usize = 32;

/// Settings of the file system, resolved.
#[derive(Clone, Debug)]
pub struct FsConfig {
    /// Owner of everything.
    pub uid: u32,
    pub gid: u32,
    /// Permission bits of files and directories. The mount is read-only whatever they say.
    pub file_mode: u16,
    pub dir_mode: u16,
    /// Every open and read ends within this, with bytes or an errno.
    pub read_deadline: Duration,
    /// See [`OPEN_HOLD`].
    pub open_hold: Duration,
    /// How long the kernel may believe names and attributes without asking.
    pub metadata_ttl: Duration,
    pub on_change: OnChange,
    /// Count each open as an access. Off when an order is known: then the planner counts.
    pub count_accesses: bool,
}

impl FsConfig {
    /// The defaults for this owner.
    #[must_use]
    pub const fn owned_by(uid: u32, gid: u32) -> Self {
        Self {
            uid,
            gid,
            file_mode: 0o444,
            dir_mode: 0o555,
            read_deadline: Duration::from_secs(300),
            open_hold: OPEN_HOLD,
            metadata_ttl: Duration::from_secs(24 * 60 * 60), // names do not change while mounted; a day bounds what a mistake can cost
            on_change: OnChange::ServeNew,
            count_accesses: true,
        }
    }
}

/// Makes the kernel forget what it keeps of an inode. Blocks: called on a blocking thread only.
pub type Invalidate = Arc<dyn Fn(u64) + Send + Sync>;

/// The file system of one mount.
pub struct BeladyFs {
    config: FsConfig,
    manifest: Arc<Manifest>,
    door: Arc<Door>,
    accounts: account::Accounts,
    control: ControlFiles,
    runtime: runtime::Handle,
    handles: handle::Handles,
    versions: versions::Versions,
    disk_reads: Arc<Semaphore>,
    invalidate: RwLock<Option<Invalidate>>,
}

impl fmt::Debug for BeladyFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BeladyFs").field("config", &self.config).field("open", &self.handles.len()).finish_non_exhaustive()
    }
}

impl BeladyFs {
    /// The file system over a complete manifest.
    #[must_use]
    pub fn new(
        config: FsConfig,
        manifest: Arc<Manifest>,
        door: Arc<Door>,
        events: Option<mpsc::Sender<ReadEvent>>,
        stats: Arc<Stats>,
        control: ControlFiles,
        runtime: runtime::Handle,
    ) -> Arc<Self> {
        Arc::new(Self {
            accounts: account::Accounts::new(stats, events, config.count_accesses),
            versions: versions::Versions::new(Arc::clone(&manifest)),
            config,
            manifest,
            door,
            control,
            runtime,
            handles: handle::Handles::default(),
            disk_reads: Arc::new(Semaphore::new(DISK_READS_MAX)),
            invalidate: RwLock::new(None),
        })
    }

    /// Its settings.
    #[must_use]
    pub const fn config(&self) -> &FsConfig {
        &self.config
    }

    /// The counters of the mount.
    #[must_use]
    pub const fn stats(&self) -> &Arc<Stats> {
        &self.accounts.stats
    }

    /// The version of a file that an open gets now.
    #[must_use]
    pub fn object(&self, file: FileIndex) -> ObjectMeta {
        self.versions.current(file)
    }

    /// Its inode number.
    #[must_use]
    pub fn ino(&self, file: FileIndex) -> u64 {
        self.versions.ino(file)
    }

    /// Files open now.
    #[must_use]
    pub fn open_handles(&self) -> usize {
        self.handles.len()
    }

    /// How to make the kernel forget an inode.
    pub fn began(&self, invalidate: Invalidate) {
        *self.invalidate.write().unwrap_or_else(PoisonError::into_inner) = Some(invalidate);
    }

    /// The kernel's side is gone. It does not tell of the files that were open last: they are let go here.
    pub fn ended(&self) {
        self.invalidate.write().unwrap_or_else(PoisonError::into_inner).take();
        self.handles.clear();
    }

    /// Runs a task on the runtime. A panic in it is counted and ends only itself: the answer it held is dropped, which is an `EIO`.
    pub fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let this = Arc::clone(self);
        self.runtime.spawn(async move {
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                this.accounts.stats.panics.add(1);
                tracing::error!("a request panicked and was answered with an I/O error; the mount goes on");
            }
        });
    }
}
