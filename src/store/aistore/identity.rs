//! Which version an object is, as AIStore says it: how a listing, a HEAD and the head of a GET are compared. Pure.
//!
//! The identity (`ObjectId::etag`) of an object of the cluster's own buckets is its **checksum** (`xxhash2:…`, `md5:…`, `crc32c:…`, or `cksum:…`
//! for kinds that we cannot compute): listings and every GET carry it, it is the whole object's even on a range, and a whole body can be checked against it by
//! value. Listings give the value without its kind; the kinds have different lengths. Where a bucket has no checksums, the **version** (`v:…`) stands in.
//!
//! In front of a cloud it is the other way round: the cloud's own **ETag** (`etag:…`) or version comes first, because the checksum that AIStore lists for
//! such an object changes from the cloud's kind to its own once the object has been read, and nodes that list before and after would disagree.
//! With neither, size and time stand in (see `ObjectMeta::version`).

use http::{HeaderMap, header};

use super::checksum::{Kind, Verifier};
use crate::store::http::text;

/// What an answer says about the version it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes {
    /// Value only: the kind follows from its length.
    pub(super) checksum: Option<String>,
    pub(super) version: Option<String>,
    /// The cloud's, from the custom metadata; without quotes.
    pub(super) etag: Option<String>,
    /// The answer's own ETag header, without quotes: the cloud's, or made up by AIStore.
    pub(super) answer_etag: Option<String>,
    /// The cloud's time, RFC 3339 or RFC 1123, from the custom metadata.
    pub(super) modified: Option<String>,
}

/// Values that mean «none».
fn said(value: &str) -> Option<String> {
    let value = value.trim().trim_matches('"');
    (!value.is_empty() && value != "none").then(|| value.to_owned())
}

impl Attributes {
    /// From the head of an answer to GET or HEAD.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let custom: Vec<&str> = headers.get_all("ais-custom-md").iter().filter_map(|value| value.to_str().ok()).collect();
        let named = |name: &str| {
            let value = custom.iter().find_map(|pair| pair.split_once('=').filter(|(key, _)| key.trim() == name).map(|(_, value)| value));
            value.and_then(said)
        };
        Self {
            checksum: text(headers, "ais-checksum-value").and_then(said).map(|value| value.to_ascii_lowercase()),
            version: text(headers, "ais-version").and_then(said).or_else(|| named("version")),
            etag: named("ETag"),
            answer_etag: text(headers, header::ETAG).and_then(said),
            modified: named("LastModified"),
        }
    }

    /// From an entry of a listing. `custom`: `[ETag:… LastModified:…]` (`cmn/objlist_utils.go` CustomMD2S); `[ETag=…, …]` is read, too.
    pub(super) fn listed(checksum: &str, version: &str, custom: &str) -> Self {
        let pairs = custom.trim_matches(['[', ']']).split([' ', ',']);
        let named =
            |name: &str| pairs.clone().find_map(|pair| pair.split_once([':', '=']).filter(|(key, _)| *key == name).map(|(_, value)| value));
        Self {
            checksum: said(checksum).map(|value| value.to_ascii_lowercase()),
            version: said(version),
            etag: named("ETag").and_then(said),
            answer_etag: None,
            modified: named("LastModified").and_then(said),
        }
    }

    /// The identity; empty where nothing is said. `cloud`: the bucket stands in front of one.
    pub(super) fn identity(&self, cloud: bool) -> String {
        let checksum = || self.checksum.as_deref().map(labelled);
        let version = || self.version.as_deref().map(|version| format!("v:{version}"));
        let etag = || self.etag.as_deref().map(|etag| format!("etag:{etag}"));
        let first = if cloud { etag().or_else(version).or_else(checksum) } else { checksum().or_else(version).or_else(etag) };
        first.unwrap_or_default()
    }

    /// All that is said of the version: two answers that differ in it are not taken for one version.
    pub(super) fn fingerprint(&self) -> String {
        let part = |value: &Option<String>| value.clone().unwrap_or_default();
        let parts = [part(&self.checksum), part(&self.version), part(&self.etag), part(&self.answer_etag)];
        if parts.iter().all(String::is_empty) { String::new() } else { parts.join("|") }
    }

    /// How a whole body is checked against the answer's own checksum.
    pub(super) fn verifier(&self) -> Option<Verifier> {
        verifier(&labelled(self.checksum.as_deref()?))
    }

    /// How a range is checked, should the answer's checksum be the range's own. Only where the object's identity is a checksum of the same kind.
    pub(super) fn range_verifier(&self, etag: &str) -> Option<Verifier> {
        let said = labelled(self.checksum.as_deref()?);
        if said.split(':').next() == etag.split(':').next() { verifier(&said) } else { None }
    }

    /// Seconds since 1970; 0 where the cloud's time is not said. (The time at which AIStore stored the object is in no listing, so it is not used: a
    /// HEAD would contradict the listing.)
    pub(super) fn mtime_seconds(&self) -> i64 {
        use aws_smithy_types::DateTime;
        use aws_smithy_types::date_time::Format;
        let parse = |text: &str| {
            DateTime::from_str(text, Format::DateTimeWithOffset)
                .or_else(|_| DateTime::from_str(text, Format::HttpDate))
                .map(|time| time.secs())
        };
        self.modified.as_deref().and_then(|text| parse(text).ok()).unwrap_or(0)
    }
}

/// A checksum with the kind that its length tells.
fn labelled(value: &str) -> String {
    let is_hex = value.bytes().all(|byte| byte.is_ascii_hexdigit());
    match Kind::of_length(value.len()).filter(|_| is_hex) {
        Some(kind) => format!("{}:{value}", kind.name()),
        None => format!("cksum:{value}"),
    }
}

/// Whether an answer is the version asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Agreement {
    Same,
    /// Another one: what differs.
    Other(String),
    /// The answer says nothing that can be compared.
    Unknown,
}

/// Compares the version asked for with an answer's attributes.
pub(super) fn compare(etag: &str, answer: &Attributes, total: Option<u64>) -> Agreement {
    let judge = |mine: &str, theirs: &str| {
        if mine == theirs { Agreement::Same } else { Agreement::Other(format!("{theirs} now, {mine} when listed")) }
    };
    if let Some((size, _)) = etag.strip_prefix('~').and_then(|rest| rest.split_once('-')) {
        return match total {
            Some(total) if size.parse() != Ok(total) => Agreement::Other(format!("{total} bytes now, {size} when listed")),
            _ => Agreement::Same,
        };
    }
    let Some((label, value)) = etag.split_once(':') else { return Agreement::Unknown };
    match label {
        "v" => answer.version.as_deref().map_or(Agreement::Unknown, |version| judge(value, version)),
        "etag" => match (&answer.etag, &answer.answer_etag) {
            (Some(etag), _) => judge(value, etag),
            // Where AIStore does not know the cloud's ETag it makes one up: only equality says something.
            (None, Some(etag)) if etag == value => Agreement::Same,
            _ => Agreement::Unknown,
        },
        _ => match answer.checksum.as_deref().map(labelled) {
            Some(theirs) if theirs.split(':').next() == Some(label) => judge(etag, &theirs),
            // Another kind: the object was cold when it was listed. The cloud's ETag often is its MD5.
            _ if label == Kind::Md5.name() && answer.etag.as_deref() == Some(value) => Agreement::Same,
            _ => Agreement::Unknown,
        },
    }
}

/// How a whole body is checked against this identity by value; `None`: it cannot be.
pub(super) fn verifier(etag: &str) -> Option<Verifier> {
    let (label, value) = etag.split_once(':')?;
    Kind::ALL.into_iter().find(|kind| kind.name() == label && kind.length() == value.len()).map(|kind| Verifier::new(kind, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const XX: &str = "6b1c00000000000a";
    const MD5: &str = "900150983cd24fb0d6963f7d28e17f72";

    fn head(lines: &[(&'static str, &str)]) -> Attributes {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().expect("a value"));
        }
        Attributes::of(&headers)
    }

    #[test]
    fn a_listing_and_a_head_tell_one_identity() {
        let listed = Attributes::listed(&XX.to_uppercase(), "3", "");
        let headed = head(&[("ais-checksum-type", "xxhash2"), ("ais-checksum-value", XX), ("ais-version", "3"), ("etag", "\"v1-x-1\"")]);
        assert_eq!(listed.identity(false), format!("xxhash2:{XX}"));
        assert_eq!(headed.identity(false), listed.identity(false));
        let custom = format!("[ETag:{MD5} LastModified:2023-09-20T21:04:51Z]");
        let cold = Attributes::listed(MD5, "", &custom);
        let warm = head(&[
            ("ais-checksum-value", XX),
            ("ais-custom-md", &format!("ETag=\"{MD5}\"")),
            ("ais-custom-md", "LastModified=2023-09-20T21:04:51Z"),
        ]);
        assert_eq!(cold.identity(true), format!("etag:{MD5}"));
        assert_eq!((warm.identity(true), warm.mtime_seconds()), (cold.identity(true), 1_695_243_891));
        assert_eq!(cold.mtime_seconds(), warm.mtime_seconds());
        for (checksum, version, custom, identity) in [
            ("none", "7", "", "v:7"),
            ("", "", "[source=aws, ETag=\"a-2\"]", "etag:a-2"),
            ("", "", "[ETag:a-2]", "etag:a-2"),
            ("", "", "", ""),
            (&"a".repeat(64), "", "", "cksum:"),
        ] {
            assert!(Attributes::listed(checksum, version, custom).identity(false).starts_with(identity), "{checksum} {version} {custom}");
        }
    }

    #[test]
    fn versions_are_compared_only_where_they_can_be() {
        let answer = head(&[("ais-checksum-value", XX), ("ais-version", "3"), ("ais-custom-md", &format!("ETag={MD5}"))]);
        let other = |etag: &str| matches!(compare(etag, &answer, Some(10)), Agreement::Other(_));
        let same = |etag: &str| compare(etag, &answer, Some(10)) == Agreement::Same;
        assert!(same(&format!("xxhash2:{XX}")) && other("xxhash2:6b1c00000000000b"));
        assert!(same("v:3") && other("v:4"));
        assert!(same(&format!("etag:{MD5}")) && other("etag:x"));
        assert!(same(&format!("md5:{MD5}")), "the cloud's ETag says it");
        assert_eq!(compare("md5:00000000000000000000000000000000", &answer, None), Agreement::Unknown);
        assert_eq!(compare("cksum:xyz", &answer, None), Agreement::Unknown);
        assert!(same("~10-0") && other("~11-0"));
        assert_eq!(compare("etag:x", &head(&[("etag", "\"made-up\"")]), None), Agreement::Unknown);
        assert_eq!(compare("\"e\"", &answer, None), Agreement::Unknown);
    }

    #[test]
    fn only_checksums_can_be_verified() {
        assert!(verifier(&format!("xxhash2:{XX}")).is_some() && verifier("crc32c:0000000a").is_some());
        assert!(verifier("xxhash2:6b1c").is_none() && verifier("v:3").is_none() && verifier(&format!("etag:{MD5}")).is_none());
    }
}
