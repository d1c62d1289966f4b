//! What the cluster saw: the judge of "one redirect for each GET", "no cold object asked for by ranges" and "these files came in batches".

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The live counters, shared by all nodes.
        #[derive(Debug, Default)]
        pub(super) struct Counting { $(pub(super) $name: AtomicU64,)* }

        /// The counters at one moment, since the start or the last reset.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Counters { $($(#[$doc])* pub(crate) $name: u64,)* }

        impl Counting {
            pub(super) fn now(&self) -> Counters {
                Counters { $($name: self.$name.load(Relaxed),)* }
            }

            /// Zeroes all but what is under way.
            pub(super) fn reset(&self) {
                let under_way = self.in_flight.load(Relaxed);
                $(self.$name.store(0, Relaxed);)*
                self.in_flight.store(under_way, Relaxed);
            }
        }
    };
}

counters! {
    /// Requests of any kind at proxies.
    proxy_requests,
    /// Lists of buckets at proxies.
    proxy_list_buckets,
    /// Pages of lists of objects at proxies.
    proxy_list,
    /// ... of them those answered in msgpack.
    proxy_list_msgpack,
    /// HEAD of buckets.
    proxy_head_bucket,
    /// HEAD of objects at proxies.
    proxy_head,
    /// GET of objects at proxies.
    proxy_get,
    /// PUT and DELETE of objects at proxies.
    proxy_write,
    /// Batches asked for at proxies.
    proxy_batch,
    /// Cluster maps asked for, at any node.
    smap,
    /// `/v1/health`, at any node.
    health,
    /// Jobs started.
    jobs,
    /// Requests in the S3 dialect at proxies (counted by their kind too).
    proxy_s3,
    /// Requests of any kind at targets.
    target_requests,
    /// HEAD of objects at targets.
    target_head,
    /// GET of objects at targets, refused ones too.
    target_get,
    /// ... of them those for a range.
    target_ranges,
    /// ... of them those for members of an archive.
    target_archpath,
    /// Redirects handed out by proxies.
    redirects,
    /// Object reads at targets that no proxy had redirected.
    direct,
    /// ... of them those refused (403).
    direct_refused,
    /// Redirects refused at targets: nonce unknown, used before, or for another path.
    bad_redirects,
    /// Object reads at a target that does not have the object by the map.
    wrong_target,
    /// Batches streamed.
    batches,
    /// Entries in them, missing ones too.
    batch_entries,
    /// Entries that were missing.
    batch_soft_errors,
    /// Batches refused with 429.
    batch_refused,
    /// Batches ended before their last entry.
    batch_aborted,
    /// Whole objects fetched from the remote bucket.
    cold_fetches,
    /// Their bytes.
    cold_bytes,
    /// Body bytes of objects handed out, batches' framing too.
    bytes,
    /// Requests answered 401.
    unauthorized,
    /// Requests answered 403 for want of permission.
    forbidden,
    /// Scripted faults that struck.
    faults,
    /// Connections accepted by proxies.
    proxy_connections,
    /// Connections accepted by targets.
    target_connections,
    /// Object and batch bodies between arrival of their request and their last byte, now.
    in_flight,
    /// The most of them at once.
    in_flight_peak,
}

/// One more.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
