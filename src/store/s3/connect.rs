//! What is found out before the first request: credentials, region, and the address of the bucket, all by the SDK's own chains and rules.

use std::sync::Arc;

use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::{ProfileFileCredentialsProvider, ProfileFileRegionProvider};
use aws_config::provider_config::ProviderConfig;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_s3::config::endpoint::{DefaultResolver, Params, ResolveEndpoint};
use aws_sdk_s3::config::{BehaviorVersion, Region, SharedHttpClient};
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore, rustls_provider::CryptoMode};

use super::S3Config;
use super::credentials::{CachedCredentials, EnvFile};
use crate::store::StoreError;
use crate::types::ErrorKind;

#[expect(deprecated, reason = "their new home, aws-runtime, would be one more dependency for two names")]
mod profile {
    pub(super) type Files = aws_config::profile::profile_file::ProfileFiles;
    pub(super) type FileKind = aws_config::profile::profile_file::ProfileFileKind;
}
use profile::{FileKind, Files};

/// What does not depend on the region: made once, kept when the region is followed.
pub(super) struct Parts {
    pub(super) http: SharedHttpClient,
    pub(super) credentials: Option<Arc<CachedCredentials>>,
    pub(super) bundle: Option<Vec<u8>>,
    pub(super) endpoint_url: Option<String>,
}

impl Parts {
    /// Credentials and region, by the SDK's chains.
    pub(super) async fn resolve(config: &S3Config, bundle: Option<Vec<u8>>) -> Result<(Self, String), StoreError> {
        let http = sdk_http_client(bundle.as_deref())?;
        let mut files = Files::builder().include_default_config_file(true);
        files = match &config.credentials_file {
            Some(path) => {
                if let Err(error) = std::fs::metadata(path) {
                    return Err(StoreError::new(ErrorKind::Invalid, format!("--credentials-file {}: {error}", path.display())));
                }
                files.with_file(FileKind::Credentials, path)
            }
            None => files.include_default_credentials_file(true),
        };
        let files = files.build();
        let region = region(config, &files).await?;
        let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http.clone()).region(Region::new(region.clone()));
        loader = match (&config.env_file, &config.profile, &config.credentials_file) {
            _ if config.no_sign_request => loader.no_credentials(),
            (Some(path), ..) => loader.credentials_provider(SharedCredentialsProvider::new(EnvFile(path.clone()))),
            (None, None, None) => loader.profile_files(files),
            // What was asked for by name comes before the environment's keys, which the SDK's chain would prefer.
            (None, profile, _) => {
                let basis = ProviderConfig::without_region().with_region(Some(Region::new(region.clone()))).with_http_client(http.clone());
                let mut named = ProfileFileCredentialsProvider::builder().configure(&basis).profile_files(files);
                if let Some(profile) = profile {
                    named = named.profile_name(profile);
                }
                loader.credentials_provider(named.build())
            }
        };
        let sdk = loader.load().await;
        let credentials = if config.no_sign_request {
            None
        } else {
            sdk.credentials_provider().map(|p| Arc::new(CachedCredentials::new(p, &sources(config))))
        };
        if let Some(credentials) = &credentials {
            credentials.get().await?;
        }
        let endpoint_url = config.endpoint_url.clone().or_else(|| sdk.endpoint_url().map(str::to_owned)).map(|url| with_slash(&url));
        Ok((Self { http, credentials, bundle, endpoint_url }, region))
    }
}

/// The SDK's HTTP client, for lists, HEADs, STS and instance metadata.
fn sdk_http_client(bundle: Option<&[u8]>) -> Result<SharedHttpClient, StoreError> {
    let mut trust = TrustStore::default();
    if let Some(pem) = bundle {
        trust = trust.with_pem_certificate(pem);
    }
    let context = TlsContext::builder().with_trust_store(trust).build();
    let context = context.map_err(|error| StoreError::new(ErrorKind::Invalid, format!("TLS cannot be set up: {error}")))?;
    Ok(aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).tls_context(context).build_https())
}

/// Where credentials are looked for, as the user would say it.
fn sources(config: &S3Config) -> String {
    let profile = config.profile.as_ref().map(|name| format!("profile {name:?}"));
    match (&config.env_file, profile, &config.credentials_file) {
        (Some(path), ..) => format!("--env-file {}", path.display()),
        (None, Some(profile), Some(path)) => format!("{profile} of --credentials-file {}", path.display()),
        (None, None, Some(path)) => format!("the default profile of --credentials-file {}", path.display()),
        (None, Some(profile), None) => format!("{profile} of the AWS configuration files"),
        (None, None, None) => "environment, profile, web identity, container and instance metadata (IMDS)".to_owned(),
    }
}

/// Option, env-file, environment, profile, else us-east-1 (every store accepts it, and AWS names the right one). Not the instance metadata: it
/// does not answer outside EC2, and the bucket's region is not the machine's.
async fn region(config: &S3Config, files: &Files) -> Result<String, StoreError> {
    if let Some(region) = &config.region {
        return Ok(region.clone());
    }
    let from_file = config.env_file.as_deref().map(|path| EnvFile::value(path, "AWS_REGION")).transpose()?;
    if let Some(region) = from_file.flatten() {
        return Ok(region);
    }
    let mut profile = ProfileFileRegionProvider::builder().profile_files(files.clone());
    if let Some(name) = &config.profile {
        profile = profile.profile_name(name);
    }
    let chain = RegionProviderChain::first_try(EnvironmentVariableRegionProvider::new()).or_else(profile.build()).or_else("us-east-1");
    Ok(chain.region().await.map_or_else(|| "us-east-1".to_owned(), |region| region.to_string()))
}

/// The SDK's rules glue the bucket to a base path: `http://host/s3` and `b` would be `http://host/s3b`.
fn with_slash(url: &str) -> String {
    format!("{}/", url.trim_end_matches('/'))
}

/// The address of the bucket, without a slash at its end, by the SDK's endpoint rules: so both clients always agree.
pub(super) async fn bucket_url(bucket: &str, endpoint: Option<&str>, region: &str, path_style: bool) -> Result<String, StoreError> {
    let refuse = |reason: String| {
        StoreError::new(ErrorKind::Invalid, format!("bucket {bucket:?}: {reason}: check --endpoint-url, --region and the bucket's name"))
    };
    let params = Params::builder()
        .bucket(bucket)
        .region(region)
        .set_endpoint(endpoint.map(str::to_owned))
        .force_path_style(path_style)
        .build()
        .map_err(|error| refuse(error.to_string()))?;
    let resolved = DefaultResolver::new().resolve_endpoint(&params).await.map_err(|error| {
        let mut cause: &dyn std::error::Error = &*error;
        while let Some(next) = cause.source() {
            cause = next;
        }
        refuse(cause.to_string())
    })?;
    Ok(resolved.url().trim_end_matches('/').to_owned())
}
