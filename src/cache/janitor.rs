//! One thread that pays what the tiers owe: unlinks, at a bounded rate, and what time brings (probes of failed tiers). It ends with the cache.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::tier::Tier;

/// Four thousand unlinks a second: more than any loader reads files, and at most a few percent of an NVMe drive's metadata rate.
const UNLINKS_AT_ONCE: usize = 40;
const PAUSE: Duration = Duration::from_millis(10);
/// Probes and full disks are looked at this often; a probe itself is due less often.
const UPKEEP: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Rest,
    Work,
    Stop,
}

/// The janitor's bell.
#[derive(Debug)]
pub(super) struct Wake {
    call: Mutex<Call>,
    bell: Condvar,
}

impl Wake {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { call: Mutex::new(Call::Rest), bell: Condvar::new() })
    }

    /// There is something to unlink.
    pub(super) fn now(&self) {
        let mut call = self.call.lock().unwrap_or_else(PoisonError::into_inner);
        if *call == Call::Rest {
            *call = Call::Work;
            self.bell.notify_one();
        }
    }

    pub(super) fn stop(&self) {
        *self.call.lock().unwrap_or_else(PoisonError::into_inner) = Call::Stop;
        self.bell.notify_one();
    }

    /// Waits for `time` or the end; `false` at the end.
    fn pause(&self, time: Duration) -> bool {
        let call = self.call.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.bell.wait_timeout_while(call, time, |call| *call != Call::Stop);
        *waited.unwrap_or_else(PoisonError::into_inner).0 != Call::Stop
    }

    /// Waits for work, for `time` at most; `false` at the end.
    fn rest(&self, time: Duration) -> bool {
        let call = self.call.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.bell.wait_timeout_while(call, time, |call| *call == Call::Rest);
        let mut call = waited.unwrap_or_else(PoisonError::into_inner).0;
        let go_on = *call != Call::Stop;
        if go_on {
            *call = Call::Rest;
        }
        go_on
    }
}

/// Starts the thread. Nobody joins it: a hanging disk must not hang the unmount.
pub(super) fn start(tiers: Vec<Arc<Tier>>, wake: Arc<Wake>) -> std::io::Result<()> {
    let work = move || {
        let mut looked = Instant::now();
        while wake.rest(UPKEEP) {
            loop {
                if looked.elapsed() >= UPKEEP {
                    looked = Instant::now();
                    tiers.iter().for_each(|tier| tier.upkeep(looked));
                }
                let unlinked: usize = tiers.iter().map(|tier| unlink_some(tier, UNLINKS_AT_ONCE)).sum();
                if unlinked == 0 {
                    break;
                }
                if !wake.pause(PAUSE) {
                    return;
                }
            }
        }
    };
    std::thread::Builder::new().name("belady-tidy".into()).spawn(work).map(drop)
}

/// Unlinks at most `most` files of a tier, none while the tier is not well; how many it was.
pub(super) fn unlink_some(tier: &Tier, most: usize) -> usize {
    if !tier.is_ok() {
        return 0;
    }
    (0..most).map_while(|_| tier.next_owed()).map(|hash| tier.tidy(hash)).count()
}
