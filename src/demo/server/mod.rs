//! An S3 server in the process: path style, on loopback, over one bucket that is in memory, generated, or a local directory.
//! The demo's store, and the tests': it counts what it is asked, waits before its first byte as a real store does, checks signatures,
//! and fails on script.
//!
//! It promises S3's answers to ListObjectsV2, HEAD and GET (ranges, conditions, errors). It takes no uploads: objects are put from Rust.

mod auth;
mod body;
mod conn;
mod counters;
pub mod fault;
mod list;
mod objects;
mod respond;

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::{AbortHandle, JoinSet};

pub use self::auth::Credentials;
pub use self::counters::Counters;
pub use self::objects::{Content, Object};

use self::conn::{Connection, Socket};
use self::counters::Counting;
use self::fault::{Fault, Operation, Script, mix, unit};
use self::objects::{FIRST_MTIME_SECONDS, Objects, etag_of, scan_directory};
use super::dataset::Dataset;

/// Requests remembered at most: enough for a test, no leak in a benchmark.
const MAX_RECORDED: usize = 10_000;

/// How long each answer keeps its client waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FirstByte {
    /// Always.
    pub base: Duration,
    /// Up to this much more, evenly spread.
    pub jitter: Duration,
    /// With this probability ...
    pub tail_probability: f64,
    /// ... so much more.
    pub tail: Duration,
}

impl FirstByte {
    /// Always the same.
    #[must_use]
    pub fn constant(base: Duration) -> Self {
        Self { base, ..Self::default() }
    }

    /// The wait of the `number`-th request.
    fn wait(&self, number: u64, seed: u64) -> Duration {
        let draw = mix(seed) ^ number;
        let jitter = if self.jitter.is_zero() { Duration::ZERO } else { self.jitter.mul_f64(unit(draw)) };
        let tail = if unit(!draw) < self.tail_probability { self.tail } else { Duration::ZERO };
        self.base + jitter + tail
    }
}

/// What the server is like.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub bucket: String,
    /// 0: any free one.
    pub port: u16,
    pub region: String,
    /// `None`: everybody may read, signed or not.
    pub credentials: Option<Credentials>,
    pub first_byte: FirstByte,
    /// 0: no limit.
    pub connection_bytes_per_second: u64,
    /// 0: no limit.
    pub total_bytes_per_second: u64,
    /// Of jitter and tail.
    pub seed: u64,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            bucket: "demo".to_owned(),
            port: 0,
            region: "us-east-1".to_owned(),
            credentials: None,
            first_byte: FirstByte::default(),
            connection_bytes_per_second: 0,
            total_bytes_per_second: 0,
            seed: 0,
        }
    }
}

/// A request as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub operation: Operation,
    pub key: String,
    /// As sent, still encoded.
    pub query: String,
    pub range: Option<String>,
    pub if_match: Option<String>,
    /// Names of all its headers.
    pub headers: Vec<String>,
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    config: ServerConfig,
    objects: RwLock<Objects>,
    script: Mutex<Script>,
    recorded: Mutex<Option<Vec<Recorded>>>,
    counting: Arc<Counting>,
    pace: Arc<body::Pace>,
    next_request: AtomicU64,
    next_mtime: AtomicI64,
}

impl Shared {
    fn record(&self, operation: Operation, key: &str, request: &Parts) {
        let mut recorded = self.recorded.lock().expect("no holder panics");
        let Some(list) = recorded.as_mut().filter(|list| list.len() < MAX_RECORDED) else { return };
        let text = |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        list.push(Recorded {
            operation,
            key: key.to_owned(),
            query: request.uri.query().unwrap_or_default().to_owned(),
            range: text("range"),
            if_match: text("if-match"),
            headers: request.headers.keys().map(|name| name.as_str().to_owned()).collect(),
        });
    }
}

/// A running server; dropping it stops it.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: AbortHandle,
    /// Its own threads, where it was started with some.
    runtime: Option<Runtime>,
}

impl Server {
    /// Starts it on the runtime of the caller.
    ///
    /// # Errors
    /// When there is no runtime, or the port is taken.
    pub fn start(config: ServerConfig) -> io::Result<Self> {
        let handle = Handle::try_current().map_err(io::Error::other)?;
        Self::start_on(config, &handle)
    }

    /// Starts it on threads of its own: for callers without a runtime, and so that its work is not the caller's.
    ///
    /// # Errors
    /// When threads cannot be had, or the port is taken.
    pub fn start_with_threads(config: ServerConfig, threads: usize) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(threads.max(1)).thread_name("s3-server").enable_all().build()?;
        let mut server = Self::start_on(config, runtime.handle())?;
        server.runtime = Some(runtime);
        Ok(server)
    }

    fn start_on(config: ServerConfig, handle: &Handle) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, config.port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            config,
            objects: RwLock::default(),
            script: Mutex::default(),
            recorded: Mutex::default(),
            counting: Arc::default(),
            pace: Arc::default(),
            next_request: AtomicU64::new(1),
            next_mtime: AtomicI64::new(FIRST_MTIME_SECONDS),
        });
        let _inside = handle.enter();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let accepting = handle.spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Ok(Self { shared, address, accepting, runtime: None })
    }

    /// `http://127.0.0.1:PORT`, for `--endpoint-url`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Name of its bucket.
    #[must_use]
    pub fn bucket(&self) -> &str {
        &self.shared.config.bucket
    }

    /// What it has seen since its start or the last reset.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.counting.now()
    }

    /// Starts counting anew.
    pub fn reset_counters(&self) {
        self.shared.counting.reset();
    }

    /// Puts bytes; returns their ETag.
    pub fn put(&self, key: &str, bytes: impl Into<Bytes>) -> Arc<str> {
        self.put_with(key, bytes, Vec::new())
    }

    /// Puts bytes with headers that a GET returns; returns their ETag.
    pub fn put_with(&self, key: &str, bytes: impl Into<Bytes>, headers: Vec<(HeaderName, HeaderValue)>) -> Arc<str> {
        let bytes = bytes.into();
        let etag = etag_of(&bytes);
        let object = Object {
            content: Content::Bytes(bytes),
            etag: Arc::clone(&etag),
            mtime_seconds: self.shared.next_mtime.fetch_add(1, Relaxed),
            headers,
        };
        self.insert([(key.to_owned(), object)]);
        etag
    }

    /// Puts every file of a generated dataset.
    pub fn add_dataset(&self, dataset: &Dataset) {
        self.insert(dataset.entries.iter().map(|entry| {
            let content = Content::Generated(entry.content.clone());
            (entry.key.clone(), Object { content, etag: entry.content.etag(), mtime_seconds: FIRST_MTIME_SECONDS, headers: Vec::new() })
        }));
    }

    /// Puts every file below a directory; their bytes are read when asked for.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn add_directory(&self, root: &Path, prefix: &str) -> io::Result<()> {
        self.insert(scan_directory(root, prefix)?);
        Ok(())
    }

    fn insert(&self, objects: impl IntoIterator<Item = (String, Object)>) {
        let mut bucket = self.shared.objects.write().expect("no holder panics");
        bucket.extend(objects.into_iter().map(|(key, object)| (key, Arc::new(object))));
    }

    /// Takes a key away; whether it was there.
    pub fn delete(&self, key: &str) -> bool {
        self.shared.objects.write().expect("no holder panics").remove(key).is_some()
    }

    /// Gives an object a new time; its bytes and ETag stay. Whether it was there.
    pub fn touch(&self, key: &str) -> bool {
        let mut objects = self.shared.objects.write().expect("no holder panics");
        let Some(object) = objects.get_mut(key) else { return false };
        Arc::make_mut(object).mtime_seconds = self.shared.next_mtime.fetch_add(1, Relaxed);
        true
    }

    /// The object of this key as it is now.
    #[must_use]
    pub fn object(&self, key: &str) -> Option<Arc<Object>> {
        self.shared.objects.read().expect("no holder panics").get(key).cloned()
    }

    /// All keys in order.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.shared.objects.read().expect("no holder panics").keys().cloned().collect()
    }

    /// Adds a rule to the script.
    pub fn add_fault(&self, fault: Fault) {
        self.shared.script.lock().expect("no holder panics").add(fault);
    }

    /// Ends all scripted faults, those under way excepted.
    pub fn clear_faults(&self) {
        self.shared.script.lock().expect("no holder panics").clear();
    }

    /// Remembers requests from now on, the first 10,000 of them.
    pub fn record_requests(&self) {
        *self.shared.recorded.lock().expect("no holder panics") = Some(Vec::new());
    }

    /// The requests remembered, in order of their arrival.
    #[must_use]
    pub fn recorded(&self) -> Vec<Recorded> {
        self.shared.recorded.lock().expect("no holder panics").clone().unwrap_or_default()
    }

    /// Closes the port and every connection.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
        if let Some(runtime) = self.runtime.take() {
            // Not `drop`: that waits, and may stand in an async caller.
            runtime.shutdown_background();
        }
    }
}

/// Accepts until aborted; the connections end with it.
async fn accept(listener: tokio::net::TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    shared.counting.connections.fetch_add(1, Relaxed);
                    // Without it, the end of a body waits for the client's delayed ACK, 40 ms.
                    let _ = stream.set_nodelay(true);
                    connections.spawn(serve(stream, Arc::clone(&shared)));
                }
                // Out of descriptors: give those who hold some the time to end.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: tokio::net::TcpStream, shared: Arc<Shared>) {
    let connection = Arc::new(Connection::default());
    let socket = Socket::new(stream, Arc::clone(&connection));
    let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
        let (shared, connection) = (Arc::clone(&shared), Arc::clone(&connection));
        // GET and HEAD carry no body; what a client sends along is hyper's to skip.
        let (parts, _body) = request.into_parts();
        async move { respond::respond(&shared, &connection, &parts).await }
    });
    // A connection that ends badly is the client's concern, or the script's.
    let _ended: Result<(), Infallible> = http1::Builder::new().serve_connection(socket, service).await.or(Ok(()));
}
