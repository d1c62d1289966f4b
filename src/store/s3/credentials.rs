//! Credentials, held: one resolution shared by all requests, renewed before they expire, and once more when the store calls them expired.
//!
//! The SDK's chain (environment, profile, web identity, container, instance metadata) resolves them; it caches for its own client only, and
//! the lean GET signs by itself. A store that refuses everything must not turn each read into a call to the token endpoint, so a forced
//! renewal happens once per set of credentials and at most every [`FORCED_RENEWAL_EVERY`].

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use aws_smithy_runtime_api::client::identity::Identity;
use tokio::time::Instant;

use crate::store::StoreError;
use crate::types::ErrorKind;

/// The chain ends here. Its last link, the instance metadata service, does not answer outside EC2, and nobody wants to wait minutes for
/// that (mountpoint-s3 issue 571).
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(9);
/// Renewed this long before they expire: longer than any one request takes.
const RENEW_BEFORE: Duration = Duration::from_secs(300);
/// Revoked keys stay revoked: asking again more often than this only loads the token endpoint.
const FORCED_RENEWAL_EVERY: Duration = Duration::from_secs(10);

/// One set of credentials, in the form the signer takes.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// Counts renewals: says which set a refused request was signed with.
    pub(super) generation: u64,
    pub(super) identity: Identity,
    credentials: Credentials,
    resolved_at: Instant,
}

/// See the module.
#[derive(Debug)]
pub(super) struct CachedCredentials {
    provider: SharedCredentialsProvider,
    /// Where they were looked for, for people.
    sources: String,
    /// Held for lines, never over an await.
    held: Mutex<Option<Held>>,
    /// One renewal at a time; the others wait for its result.
    renewal: tokio::sync::Mutex<()>,
}

impl CachedCredentials {
    pub(super) fn new(provider: SharedCredentialsProvider, sources: &str) -> Self {
        Self { provider, sources: sources.to_owned(), held: Mutex::new(None), renewal: tokio::sync::Mutex::new(()) }
    }

    fn peek(&self) -> Option<Held> {
        self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Valid credentials, from memory nearly always.
    pub(super) async fn get(&self) -> Result<Held, StoreError> {
        let now = super::wall_clock();
        match self.peek() {
            Some(held) if !expires_within(&held, now, RENEW_BEFORE) => Ok(held),
            Some(held) => match self.renew(held.generation).await {
                // Still valid for a while: a token endpoint that is away for a minute must not stop reads.
                Err(error) if !expires_within(&held, now, Duration::ZERO) => {
                    tracing::warn!("credentials could not be renewed yet: {error}");
                    Ok(held)
                }
                other => other,
            },
            None => self.renew(0).await,
        }
    }

    /// New credentials in place of those of `generation`. If somebody else has renewed them meanwhile, theirs.
    pub(super) async fn renew(&self, generation: u64) -> Result<Held, StoreError> {
        let _one_at_a_time = self.renewal.lock().await;
        if let Some(held) = self.peek() {
            let just_now = held.resolved_at.elapsed() < FORCED_RENEWAL_EVERY;
            if held.generation != generation || (just_now && !expires_within(&held, super::wall_clock(), Duration::ZERO)) {
                return Ok(held);
            }
        }
        let resolved = tokio::time::timeout(RESOLVE_TIMEOUT, self.provider.provide_credentials()).await;
        let credentials = resolved
            .map_err(|_| none_found(&self.sources, "no answer in 9 s from the last one tried"))?
            .map_err(|error| describe(&self.sources, &error))?;
        let held =
            Held { generation: generation + 1, identity: Identity::from(credentials.clone()), credentials, resolved_at: Instant::now() };
        *self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(held.clone());
        Ok(held)
    }
}

fn expires_within(held: &Held, now: SystemTime, margin: Duration) -> bool {
    held.credentials.expiry().is_some_and(|expiry| expiry < now + margin)
}

fn none_found(sources: &str, detail: &str) -> StoreError {
    StoreError::new(
        ErrorKind::Denied,
        format!(
            "no AWS credentials could be had from {sources} ({detail}): set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, use --profile, --credentials-file or \
             --env-file, or --no-sign-request for a public bucket"
        ),
    )
}

fn describe(sources: &str, error: &CredentialsError) -> StoreError {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    let text = cause.to_string().replace('\n', " ");
    match error {
        // Says by itself what is wrong in which file.
        CredentialsError::InvalidConfiguration(_) => StoreError::new(ErrorKind::Denied, format!("credentials of {sources}: {text}")),
        _ => none_found(sources, &text),
    }
}

/// What the SDK's client is given: the same held credentials.
#[derive(Debug)]
pub(super) struct Shared(pub(super) Arc<CachedCredentials>);

impl ProvideCredentials for Shared {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            self.0.get().await.map(|held| held.credentials).map_err(|error| CredentialsError::provider_error(error.to_string()))
        })
    }
}

/// Credentials from a file of `NAME=value` lines (`--env-file`), read again at each renewal, so that a rotated file is picked up.
#[derive(Debug)]
pub(super) struct EnvFile(pub(super) PathBuf);

/// The value of `name` in lines of `NAME=value`; the last one counts.
#[must_use]
pub fn env_file_value(text: &str, name: &str) -> Option<String> {
    text.lines().rev().find_map(|line| {
        let line = line.trim();
        let (key, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
        (key.trim() == name).then(|| value.trim().trim_matches(['"', '\'']).to_owned())
    })
}

impl EnvFile {
    /// The value of `name`, `None` if the file does not set it.
    pub(super) fn value(path: &Path, name: &str) -> Result<Option<String>, StoreError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| StoreError::new(ErrorKind::Invalid, format!("--env-file {}: {error}", path.display())))?;
        Ok(env_file_value(&text, name))
    }

    fn read(&self) -> Result<Credentials, StoreError> {
        let need = |name: &str| {
            Self::value(&self.0, name)?
                .ok_or_else(|| StoreError::new(ErrorKind::Invalid, format!("--env-file {} does not set {name}", self.0.display())))
        };
        let token = Self::value(&self.0, "AWS_SESSION_TOKEN")?;
        Ok(Credentials::new(need("AWS_ACCESS_KEY_ID")?, need("AWS_SECRET_ACCESS_KEY")?, token, None, "env-file"))
    }
}

impl ProvideCredentials for EnvFile {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        // A small local file, read once per renewal.
        future::ProvideCredentials::ready(self.read().map_err(|error| CredentialsError::invalid_configuration(error.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[derive(Clone, Debug, Default)]
    struct Counting {
        calls: Arc<AtomicU64>,
        lives: Option<Duration>,
    }

    impl ProvideCredentials for Counting {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            let n = self.calls.fetch_add(1, Ordering::Relaxed);
            let expiry = self.lives.map(|lives| super::super::wall_clock() + lives);
            future::ProvideCredentials::ready(Ok(Credentials::new(format!("AKIA{n}"), "s", None, expiry, "test")))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_resolution_serves_all_and_a_storm_of_refusals_causes_one_more() {
        let source = Counting::default();
        let cached = CachedCredentials::new(SharedCredentialsProvider::new(source.clone()), "a test");
        let first = cached.get().await.expect("resolves");
        assert_eq!(cached.get().await.expect("held").generation, first.generation);
        tokio::time::advance(FORCED_RENEWAL_EVERY).await;
        let renewals = futures_util::future::join_all((0..64).map(|_| cached.renew(first.generation))).await;
        assert!(renewals.iter().all(|r| r.as_ref().is_ok_and(|held| held.generation == first.generation + 1)));
        assert_eq!(source.calls.load(Ordering::Relaxed), 2);
        cached.renew(first.generation + 1).await.expect("too soon: the held ones");
        assert_eq!(source.calls.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_are_renewed_before_they_expire() {
        let source = Counting { lives: Some(RENEW_BEFORE / 2), ..Counting::default() };
        let cached = CachedCredentials::new(SharedCredentialsProvider::new(source.clone()), "a test");
        cached.get().await.expect("resolves");
        tokio::time::advance(FORCED_RENEWAL_EVERY).await;
        assert_eq!(cached.get().await.expect("renewed").generation, 2);
    }

    /// A link of the chain that never answers, as instance metadata outside EC2.
    #[derive(Debug)]
    struct Silent;

    impl ProvideCredentials for Silent {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            future::ProvideCredentials::new(std::future::pending())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_chain_that_does_not_answer_ends_within_ten_seconds_and_is_named() {
        let began = Instant::now();
        let cached = CachedCredentials::new(SharedCredentialsProvider::new(Silent), "environment and instance metadata");
        let error = cached.get().await.expect_err("no answer");
        assert!(began.elapsed() < Duration::from_secs(10));
        assert_eq!(error.kind, ErrorKind::Denied);
        assert!(
            error.to_string().contains("environment and instance metadata") && error.to_string().contains("--no-sign-request"),
            "{error}"
        );
    }

    #[test]
    fn an_env_file_is_read_as_shells_read_it() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("env");
        std::fs::write(&path, "# x\nexport AWS_ACCESS_KEY_ID=\"AK\"\nAWS_SECRET_ACCESS_KEY='s=+/'\nAWS_REGION=eu-west-1\n").expect("write");
        let read = EnvFile(path.clone()).read().expect("both keys");
        assert_eq!((read.access_key_id(), read.secret_access_key()), ("AK", "s=+/"));
        assert_eq!(EnvFile::value(&path, "AWS_REGION").expect("readable").as_deref(), Some("eu-west-1"));
        std::fs::write(&path, "AWS_ACCESS_KEY_ID=AK\n").expect("write");
        assert!(EnvFile(path).read().expect_err("no secret").to_string().contains("AWS_SECRET_ACCESS_KEY"));
        assert!(EnvFile(dir.path().join("none")).read().is_err());
    }
}
