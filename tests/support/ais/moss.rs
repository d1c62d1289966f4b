//! GetBatch (`/v1/ml/moss`): the proxy picks a target and redirects; the target streams one TAR with an entry for each name, in their order.
//!
//! As upstream (`ais/ml.go`, `xact/xs/moss.go`, and seen on a cluster of 5.0): cold objects count as missing; above the limit of missing ones
//! the stream ends, cleanly for HTTP and for TAR (its end is written), with fewer entries than asked for; a change of the map ends it with an
//! error text where the next header should be; a range beyond an object's end ends it, or is answered with the whole object where another
//! target has it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use hyper::{Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::Instant;

use super::body::{Ending, InFlight, Pending, Reply, Segment};
use super::conn::Connection;
use super::counters::count;
use super::fault::Does;
use super::node::Node;
use super::objects::{Bck, Content};
use super::proxy::{Answer, OUR_HEADERS, bad_request};
use super::request::{Failure, Request, check_key};
use super::{BatchConfig, Shared};

/// Of a TAR.
const BLOCK: u64 = 512;
/// Between the parts of a buffered answer.
const BOUNDARY: &str = "5f1fa6a2c2a64d0e8e1dbe5b7f4d0a55";

/// A batch that was redirected.
#[derive(Clone, Debug)]
pub(super) struct Promised {
    target: String,
    /// Of the map when it was redirected.
    version: u64,
}

/// What is asked for (`apc.MossReq`).
#[derive(Debug, Deserialize)]
struct Ask {
    #[serde(default)]
    mime: String,
    #[serde(rename = "in")]
    entries: Vec<AskEntry>,
    #[serde(default)]
    coer: bool,
    #[serde(default)]
    onob: bool,
    #[serde(default)]
    strm: bool,
}

/// One entry (`apc.MossIn`).
#[derive(Debug, Deserialize)]
struct AskEntry {
    objname: String,
    #[serde(default)]
    bucket: String,
    #[serde(default)]
    provider: String,
    #[serde(default)]
    archpath: String,
    #[serde(default)]
    start: i64,
    #[serde(default)]
    length: i64,
    opaque: Option<String>,
}

/// One entry of a buffered answer (`apc.MossOut`).
#[derive(Debug, Serialize)]
struct Out {
    objname: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    archpath: String,
    bucket: String,
    provider: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    err_msg: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    opaque: Option<String>,
    size: u64,
}

impl Ask {
    fn parse(body: &Bytes) -> Result<Self, Failure> {
        let ask: Self = serde_json::from_slice(body).map_err(|error| bad_request(format!("invalid GetBatch request: {error}")))?;
        if ask.entries.is_empty() {
            return Err(bad_request("moss: empty input"));
        }
        if !matches!(ask.mime.as_str(), "" | ".tar" | "tar" | "application/x-tar") {
            return Err(bad_request(format!("output format {:?} is not made here", ask.mime)));
        }
        for entry in &ask.entries {
            check_key(&entry.objname)?;
            if entry.start < 0 || entry.length < -1 || (entry.start != 0 && entry.length == 0) {
                let (start, length, name) = (entry.start, entry.length, &entry.objname);
                return Err(bad_request(format!("not satisfiable range [start={start},length={length} (oname: {name:?})]")));
            }
        }
        Ok(ask)
    }
}

impl AskEntry {
    fn bck(&self, default: Option<&Bck>) -> Result<Bck, Failure> {
        match default {
            Some(default) if self.bucket.is_empty() => Ok(default.clone()),
            _ => Bck::new(&self.provider, "", &self.bucket).ok_or_else(|| bad_request(format!("{}: which bucket?", self.objname))),
        }
    }

    fn name(&self, bck: &Bck, onob: bool) -> String {
        let bucket = if onob { String::new() } else { format!("{}/", bck.name) };
        let member = if self.archpath.is_empty() { String::new() } else { format!("/{}", self.archpath) };
        format!("{bucket}{}{member}", self.objname)
    }
}

impl Shared {
    fn batch_config(&self) -> Result<&BatchConfig, Failure> {
        self.config.batch.as_ref().ok_or_else(|| bad_request("invalid request URI: 'GET /v1/ml/moss'"))
    }

    fn pending(&self, target: &str) -> Arc<AtomicU64> {
        Arc::clone(self.pending.lock().expect("no holder panics").entry(target.to_owned()).or_default())
    }

    pub(super) fn moss_at_proxy(&self, node: &Node, request: &Request, items: &[String]) -> Answer {
        let config = self.batch_config()?;
        let bck = match items {
            [] => None,
            [bucket] => Some(self.known_bucket(request, bucket)?),
            _ => return Err(request.unknown()),
        };
        let ask = Ask::parse(&request.body)?;
        let (smap, nodes) = {
            let state = self.state.read().expect("no holder panics");
            (state.smap.clone(), state.smap.live().count())
        };
        let mut votes: BTreeMap<String, usize> = BTreeMap::new();
        for entry in &ask.entries {
            let of = entry.bck(bck.as_ref())?;
            self.check_token(request, Some(&of))?;
            if !self.state.read().expect("no holder panics").buckets.contains_key(&of) {
                return Err(Failure::no_bucket(&of));
            }
            if let Some(target) = smap.target_of(&of, &entry.objname) {
                *votes.entry(target.id.clone()).or_default() += 1;
            }
        }
        let serial = self.serial();
        let together = request.value("coloc").parse::<u64>().unwrap_or_default() > 0;
        let most = votes.iter().max_by_key(|(_, votes)| **votes).map(|(id, _)| id.clone());
        let chosen = match most {
            Some(most) if together => smap.live().find(|target| target.id == most),
            _ => smap.live().nth(usize::try_from(super::hash::mix(serial) % nodes.max(1) as u64).expect("below the number of targets")),
        };
        let chosen = chosen.ok_or_else(|| Failure::new(StatusCode::SERVICE_UNAVAILABLE, "ErrNoNodes", "no targets in the cluster"))?;
        if self.pressure.load(Relaxed) || self.pending(&chosen.id).load(Relaxed) >= config.max_pending {
            count(&self.counting.batch_refused);
            let message = format!("t[{}]: too many pending requests", chosen.id);
            return Err(Failure::new(StatusCode::TOO_MANY_REQUESTS, "ErrTooManyRequests", message));
        }
        let (xid, wid) = (format!("gbt-{serial:08}"), format!("wid{serial:08}"));
        let promised = Promised { target: chosen.id.clone(), version: smap.version };
        self.promised.lock().expect("no holder panics").insert(wid.clone(), promised);
        let bucket = items.first().map(|bucket| format!("/{bucket}")).unwrap_or_default();
        let path = format!("/v1/ml/moss{bucket}/{xid}/{wid}/{nodes}");
        let to = self.redirect(node, chosen, smap.version, &path, &request.raw_query);
        let made = Response::builder().status(StatusCode::TEMPORARY_REDIRECT).header("location", to);
        Ok(made.body(Reply::empty()).expect(OUR_HEADERS))
    }

    pub(super) async fn moss_at_target(
        &self,
        node: &Node,
        connection: &Arc<Connection>,
        request: &Request,
        items: &[String],
        fault: Option<&Does>,
    ) -> Answer {
        let config = self.batch_config()?;
        let (bucket, wid) = match items {
            [_, wid, _] => (None, wid),
            [bucket, _, wid, _] => (Some(request.bck(bucket)?), wid),
            _ => return Err(request.unknown()),
        };
        let promised = self.promised.lock().expect("no holder panics").remove(wid);
        let promised = promised.filter(|promised| promised.target == node.id);
        let promised = promised.ok_or_else(|| Failure::new(StatusCode::NOT_FOUND, "", format!("x-moss: wid {wid:?} not found")))?;
        if self.version.load(Relaxed) != promised.version {
            return Err(Failure::new(StatusCode::CONFLICT, "", "x-moss: not active, cluster membership changed"));
        }
        let ask = Ask::parse(&request.body)?;
        let pending = self.pending(&node.id);
        pending.fetch_add(1, Relaxed);
        let pending = Pending(pending);
        if !config.first_byte.is_zero() {
            tokio::time::sleep(config.first_byte).await;
        }
        count(&self.counting.batches);
        *connection.write_deadline.lock().expect("no holder panics") = Some(config.write_deadline);
        let batch = self.gather(node, &ask, bucket.as_ref(), config, fault)?;
        let in_flight = InFlight::enter(&self.counting);
        if ask.strm {
            let mut reply = Reply::of(batch.segments).chunked().counted(in_flight).pending(pending);
            if let Some(at) = batch.corrupt {
                reply = reply.corrupted(at);
            }
            if let Some(after) = batch.cut_after {
                reply = reply.ending(Ending::Cut { after });
            }
            let lost = Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "ErrMembershipChange", "cluster membership changed")
                .text(request, &node.id);
            let reply = reply.while_version(Arc::clone(&self.version), promised.version, lost);
            return Ok(Response::builder().header("content-type", "application/x-tar").body(reply).expect(OUR_HEADERS));
        }
        if batch.aborted {
            return Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "", "x-moss: missing, or exceeded soft-errors limit"));
        }
        let metadata = json!({ "uuid": wid, "out": batch.out });
        let head = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"metadata\"\r\n\r\n{metadata}\n\r\n--{BOUNDARY}\r\nContent-Disposition: \
             form-data; name=\"archive\"; filename=\"x-moss\"\r\nContent-Type: application/octet-stream\r\n\r\n"
        );
        let tail = format!("\r\n--{BOUNDARY}--\r\n");
        let segments = [Segment::bytes(head)].into_iter().chain(batch.segments).chain([Segment::bytes(tail)]);
        let made = Response::builder().header("content-type", format!("multipart/mixed; boundary={BOUNDARY}"));
        Ok(made.body(Reply::of(segments).chunked().counted(in_flight).pending(pending)).expect(OUR_HEADERS))
    }

    /// The TAR of these entries, up to where it ends.
    fn gather(&self, node: &Node, ask: &Ask, bucket: Option<&Bck>, config: &BatchConfig, fault: Option<&Does>) -> Result<Batch, Failure> {
        let started = Instant::now();
        let mut batch = Batch::default();
        let mut missing = 0;
        for (at, entry) in ask.entries.iter().enumerate() {
            if let Some(Does::EndBatch { after_entries, end_of_archive }) = fault
                && at >= *after_entries
            {
                (batch.aborted, batch.open_end) = (true, !end_of_archive);
                break;
            }
            if missing > config.max_soft_errors {
                batch.aborted = true;
                break;
            }
            let bck = entry.bck(bucket)?;
            let mut name = entry.name(&bck, ask.onob);
            if fault == Some(&Does::RenameEntries) {
                name = format!("renamed/{at}");
            }
            let found = self.entry(node, entry, &bck);
            count(&self.counting.batch_entries);
            let (name, content, start, end, err_msg) = match found {
                Ok((content, start, end)) => (name, content, start, end, String::new()),
                Err(Lack::Missing(message)) if ask.coer => {
                    missing += 1;
                    count(&self.counting.batch_soft_errors);
                    (format!("__404__/{name}"), Content::Bytes(Bytes::new()), 0, 0, message)
                }
                Err(_) => {
                    batch.aborted = true;
                    break;
                }
            };
            let mut segments = tar_entry(&name, &content, start, end);
            if !config.per_entry.is_zero() {
                let gathered = u32::try_from(at + 1).expect("a batch has fewer entries");
                segments[0].not_before = Some(started + config.per_entry * gathered);
            }
            if matches!(fault, Some(Does::CorruptEntry { entry }) if *entry == at) && end > start {
                let before: u64 = batch.segments.iter().map(Segment::length).sum();
                batch.corrupt = Some(before + segments[0].length() + (end - start) / 2);
            }
            if matches!(fault, Some(Does::CutEntry { entry }) if *entry == at) {
                let before: u64 = batch.segments.iter().map(Segment::length).sum();
                batch.cut_after = Some(before + segments[0].length() + (end - start) / 2);
            }
            batch.segments.extend(segments);
            let (objname, archpath, provider) = (entry.objname.clone(), entry.archpath.clone(), bck.provider.clone());
            batch.out.push(Out { objname, archpath, bucket: bck.name, provider, err_msg, opaque: entry.opaque.clone(), size: end - start });
        }
        if batch.aborted {
            count(&self.counting.batch_aborted);
        }
        if !batch.open_end {
            let mut end = end_of_archive();
            let gathered = u32::try_from(ask.entries.len()).expect("a batch has fewer entries");
            end.not_before = (!config.end.is_zero()).then(|| started + config.per_entry * gathered + config.end);
            batch.segments.push(end);
        }
        Ok(batch)
    }

    fn is_at(&self, node: &Node, bck: &Bck, key: &str) -> bool {
        self.state.read().expect("no holder panics").smap.target_of(bck, key).is_some_and(|target| target.id == node.id)
    }

    /// Bytes of one entry, or why there are none.
    fn entry(&self, node: &Node, entry: &AskEntry, bck: &Bck) -> Result<(Content, u64, u64), Lack> {
        let name = &entry.objname;
        let object = self.object(bck, name).ok_or_else(|| Lack::Missing(format!("{bck}/{name} does not exist")))?;
        if bck.is_remote() && !object.is_present(None) {
            return Err(Lack::Missing(format!("{bck}/{name} does not exist in the cluster")));
        }
        let content = if entry.archpath.is_empty() {
            object.content.clone()
        } else {
            let member = object.member(&entry.archpath);
            Content::Bytes(member.ok_or_else(|| Lack::Missing(format!("{} in {bck}/{name} does not exist", entry.archpath)))?)
        };
        let size = content.size();
        let start = u64::try_from(entry.start).map_err(|_| Lack::Range)?;
        let end = match entry.length {
            0 => size,
            -1 if start < size => size,
            length => match u64::try_from(length) {
                Ok(length) if start < size && length <= size - start => start + length,
                // another target refuses it, and after a while the chosen one reads the whole object in its stead
                _ if entry.archpath.is_empty() && !self.is_at(node, bck, name) => return Ok((content, 0, size)),
                _ => return Err(Lack::Range),
            },
        };
        Ok((content, start, end))
    }
}

/// Why an entry has no bytes.
#[derive(Debug)]
enum Lack {
    /// It is not there: shown as missing, where the batch goes on at errors.
    Missing(String),
    /// The range is beyond its end: the batch ends.
    Range,
}

/// What a batch consists of.
#[derive(Debug, Default)]
struct Batch {
    segments: Vec<Segment>,
    out: Vec<Out>,
    /// With fewer entries than asked for.
    aborted: bool,
    /// Without the end of the archive.
    open_end: bool,
    cut_after: Option<u64>,
    /// A byte that is falsified.
    corrupt: Option<u64>,
}

/// A TAR header: USTAR where the name fits, else a PAX record before it, as Go's `archive/tar` does.
pub(super) fn tar_entry(name: &str, content: &Content, start: u64, end: u64) -> Vec<Segment> {
    let size = end - start;
    let mut segments = Vec::with_capacity(3);
    let mut header = ustar(size, b'0');
    let mut before = Vec::new();
    if !name.is_ascii() || header.set_path(name).is_err() {
        let record = pax_record("path", name);
        let mut extended = ustar(record.len() as u64, b'x');
        extended.set_path("PaxHeaders.0/entry").expect("a short name");
        extended.set_cksum();
        before.extend_from_slice(extended.as_bytes());
        before.extend_from_slice(record.as_bytes());
        before.resize(before.len().next_multiple_of(512), 0);
        let short: String = name.chars().filter(char::is_ascii).take(90).collect();
        header.set_path(short.trim_start_matches('/')).ok();
    }
    header.set_cksum();
    before.extend_from_slice(header.as_bytes());
    segments.push(Segment::bytes(before));
    segments.push(Segment { content: content.clone(), position: start, end, not_before: None });
    let padding = size.next_multiple_of(BLOCK) - size;
    segments.push(Segment::bytes(Bytes::from_static(&[0; 512]).slice(..usize::try_from(padding).expect("below a block"))));
    segments
}

fn ustar(size: u64, kind: u8) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_size(size);
    header.set_mode(0o644);
    header.set_mtime(1_780_000_000);
    header.set_entry_type(tar::EntryType::new(kind));
    header
}

/// `LENGTH key=value\n`, where LENGTH counts itself.
fn pax_record(key: &str, value: &str) -> String {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + rest.to_string().len();
    if rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    format!("{length} {key}={value}\n")
}

/// Two empty blocks.
pub(super) fn end_of_archive() -> Segment {
    Segment::bytes(Bytes::from_static(&[0; 1024]))
}
