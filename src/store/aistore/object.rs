//! HEAD and GET of one object: exactly the bytes asked for, of the version asked for, or an error.
//!
//! A GET goes straight to the target where [`super::route`] allows it, and to a proxy at once when that fails in any way, also when the target has another
//! version (its copy may be an old one). Status, `Content-Range`, length and version of every answer are checked; a whole body is checked against its
//! checksum by value. AIStore knows no `If-Match`: an object overwritten between two ranges is seen from the second answer's checksum (the whole object's)
//! or version. Where an answer says nothing that can be compared with the listing, the first answer is remembered and later ones must say the same.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use http::{HeaderMap, Method, Response, header};
use hyper::body::Incoming;
use percent_encoding::utf8_percent_encode;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::Shared;
use super::bucket::{check_name, query_value};
use super::checksum::{Verifier, verified};
use super::cluster::{Answer, Ask};
use super::identity::{Agreement, Attributes, compare, verifier};
use super::route::Direct;
use crate::store::http::{PATH_ESCAPED, Reading, content_length, content_range, text};
use crate::store::{Body, Member, StoreError};
use crate::types::{ErrorKind, ObjectId, ObjectMeta};

/// What HEAD asks for (V2).
const HEAD_PROPS: &str = "name,size,checksum,version,custom,last-modified,etag";
/// Ranges that begin at 0 and end at a multiple of this are parts of large objects (the cache's block), all others are taken for whole objects.
const BLOCK: u64 = 128 << 10;

/// What the head of a good answer leaves to do.
#[derive(Debug)]
enum Checked {
    /// The body is what was asked for; a whole object is verified by value where that is possible.
    Body(Option<Verifier>),
    /// The object is larger than was thought: it has to be asked for again, with a range.
    Larger,
    /// The checksum is not the object's; it may be the range's (bucket property `checksum.enable_read_range`), which this tells, or the object is another
    /// version, which a HEAD tells. And what differs.
    OfRange(Verifier, String),
}

impl Shared {
    pub(super) fn what(&self, key: &str) -> String {
        format!("object {key:?} in bucket {:?}", self.bucket.name)
    }

    fn path(&self, key: &str) -> String {
        format!("/v1/objects/{}/{}?{}", self.bucket.name, utf8_percent_encode(key, &PATH_ESCAPED), self.bucket.query())
    }

    fn named(&self, key: &str) -> Result<String, StoreError> {
        let what = self.what(key);
        check_name(key).map_err(|reason| StoreError::new(ErrorKind::NotFound, format!("{what}: does not exist ({reason})")))?;
        Ok(what)
    }

    /// See [`crate::store::Store::head`]. Old servers refuse the properties (HEAD V2) and are asked without them from then on.
    pub(super) async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        let what = self.named(key)?;
        let plain = self.path(key);
        let mut is_v2 = !self.head_v1.load(Relaxed);
        loop {
            self.stats.store.head.add(1);
            let path = if is_v2 { format!("{plain}&props={}", query_value(HEAD_PROPS)) } else { plain.clone() };
            let Answer { response, .. } = self.cluster.ask(&what, &Ask::new(Method::HEAD, path)).await?;
            if response.status().is_success() {
                return self.headed(&what, key, response.headers());
            }
            let complaint = self.cluster.complaint(response).await;
            if is_v2 && matches!(complaint.status, 400 | 405 | 501) {
                is_v2 = false;
                self.head_v1.store(true, Relaxed);
                continue;
            }
            return Err(self.cluster.error(&what, complaint));
        }
    }

    fn headed(&self, what: &str, key: &str, headers: &HeaderMap) -> Result<ObjectMeta, StoreError> {
        let Some(size) = content_length(headers) else {
            return Err(StoreError::new(ErrorKind::Corrupt, format!("{what}: HEAD says no length")));
        };
        let attributes = Attributes::of(headers);
        Ok(ObjectMeta {
            key: Arc::from(key),
            size,
            etag: Arc::from(attributes.identity(!self.bucket.is_local())),
            mtime_seconds: attributes.mtime_seconds(),
        })
    }

    /// See [`crate::store::Store::read`].
    pub(super) async fn read(self: &Arc<Self>, id: &ObjectId, range: Range<u64>) -> Result<Body, StoreError> {
        if range.is_empty() {
            return Err(StoreError::new(ErrorKind::Invalid, format!("{}: an empty range was asked for", self.what(&id.key))));
        }
        let what = self.named(&id.key)?;
        let permit = self.permit(&what).await?;
        self.refresh_map();
        let mut ask = Ask::new(Method::GET, self.path(&id.key));
        // A whole object is better asked for without a range: a cold one then streams through the target while it is stored.
        if range.start > 0 || range.end.is_multiple_of(BLOCK) {
            ask.range = Some(range_header(&range));
        }
        let uname = self.bucket.uname(&id.key);
        let may_be_direct = ask.range.is_none() || !self.ranges_summed.load(Relaxed);
        if may_be_direct && let Some(pick) = self.route.pick(&uname, Instant::now()) {
            let started = Instant::now();
            self.stats.store.get.add(1);
            let answer = self.cluster.at(&what, &ask, &format!("{}{}", pick.url, ask.path)).await;
            let how = match &answer {
                Ok(response) if response.status().is_success() => Direct::Served,
                Ok(response) if response.status() == http::StatusCode::FORBIDDEN => Direct::Refused,
                Ok(_) => Direct::Failed,
                Err(_) => Direct::Unreachable,
            };
            let checked = match answer {
                Ok(response) if how == Direct::Served => {
                    self.check(&what, id, &range, ask.range.is_some(), &response).ok().map(|checked| (checked, response))
                }
                _ => None,
            };
            let how = if checked.is_none() && how == Direct::Served { Direct::Failed } else { how };
            pick.ended(how, Instant::now());
            match checked {
                Some((Checked::Body(verifier), response)) => {
                    self.stats.store.direct.add(1);
                    return Ok(self.body(what, response, range.end - range.start, verifier, permit, started));
                }
                Some((Checked::Larger, _)) => ask.range = Some(range_header(&range)),
                Some((Checked::OfRange(..), _)) | None => {}
            }
        }
        loop {
            let started = Instant::now();
            self.stats.store.get.add(1);
            let Answer { response, target } = self.cluster.ask(&what, &ask).await?;
            if let Some(target) = &target {
                self.route.saw_redirect(&uname, target);
            }
            if !response.status().is_success() {
                let complaint = self.cluster.complaint(response).await;
                return Err(self.cluster.error(&what, complaint));
            }
            match self.check(&what, id, &range, ask.range.is_some(), &response)? {
                Checked::Body(verifier) => return Ok(self.body(what, response, range.end - range.start, verifier, permit, started)),
                // Its body is not read: the connection is closed.
                Checked::Larger => ask.range = Some(range_header(&range)),
                Checked::OfRange(verifier, detail) => {
                    if self.head(&id.key).await?.version() != *id {
                        let text = format!("{what}: is another version than the one listed ({detail})");
                        return Err(StoreError::new(ErrorKind::Changed, text));
                    }
                    self.ranges_summed.store(true, Relaxed);
                    return Ok(self.body(what, response, range.end - range.start, Some(verifier), permit, started));
                }
            }
        }
    }

    /// Whether a 2xx answer is the range asked for, of the version asked for.
    fn check(
        &self,
        what: &str,
        id: &ObjectId,
        range: &Range<u64>,
        ranged: bool,
        response: &Response<Incoming>,
    ) -> Result<Checked, StoreError> {
        let headers = response.headers();
        let corrupt = |detail: String| StoreError::new(ErrorKind::Corrupt, format!("{what}: the answer makes no sense: {detail}"));
        let changed =
            |detail: String| StoreError::new(ErrorKind::Changed, format!("{what}: is another version than the one listed ({detail})"));
        let asked = range.end - range.start;
        let length = content_length(headers);
        let (given, total) = match response.status().as_u16() {
            206 if ranged => {
                let said = text(headers, header::CONTENT_RANGE);
                said.and_then(content_range).ok_or_else(|| corrupt(format!("206 with Content-Range {said:?}")))?
            }
            200 if range.start == 0 => (0..length.unwrap_or(range.end), length),
            status => {
                return Err(corrupt(format!("status {status} to a request {}", if ranged { "for a range" } else { "without a range" })));
            }
        };
        let attributes = Attributes::of(headers);
        let agreement = compare(&id.etag, &attributes, total);
        if let Agreement::Other(detail) = agreement {
            let of_range = (ranged && given == *range && length == Some(asked)).then(|| attributes.range_verifier(&id.etag)).flatten();
            return of_range.map(|verifier| Checked::OfRange(verifier, detail.clone())).ok_or_else(|| changed(detail));
        }
        if given != *range {
            return match total {
                Some(total) if total < range.end => Err(changed(format!("{total} bytes now"))),
                Some(total) if !ranged && total > range.end => Ok(Checked::Larger),
                _ => Err(corrupt(format!("bytes {}-{} came for {}-{}", given.start, given.end, range.start, range.end))),
            };
        }
        if let Some(length) = length.filter(|length| *length != asked) {
            return Err(corrupt(format!("{length} bytes announced where {asked} were asked for")));
        }
        let is_whole = range.start == 0 && total == Some(range.end);
        let by_identity = verifier(&id.etag).filter(|_| is_whole);
        if by_identity.is_some() {
            return Ok(Checked::Body(by_identity));
        }
        match (agreement, &attributes.checksum) {
            (Agreement::Unknown, _) => self.remember(id, &attributes).map_err(changed)?,
            (_, Some(checksum)) if is_whole && !id.etag.starts_with('~') => self.sums.learn(id, checksum),
            _ => {}
        }
        // The version is right by its name; the bytes are held against the checksum that came with them.
        Ok(Checked::Body(attributes.verifier().filter(|_| is_whole)))
    }

    /// Holds an answer whose version cannot be compared with the listing's against the first such answer: never parts of two versions.
    fn remember(&self, id: &ObjectId, attributes: &Attributes) -> Result<(), String> {
        let fingerprint = attributes.fingerprint();
        if fingerprint.is_empty() {
            return Err("the cluster does not say which version this is".to_owned());
        }
        let first = self.pins.get_with(id.clone(), || Arc::from(fingerprint.as_str()));
        if *first == *fingerprint { Ok(()) } else { Err(format!("{fingerprint} now, {first} before")) }
    }

    fn body(
        &self,
        what: String,
        response: Response<Incoming>,
        length: u64,
        verifier: Option<Verifier>,
        permit: OwnedSemaphorePermit,
        started: Instant,
    ) -> Body {
        let reading = Reading {
            what: what.clone(),
            incoming: response.into_body(),
            remaining: length,
            idle_timeout: self.idle_timeout,
            stats: Arc::clone(&self.stats),
            started,
            began: self.began,
            _permit: Some(permit),
        };
        match verifier {
            Some(verifier) => verified(what, reading.stream(), length, verifier),
            None => reading.stream(),
        }
    }

    /// A file inside a shard (`archpath`): tar, tgz, tar.lz4 or zip, by the shard's name. No ranges; the target looks for it in the shard, by its index if it has one.
    /// The shard's version is checked as for a range of it, and by a HEAD where the answer does not say it.
    pub(super) async fn read_member(&self, shard: &ObjectId, member: &str) -> Result<Member, StoreError> {
        let what = format!("{member:?} in {}", self.named(&shard.key)?);
        let permit = self.permit(&what).await?;
        let started = Instant::now();
        self.stats.store.get.add(1);
        let ask = Ask::new(Method::GET, format!("{}&archpath={}", self.path(&shard.key), query_value(member)));
        let Answer { response, .. } = self.cluster.ask(&what, &ask).await?;
        if response.status().as_u16() != 200 {
            let complaint = self.cluster.complaint(response).await;
            return Err(self.cluster.error(&what, complaint));
        }
        let Some(size) = content_length(response.headers()) else {
            return Err(StoreError::new(ErrorKind::Corrupt, format!("{what}: the answer says no length")));
        };
        // The length is the member's: it says nothing of the shard.
        let said = compare(&shard.etag, &Attributes::of(response.headers()), None);
        if said != Agreement::Same || shard.etag.starts_with('~') {
            let now = self.head(&shard.key).await?;
            if now.version() != *shard {
                return Err(StoreError::new(ErrorKind::Changed, format!("{what}: the shard is another version than the one listed")));
            }
        }
        Ok(Member { size, body: self.body(what, response, size, None, permit, started) })
    }
}

fn range_header(range: &Range<u64>) -> String {
    format!("bytes={}-{}", range.start, range.end - 1)
}
