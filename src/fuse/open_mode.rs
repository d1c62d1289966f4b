//! Who reads an open inode: the kernel, straight from the cached file (passthrough), or we, through its page cache.
//!
//! The kernel refuses to mix: while an inode is open in one way, opening it in the other is `EIO`, and so is passthrough to a second backing
//! file (fs/fuse/iomode.c). So the first open decides, and every further one follows until the last handle is closed. The kernel counts down
//! before its RELEASE reaches us, so that our count is never below its own.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

/// Locks of the table; an open holds one for the time of an ioctl (1 µs).
const SHARDS: usize = 16;

/// How an inode is open now. `B` is the kernel's name for a backing file, `F` the file, kept as long as the kernel reads it.
#[derive(Debug)]
enum Mode<B, F> {
    Reads,
    Passthrough { backing: Arc<B>, file: F },
}

#[derive(Debug)]
struct Open<B, F> {
    mode: Mode<B, F>,
    handles: u32,
}

/// How to answer an open.
#[derive(Debug)]
pub(crate) enum Chosen<B> {
    Reads,
    Passthrough(Arc<B>),
}

/// What a refused registration of a backing file means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Of every file: the right or the feature is missing.
    OfAll,
    /// Of this file: it lies where the kernel cannot pass through to (another FUSE, overlays on overlays), or there is no memory just now.
    OfFile,
}

/// Reads the errno of FUSE_DEV_IOC_BACKING_OPEN (fs/fuse/passthrough.c).
pub(crate) fn refusal(error: &io::Error) -> Refusal {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM | Errno::NOTTY | Errno::OPNOTSUPP) => Refusal::OfAll,
        _ => Refusal::OfFile,
    }
}

/// Inode numbers → how they are open. Bounded by what processes have open.
#[derive(Debug)]
pub(crate) struct OpenModes<B, F> {
    shards: [Mutex<HashMap<u64, Open<B, F>>>; SHARDS],
}

impl<B, F> Default for OpenModes<B, F> {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl<B, F: Clone> OpenModes<B, F> {
    /// One more handle of an inode that the kernel reads already; `None` if it does not, and then nothing is counted.
    pub(crate) fn join(&self, ino: u64) -> Option<(Arc<B>, F)> {
        let mut shard = self.shard(ino).lock().unwrap_or_else(PoisonError::into_inner);
        let open = shard.get_mut(&ino)?;
        let Mode::Passthrough { backing, file } = &open.mode else { return None };
        open.handles += 1;
        Some((Arc::clone(backing), file.clone()))
    }

    /// One more handle. `offer`: the complete file, if it may be passed through; `create` registers it with the kernel (it may decline).
    pub(crate) fn open(&self, ino: u64, offer: Option<&F>, create: impl FnOnce(&F) -> Option<B>) -> Chosen<B> {
        let mut shard = self.shard(ino).lock().unwrap_or_else(PoisonError::into_inner);
        match shard.entry(ino) {
            Entry::Occupied(mut entry) => {
                let open = entry.get_mut();
                open.handles += 1;
                match &open.mode {
                    Mode::Reads => Chosen::Reads,
                    Mode::Passthrough { backing, .. } => Chosen::Passthrough(Arc::clone(backing)),
                }
            }
            Entry::Vacant(entry) => {
                let created = offer.and_then(|file| Some((Arc::new(create(file)?), file.clone())));
                let (mode, chosen) = match created {
                    Some((backing, file)) => (Mode::Passthrough { backing: Arc::clone(&backing), file }, Chosen::Passthrough(backing)),
                    None => (Mode::Reads, Chosen::Reads),
                };
                entry.insert(Open { mode, handles: 1 });
                chosen
            }
        }
    }

    /// One handle fewer. True if it was the last one: then the backing file is let go.
    pub(crate) fn close(&self, ino: u64) -> bool {
        let mut shard = self.shard(ino).lock().unwrap_or_else(PoisonError::into_inner);
        let Entry::Occupied(mut entry) = shard.entry(ino) else { return true };
        entry.get_mut().handles -= 1;
        let last = entry.get().handles == 0;
        let gone = last.then(|| entry.remove());
        drop(shard);
        drop(gone); // closing a backing file is an ioctl: not under the lock
        last
    }

    #[expect(clippy::cast_possible_truncation, reason = "only the low bits choose a shard")]
    const fn shard(&self, ino: u64) -> &Mutex<HashMap<u64, Open<B, F>>> {
        &self.shards[ino as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// What a program and the cache do to one inode.
    #[derive(Clone, Debug)]
    enum Step {
        Open { complete: bool, kernel_allows: bool },
        Join,
        Close,
    }

    fn step() -> impl Strategy<Value = (u64, Step)> {
        let what = prop_oneof![
            3 => (any::<bool>(), any::<bool>()).prop_map(|(complete, kernel_allows)| Step::Open { complete, kernel_allows }),
            1 => Just(Step::Join),
            3 => Just(Step::Close),
        ];
        (0_u64..3, what)
    }

    /// The kernel's own rule: what it would answer to an open in this mode.
    #[derive(Default)]
    struct Kernel {
        /// Handles, and the backing id they share (`None`: cached).
        open: HashMap<u64, (u32, Option<u32>)>,
    }

    impl Kernel {
        fn accepts(&mut self, ino: u64, backing: Option<u32>) -> bool {
            let (handles, mode) = self.open.entry(ino).or_insert((0, backing));
            let fits = *handles == 0 || *mode == backing;
            if fits {
                *handles += 1;
                *mode = backing;
            }
            fits
        }
        fn close(&mut self, ino: u64) -> bool {
            self.open.get_mut(&ino).is_some_and(|(handles, _)| {
                let open = *handles > 0;
                *handles -= u32::from(open);
                open
            })
        }
    }

    proptest! {
        #[test]
        fn the_kernel_never_sees_two_modes_or_two_backings_of_one_inode(steps in prop::collection::vec(step(), 1..200)) {
            let (modes, mut kernel) = (OpenModes::<u32, usize>::default(), Kernel::default());
            let mut ids = 0;
            for (number, (ino, step)) in steps.into_iter().enumerate() {
                match step {
                    Step::Open { complete, kernel_allows } => {
                        let file = complete.then_some(number);
                        let chosen = modes.open(ino, file.as_ref(), |_| { ids += 1; kernel_allows.then_some(ids) });
                        let backing = match chosen { Chosen::Reads => None, Chosen::Passthrough(id) => Some(*id) };
                        prop_assert!(kernel.accepts(ino, backing), "step {number}: the kernel refuses {backing:?}");
                    }
                    Step::Join => if let Some((id, _)) = modes.join(ino) {
                        prop_assert!(kernel.accepts(ino, Some(*id)), "step {number}: the kernel refuses to join {id}");
                    },
                    Step::Close => if kernel.close(ino) {
                        let last = modes.close(ino);
                        prop_assert_eq!(last, kernel.open[&ino].0 == 0);
                    },
                }
            }
        }
    }

    #[test]
    fn only_a_missing_right_or_feature_switches_passthrough_off() {
        for (errno, expected) in [
            (Errno::PERM, Refusal::OfAll),
            (Errno::NOTTY, Refusal::OfAll),
            (Errno::LOOP, Refusal::OfFile),
            (Errno::INVAL, Refusal::OfFile),
            (Errno::NOMEM, Refusal::OfFile),
        ] {
            assert_eq!(refusal(&errno.into()), expected, "{errno:?}");
        }
    }

    #[test]
    fn the_file_is_kept_while_the_kernel_reads_it_and_not_longer() {
        let modes = OpenModes::<u32, Arc<u32>>::default();
        let file = Arc::new(7);
        assert!(matches!(modes.open(1, Some(&file), |_| Some(1)), Chosen::Passthrough(_)));
        assert!(modes.join(1).is_some());
        assert_eq!(Arc::strong_count(&file), 2);
        assert!(!modes.close(1));
        assert_eq!(Arc::strong_count(&file), 2);
        assert!(modes.close(1));
        assert_eq!(Arc::strong_count(&file), 1);
    }

    #[test]
    fn a_complete_file_is_passed_through_only_after_the_last_reading_handle_closed() {
        let modes = OpenModes::<u32, u32>::default();
        let file = Arc::new(7);
        assert!(matches!(modes.open(1, None, |_| None), Chosen::Reads));
        assert!(matches!(modes.open(1, Some(&file), |_| Some(1)), Chosen::Reads));
        assert!(!modes.close(1) && modes.close(1));
        assert!(matches!(modes.open(1, Some(&file), |_| Some(1)), Chosen::Passthrough(_)));
    }
}
