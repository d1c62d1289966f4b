//! Mounting, and what a mount is until it ends.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::{io, thread};

use fuser::{MountOption, Session, SessionACL};
use rustix::thread::CapabilitySet;
use tokio::sync::watch;

use super::adapter::{Adapter, Shared};
use super::invalidate::Notify;
use super::kernel::Feature;
use super::mountpoint::{self, FS_TYPE};
use super::{Invalidator, MountError, Unmount};
use crate::fs::BeladyFs;
use crate::stats::Stats;

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountConfig {
    pub mountpoint: PathBuf,
    /// What /proc/mounts shows as the source: the URL. No credential in it.
    pub fsname: String,
    /// Whether other users may enter.
    pub allow_other: bool,
    /// Session threads; see [`default_threads`].
    pub threads: usize,
    /// Mount over a directory that is not empty.
    pub nonempty: bool,
    /// Kernel features not to use.
    pub disable: BTreeSet<Feature>,
}

/// Session threads that pay off: they only answer from memory, and on few cores more of them only cost (8 threads on 2 cores: 25 % more CPU per
/// file than 2).
#[must_use]
pub fn default_threads() -> usize {
    const THREADS_MAX: usize = 4;
    thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX)
}

/// A mount. Dropping it unmounts, lazily if it is busy.
#[derive(Debug)]
pub struct Mounted {
    path: PathBuf,
    ended: watch::Receiver<bool>,
    invalidator: Invalidator,
}

impl Mounted {
    /// The resolved mount point.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Resolves when the kernel's side is gone: unmounted by us or from outside, and the last open file closed.
    pub async fn wait(&self) {
        let mut ended = self.ended.clone();
        // An error means that the session thread is gone, which is the end too.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    /// Whether [`Self::wait`] would resolve at once.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        *self.ended.borrow() || self.ended.has_changed().is_err()
    }

    /// Unmounts. Blocks (without root it runs a helper).
    ///
    /// # Errors
    /// Busy, or refused.
    pub fn unmount(&self, how: Unmount) -> Result<(), MountError> {
        mountpoint::unmount(&self.path, how)
    }

    /// To have inodes forgotten by the kernel.
    #[must_use]
    pub fn invalidator(&self) -> Invalidator {
        self.invalidator.clone()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Only what is still ours: after an umount from outside, something else may be mounted there.
        if !self.has_ended() && mountpoint::mounted_at(&self.path).is_some_and(|line| line.kind == FS_TYPE) {
            let _ = mountpoint::unmount(&self.path, Unmount::Lazy);
        }
    }
}

/// Mounts, and returns when the mount answers. Blocks: not on the runtime's threads.
///
/// # Errors
/// Each with its remedy; nothing is left behind.
pub fn mount(fs: &Arc<BeladyFs>, config: MountConfig) -> Result<Mounted, MountError> {
    let path = mountpoint::prepare(&config.mountpoint, config.nonempty)?;
    let mut disable = config.disable.clone();
    let stats = Arc::clone(fs.stats());
    if !may_pass_through() && disable.insert(Feature::Passthrough) {
        note(&stats, "kernel passthrough is off: it needs CAP_SYS_ADMIN (root); warm reads cost about twice the CPU");
    }
    // Without the right to open the device (fusermount3 opened it for us) it cannot be opened a second time.
    if OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
        disable.insert(Feature::CloneFd);
    }
    let clone_fd = !disable.contains(&Feature::CloneFd);
    let mounted = match start(fs, &config, &path, disable.clone()) {
        // The library clones the descriptor after mounting, and gives up if that is refused (gVisor): then without.
        Err(Started::Silent) if clone_fd => {
            disable.insert(Feature::CloneFd);
            start(fs, &config, &path, disable.clone())
        }
        other => other,
    };
    let mounted = mounted.map_err(|error| match error {
        Started::Refused(error) => error,
        Started::Silent => MountError::Mount { path: path.clone(), reason: "the mount does not answer".to_owned() },
    })?;
    if !disable.contains(&Feature::Readahead) {
        raise_readahead(&path, &stats);
    }
    Ok(mounted)
}

/// Why a session did not start.
enum Started {
    Refused(MountError),
    /// It mounted and ended at once.
    Silent,
}

fn start(fs: &Arc<BeladyFs>, config: &MountConfig, path: &Path, disable: BTreeSet<Feature>) -> Result<Mounted, Started> {
    let refused = |error| Started::Refused(MountError::from_library(path.to_owned(), error, device_exists()));
    let options = session_options(config, &disable);
    let shared = Shared::new(Arc::clone(fs), disable);
    let session = Session::new(Adapter(shared), path, &options).map_err(refused)?;

    let notify = Notify::new(session.notifier());
    let invalidator = Invalidator::start(notify.clone()).map_err(refused)?;
    let by_fs = notify.clone();
    fs.began(Arc::new(move |ino| by_fs.now(ino)));

    let (end, ended) = watch::channel(false);
    let (fs, at) = (Arc::clone(fs), path.to_owned());
    let serve = move || {
        if let Err(error) = session.run() {
            tracing::error!("the session with the kernel ended: {error}");
        }
        notify.end();
        fs.ended();
        tracing::info!("{} is no longer mounted", at.display());
        // Nobody may be listening any more.
        let _ = end.send(true);
    };
    thread::Builder::new().name("belady-fuse".to_owned()).spawn(serve).map_err(refused)?;
    let mounted = Mounted { path: path.to_owned(), ended, invalidator };
    match rustix::fs::statfs(path) {
        Ok(_) => Ok(mounted),
        Err(_) => {
            drop(mounted); // the next try needs the path free
            Err(Started::Silent)
        }
    }
}

fn session_options(config: &MountConfig, disable: &BTreeSet<Feature>) -> fuser::Config {
    let mut options = fuser::Config::default();
    options.mount_options = vec![
        // Read-write mounts also lose: each READ makes atime stale, and the next fstat is a request.
        MountOption::RO,
        MountOption::NoAtime,
        MountOption::DefaultPermissions,
        // A comma would end the option where the helper mounts.
        MountOption::FSName(config.fsname.replace(',', "%2C")),
        // The library's own Subtype only sets the source's name.
        MountOption::CUSTOM("subtype=belady".to_owned()),
    ];
    options.acl = if config.allow_other { SessionACL::All } else { SessionACL::Owner };
    options.n_threads = Some(config.threads.max(1));
    options.clone_fd = !disable.contains(&Feature::CloneFd);
    options
}

/// Whether /dev/fuse is what it should be: character device 10:229 (Documentation/admin-guide/devices.txt of the kernel).
fn device_exists() -> bool {
    std::fs::metadata("/dev/fuse").is_ok_and(|device| device.file_type().is_char_device() && device.rdev() == rustix::fs::makedev(10, 229))
}

/// The kernel demands CAP_SYS_ADMIN of whoever registers a backing file.
fn may_pass_through() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// The kernel's offer at mount is 128 KiB and can only be lowered there; root raises it afterwards. At 1 MiB, the largest READ, every file up to that
/// size is one request and large files need an eighth of the requests.
fn raise_readahead(path: &Path, stats: &Stats) {
    const READ_AHEAD_KIB: &str = "1024";
    let raised = mountpoint::mounted_at(path)
        .ok_or_else(|| io::Error::other("not in mountinfo"))
        .and_then(|line| std::fs::write(format!("/sys/class/bdi/{}/read_ahead_kb", line.device), READ_AHEAD_KIB));
    if let Err(error) = raised {
        note(
            stats,
            &format!(
                "the kernel reads 128 KiB ahead instead of 1 MiB ({error}): up to 8 times the requests for large files; root may raise it"
            ),
        );
    }
}

fn note(stats: &Stats, text: &str) {
    tracing::info!("{text}");
    stats.notes.lock().unwrap_or_else(PoisonError::into_inner).push(text.to_owned());
}
