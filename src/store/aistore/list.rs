//! Pages of a listing: the request's body, and what a page says in JSON or msgpack, checked. Pure.
//!
//! Source: NVIDIA/aistore `api/apc/lsmsg.go`, `cmn/objlist.go`. Numbers that may pass 2^53 are strings in the JSON; msgpack has short keys.
//! The token that our caller hands back carries the session's uuid, AIStore's own token, and where a listing that cannot begin in the middle was meant to begin.

use std::sync::Arc;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

use super::bucket::Bucket;
use super::identity::{Attributes, verifier};
use crate::store::{Page, StoreError};
use crate::types::{ErrorKind, ObjectMeta};

/// [`crate::store::Store::list`]'s bound; AIStore allows more for its own buckets.
pub(super) const PAGE_MAX_KEYS: u32 = 1000;
/// A page is read up to here: 1,000 names of 1 KiB with checksums, versions and custom metadata are below 3 MiB; some servers send more than was asked.
pub(super) const PAGE_MAX_BYTES: usize = 64 << 20;
/// Entry flags: a directory made up of names with a common beginning, a file inside an archive, an object that could not be asked about.
const DIRECTORY: u64 = 256;
const IN_ARCHIVE: u64 = 128;
const HEAD_FAILED: u64 = 4096;
/// The low bits: 0 for the object at its place, else a copy or a misplaced one.
const STATUS: u64 = 31;

/// Where a listing goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The session that the first page opened.
    pub(super) uuid: String,
    pub(super) token: String,
    /// Keys up to this one are left out here, because the cluster would not do it.
    pub(super) start_after: String,
}

impl Cursor {
    /// Reads what [`Cursor::text`] wrote.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (uuid, token, start_after) = serde_json::from_str(text).ok()?;
        Some(Self { uuid, token, start_after })
    }

    pub(super) fn text(&self) -> String {
        serde_json::to_string(&(&self.uuid, &self.token, &self.start_after)).expect("strings")
    }
}

/// The prefix to ask with. In the cluster's own buckets objects are files, and a target that has a directory of the prefix's name walks that alone: `d` would
/// hide `d0` (`fs/walk.go`, unless its feature Dont-Optimize-Virtual-Dir is on). So all of the directory above is asked for, and [`page`] leaves out the rest.
fn asked<'a>(bucket: &Bucket, prefix: &'a str) -> &'a str {
    if bucket.is_local() { &prefix[..prefix.rfind('/').map_or(0, |slash| slash + 1)] } else { prefix }
}

/// The body of a request for a page.
pub(super) fn request(bucket: &Bucket, prefix: &str, start_after: Option<&str>, cursor: &Cursor, max: u32) -> Vec<u8> {
    // The cloud's ETag and time cost more to list, and the cluster's own buckets have none.
    let props = if bucket.is_local() { "name,size,checksum,version" } else { "name,size,checksum,version,custom" };
    let value = serde_json::json!({
        "props": props,
        "prefix": asked(bucket, prefix),
        "flags": "0",
        "pagesize": max,
        "uuid": cursor.uuid,
        "continuation_token": cursor.token,
        "start_after": start_after.filter(|_| cursor.token.is_empty()).unwrap_or_default(),
    });
    serde_json::to_vec(&serde_json::json!({"action": "list", "name": "", "value": value})).expect("strings and numbers")
}

#[derive(Deserialize)]
struct PageWire {
    #[serde(default, alias = "UUID")]
    uuid: Option<String>,
    #[serde(default, alias = "ContinuationToken")]
    continuation_token: Option<String>,
    #[serde(alias = "Entries")]
    entries: Option<Vec<EntryWire>>,
}

#[derive(Deserialize)]
struct EntryWire {
    #[serde(alias = "n")]
    name: String,
    #[serde(default, alias = "cs")]
    checksum: String,
    #[serde(default, alias = "v")]
    version: String,
    #[serde(default, alias = "m", rename = "custom-md")]
    custom: String,
    #[serde(default, alias = "s", deserialize_with = "number")]
    size: u64,
    #[serde(default, alias = "f", deserialize_with = "number")]
    flags: u64,
}

/// A number, or one in a string.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    struct Number;
    impl Visitor<'_> for Number {
        type Value = u64;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a number that is not negative")
        }
        fn visit_u64<E: de::Error>(self, n: u64) -> Result<u64, E> {
            Ok(n)
        }
        fn visit_i64<E: de::Error>(self, n: i64) -> Result<u64, E> {
            u64::try_from(n).map_err(|_| E::custom("negative"))
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
            text.parse().map_err(|_| E::custom("not a number"))
        }
    }
    deserializer.deserialize_any(Number)
}

/// Whether it is msgpack is seen from the first byte: a map there, `{` in JSON. (`Content-Type` is not always set.)
fn decode(body: &[u8]) -> Result<PageWire, String> {
    match body.first() {
        Some(0x80..=0x8f | 0xde | 0xdf) => rmp_serde::from_slice(body).map_err(|error| error.to_string()),
        Some(_) => serde_json::from_slice(body).map_err(|error| error.to_string()),
        None => Err("it is empty".to_owned()),
    }
}

/// The page, or why it cannot be believed. `cursor`: what it was asked with. And the checksums, by the objects' places in the page, that are told beside
/// identities that are none.
pub(super) fn page(
    what: &str,
    bucket: &Bucket,
    prefix: &str,
    cursor: &Cursor,
    body: &[u8],
) -> Result<(Page, Vec<(usize, String)>), StoreError> {
    let nonsense = |detail: String| StoreError::new(ErrorKind::Corrupt, format!("{what}: the listing makes no sense: {detail}"));
    let wire = decode(body).map_err(nonsense)?;
    let token = wire.continuation_token.unwrap_or_default();
    if !token.is_empty() && token == cursor.token {
        return Err(nonsense("it goes on where it began".to_owned()));
    }
    let mut entries = wire.entries.unwrap_or_default();
    // Copies and misplaced ones come beside the object itself, which has status 0.
    entries.sort_by(|a, b| a.name.cmp(&b.name).then((a.flags & STATUS).cmp(&(b.flags & STATUS))));
    entries.dedup_by(|b, a| a.name == b.name);
    let mut objects = Vec::with_capacity(entries.len());
    let mut sums = Vec::new();
    for entry in entries {
        if entry.flags & (DIRECTORY | IN_ARCHIVE) != 0 || entry.name.as_str() <= cursor.start_after.as_str() {
            continue;
        }
        if !entry.name.starts_with(prefix) {
            if entry.name.starts_with(asked(bucket, prefix)) {
                continue;
            }
            return Err(nonsense(format!("key {:?} is not below the prefix {prefix:?}", entry.name)));
        }
        if entry.flags & HEAD_FAILED != 0 {
            return Err(StoreError::new(ErrorKind::Server, format!("{what}: the cluster could not ask about key {:?}", entry.name)));
        }
        let attributes = Attributes::listed(&entry.checksum, &entry.version, &entry.custom);
        let identity = attributes.identity(!bucket.is_local());
        if let Some(checksum) = attributes.checksum.clone().filter(|_| verifier(&identity).is_none()) {
            sums.push((objects.len(), checksum));
        }
        objects.push(ObjectMeta {
            key: Arc::from(entry.name),
            size: entry.size,
            etag: Arc::from(identity),
            mtime_seconds: attributes.mtime_seconds(),
        });
    }
    let uuid = wire.uuid.filter(|uuid| !uuid.is_empty()).unwrap_or_else(|| cursor.uuid.clone());
    let next = Cursor { uuid, token, start_after: cursor.start_after.clone() };
    Ok((Page { objects, next: (!next.token.is_empty()).then(|| next.text()) }, sums))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHAT: &str = "bucket \"b\"";

    fn local(body: &[u8], cursor: &Cursor) -> Result<Page, StoreError> {
        page(WHAT, &Bucket::new("b"), "", cursor, body).map(|(page, _)| page)
    }

    #[test]
    fn json_and_msgpack_tell_the_same() {
        let json = br#"{"uuid":"U","continuation_token":"b","flags":0,"new":[{}],"entries":[
            {"name":"a","checksum":"6b1c00000000000a","atime":"x","version":"1","size":"9007199254740993","flags":64,"copies":1},
            {"name":"b","size":"0"}]}"#;
        // {"UUID":"U","ContinuationToken":"b","Entries":[{"n":"a","cs":…,"v":"1","s":u64,"f":64},{"n":"b"}],"Flags":0}
        let mut pack = vec![0x84, 0xa4];
        pack.extend_from_slice(b"UUID\xa1U\xb1ContinuationToken\xa1b\xa7Entries\x92");
        pack.extend_from_slice(b"\x85\xa1n\xa1a\xa2cs\xb06b1c00000000000a\xa1v\xa11\xa1s\xcf\x00\x20\x00\x00\x00\x00\x00\x01\xa1f\x40");
        pack.extend_from_slice(b"\x81\xa1n\xa1b\xa5Flags\x00");
        for body in [json.as_slice(), &pack] {
            let page = local(body, &Cursor::default()).expect("a page");
            assert_eq!(page.objects.len(), 2);
            assert_eq!((&*page.objects[0].etag, page.objects[0].size), ("xxhash2:6b1c00000000000a", 9_007_199_254_740_993));
            assert_eq!((&*page.objects[1].key, page.objects[1].size, page.objects[1].mtime_seconds), ("b", 0, 0));
            let next = Cursor::parse(&page.next.expect("there is more")).expect("ours");
            assert_eq!((next.uuid.as_str(), next.token.as_str()), ("U", "b"));
        }
    }

    #[test]
    fn the_request_echoes_session_and_token_and_says_flags_as_a_string() {
        let cursor = Cursor { uuid: "U".into(), token: "t".into(), start_after: String::new() };
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        let second = text(request(&Bucket::new("b"), "p/", Some("p/a"), &cursor, 7));
        for part in
            [r#""uuid":"U""#, r#""continuation_token":"t""#, r#""flags":"0""#, r#""pagesize":7"#, r#""prefix":"p/""#, r#""start_after":"""#]
        {
            assert!(second.contains(part), "{part} in {second}");
        }
        let first = text(request(&Bucket::new("b"), "", Some("a\"b"), &Cursor::default(), 7));
        assert!(first.contains(r#""start_after":"a\"b""#) && !first.contains("custom"), "{first}");
        let cloud = Bucket { provider: "aws", ..Bucket::new("b") };
        assert!(text(request(&cloud, "", None, &Cursor::default(), 7)).contains("custom"));
    }

    #[test]
    fn directories_copies_and_keys_before_the_start_are_left_out() {
        let body = br#"{"entries":[{"name":"d/","flags":256},{"name":"b","size":"1","flags":3},{"name":"b","size":"2"},
            {"name":"a","size":"1"},{"name":"s.tar/x","flags":"128"},{"name":"c","size":"3","flags":1}],"continuation_token":""}"#;
        let cursor = Cursor { start_after: "a".into(), ..Cursor::default() };
        let page = local(body, &cursor).expect("a page");
        let found: Vec<_> = page.objects.iter().map(|object| (&*object.key, object.size)).collect();
        assert_eq!((found, page.next), (vec![("b", 2), ("c", 3)], None));
        assert!(local(br#"{"entries":null,"uuid":"U"}"#, &Cursor::default()).expect("an empty bucket").objects.is_empty());
    }

    #[test]
    fn nonsense_is_an_error_never_a_short_listing() {
        let cursor = Cursor { token: "t".into(), ..Cursor::default() };
        for body in [
            b"".as_slice(),
            b"<html>",
            b"[]",
            b"null",
            b"{}x",
            br#"{"entries":[{"size":"1"}]}"#,
            br#"{"entries":[{"name":"a","size":"-1"}]}"#,
            br#"{"entries":[{"name":"a","size":1.5}]}"#,
            br#"{"entries":[],"continuation_token":"t"}"#,
            br#"{"entries":[{"name":"a"}"#,
            b"\x81\xa7Entries\x91",
            b"\x81\xa7Entries\xdd\xff\xff\xff\xff",
            b"\xdf\xff\xff\xff\xff",
        ] {
            assert_eq!(local(body, &cursor).expect_err("nonsense").kind, ErrorKind::Corrupt, "{body:?}");
        }
        let other = br#"{"entries":[{"name":"other/a"}]}"#;
        assert!(page(WHAT, &Bucket::new("b"), "train/", &cursor, other).is_err());
        let failed = br#"{"entries":[{"name":"a","flags":4096}]}"#;
        assert_eq!(local(failed, &cursor).expect_err("no size").kind, ErrorKind::Server);
    }

    #[test]
    fn a_cursor_survives_any_token() {
        let cursor = Cursor { uuid: "U\"".into(), token: "a\n\u{0}é,]".into(), start_after: "x".into() };
        assert_eq!(Cursor::parse(&cursor.text()), Some(cursor));
        assert_eq!(Cursor::parse("x"), None);
    }

    proptest::proptest! {
        /// Whatever a server sends, it is a page or an error.
        #[test]
        fn no_page_panics(bytes in proptest::collection::vec(0_u8.., 0..200), first in proptest::sample::select(vec![0x81_u8, 0x84, 0xde, 0xdf, b'{'])) {
            let mut body = vec![first];
            body.extend(bytes);
            let _ = local(&body, &Cursor::default());
        }
    }
}
