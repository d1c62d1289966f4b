//! A fake AIStore cluster on loopback: proxies that list and redirect, targets that serve, a cluster map that changes, GetBatch, the S3
//! dialect, cold remote objects, tokens, signed redirects, and faults on script. It counts what it is asked.
//!
//! It speaks the wire protocol of AIStore 5.0 as far as a reader needs it; `tests/it/ais_official.rs` has NVIDIA's own client judge it. It
//! shares no code with the store it tests. It is not durable, makes no replicas, and moves objects in no time when the map changes.

#![allow(dead_code, unused_imports, reason = "each includer, test or benchmark, uses its part")]

mod body;
mod conn;
mod counters;
mod fault;
pub(crate) mod hash;
mod list;
mod moss;
mod node;
mod objects;
mod proxy;
mod request;
mod s3;
mod smap;
mod target;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use belady::demo::dataset::Dataset;
use bytes::Bytes;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

pub(crate) use self::counters::Counters;
pub(crate) use self::fault::{At, Does, Fault, Op, When};
pub(crate) use self::node::Recorded;
pub(crate) use self::objects::{Bck, BucketSpec, Checksum, Content, Object};

use self::counters::Counting;
use self::fault::Script;
use self::moss::Promised;
use self::objects::{Bucket, Buckets};
use self::smap::{FLAG_MAINTENANCE, Member, Smap};

/// Modification time of the first version of each object; one second more for each later.
const FIRST_MTIME_SECONDS: i64 = 1_780_000_000;

/// What a token may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    All,
    /// These buckets, as [`Bck`] prints them (`ais://b`, `s3://b`).
    Buckets(Vec<String>),
}

/// How GetBatch behaves.
#[derive(Clone, Debug)]
pub(crate) struct BatchConfig {
    /// Missing entries above which a batch ends early (upstream's default: 6).
    pub(crate) max_soft_errors: usize,
    /// Batches per target above which the next is refused with 429 (upstream: 256).
    pub(crate) max_pending: u64,
    /// A write that waits so long for its reader ends the batch (upstream: 30 s).
    pub(crate) write_deadline: Duration,
    /// Before the first byte of a batch, besides a target's own first byte.
    pub(crate) first_byte: Duration,
    /// Before the end of the archive, after the last entry.
    pub(crate) end: Duration,
    /// Between entries: 1 / the entries a target gathers per second.
    pub(crate) per_entry: Duration,
}

impl Default for BatchConfig {
    fn default() -> Self {
        let (write_deadline, none) = (Duration::from_secs(30), Duration::ZERO);
        Self { max_soft_errors: 6, max_pending: 256, write_deadline, first_byte: none, end: none, per_entry: none }
    }
}

/// What the cluster is like.
#[derive(Clone, Debug)]
pub(crate) struct AisConfig {
    /// Named `t1`, `t2`, ...
    pub(crate) targets: usize,
    /// Named `p1`, `p2`, ...; `p1` is the primary.
    pub(crate) proxies: usize,
    /// Of its own runtime.
    pub(crate) threads: usize,
    /// Before a proxy's answers (and redirects).
    pub(crate) proxy_first_byte: Duration,
    /// Before a target's answers.
    pub(crate) target_first_byte: Duration,
    /// A cold object's way from the remote bucket, before a target's answer.
    pub(crate) cold_fetch: Duration,
    /// HEAD with `props=` is understood (V2); else all are answered as V1.
    pub(crate) head_v2: bool,
    /// `None`: a server without GetBatch; its path is unknown.
    pub(crate) batch: Option<BatchConfig>,
    /// `None`: everybody may. Else what each token may; checked at proxies only.
    pub(crate) tokens: Option<Vec<(String, Access)>>,
    /// Redirects are signed: a target takes each once, and nothing else.
    pub(crate) sign: bool,
    /// Targets have a verifying key, as those of 5.1 do whether they sign or not.
    pub(crate) keys: bool,
    /// Entries of a page of a list at most.
    pub(crate) page_max: Option<usize>,
}

impl Default for AisConfig {
    fn default() -> Self {
        Self {
            targets: 3,
            proxies: 1,
            threads: 1,
            proxy_first_byte: Duration::ZERO,
            target_first_byte: Duration::ZERO,
            cold_fetch: Duration::ZERO,
            head_v2: true,
            batch: Some(BatchConfig::default()),
            tokens: None,
            sign: false,
            keys: false,
            page_max: None,
        }
    }
}

/// A job as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) id: String,
    /// `prefetch-listrange`, ...
    pub(crate) kind: String,
    /// As [`Bck`] prints it.
    pub(crate) bucket: String,
    pub(crate) names: Vec<String>,
    /// Its `value` as sent.
    pub(crate) value: String,
    pub(crate) finished: bool,
}

/// Members and buckets.
#[derive(Debug)]
struct State {
    smap: Smap,
    buckets: Buckets,
}

/// What all nodes share.
#[derive(Debug)]
struct Shared {
    config: AisConfig,
    state: RwLock<State>,
    /// Of the map, for bodies under way.
    version: Arc<AtomicU64>,
    counting: Arc<Counting>,
    script: Mutex<Script>,
    recorded: Mutex<Option<Vec<Recorded>>>,
    tokens: Mutex<Option<HashMap<String, Access>>>,
    /// Signed redirects not yet used: nonce → signature and path.
    nonces: Mutex<HashMap<String, (String, String)>>,
    /// Batches redirected and not yet fetched, by their id.
    promised: Mutex<HashMap<String, Promised>>,
    /// Batches under way at each target.
    pending: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    jobs: Mutex<Vec<Job>>,
    starting: AtomicBool,
    /// Batches are refused with 429.
    pressure: AtomicBool,
    /// Of redirects, lists, jobs.
    serial: AtomicU64,
}

impl Shared {
    fn serial(&self) -> u64 {
        self.serial.fetch_add(1, Relaxed)
    }

    fn object(&self, bck: &Bck, key: &str) -> Option<Arc<Object>> {
        self.state.read().expect("no holder panics").buckets.get(bck)?.objects.get(key).cloned()
    }

    /// A new version of an object; creates the bucket.
    fn put(&self, bck: &Bck, key: &str, content: Content, custom: Vec<(String, String)>) -> Arc<Object> {
        let mut state = self.state.write().expect("no holder panics");
        let bucket = state.buckets.entry(bck.clone()).or_default();
        let version = bucket.objects.get(key).map_or(1, |object| object.version + 1);
        let mtime = FIRST_MTIME_SECONDS + i64::try_from(version).unwrap_or_default();
        let mut object = Object::new(content, version, mtime, bucket.spec.checksum);
        object.custom = custom;
        if bck.is_remote() && object.custom.is_empty() {
            let etag = format!("{:016x}{version:016x}", hash::digest(&bck.uname(key)));
            object.custom = vec![("ETag".to_owned(), etag), ("source".to_owned(), bck.provider.clone())];
        }
        let object = Arc::new(object);
        bucket.objects.insert(key.to_owned(), Arc::clone(&object));
        object
    }

    fn change_map<T>(&self, change: impl FnOnce(&mut Smap) -> T) -> T {
        let mut state = self.state.write().expect("no holder panics");
        let made = change(&mut state.smap);
        state.smap.version += 1;
        self.version.store(state.smap.version, Relaxed);
        made
    }
}

/// A node's port.
#[derive(Debug)]
struct Listening {
    id: String,
    address: SocketAddr,
    stop: Arc<Notify>,
    accepting: JoinHandle<()>,
}

/// A running cluster; dropping it stops it.
#[derive(Debug)]
pub(crate) struct AisCluster {
    shared: Arc<Shared>,
    nodes: Mutex<Vec<Listening>>,
    runtime: Option<Runtime>,
}

impl AisCluster {
    /// Starts it on threads of its own.
    ///
    /// # Panics
    /// When threads or loopback ports cannot be had.
    pub(crate) fn start(config: AisConfig) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(config.threads.max(1)).thread_name("fake-ais").enable_all().build();
        let runtime = runtime.expect("threads");
        let names = |letter: char, count: usize| (1..=count).map(move |number| format!("{letter}{number}"));
        let bound = |ids: Vec<String>| -> Vec<(Member, TcpListener)> {
            let one = |id: String| {
                let (listener, address) = bind(0).expect("a loopback port");
                (Member::new(&id, address), listener)
            };
            ids.into_iter().map(one).collect()
        };
        let proxies = bound(names('p', config.proxies.max(1)).collect());
        let targets = bound(names('t', config.targets).collect());
        let members = |nodes: &[(Member, TcpListener)]| nodes.iter().map(|(member, _)| member.clone()).collect();
        let smap = Smap { version: 1, primary: "p1".to_owned(), proxies: members(&proxies), targets: members(&targets) };
        let tokens = config.tokens.clone().map(|tokens| tokens.into_iter().collect());
        let shared = Arc::new(Shared {
            config,
            version: Arc::new(AtomicU64::new(smap.version)),
            state: RwLock::new(State { smap, buckets: Buckets::default() }),
            counting: Arc::default(),
            script: Mutex::default(),
            recorded: Mutex::default(),
            tokens: Mutex::new(tokens),
            nonces: Mutex::default(),
            promised: Mutex::default(),
            pending: Mutex::default(),
            jobs: Mutex::default(),
            starting: AtomicBool::new(false),
            pressure: AtomicBool::new(false),
            serial: AtomicU64::new(1),
        });
        let cluster = Self { shared, nodes: Mutex::default(), runtime: Some(runtime) };
        for (is_target, nodes) in [(false, proxies), (true, targets)] {
            for (member, listener) in nodes {
                cluster.listen(&member.id, is_target, listener, member.address);
            }
        }
        cluster
    }

    fn listen(&self, id: &str, is_target: bool, listener: TcpListener, address: SocketAddr) {
        let handle: &Handle = self.runtime.as_ref().expect("it is taken by drop only").handle();
        let _inside = handle.enter();
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener that does not block");
        let node = node::Node { id: id.to_owned(), is_target };
        let stop = Arc::new(Notify::new());
        let accepting = handle.spawn(node::accept(listener, Arc::clone(&self.shared), Arc::new(node), Arc::clone(&stop)));
        self.nodes.lock().expect("no holder panics").push(Listening { id: id.to_owned(), address, stop, accepting });
    }

    /// URL of the primary proxy.
    pub(crate) fn endpoint(&self) -> String {
        let primary = self.state(|state| state.smap.primary.clone());
        self.node_url(&primary)
    }

    /// URLs of all proxies in the map.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        self.state(|state| state.smap.proxies.iter().map(Member::url).collect())
    }

    /// URL of a node that is, or was, started.
    pub(crate) fn node_url(&self, id: &str) -> String {
        let nodes = self.nodes.lock().expect("no holder panics");
        let node = nodes.iter().find(|node| node.id == id).unwrap_or_else(|| panic!("no node {id}"));
        format!("http://{}", node.address)
    }

    /// Makes an empty bucket.
    pub(crate) fn create_bucket(&self, bucket: &str, spec: BucketSpec) {
        let bck = Bck::parse(bucket);
        self.shared.state.write().expect("no holder panics").buckets.insert(bck, Bucket { spec, ..Bucket::default() });
    }

    /// A new version of an object (`bucket` as `b`, `ais://b`, `s3://b`, `ais://@uuid#ns/b`); the bucket is made where it is not there. A remote
    /// object is cold.
    pub(crate) fn put(&self, bucket: &str, key: &str, bytes: impl Into<Bytes>) -> Arc<Object> {
        self.shared.put(&Bck::parse(bucket), key, Content::Bytes(bytes.into()), Vec::new())
    }

    /// The same with custom metadata (an `ETag` in it becomes the object's).
    pub(crate) fn put_custom(&self, bucket: &str, key: &str, bytes: impl Into<Bytes>, custom: Vec<(String, String)>) -> Arc<Object> {
        self.shared.put(&Bck::parse(bucket), key, Content::Bytes(bytes.into()), custom)
    }

    /// Every file of a generated dataset.
    pub(crate) fn add_dataset(&self, bucket: &str, dataset: &Dataset) {
        let bck = Bck::parse(bucket);
        for entry in &dataset.entries {
            self.shared.put(&bck, &entry.key, Content::Generated(entry.content.clone()), Vec::new());
        }
    }

    /// Whether it was there.
    pub(crate) fn delete(&self, bucket: &str, key: &str) -> bool {
        let mut state = self.shared.state.write().expect("no holder panics");
        state.buckets.get_mut(&Bck::parse(bucket)).is_some_and(|bucket| bucket.objects.remove(key).is_some())
    }

    /// The object as it is now.
    pub(crate) fn object(&self, bucket: &str, key: &str) -> Option<Arc<Object>> {
        self.shared.object(&Bck::parse(bucket), key)
    }

    /// The target that has this object.
    pub(crate) fn target_of(&self, bucket: &str, key: &str) -> Option<String> {
        self.state(|state| state.smap.target_of(&Bck::parse(bucket), key).map(|target| target.id.clone()))
    }

    /// On how many targets a remote object lies.
    pub(crate) fn copies(&self, bucket: &str, key: &str) -> usize {
        self.object(bucket, key).map_or(0, |object| object.copies())
    }

    /// All remote objects of a bucket are in the cluster from now on.
    pub(crate) fn warm(&self, bucket: &str) {
        let bck = Bck::parse(bucket);
        let state = self.shared.state.read().expect("no holder panics");
        for (key, object) in state.buckets.get(&bck).into_iter().flat_map(|bucket| &bucket.objects) {
            if let Some(target) = state.smap.target_of(&bck, key) {
                object.set_present(&target.id);
            }
        }
    }

    /// No remote object of a bucket is in the cluster any more.
    pub(crate) fn evict(&self, bucket: &str) {
        let state = self.shared.state.read().expect("no holder panics");
        state.buckets.get(&Bck::parse(bucket)).into_iter().flat_map(|bucket| bucket.objects.values()).for_each(|object| object.evict());
    }

    /// A target joins.
    pub(crate) fn add_target(&self, id: &str) {
        let (listener, address) = bind(0).expect("a loopback port");
        self.listen(id, true, listener, address);
        self.shared.change_map(|smap| smap.targets.push(Member::new(id, address)));
    }

    /// A proxy joins.
    pub(crate) fn add_proxy(&self, id: &str) {
        let (listener, address) = bind(0).expect("a loopback port");
        self.listen(id, false, listener, address);
        self.shared.change_map(|smap| smap.proxies.push(Member::new(id, address)));
    }

    /// A target leaves the map, and its port closes.
    pub(crate) fn remove_target(&self, id: &str) {
        self.shared.change_map(|smap| smap.targets.retain(|target| target.id != id));
        self.stop_node(id);
    }

    /// A target is in maintenance (or back): in the map, without objects, still answering.
    pub(crate) fn set_maintenance(&self, id: &str, on: bool) {
        self.change_target(id, |target| target.flags = if on { FLAG_MAINTENANCE } else { 0 });
    }

    /// A target's placement weight (5.2), or none.
    pub(crate) fn set_placement(&self, id: &str, weight: Option<f64>) {
        self.change_target(id, |target| target.weight = weight);
    }

    fn change_target(&self, id: &str, change: impl FnOnce(&mut Member)) {
        let find = |smap: &mut Smap| {
            let target = smap.targets.iter_mut().find(|target| target.id == id);
            change(target.unwrap_or_else(|| panic!("no target {id}")));
        };
        self.shared.change_map(find);
    }

    /// Another proxy is primary.
    pub(crate) fn set_primary(&self, id: &str) {
        self.shared.change_map(|smap| id.clone_into(&mut smap.primary));
    }

    /// A node dies: its port and connections close, the map stays.
    pub(crate) fn stop_node(&self, id: &str) {
        for node in self.nodes.lock().expect("no holder panics").iter().filter(|node| node.id == id) {
            node.stop.notify_one();
            while !node.accepting.is_finished() {
                std::thread::yield_now();
            }
        }
    }

    /// A node that was stopped is back at its address.
    pub(crate) fn restart_node(&self, id: &str) {
        let (address, is_target) = {
            let mut nodes = self.nodes.lock().expect("no holder panics");
            let at = nodes.iter().position(|node| node.id == id).unwrap_or_else(|| panic!("no node {id}"));
            (nodes.remove(at).address, self.state(|state| state.smap.targets.iter().any(|target| target.id == id)))
        };
        let (listener, address) = bind(address.port()).expect("the port it had");
        self.listen(id, is_target, listener, address);
    }

    /// Version of the map.
    pub(crate) fn map_version(&self) -> u64 {
        self.state(|state| state.smap.version)
    }

    /// All nodes answer 503 (or no longer), as a cluster that starts does.
    pub(crate) fn set_starting(&self, starting: bool) {
        self.shared.starting.store(starting, Relaxed);
    }

    /// Batches are refused with 429 (or no longer).
    pub(crate) fn set_pressure(&self, pressure: bool) {
        self.shared.pressure.store(pressure, Relaxed);
    }

    /// From now on these tokens, and no others, are good. `None`: no authorisation.
    pub(crate) fn set_tokens(&self, tokens: Option<Vec<(String, Access)>>) {
        *self.shared.tokens.lock().expect("no holder panics") = tokens.map(|tokens| tokens.into_iter().collect());
    }

    /// Adds a rule to the script.
    pub(crate) fn fault(&self, fault: Fault) {
        self.shared.script.lock().expect("no holder panics").add(fault);
    }

    /// Ends all scripted faults, those under way excepted.
    pub(crate) fn clear_faults(&self) {
        self.shared.script.lock().expect("no holder panics").clear();
    }

    /// What it has seen since its start or the last reset.
    pub(crate) fn counters(&self) -> Counters {
        self.shared.counting.now()
    }

    /// Starts counting anew.
    pub(crate) fn reset_counters(&self) {
        self.shared.counting.reset();
    }

    /// Remembers requests from now on.
    pub(crate) fn record_requests(&self) {
        *self.shared.recorded.lock().expect("no holder panics") = Some(Vec::new());
    }

    /// The requests remembered, in order of their arrival.
    pub(crate) fn recorded(&self) -> Vec<Recorded> {
        self.shared.recorded.lock().expect("no holder panics").clone().unwrap_or_default()
    }

    /// The jobs asked for, in their order.
    pub(crate) fn jobs(&self) -> Vec<Job> {
        self.shared.jobs.lock().expect("no holder panics").clone()
    }

    fn state<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.shared.state.read().expect("no holder panics"))
    }
}

impl Drop for AisCluster {
    fn drop(&mut self) {
        for node in self.nodes.lock().expect("no holder panics").iter() {
            node.accepting.abort();
        }
        if let Some(runtime) = self.runtime.take() {
            // Not `drop`: that waits, and may stand in an async caller.
            runtime.shutdown_background();
        }
    }
}

fn bind(port: u16) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}
