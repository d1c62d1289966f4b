//! ListObjectsV2: one page of a bucket as XML. Pure.
//!
//! At most 1,000 entries a page, keys in byte order, keys that share a part up to the delimiter rolled up into one prefix. The token is
//! the last entry of the page before, in hex: opaque to clients, and it survives changes of the bucket between pages.

use std::fmt::Write as _;
use std::ops::Bound;

use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::fault::{Does, ListField};
use super::objects::{Object, Objects};

/// What S3 gives at most, whatever is asked for.
const MAX_KEYS: usize = 1_000;

/// What `encoding-type=url` leaves alone.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// The parameters of one request, decoded.
#[derive(Debug, Default)]
pub(super) struct Query {
    pub(super) prefix: String,
    pub(super) delimiter: String,
    pub(super) start_after: String,
    pub(super) token: Option<String>,
    pub(super) max_keys: Option<String>,
    pub(super) url_encoded: bool,
}

/// Why a listing is refused: S3's code and text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused(pub(super) &'static str, pub(super) &'static str);

/// One page. `tamper`: what a scripted fault does to it.
pub(super) fn page(bucket: &str, objects: &Objects, query: &Query, tamper: Option<&Does>) -> Result<String, Refused> {
    let max_keys = match query.max_keys.as_deref() {
        None => MAX_KEYS,
        Some(text) => text.parse::<usize>().map_err(|_| Refused("InvalidArgument", "max-keys must be a number"))?.min(MAX_KEYS),
    };
    let token = if tamper == Some(&Does::RepeatPage) { None } else { query.token.as_deref() };
    let after = match token {
        Some(token) => from_hex(token).ok_or(Refused("InvalidArgument", "the continuation token is not one of ours"))?,
        None => query.start_after.clone(),
    };
    let page = collect(objects, query, &after, max_keys, tamper);

    let text = |raw: &str| if query.url_encoded { utf8_percent_encode(raw, UNRESERVED).to_string() } else { escape(raw) };
    let mut xml = String::with_capacity(512 + page.entries.len());
    xml.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    let _ = write!(xml, "<Name>{bucket}</Name><Prefix>{}</Prefix><MaxKeys>{max_keys}</MaxKeys>", text(&query.prefix));
    if !query.delimiter.is_empty() {
        let _ = write!(xml, "<Delimiter>{}</Delimiter>", text(&query.delimiter));
    }
    if !query.start_after.is_empty() {
        let _ = write!(xml, "<StartAfter>{}</StartAfter>", text(&query.start_after));
    }
    if query.url_encoded {
        xml.push_str("<EncodingType>url</EncodingType>");
    }
    if !omits(tamper, ListField::KeyCount) {
        let _ = write!(xml, "<KeyCount>{}</KeyCount>", page.count);
    }
    if tamper != Some(&Does::MissingTruncated) {
        let _ = write!(xml, "<IsTruncated>{}</IsTruncated>", page.truncated);
    }
    if let Some(token) = token {
        let _ = write!(xml, "<ContinuationToken>{token}</ContinuationToken>");
    }
    if page.truncated && tamper != Some(&Does::MissingToken) {
        let _ = write!(xml, "<NextContinuationToken>{}</NextContinuationToken>", to_hex(&page.last));
    }
    xml.push_str(&page.entries);
    xml.push_str("</ListBucketResult>");
    Ok(xml)
}

/// The entries of a page.
#[derive(Default)]
struct Entries {
    entries: String,
    count: usize,
    truncated: bool,
    last: String,
}

fn collect(objects: &Objects, query: &Query, after: &str, max_keys: usize, tamper: Option<&Does>) -> Entries {
    let mut page = Entries::default();
    let text = |raw: &str| if query.url_encoded { utf8_percent_encode(raw, UNRESERVED).to_string() } else { escape(raw) };
    let prefix = query.prefix.as_str();
    let mut from =
        if after >= prefix && !after.is_empty() { Bound::Excluded(after.to_owned()) } else { Bound::Included(prefix.to_owned()) };
    // A page of no keys is not truncated: clients that probe a bucket so would otherwise ask for ever.
    while max_keys > 0
        && let Some((key, object)) = objects.range::<str, _>((from.as_ref().map(String::as_str), Bound::Unbounded)).next()
        && key.starts_with(prefix)
    {
        let rolled_up = match query.delimiter.as_str() {
            "" => None,
            delimiter => key[prefix.len()..].find(delimiter).map(|at| &key[..prefix.len() + at + delimiter.len()]),
        };
        match rolled_up {
            // The page before ended with this common prefix, or within it: it has been listed.
            Some(common) if after.starts_with(common) => from = Bound::Excluded(past(common)),
            _ if page.count == max_keys => {
                page.truncated = true;
                break;
            }
            Some(common) => {
                let _ = write!(page.entries, "<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", text(common));
                page.count += 1;
                common.clone_into(&mut page.last);
                from = Bound::Excluded(past(common));
            }
            None => {
                entry(&mut page.entries, &text(key), object, tamper);
                page.count += 1;
                key.clone_into(&mut page.last);
                from = Bound::Excluded(key.clone());
            }
        }
    }
    page
}

/// A key behind all keys that start with `common`: U+10FFFF is the last character there is.
fn past(common: &str) -> String {
    format!("{common}\u{10ffff}")
}

fn entry(xml: &mut String, key: &str, object: &Object, tamper: Option<&Does>) {
    let _ = write!(xml, "<Contents><Key>{key}</Key><Size>{}</Size>", object.content.size());
    if !omits(tamper, ListField::LastModified) {
        let _ = write!(xml, "<LastModified>{}</LastModified>", iso_time(object.mtime_seconds));
    }
    if !omits(tamper, ListField::ETag) {
        let _ = write!(xml, "<ETag>{}</ETag>", escape(&object.etag));
    }
    if !omits(tamper, ListField::StorageClass) {
        xml.push_str("<StorageClass>STANDARD</StorageClass>");
    }
    xml.push_str("</Contents>");
}

fn omits(tamper: Option<&Does>, field: ListField) -> bool {
    matches!(tamper, Some(Does::OmitListFields(fields)) if fields.contains(&field))
}

fn iso_time(seconds: i64) -> String {
    DateTime::from_secs(seconds).fmt(Format::DateTime).unwrap_or_default()
}

/// Text as XML character data. Control characters go as references: XML 1.0 forbids them, S3 sends them so.
pub(super) fn escape(raw: &str) -> String {
    let mut escaped = String::with_capacity(raw.len());
    for c in raw.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() => {
                let _ = write!(escaped, "&#{};", u32::from(c));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

fn to_hex(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len() * 2), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn from_hex(hex: &str) -> Option<String> {
    if hex.is_empty() || !hex.is_ascii() || !hex.len().is_multiple_of(2) {
        return None;
    }
    let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).ok()).collect();
    String::from_utf8(bytes?).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::demo::server::objects::Content;

    fn bucket(keys: &[String]) -> Objects {
        let object = Arc::new(Object {
            content: Content::Bytes(Bytes::from_static(b"x")),
            etag: "\"e\"".into(),
            mtime_seconds: 0,
            headers: Vec::new(),
        });
        keys.iter().map(|key| (key.clone(), Arc::clone(&object))).collect()
    }

    fn between<'a>(xml: &'a str, open: &str, close: &str) -> Vec<&'a str> {
        xml.split(open).skip(1).filter_map(|rest| rest.split(close).next()).collect()
    }

    /// All pages: keys and common prefixes in order of their pages, each page's size.
    fn walk(objects: &Objects, prefix: &str, delimiter: &str, max_keys: usize) -> (Vec<String>, Vec<String>, Vec<usize>) {
        let (mut keys, mut prefixes, mut sizes, mut token) = (Vec::new(), Vec::new(), Vec::new(), None);
        loop {
            let query = Query {
                prefix: prefix.to_owned(),
                delimiter: delimiter.to_owned(),
                token: token.clone(),
                max_keys: Some(max_keys.to_string()),
                ..Query::default()
            };
            let xml = page("b", objects, &query, None).unwrap();
            let (k, p) = (between(&xml, "<Key>", "</Key>"), between(&xml, "<CommonPrefixes><Prefix>", "</Prefix>"));
            sizes.push(k.len() + p.len());
            keys.extend(k.into_iter().map(str::to_owned));
            prefixes.extend(p.into_iter().map(str::to_owned));
            assert!(sizes.len() < 500, "a listing that does not end");
            match between(&xml, "<NextContinuationToken>", "</NextContinuationToken>").first() {
                Some(next) => token = Some((*next).to_owned()),
                None => return (keys, prefixes, sizes),
            }
        }
    }

    proptest! {
        #[test]
        fn every_key_is_listed_once_in_order_whatever_the_page_size(
            keys in proptest::collection::btree_set("[ab/]{1,6}", 0..40), prefix in "[ab/]{0,2}", max_keys in 1_usize..7,
        ) {
            let keys: Vec<String> = keys.into_iter().collect();
            let (listed, prefixes, sizes) = walk(&bucket(&keys), &prefix, "", max_keys);
            let wanted: Vec<String> = keys.iter().filter(|k| k.starts_with(&prefix)).cloned().collect();
            prop_assert_eq!(listed, wanted);
            prop_assert!(prefixes.is_empty());
            prop_assert!(sizes.iter().rev().skip(1).all(|size| *size == max_keys));
        }

        #[test]
        fn a_delimiter_rolls_up_each_common_prefix_once(
            keys in proptest::collection::btree_set("[ab/]{1,6}", 0..40), prefix in "[ab/]{0,2}", max_keys in 1_usize..7,
        ) {
            let keys: Vec<String> = keys.into_iter().collect();
            let (listed, prefixes, _) = walk(&bucket(&keys), &prefix, "/", max_keys);
            let (mut want_keys, mut want_prefixes) = (Vec::new(), BTreeSet::new());
            for key in keys.iter().filter(|k| k.starts_with(&prefix)) {
                match key[prefix.len()..].find('/') {
                    Some(at) => { want_prefixes.insert(key[..=prefix.len() + at].to_owned()); }
                    None => want_keys.push(key.clone()),
                }
            }
            prop_assert_eq!(listed, want_keys);
            prop_assert_eq!(prefixes, want_prefixes.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn start_after_leaves_out_up_to_and_including(
            keys in proptest::collection::btree_set("[ab/]{1,4}", 0..40), start_after in "[ab/]{1,4}",
        ) {
            let keys: Vec<String> = keys.into_iter().collect();
            let query = Query { start_after: start_after.clone(), ..Query::default() };
            let xml = page("b", &bucket(&keys), &query, None).unwrap();
            let wanted: Vec<&String> = keys.iter().filter(|k| **k > start_after).collect();
            prop_assert_eq!(between(&xml, "<Key>", "</Key>"), wanted);
        }
    }

    #[test]
    fn a_page_of_no_keys_is_not_truncated() {
        let query = Query { max_keys: Some("0".to_owned()), ..Query::default() };
        let xml = page("b", &bucket(&["a".to_owned()]), &query, None).unwrap();
        assert!(xml.contains("<IsTruncated>false</IsTruncated>") && !xml.contains("<Key>"), "{xml}");
    }

    #[test]
    fn bad_tokens_and_numbers_are_refused() {
        for (token, max_keys) in [(Some("zz"), None), (Some(""), None), (Some("é0"), None), (None, Some("-1")), (None, Some("x"))] {
            let query = Query { token: token.map(str::to_owned), max_keys: max_keys.map(str::to_owned), ..Query::default() };
            assert_eq!(page("b", &Objects::new(), &query, None).unwrap_err().0, "InvalidArgument", "{token:?} {max_keys:?}");
        }
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(escape("a<b>&\"\u{1}\n"), "a&lt;b&gt;&amp;&quot;&#1;&#10;");
    }
}
