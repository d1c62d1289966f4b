//! A bucket of an AIStore cluster, over its native API (`/v1`): listing, HEAD, GET through a redirect for each request or straight to the target, ordered
//! batches (GetBatch), files inside shards, and word of what will be read next.
//!
//! Source: NVIDIA/aistore (`docs/http_api.md`, `api/`, `ais/`). The store does not repeat requests (the door does); only this it does by itself: it follows the
//! redirect of a request, asks another proxy where one gave no answer, asks a proxy where a target asked directly failed, and reads a token file again
//! after a 401.
//!
//! Not here: writing, ETL, byte ranges inside members, native bucket inventory, cloud buckets' `latest-ver`.

mod batch;
pub mod bucket;
mod checksum;
mod cluster;
mod error;
mod identity;
mod list;
mod object;
mod route;
mod smap;
mod sums;
mod token;
mod untar;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::Method;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use self::bucket::Bucket;
use self::checksum::Verifier;
use self::cluster::{Answer, Ask, Cluster};
use self::list::{Cursor, PAGE_MAX_BYTES, PAGE_MAX_KEYS};
use self::route::Route;
use self::smap::Smap;
use self::sums::Sums;
pub use self::token::TokenSource;
use crate::stats::Stats;
use crate::store::batch::{BatchLimits, Pieces, Wanted};
use crate::store::retry::{Patience, jitter, next_delay};
use crate::store::tls::ClientIdentity;
use crate::store::{Body, Member, Page, Store, StoreError, http as shared};
use crate::types::{ErrorKind, ObjectId, ObjectMeta};

/// Tries at the first page of a cluster that is starting or busy: some seconds.
const FIRST_PAGE_ATTEMPTS: u32 = 6;
/// A cluster map of 1,000 nodes is 2 MiB.
const MAP_MAX_BYTES: usize = 16 << 20;
/// Objects whose versions the answers say in other words than the listing (see `object.rs`); an entry is 200 bytes.
const PINS_MAX: u64 = 10_000;
/// Names in one prefetch job: AIStore takes lists of any length, but each is one message to all targets.
const ANNOUNCE_MAX_KEYS: usize = 1024;
/// Names wanted at once: a second's worth of what a cluster fetches from a cloud (some hundred objects), so that its other work goes on.
const ANNOUNCE_AT_ONCE: usize = 256;

/// How to reach a bucket. Read from options, environment and files by `config` and [`AisConfig::from_environment`].
#[derive(Clone, Debug)]
pub struct AisConfig {
    pub bucket: Bucket,
    /// Proxies: `http://host:port`. At least one.
    pub endpoints: Vec<String>,
    pub token: Option<TokenSource>,
    /// PEM file of authorities, trusted beside the system's.
    pub ca_bundle: Option<PathBuf>,
    pub identity: Option<ClientIdentity>,
    /// Take any certificate.
    pub skip_verify: bool,
    /// Ask the cluster to fetch cloud objects ahead of their reads ([`Store::announce`]).
    pub announce: bool,
    /// Go straight to targets where that is possible.
    pub direct: bool,
    /// Use GetBatch where the cluster has it.
    pub batches: bool,
    /// GETs and batches on their way at once, bodies included.
    pub max_connections: usize,
    pub connect_timeout: Duration,
    pub first_byte_timeout: Duration,
    /// Between two chunks of a body.
    pub idle_timeout: Duration,
}

impl AisConfig {
    /// The defaults, for one bucket.
    #[must_use]
    pub fn new(bucket: Bucket, endpoints: Vec<String>) -> Self {
        Self {
            bucket,
            endpoints,
            token: None,
            ca_bundle: None,
            identity: None,
            skip_verify: false,
            announce: false,
            direct: true,
            batches: true,
            max_connections: 256,
            connect_timeout: Duration::from_secs(5),
            // A cold object of some GB comes to the cluster as a whole before its first byte comes to us.
            first_byte_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(15),
        }
    }

    /// Takes what AIStore's own programs take from the environment: AIS_AUTHN_TOKEN, AIS_AUTHN_TOKEN_FILE, AIS_CRT, AIS_CRT_KEY, AIS_SKIP_VERIFY_CRT;
    /// AIS_ENDPOINT and AIS_CLIENT_CA where nothing stronger was said.
    ///
    /// # Errors
    /// Half of a pair, or a value that is none.
    pub fn from_environment(mut self, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, StoreError> {
        let said = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let refuse = |text: String| StoreError::new(ErrorKind::Invalid, text);
        if self.endpoints.is_empty() {
            self.endpoints.extend(said("AIS_ENDPOINT"));
        }
        self.token = self
            .token
            .or_else(|| said("AIS_AUTHN_TOKEN").map(TokenSource::Value))
            .or_else(|| said("AIS_AUTHN_TOKEN_FILE").map(|path| TokenSource::File(path.into())));
        self.ca_bundle = self.ca_bundle.or_else(|| said("AIS_CLIENT_CA").map(PathBuf::from));
        self.identity = match (said("AIS_CRT"), said("AIS_CRT_KEY")) {
            (Some(certificate), Some(key)) => Some(ClientIdentity { certificate: certificate.into(), key: key.into() }),
            (None, None) => self.identity,
            (Some(_), None) => return Err(refuse("AIS_CRT is set without AIS_CRT_KEY: both are needed for a client certificate".into())),
            (None, Some(_)) => return Err(refuse("AIS_CRT_KEY is set without AIS_CRT: both are needed for a client certificate".into())),
        };
        if let Some(value) = said("AIS_SKIP_VERIFY_CRT") {
            // What Go's strconv.ParseBool takes.
            self.skip_verify = match value.as_str() {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
                "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
                _ => return Err(refuse(format!("AIS_SKIP_VERIFY_CRT: {value:?} is neither true nor false"))),
            };
        }
        Ok(self)
    }
}

/// What requests share.
#[derive(Debug)]
pub(crate) struct Shared {
    bucket: Bucket,
    cluster: Cluster,
    route: Route,
    permits: Arc<Semaphore>,
    pins: moka::sync::Cache<ObjectId, Arc<str>>,
    sums: Sums,
    head_v1: AtomicBool,
    /// Ranges carry their own checksums and no version: each needs a HEAD, and is not worth asking a target for first.
    ranges_summed: AtomicBool,
    batches: bool,
    /// Whether the cluster has GetBatch: see `batch.rs`.
    moss: AtomicU8,
    /// Whether listings have shown objects, and one whose version a batch's bytes can be checked against.
    listed: AtomicBool,
    verifiable: AtomicBool,
    announces: bool,
    idle_timeout: Duration,
    stats: Arc<Stats>,
    began: Instant,
}

/// One bucket. See the module.
#[derive(Clone, Debug)]
pub struct AisStore(Arc<Shared>);

impl AisStore {
    /// Checks with one small list of `prefix` that the bucket answers.
    ///
    /// # Errors
    /// Address, TLS, token or bucket do not work: one line that says which, and what to do.
    pub async fn connect(config: AisConfig, prefix: &str, stats: Arc<Stats>) -> Result<Self, StoreError> {
        // None at all would wait for ever.
        let connections = config.max_connections.clamp(1, Semaphore::MAX_PERMITS);
        let cluster = Cluster::new(&config, connections, Arc::clone(&stats))?;
        let shared = Arc::new(Shared {
            route: Route::new(config.direct && !cluster.has_token() && config.bucket.is_local()),
            bucket: config.bucket,
            cluster,
            permits: Arc::new(Semaphore::new(connections)),
            pins: moka::sync::Cache::new(PINS_MAX),
            sums: Sums::default(),
            head_v1: AtomicBool::new(false),
            ranges_summed: AtomicBool::new(false),
            batches: config.batches,
            moss: AtomicU8::new(batch::UNKNOWN),
            listed: AtomicBool::new(false),
            verifiable: AtomicBool::new(false),
            announces: config.announce,
            idle_timeout: config.idle_timeout,
            stats,
            began: Instant::now(),
        });
        shared.first_page(prefix).await?;
        if shared.route.wants_map(Instant::now()) {
            shared.fetch_map().await;
        }
        Ok(Self(shared))
    }
}

impl Shared {
    /// How the whole bytes of this version are checked by value; `None`: they cannot be.
    fn verifier(&self, id: &ObjectId) -> Option<Verifier> {
        identity::verifier(&id.etag).or_else(|| self.sums.verifier(id))
    }

    fn bucket_text(&self) -> String {
        format!("bucket {:?}", self.bucket.name)
    }

    async fn permit(&self, what: &str) -> Result<OwnedSemaphorePermit, StoreError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        permit.map_err(|_| StoreError::new(ErrorKind::Shutdown, format!("{what}: the store is shut down")))
    }

    /// Whether the bucket can be listed. Asked again where the cluster answers that it cannot now. Who does not answer at all is more likely the
    /// wrong address, and the user is told at once.
    async fn first_page(&self, prefix: &str) -> Result<(), StoreError> {
        let began = Instant::now();
        let mut attempt = 0;
        loop {
            attempt += 1;
            let error = match self.list(prefix, None, None, 1).await {
                Ok(_) => return Ok(()),
                Err(error) if matches!(error.kind, ErrorKind::Throttled | ErrorKind::Server) => error,
                Err(error) => return Err(error),
            };
            let patience = Patience::Attempts(FIRST_PAGE_ATTEMPTS);
            let Some(delay) = next_delay(error.kind, attempt, began.elapsed(), patience, jitter()) else { return Err(error) };
            tracing::warn!("asked again in {} ms: {error}", delay.as_millis());
            tokio::time::sleep(delay).await;
        }
    }

    async fn list(&self, prefix: &str, start_after: Option<&str>, after: Option<&str>, max: u32) -> Result<Page, StoreError> {
        let what = self.bucket_text();
        let nonsense = || StoreError::new(ErrorKind::Invalid, format!("{what}: a listing cannot go on from {after:?}"));
        let mut cursor = match after {
            Some(after) => Cursor::parse(after).ok_or_else(nonsense)?,
            // In front of a cloud AIStore refuses to begin in the middle: then all is listed, and left out here.
            None if self.bucket.is_local() => Cursor::default(),
            None => Cursor { start_after: start_after.unwrap_or_default().to_owned(), ..Cursor::default() },
        };
        let start_after = start_after.filter(|_| self.bucket.is_local());
        loop {
            self.stats.store.list.add(1);
            let mut ask = Ask::new(Method::GET, format!("/v1/buckets/{}?{}", self.bucket.name, self.bucket.query()));
            ask.body = Bytes::from(list::request(&self.bucket, prefix, start_after, &cursor, max));
            ask.accept = Some("application/msgpack");
            let Answer { response, .. } = self.cluster.ask(&what, &ask).await?;
            if !response.status().is_success() {
                let complaint = self.cluster.complaint(response).await;
                // A session that was left alone too long is over; its token is good for a new one.
                if complaint.is_gone() && !cursor.uuid.is_empty() {
                    cursor.uuid.clear();
                    continue;
                }
                return Err(self.cluster.error(&what, complaint));
            }
            let length = shared::content_length(response.headers());
            let body = shared::collect(response.into_body(), PAGE_MAX_BYTES, self.idle_timeout).await;
            let cut = |reason: String| StoreError::new(ErrorKind::Network, format!("{what}: a page of the listing ended early: {reason}"));
            let body = body.map_err(cut)?;
            if length.is_some_and(|length| length != body.len() as u64) {
                return Err(cut("it is shorter than announced".to_owned()));
            }
            let (page, sums) = list::page(&what, &self.bucket, prefix, &cursor, &body)?;
            for (at, checksum) in sums {
                self.sums.learn(&page.objects[at].version(), &checksum);
            }
            let is_verifiable = |object: &ObjectMeta| self.verifier(&object.version()).is_some();
            if !self.verifiable.load(Relaxed) && page.objects.iter().any(is_verifiable) {
                self.verifiable.store(true, Relaxed);
            }
            if !page.objects.is_empty() {
                self.listed.store(true, Relaxed);
            }
            return Ok(page);
        }
    }

    /// Asks for the cluster map in the background, if ours may be old.
    fn refresh_map(self: &Arc<Self>) {
        if self.route.wants_map(Instant::now()) {
            let this = Arc::clone(self);
            tokio::spawn(async move { this.fetch_map().await });
        }
    }

    /// Without it all goes through proxies: a failure is only noted.
    async fn fetch_map(&self) {
        let map = async {
            let what = "the cluster map";
            let Answer { response, .. } = self.cluster.ask(what, &Ask::new(Method::GET, "/v1/daemon?what=smap".to_owned())).await?;
            if !response.status().is_success() {
                let complaint = self.cluster.complaint(response).await;
                return Err(self.cluster.error(what, complaint));
            }
            let body = shared::collect(response.into_body(), MAP_MAX_BYTES, self.idle_timeout).await;
            let text = |reason: String| StoreError::new(ErrorKind::Corrupt, reason);
            Smap::parse(&body.map_err(text)?).map_err(text)
        };
        match map.await {
            Ok(mut map) => {
                if self.cluster.is_tls() && map.targets.iter().any(|target| !target.url.starts_with("https://")) {
                    map.indirect = Some("targets have no TLS");
                }
                self.cluster.learn_proxies(&map.proxies);
                self.route.learn(map);
            }
            Err(error) => tracing::debug!("no cluster map: {error}"),
        }
    }

    /// `prefetch-listrange`: a job in the cluster that fetches these from the cloud.
    async fn announce(&self, keys: &[Arc<str>]) {
        if !self.announces || self.bucket.is_local() {
            return;
        }
        for keys in keys.chunks(ANNOUNCE_MAX_KEYS) {
            let value =
                serde_json::json!({"objnames": keys.iter().map(|key| &**key).collect::<Vec<&str>>(), "coer": true, "latest-ver": false});
            let body = serde_json::json!({"action": "prefetch-listrange", "name": "", "value": value});
            let mut ask = Ask::new(Method::POST, format!("/v1/buckets/{}?{}", self.bucket.name, self.bucket.query()));
            ask.body = Bytes::from(serde_json::to_vec(&body).expect("strings"));
            let what = format!("a prefetch job for bucket {:?}", self.bucket.name);
            match self.cluster.ask(&what, &ask).await {
                Ok(Answer { response, .. }) if response.status().is_success() => {
                    let _ = shared::collect(response.into_body(), error::ERROR_BODY_MAX_BYTES, self.idle_timeout).await;
                }
                Ok(Answer { response, .. }) => {
                    let complaint = self.cluster.complaint(response).await;
                    tracing::debug!("{}", self.cluster.error(&what, complaint));
                }
                Err(error) => tracing::debug!("{error}"),
            }
        }
    }
}

#[async_trait]
impl Store for AisStore {
    async fn list(&self, prefix: &str, start_after: Option<&str>, after: Option<&str>) -> Result<Page, StoreError> {
        self.0.list(prefix, start_after, after, PAGE_MAX_KEYS).await
    }

    fn lists_in_ranges(&self) -> bool {
        self.0.bucket.is_local()
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.0.head(key).await
    }

    async fn read(&self, id: &ObjectId, range: Range<u64>) -> Result<Body, StoreError> {
        self.0.read(id, range).await
    }

    fn batch_limits(&self) -> Option<BatchLimits> {
        self.0.batch_limits()
    }

    async fn read_batch<'a>(&'a self, wanted: &[Wanted]) -> Result<Pieces<'a>, StoreError> {
        self.0.read_batch(wanted).await
    }

    async fn read_member(&self, shard: &ObjectId, member: &str) -> Result<Member, StoreError> {
        self.0.read_member(shard, member).await
    }

    fn announce_max(&self) -> Option<usize> {
        (self.0.announces && !self.0.bucket.is_local()).then_some(ANNOUNCE_AT_ONCE)
    }

    async fn announce(&self, keys: &[Arc<str>]) {
        self.0.announce(keys).await;
    }
}

#[cfg(test)]
mod tests;
