//! The address of a store, as a user writes it: `s3://bucket[/prefix]`, `ais://bucket[/prefix][?provider=…&namespace=…]` (also NVIDIA's
//! `ais://@uuid#ns/bucket`) or `file:///directory`.
//!
//! Types only: nothing is looked up here (`open.rs` does that). Text is taken literally, as the AWS tools do: `%20` is three characters
//! of a key, not a space. (Only in the query of an `ais://` address it means what it does in queries; so no prefix there has a `?`.)

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;

use crate::store::aistore::bucket::{self, Bucket, Namespace};

/// A bucket name ends here: S3 allows 63, its oldest buckets 255.
const BUCKET_MAX_BYTES: usize = 255;

/// Where the objects are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// A bucket of an S3-compatible store, seen from a prefix.
    S3 {
        bucket: String,
        /// Empty, or ends with `/`. One slash at its start is not part of it, so that `s3://b/p`, `s3://b/p/` and `s3://b//p` are one place.
        prefix: String,
    },
    /// A bucket of an AIStore cluster, seen from a prefix.
    Ais {
        bucket: Bucket,
        /// As that of S3.
        prefix: String,
    },
    /// A local directory.
    Directory {
        /// Absolute.
        path: PathBuf,
    },
}

impl StoreUrl {
    /// The prefix that every key of this store has: to be taken off to make a path.
    #[must_use]
    pub fn prefix(&self) -> &str {
        match self {
            Self::S3 { prefix, .. } | Self::Ais { prefix, .. } => prefix,
            Self::Directory { .. } => "",
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Self::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
            Self::Ais { bucket, prefix } => {
                f.write_str("ais://")?;
                if !bucket.namespace.is_global() {
                    write!(f, "{}/", bucket.namespace)?;
                }
                f.write_str(&bucket.name)?;
                if !prefix.is_empty() {
                    write!(f, "/{prefix}")?;
                }
                if bucket.provider == "ais" { Ok(()) } else { write!(f, "?provider={}", bucket.provider) }
            }
            Self::Directory { path } => write!(f, "file://{}", path.display()),
        }
    }
}

/// Why a text is no address of a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} {reason}")]
pub struct StoreUrlError {
    text: String,
    reason: String,
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<Self, StoreUrlError> {
        let refuse = |reason: &str| StoreUrlError { text: without_user_info(text), reason: reason.to_owned() };
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(refuse("is not the address of a store: write s3://bucket[/prefix], ais://bucket[/prefix] or file:///directory"));
        };
        match scheme.to_ascii_lowercase().as_str() {
            "s3" => {
                let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
                check_bucket(bucket).map_err(|reason| refuse(&reason))?;
                Ok(Self::S3 { bucket: bucket.to_owned(), prefix: as_directory(prefix) })
            }
            "file" => {
                let path = rest.strip_prefix("localhost").unwrap_or(rest);
                if !path.starts_with('/') {
                    return Err(refuse("is not an absolute directory: write three slashes, file:///directory"));
                }
                if path.contains('\0') {
                    return Err(refuse("contains a NUL character, which no path can"));
                }
                Ok(Self::Directory { path: PathBuf::from(path) })
            }
            "ais" => ais(rest).map_err(|reason| refuse(&reason)),
            "http" | "https" => Err(refuse(
                "is the address of a server, not of a bucket: write s3://bucket[/prefix] and give the server with --endpoint-url",
            )),
            "gs" | "az" | "abfs" | "hf" => Err(refuse(
                "is not supported: belady reads s3:// (any S3-compatible store, with --endpoint-url), ais:// (AIStore) and file://",
            )),
            _ => Err(refuse("has an unknown scheme: write s3://bucket[/prefix], ais://bucket[/prefix] or file:///directory")),
        }
    }
}

/// `[@uuid#ns/]bucket[/prefix][?provider=..&namespace=..]`.
fn ais(text: &str) -> Result<StoreUrl, String> {
    let (place, query) = text.split_once('?').unwrap_or((text, ""));
    let (namespace, place) = match place.starts_with(['@', '#']) {
        true => place.split_once('/').ok_or("names a namespace and no bucket: write ais://@uuid#name/bucket")?,
        false => ("", place),
    };
    let mut namespace = Namespace::parse(namespace)?;
    let mut provider = "ais";
    for (key, value) in query.split('&').filter(|part| !part.is_empty()).map(|part| part.split_once('=').unwrap_or((part, ""))) {
        let value = percent_decode_str(value).decode_utf8().map_err(|_| format!("has a {key} that is no text"))?;
        match key {
            "provider" => {
                provider = bucket::provider(&value)
                    .ok_or_else(|| format!("has an unknown provider {value:?}: write ais, aws, gcp, azure, oci or ht"))?;
            }
            "namespace" => namespace = Namespace::parse(&value)?,
            _ => return Err(format!("has an unknown key {key:?} behind the '?': write provider= or namespace=")),
        }
    }
    let (name, prefix) = place.split_once('/').unwrap_or((place, ""));
    check_bucket(name).map_err(|reason| reason.replace("s3://", "ais://"))?;
    Ok(StoreUrl::Ais { bucket: Bucket { provider, namespace, name: name.to_owned() }, prefix: as_directory(prefix) })
}

/// A prefix as a directory: without one slash at its start, with one at its end.
fn as_directory(prefix: &str) -> String {
    let prefix = prefix.strip_prefix('/').unwrap_or(prefix);
    if prefix.is_empty() || prefix.ends_with('/') { prefix.to_owned() } else { format!("{prefix}/") }
}

/// S3's own rules are narrower, but buckets older than them, and other stores, use all of these characters.
fn check_bucket(bucket: &str) -> Result<(), String> {
    if bucket.is_empty() {
        return Err("names no bucket: write s3://bucket[/prefix]".to_owned());
    }
    if bucket.starts_with("arn:") {
        return Err("is an access point, which is not supported: write the bucket's name, s3://bucket[/prefix]".to_owned());
    }
    if bucket.contains('@') {
        return Err("contains a user name or key: give credentials by environment, --profile or --credentials-file".to_owned());
    }
    let odd = bucket.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '-' | '_'));
    if let Some(odd) = odd {
        return Err(format!("is not possible: {odd:?} cannot be in a bucket's name (letters, digits, '.', '-', '_')"));
    }
    if bucket.len() > BUCKET_MAX_BYTES || bucket.trim_matches('.').is_empty() {
        return Err("is not possible as a bucket's name: S3 allows 3 to 63 letters, digits, '.' and '-'".to_owned());
    }
    Ok(())
}

/// The text with everything between `://` and `@` hidden: people paste keys there, and this goes to a log.
fn without_user_info(text: &str) -> String {
    match text.split_once("://") {
        Some((scheme, rest)) => match rest.split_once('@') {
            Some((_, after)) => format!("{scheme}://...@{after}"),
            None => text.to_owned(),
        },
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s3(bucket: &str, prefix: &str) -> StoreUrl {
        StoreUrl::S3 { bucket: bucket.into(), prefix: prefix.into() }
    }

    fn ais(provider: &'static str, namespace: &str, prefix: &str) -> StoreUrl {
        let namespace = Namespace::parse(namespace).expect("a namespace");
        StoreUrl::Ais { bucket: Bucket { provider, namespace, name: "b".into() }, prefix: prefix.into() }
    }

    #[test]
    fn addresses_are_read() {
        for (text, url) in [
            ("s3://b", s3("b", "")),
            ("S3://b/", s3("b", "")),
            ("s3://b/v1.0", s3("b", "v1.0/")),
            ("s3://b/v1.0/", s3("b", "v1.0/")),
            ("s3://b//v1.0/", s3("b", "v1.0/")),
            ("s3://b/v1.0//", s3("b", "v1.0//")),
            ("s3://a.b-c_D/x y/100%", s3("a.b-c_D", "x y/100%/")),
            ("ais://b", ais("ais", "", "")),
            ("AIS://b/p", ais("ais", "", "p/")),
            ("ais://b/p x/?provider=s3", ais("aws", "", "p x/")),
            ("ais://@uuid#ns/b/p", ais("ais", "@uuid#ns", "p/")),
            ("ais://b?namespace=%40uuid%23ns&provider=ais", ais("ais", "@uuid#ns", "")),
            ("ais://#ns/b", ais("ais", "#ns", "")),
            ("ais://@uuid/b?provider=gs", ais("gcp", "@uuid", "")),
            ("file:///data/a b", StoreUrl::Directory { path: "/data/a b".into() }),
            ("file://localhost/data", StoreUrl::Directory { path: "/data".into() }),
        ] {
            assert_eq!(text.parse::<StoreUrl>(), Ok(url.clone()), "{text}");
            assert_eq!(url.to_string().parse::<StoreUrl>(), Ok(url), "{text}: printed, it parses");
        }
    }

    #[test]
    fn what_is_no_address_names_the_remedy() {
        for (text, remedy) in [
            ("imagenet", "s3://bucket"),
            ("/data", "file:///"),
            ("s3://", "names no bucket"),
            ("s3:///x", "names no bucket"),
            ("s3://b c/x", "' '"),
            ("s3://arn:aws:s3:x/y", "bucket's name"),
            ("file://data", "three slashes"),
            ("ais://", "names no bucket: write ais://"),
            ("ais://@uuid#ns", "no bucket"),
            ("ais://b?provider=x", "unknown provider"),
            ("ais://b?x=y", "unknown key"),
            ("ais://b?namespace=a b", "cannot be in a namespace"),
            ("ais://me@b/x", "user name"),
            ("https://s3.amazonaws.com/b", "--endpoint-url"),
            ("gs://b", "not supported"),
            ("ftp://b", "unknown scheme"),
        ] {
            let error = text.parse::<StoreUrl>().expect_err(text).to_string();
            assert!(error.contains(remedy), "{error}");
        }
    }

    #[test]
    fn pasted_keys_are_not_repeated() {
        let error = "s3://AKIA123:secret@b/x".parse::<StoreUrl>().expect_err("a user in it").to_string();
        assert!(!error.contains("secret") && !error.contains("AKIA"), "{error}");
    }
}
