//! An S3-compatible bucket: the SDK for credentials, listing and HEAD; [`get`] for bodies.
//!
//! The SDK does not repeat requests here (the door does), and its endpoint rules decide the address of the bucket for both clients. The
//! bucket's region is followed once, at the start.
//!
//! Not here: access points, S3 Express buckets' sessions, HTTP proxies.

mod connect;
mod credentials;
mod error;
mod get;
mod list;
mod redirect;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{BehaviorVersion, IdentityCache, Region, StalledStreamProtectionConfig};
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::list_objects_v2::ListObjectsV2Output;
use aws_sdk_s3::types::{EncodingType, RequestPayer};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

use self::connect::Parts;
use self::credentials::Shared;
pub use self::credentials::env_file_value;
use self::error::{Complaint, body_error};
use self::get::Getter;
use self::redirect::{Redirect, redirect};
use crate::stats::Stats;
use crate::store::http::{content_length, text, transport_error};
use crate::store::retry::{Patience, jitter, next_delay};
use crate::store::{Body, Page, Store, StoreError, tls};
use crate::types::{ErrorKind, ObjectId, ObjectMeta};

/// S3's own bound on a page.
const PAGE_MAX_KEYS: i32 = 1000;

/// How to reach a bucket. Read from options, environment and files by `config`; only credentials and the region are looked for beyond this.
#[derive(Clone, Debug)]
pub struct S3Config {
    pub bucket: String,
    /// Of another store than AWS: `http://host:port`, with a base path if it has one.
    pub endpoint_url: Option<String>,
    /// `None`: environment, profile, else us-east-1; the bucket's own region is followed once.
    pub region: Option<String>,
    pub profile: Option<String>,
    pub credentials_file: Option<PathBuf>,
    /// `NAME=value` lines: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION.
    pub env_file: Option<PathBuf>,
    /// Anonymous.
    pub no_sign_request: bool,
    pub requester_pays: bool,
    /// `None`: path style with an endpoint, virtual-host style on AWS (and path style for bucket names that TLS could not cover).
    pub force_path_style: Option<bool>,
    /// PEM file of authorities, trusted beside the system's.
    pub ca_bundle: Option<PathBuf>,
    /// GETs on their way at once, bodies included.
    pub max_connections: usize,
    pub connect_timeout: Duration,
    pub first_byte_timeout: Duration,
    /// Between two chunks of a body.
    pub idle_timeout: Duration,
}

impl S3Config {
    /// The defaults, for one bucket.
    #[must_use]
    pub fn new(bucket: impl Into<String>) -> Self {
        Self {
            bucket: bucket.into(),
            endpoint_url: None,
            region: None,
            profile: None,
            credentials_file: None,
            env_file: None,
            no_sign_request: false,
            requester_pays: false,
            force_path_style: None,
            ca_bundle: None,
            // Ten times what one machine needs for its network at S3's usual 85 MB/s a connection; the door adapts far below it.
            max_connections: 256,
            // A TCP handshake around the world takes 0.3 s; this allows for two lost packets.
            connect_timeout: Duration::from_secs(5),
            first_byte_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(10),
        }
    }
}

/// Tries at the first page of a store that is busy: some seconds.
const FIRST_PAGE_ATTEMPTS: u32 = 6;

/// One bucket. See the module.
#[derive(Debug)]
pub struct S3Store {
    config: S3Config,
    client: aws_sdk_s3::Client,
    getter: Getter,
    endpoint: String,
    stats: Arc<Stats>,
}

impl S3Store {
    /// Finds credentials, and checks with one small list of `prefix` that the bucket answers.
    ///
    /// # Errors
    /// Credentials, bucket, policy, endpoint or TLS do not work: one line that says which, and what to do.
    pub async fn connect(config: S3Config, prefix: &str, stats: Arc<Stats>) -> Result<Self, StoreError> {
        let bundle = config.ca_bundle.as_deref().map(tls::read_bundle).transpose()?;
        let (parts, region) = Parts::resolve(&config, bundle).await?;
        let store = Self::at(config.clone(), &parts, region.clone(), Arc::clone(&stats)).await?;
        match store.first_page(prefix).await {
            Ok(_) => Ok(store),
            Err(Refused { region: Some(actual), .. }) if actual != region => {
                tracing::info!("bucket {:?} is in region {actual}, not {region}", config.bucket);
                let store = Self::at(config, &parts, actual, stats).await?;
                store.first_page(prefix).await.map_err(|refused| refused.error)?;
                Ok(store)
            }
            Err(refused) => Err(refused.error),
        }
    }

    /// Whether the bucket can be listed. Asked again where the store answers that it cannot now: many nodes begin at the same moment. Who
    /// does not answer at all is more likely the wrong address, and the user is told at once.
    async fn first_page(&self, prefix: &str) -> Result<Page, Refused> {
        let began = tokio::time::Instant::now();
        let mut attempt = 0;
        loop {
            attempt += 1;
            let refused = match self.list_page(prefix, None, None, 1).await {
                Err(refused) if matches!(refused.error.kind, ErrorKind::Throttled | ErrorKind::Server) => refused,
                last => return last,
            };
            let patience = Patience::Attempts(FIRST_PAGE_ATTEMPTS);
            let Some(delay) = next_delay(refused.error.kind, attempt, began.elapsed(), patience, jitter()) else { return Err(refused) };
            tracing::warn!("asked again in {} ms: {}", delay.as_millis(), refused.error);
            tokio::time::sleep(delay).await;
        }
    }

    async fn at(config: S3Config, parts: &Parts, region: String, stats: Arc<Stats>) -> Result<Self, StoreError> {
        let path_style = config.force_path_style.unwrap_or(parts.endpoint_url.is_some());
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(config.connect_timeout)
            .read_timeout(config.first_byte_timeout)
            // A page of 1,000 keys is 300 KB: the idle time is more than it needs after its first byte.
            .operation_timeout(config.connect_timeout + config.first_byte_timeout + config.idle_timeout)
            .build();
        let mut builder = aws_sdk_s3::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(region.clone()))
            .http_client(parts.http.clone())
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts)
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .force_path_style(path_style)
            .identity_cache(IdentityCache::no_cache());
        builder = match &parts.credentials {
            Some(credentials) => builder.credentials_provider(Shared(Arc::clone(credentials))),
            None => builder.allow_no_auth(),
        };
        if let Some(url) = &parts.endpoint_url {
            builder = builder.endpoint_url(url);
        }
        let base = connect::bucket_url(&config.bucket, parts.endpoint_url.as_deref(), &region, path_style).await?;
        let tls = tls::client_config(parts.bundle.as_deref())?;
        let getter = Getter::new(&config, &base, &region, parts.credentials.clone(), tls, Arc::clone(&stats))?;
        Ok(Self { config, client: aws_sdk_s3::Client::from_conf(builder.build()), getter, endpoint: base, stats })
    }

    fn what(&self) -> String {
        format!("bucket {:?}", self.config.bucket)
    }

    /// A HEAD where AIStore's redirect says.
    async fn head_at(&self, what: &str, key: &str, target: &http::Uri) -> Result<ObjectMeta, StoreError> {
        let answer = self.getter.at_target(what, http::Method::HEAD, target, None).await?;
        if !answer.status().is_success() {
            return Err(Complaint { status: answer.status().as_u16(), ..Complaint::default() }.into_error(what));
        }
        let headers = answer.headers();
        let Some(size) = content_length(headers) else {
            return Err(StoreError::new(ErrorKind::Corrupt, format!("{what}: HEAD says no length")));
        };
        let etag = text(headers, http::header::ETAG).unwrap_or_default();
        Ok(ObjectMeta { key: Arc::from(key), size, etag: list::quoted(etag), mtime_seconds: get::modified(headers).unwrap_or(0) })
    }

    fn payer(&self) -> Option<RequestPayer> {
        self.config.requester_pays.then_some(RequestPayer::Requester)
    }

    async fn list_page(&self, prefix: &str, start_after: Option<&str>, after: Option<&str>, max: i32) -> Result<Page, Refused> {
        self.stats.store.list.add(1);
        // Empty values are left out: some stores refuse them (rclone issue 9342).
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let answer = self
            .client
            .list_objects_v2()
            .bucket(&self.config.bucket)
            .set_prefix(some(prefix))
            .set_start_after(start_after.filter(|_| after.is_none()).and_then(some))
            .set_continuation_token(after.map(str::to_owned))
            .encoding_type(EncodingType::Url)
            .max_keys(max)
            .set_request_payer(self.payer())
            .send()
            .await;
        let output: ListObjectsV2Output = answer.map_err(|error| self.refused(&self.what(), &error))?;
        Ok(list::page(&self.what(), prefix, after, output)?)
    }

    /// An error of the SDK in our words.
    fn refused<E>(&self, what: &str, error: &SdkError<E, HttpResponse>) -> Refused
    where
        E: std::error::Error + ProvideErrorMetadata + Send + Sync + 'static,
    {
        let late = || {
            let text = format!("{what}: no answer from {} in time; check --endpoint-url and the network", self.endpoint);
            StoreError::new(ErrorKind::Timeout, text)
        };
        let error = match error {
            SdkError::ServiceError(service) => {
                let region = service.raw().headers().get("x-amz-bucket-region").unwrap_or_default().to_owned();
                let complaint = Complaint {
                    status: service.raw().status().as_u16(),
                    code: service.err().code().unwrap_or_default().to_owned(),
                    message: service.err().message().unwrap_or_default().chars().take(200).collect(),
                    region: region.clone(),
                };
                let follow = (complaint.is_wrong_region() && !region.is_empty()).then_some(region);
                let error = complaint.into_error(what);
                if error.kind == ErrorKind::Throttled {
                    self.stats.store.throttled.add(1);
                }
                return Refused { error, region: follow };
            }
            SdkError::TimeoutError(_) => late(),
            SdkError::DispatchFailure(failure) => match failure.as_connector_error() {
                Some(connector) if connector.is_timeout() => late(),
                Some(connector) => transport_error(what, &self.endpoint, connector),
                None => transport_error(what, &self.endpoint, error),
            },
            SdkError::ResponseError(response) => body_error(what, response.raw().status().as_u16(), error),
            other => denied_or_invalid(what, other),
        };
        Refused { error, region: None }
    }
}

/// Status and headers of an answer of the SDK, as the redirect rules read them.
fn head_of(raw: &HttpResponse) -> (http::StatusCode, http::HeaderMap) {
    let status = http::StatusCode::from_u16(raw.status().as_u16()).unwrap_or_default();
    let headers = raw
        .headers()
        .iter()
        .filter_map(|(name, value)| Some((http::HeaderName::from_bytes(name.as_bytes()).ok()?, http::HeaderValue::from_str(value).ok()?)));
    (status, headers.collect())
}

/// A failed construction is nearly always a failed resolution of credentials.
fn denied_or_invalid(what: &str, error: &(dyn std::error::Error + 'static)) -> StoreError {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    let kind = if cause.to_string().contains("credential") { ErrorKind::Denied } else { ErrorKind::Invalid };
    StoreError::new(kind, format!("{what}: {cause}"))
}

/// An error, and the region to try instead if the store named one.
struct Refused {
    error: StoreError,
    region: Option<String>,
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Self { error, region: None }
    }
}

/// The time of day: for signatures, which carry it, and for the expiry of credentials.
#[expect(clippy::disallowed_methods, reason = "signatures and credentials are dated by the wall clock")]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}

#[async_trait]
impl Store for S3Store {
    async fn list(&self, prefix: &str, start_after: Option<&str>, after: Option<&str>) -> Result<Page, StoreError> {
        self.list_page(prefix, start_after, after, PAGE_MAX_KEYS).await.map_err(|refused| refused.error)
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        self.stats.store.head.add(1);
        let what = format!("object {key:?} in bucket {:?}", self.config.bucket);
        let request = self.client.head_object().bucket(&self.config.bucket).key(key).set_request_payer(self.payer());
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) => {
                let raw = error.raw_response().map(head_of);
                return match raw.map(|(status, headers)| redirect(&self.endpoint, status, &headers, key)) {
                    Some(Redirect::Follow(target)) => self.head_at(&what, key, &target).await,
                    Some(Redirect::Refused(reason)) => Err(StoreError::new(ErrorKind::Invalid, format!("{what}: {reason}"))),
                    Some(Redirect::None) | None => Err(self.refused(&what, &error).error),
                };
            }
        };
        let Some(size) = answer.content_length.and_then(|size| u64::try_from(size).ok()) else {
            // Some servers answer HEAD in chunks, without a length (geesefs de7f9c5): a listing knows it.
            let page = self.list_page(key, None, None, 1).await.map_err(|refused| refused.error)?;
            let found = page.objects.into_iter().find(|object| &*object.key == key);
            return found.ok_or_else(|| StoreError::new(ErrorKind::Corrupt, format!("{what}: HEAD says no length")));
        };
        Ok(ObjectMeta {
            key: Arc::from(key),
            size,
            etag: list::quoted(answer.e_tag.as_deref().unwrap_or_default()),
            mtime_seconds: answer.last_modified.map_or(0, |time| time.secs()),
        })
    }

    async fn read(&self, id: &ObjectId, range: Range<u64>) -> Result<Body, StoreError> {
        self.getter.get(id, range).await
    }
}

#[cfg(test)]
mod tests;
