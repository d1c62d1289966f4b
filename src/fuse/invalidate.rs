//! Telling the kernel to forget an inode: its pages and attributes.
//!
//! The kernel waits, inside the notification, for reads of that inode that are under way. So it is never sent from a session thread (which
//! would have to answer that read) nor under a lock, but from a thread of its own, fed by a bounded queue; whoever must know that it is done
//! calls [`Notify::now`] on a blocking thread.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::{io, thread};

use fuser::{INodeNo, Notifier};

/// Inodes that wait to be forgotten. One costs 1 to 20 µs; when more than this are behind, the kernel keeps some pages of retired
/// files longer, which costs memory that it can take back by itself.
const QUEUE_MAX: usize = 4096;

/// The way to the kernel, until the mount ends.
#[derive(Clone, Debug)]
pub(super) struct Notify(Arc<Mutex<Option<Notifier>>>);

impl Notify {
    pub(super) fn new(notifier: Notifier) -> Self {
        Self(Arc::new(Mutex::new(Some(notifier))))
    }

    /// Blocks until the kernel has forgotten the inode.
    pub(super) fn now(&self, ino: u64) {
        let notifier = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(notifier) = notifier else { return };
        // From the first byte to the last.
        if let Err(error) = notifier.inval_inode(INodeNo(ino), 0, 0) {
            tracing::debug!("the kernel did not take the invalidation of inode {ino}: {error}");
        }
    }

    /// The mount has ended: lets go of the descriptor, so that the kernel may take the connection down.
    pub(super) fn end(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Has inodes forgotten in the background. Cheap to clone; never waits.
#[derive(Clone, Debug)]
pub struct Invalidator {
    queue: SyncSender<u64>,
}

impl Invalidator {
    /// Starts the thread. It ends with the last clone.
    pub(super) fn start(notify: Notify) -> io::Result<Self> {
        let (queue, inodes) = sync_channel(QUEUE_MAX);
        thread::Builder::new().name("belady-inval".to_owned()).spawn(move || forget_all(&inodes, &notify))?;
        Ok(Self { queue })
    }

    /// Makes the kernel forget an inode, soon. False if too many wait already, and then it does not.
    pub fn inval(&self, ino: u64) -> bool {
        self.queue.try_send(ino).is_ok()
    }
}

fn forget_all(inodes: &Receiver<u64>, notify: &Notify) {
    while let Ok(ino) = inodes.recv() {
        notify.now(ino);
    }
}
