//! What a page of `ListObjectsV2` says, checked: a page that contradicts itself is an error, never a short listing.
//!
//! Pure. Stores differ in what they leave out (class, owner, time, ETag) and in whether they honour `encoding-type`; they may not differ in
//! where the next page is.

use std::borrow::Cow;
use std::sync::Arc;

use aws_sdk_s3::operation::list_objects_v2::ListObjectsV2Output;
use aws_sdk_s3::types::{EncodingType, Object};
use percent_encoding::percent_decode_str;

use crate::store::{Page, StoreError};
use crate::types::{ErrorKind, ObjectMeta};

/// The page, or why it cannot be believed. `after`: the token it was asked with.
pub(super) fn page(what: &str, prefix: &str, after: Option<&str>, output: ListObjectsV2Output) -> Result<Page, StoreError> {
    let nonsense = |detail: String| StoreError::new(ErrorKind::Corrupt, format!("{what}: the listing makes no sense: {detail}"));
    // A token counts even without IsTruncated; IsTruncated without a token would lose the rest (MSFS 317d173, versitygw issue 993).
    let next = output.next_continuation_token.filter(|token| !token.is_empty());
    if next.is_none() && output.is_truncated == Some(true) {
        return Err(nonsense("it is truncated but says not where it goes on".to_owned()));
    }
    if next.is_some() && next.as_deref() == after {
        return Err(nonsense("it goes on where it began (does the store know ListObjectsV2?)".to_owned()));
    }
    let encoded = output.encoding_type == Some(EncodingType::Url);
    let mut objects = Vec::with_capacity(output.contents.as_ref().map_or(0, Vec::len));
    for object in output.contents.unwrap_or_default() {
        let Some(key) = key(&object, encoded).map_err(nonsense)? else { continue };
        if !key.starts_with(prefix) {
            return Err(nonsense(format!("key {key:?} is not below the prefix {prefix:?}")));
        }
        let size = object.size.and_then(|size| u64::try_from(size).ok()).ok_or_else(|| nonsense(format!("no size for key {key:?}")))?;
        objects.push(ObjectMeta {
            key: Arc::from(&*key),
            size,
            etag: quoted(object.e_tag.as_deref().unwrap_or_default()),
            mtime_seconds: object.last_modified.map_or(0, |time| time.secs()),
        });
    }
    Ok(Page { objects, next })
}

/// An ETag as HTTP writes it: some stores list them without quotes and answer with them, and an identity must be one.
pub(super) fn quoted(etag: &str) -> Arc<str> {
    if etag.is_empty() || etag.starts_with('"') || etag.starts_with("W/") { Arc::from(etag) } else { Arc::from(format!("\"{etag}\"")) }
}

/// The key as it is in the bucket. `None`: it is not UTF-8, which S3 does not allow and no request could name.
fn key(object: &Object, encoded: bool) -> Result<Option<Cow<'_, str>>, String> {
    let Some(key) = object.key.as_deref() else { return Err("an entry without a key".to_owned()) };
    if !encoded {
        return Ok(Some(Cow::Borrowed(key)));
    }
    // S3 writes a space as '+' here, as in forms.
    let spaced = key.replace('+', "%20");
    match percent_decode_str(&spaced).decode_utf8() {
        Ok(decoded) => Ok(Some(Cow::Owned(decoded.into_owned()))),
        Err(_) => {
            tracing::warn!("a key that is not UTF-8 is left out: {key}");
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(key: &str) -> Object {
        Object::builder().key(key).size(1).build()
    }

    fn listed(output: ListObjectsV2Output) -> Result<Page, ErrorKind> {
        page("bucket \"b\"", "", Some("t0"), output).map_err(|error| error.kind)
    }

    #[test]
    fn tokens_are_followed_and_contradictions_refused() {
        let only_token = ListObjectsV2Output::builder().contents(object("a")).next_continuation_token("t1").build();
        assert_eq!(listed(only_token).expect("a token is enough").next.as_deref(), Some("t1"));
        let only_flag = ListObjectsV2Output::builder().contents(object("a")).is_truncated(true).build();
        assert_eq!(listed(only_flag).expect_err("the rest would be lost"), ErrorKind::Corrupt);
        let same_token = ListObjectsV2Output::builder().contents(object("a")).is_truncated(true).next_continuation_token("t0").build();
        assert_eq!(listed(same_token).expect_err("it would not end"), ErrorKind::Corrupt);
        let empty_token = ListObjectsV2Output::builder().contents(object("a")).next_continuation_token("").build();
        assert_eq!(listed(empty_token).expect("the last page").next, None);
    }

    #[test]
    fn entries_may_lack_all_but_key_and_size() {
        let found = listed(ListObjectsV2Output::builder().contents(object("a")).build()).expect("complete");
        assert_eq!((&*found.objects[0].etag, found.objects[0].mtime_seconds), ("", 0));
        assert_eq!(&*found.objects[0].version().etag, "~1-0");
        for object in [Object::builder().key("a").build(), Object::builder().size(1).build(), Object::builder().key("a").size(-1).build()] {
            assert!(listed(ListObjectsV2Output::builder().contents(object).build()).is_err());
        }
    }

    #[test]
    fn keys_are_decoded_only_when_the_store_encoded_them() {
        for (encoded, sent, key) in [(true, "a+b%2Bc%25%0Ad", "a b+c%\nd"), (false, "a+b%2B", "a+b%2B"), (true, "%C3%A9", "é")] {
            let encoding = encoded.then_some(EncodingType::Url);
            let found =
                listed(ListObjectsV2Output::builder().set_encoding_type(encoding).contents(object(sent)).build()).expect("complete");
            assert_eq!(&*found.objects[0].key, key);
        }
        let not_text =
            ListObjectsV2Output::builder().encoding_type(EncodingType::Url).contents(object("%FF")).contents(object("a")).build();
        assert_eq!(listed(not_text).expect("without it").objects.len(), 1);
    }

    #[test]
    fn a_store_that_ignores_the_prefix_is_noticed() {
        let output = ListObjectsV2Output::builder().contents(object("other/a")).build();
        assert!(page("b", "train/", None, output).is_err());
    }
}
