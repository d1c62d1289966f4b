//! A target: serves objects that a proxy has sent it, or that a client asks for directly where the cluster lets it.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use hyper::http::response::Builder;
use hyper::{Method, Response, StatusCode};

use super::body::{InFlight, Reply, Segment};
use super::conn::Connection;
use super::counters::count;
use super::fault::{Does, Op};
use super::node::Node;
use super::objects::{Bck, BucketSpec, Checksum, Content, Object};
use super::proxy::{Answer, OUR_HEADERS, bad_request, plain};
use super::request::{Failure, Request, Route, check_key, range};
use super::{Shared, State, moss};

/// When an object was last read: the fake does not keep it (nanoseconds).
const ATIME: &str = "1780000000000000000";
/// What HEAD V2 can be asked for.
const PROPS: [&str; 12] =
    ["name", "size", "checksum", "atime", "version", "custom", "last-modified", "etag", "location", "copies", "ec", "chunked"];

fn denied(status: StatusCode) -> Failure {
    Failure::new(status, "", "direct target access denied")
}

impl Shared {
    pub(super) async fn at_target(
        self: &Arc<Self>,
        node: &Node,
        connection: &Arc<Connection>,
        request: &Request,
        op: Op,
        fault: Option<&Does>,
    ) -> Answer {
        let counting = &self.counting;
        match op {
            Op::Head => count(&counting.target_head),
            Op::Get => count(&counting.target_get),
            _ => {}
        }
        match (&request.method, &request.route) {
            (_, Route::Health) => Ok(self.health()),
            (&Method::GET, Route::Node) => self.node_info(node, request),
            (&Method::GET, Route::Moss(items)) => {
                if request.get("pid").is_none() {
                    return Err(denied(StatusCode::UNAUTHORIZED));
                }
                self.check_redirect(request)?;
                self.moss_at_target(node, connection, request, items, fault).await
            }
            (&Method::GET | &Method::HEAD, Route::Object { bucket, key }) => {
                self.check_direct(request)?;
                check_key(key)?;
                let bck = request.bck(bucket)?;
                self.read(node, request, &bck, key, fault).await
            }
            (&Method::PUT | &Method::DELETE, Route::Object { bucket, key }) => {
                if request.get("pid").is_none() {
                    return Err(denied(StatusCode::BAD_REQUEST));
                }
                self.check_redirect(request)?;
                self.write(node, request, &request.bck(bucket)?, key)
            }
            (_, Route::S3 { bucket: Some(bucket), key: Some(key) }) => {
                if request.get("pid").is_none() {
                    return Err(denied(StatusCode::FORBIDDEN));
                }
                self.check_redirect(request)?;
                let bck = self.bucket_by_name(bucket)?;
                match request.method {
                    Method::GET | Method::HEAD => self.read(node, request, &bck, key, fault).await,
                    _ => self.write(node, request, &bck, key),
                }
            }
            _ => Err(request.unknown()),
        }
    }

    /// A read without a proxy's mark is good where nobody is asked for a token and no redirect is signed.
    fn check_direct(&self, request: &Request) -> Result<(), Failure> {
        if request.get("pid").is_some() {
            return self.check_redirect(request);
        }
        count(&self.counting.direct);
        if self.config.sign || self.tokens.lock().expect("no holder panics").is_some() {
            count(&self.counting.direct_refused);
            return Err(denied(StatusCode::FORBIDDEN));
        }
        Ok(())
    }

    /// A signed redirect is good once, for its path.
    fn check_redirect(&self, request: &Request) -> Result<(), Failure> {
        if !self.config.sign {
            return Ok(());
        }
        let known = self.nonces.lock().expect("no holder panics").remove(request.value("x"));
        if known.is_some_and(|(signature, path)| signature == request.value("u") && path == request.path) {
            return Ok(());
        }
        count(&self.counting.bad_redirects);
        Err(Failure::new(StatusCode::FORBIDDEN, "", "redirect signature: unknown, used, or of another request"))
    }

    /// Waits until this target has a remote object; whoever is first fetches all of it.
    pub(super) async fn ensure_present(&self, target: &str, bck: &Bck, object: &Object) {
        if !bck.is_remote() {
            return;
        }
        let fetch = async {
            count(&self.counting.cold_fetches);
            self.counting.cold_bytes.fetch_add(object.size(), Relaxed);
            tokio::time::sleep(self.config.cold_fetch).await;
        };
        object.ensure_present(target, fetch).await;
    }

    async fn read(&self, node: &Node, request: &Request, bck: &Bck, key: &str, fault: Option<&Does>) -> Answer {
        let (object, spec, here) = {
            let state = self.state.read().expect("no holder panics");
            let bucket = state.buckets.get(bck).ok_or_else(|| Failure::no_bucket(bck))?;
            let here = state.smap.target_of(bck, key).is_some_and(|target| target.id == node.id);
            let object = bucket.objects.get(key).cloned();
            if object.is_none() && !request.is_head() && !bck.is_remote() && self.is_directory(&state, node, bck, key) {
                let message = format!("{bck}/{key}, err: no data available");
                return Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "ErrLmetaNotFound", message));
            }
            (object, bucket.spec, here)
        };
        if !here {
            count(&self.counting.wrong_target);
        }
        // a remote object is fetched once more; another's ais object is simply not here
        let object = object.filter(|_| here || bck.is_remote()).ok_or_else(|| Failure::no_object(bck, key))?;
        let present = !bck.is_remote() || object.is_present(Some(&node.id));
        if matches!(request.value("presence"), "2" | "3" | "4") && !present {
            return Err(Failure::no_object(bck, key));
        }
        if request.is_head() {
            return self.head(request, &object, present);
        }
        if request.header("range").is_some() {
            count(&self.counting.target_ranges);
        }
        let in_flight = InFlight::enter(&self.counting);
        self.ensure_present(&node.id, bck, &object).await;
        let answer = if request.value("archpath").is_empty() && request.value("archregx").is_empty() {
            whole_or_range(request, spec, &object, in_flight)
        } else {
            count(&self.counting.target_archpath);
            archived(request, bck, key, &object, in_flight)
        };
        if let Some(Does::Overwrite(with)) = fault {
            self.put(bck, key, Content::Bytes(with.clone()), Vec::new());
        }
        answer
    }

    /// Objects are files of their targets, and what is before a slash is a directory there: GET takes it for an object without metadata.
    fn is_directory(&self, state: &State, node: &Node, bck: &Bck, key: &str) -> bool {
        let below = format!("{key}/");
        let Some(bucket) = state.buckets.get(bck) else { return false };
        let keys = bucket.objects.range::<str, _>((Bound::Included(below.as_str()), Bound::Unbounded));
        let mut keys = keys.map(|(key, _)| key).take_while(|key| key.starts_with(&below));
        keys.any(|key| state.smap.target_of(bck, key).is_some_and(|target| target.id == node.id))
    }

    fn head(&self, request: &Request, object: &Object, present: bool) -> Answer {
        let made =
            Response::builder().header("content-length", object.size()).header("ais-present", if present { "true" } else { "false" });
        if matches!(request.route, Route::S3 { .. }) {
            return Ok(s3_headers(made, object).body(Reply::empty()).expect(OUR_HEADERS));
        }
        if request.get("props").is_none() || !self.config.head_v2 {
            let sums = present.then(|| (object.checksum, object.checksum_value().to_owned()));
            return Ok(attributes(made, object, sums).header("content-type", "application/json").body(Reply::empty()).expect(OUR_HEADERS));
        }
        let wanted: Vec<&str> = request.value("props").split(',').map(str::trim).filter(|prop| !prop.is_empty()).collect();
        if let Some(bad) = wanted.iter().find(|prop| !PROPS.contains(prop)) {
            return Err(bad_request(format!("invalid property {bad:?} in props list")));
        }
        let mut made = made;
        for prop in wanted {
            made = match prop {
                "checksum" if present && object.checksum != Checksum::None => {
                    made.header("ais-checksum-type", object.checksum.name()).header("ais-checksum-value", object.checksum_value())
                }
                "atime" if present => made.header("ais-atime", ATIME),
                "version" => made.header("ais-version", object.version),
                "custom" => object.custom.iter().fold(made, |made, (name, value)| made.header("ais-custom-md", format!("{name}={value}"))),
                "last-modified" => made.header("last-modified", http_time(object.mtime_seconds)),
                "etag" => match object.etag() {
                    Some(etag) => made.header("etag", format!("\"{etag}\"")),
                    None => made,
                },
                _ => made,
            };
        }
        Ok(made.body(Reply::empty()).expect(OUR_HEADERS))
    }

    fn write(&self, node: &Node, request: &Request, bck: &Bck, key: &str) -> Answer {
        check_key(key)?;
        if !self.state.read().expect("no holder panics").buckets.contains_key(bck) {
            return Err(Failure::no_bucket(bck));
        }
        if request.method == Method::PUT {
            let object = self.put(bck, key, Content::Bytes(request.body.clone()), Vec::new());
            object.set_present(&node.id);
            return Ok(plain(""));
        }
        let mut state = self.state.write().expect("no holder panics");
        let gone = state.buckets.get_mut(bck).and_then(|bucket| bucket.objects.remove(key));
        gone.map(|_| plain("")).ok_or_else(|| Failure::no_object(bck, key))
    }
}

fn http_time(seconds: i64) -> String {
    DateTime::from_secs(seconds).fmt(Format::HttpDate).expect("a time of this century")
}

/// The headers of GET and of HEAD V1 (`ToHeader`): here an ETag is not quoted.
fn attributes(made: Builder, object: &Object, checksum: Option<(Checksum, String)>) -> Builder {
    let mut made = made.header("ais-atime", ATIME).header("ais-version", object.version);
    if let Some((kind, value)) = checksum.filter(|(kind, _)| *kind != Checksum::None) {
        made = made.header("ais-checksum-type", kind.name()).header("ais-checksum-value", value);
    }
    for (name, value) in &object.custom {
        made = made.header("ais-custom-md", format!("{name}={value}"));
        if name == "ETag" {
            made = made.header("etag", value);
        }
    }
    made
}

fn s3_headers(made: Builder, object: &Object) -> Builder {
    let made = made.header("last-modified", http_time(object.mtime_seconds));
    match object.etag() {
        Some(etag) => made.header("etag", format!("\"{etag}\"")),
        None => made,
    }
}

fn whole_or_range(request: &Request, spec: BucketSpec, object: &Object, in_flight: InFlight) -> Answer {
    let size = object.size();
    let asked = range(request.header("range"), size)?;
    let (start, end) = asked.unwrap_or((0, size));
    let mut made = Response::builder().header("content-type", "application/octet-stream").header("content-length", end - start);
    made = if matches!(request.route, Route::S3 { .. }) {
        s3_headers(made, object)
    } else {
        let sum = match asked {
            Some((start, end)) if spec.read_range_checksum => object.checksum.of(&object.content, start, end),
            _ => object.checksum_value().to_owned(),
        };
        attributes(made, object, Some((object.checksum, sum)))
    };
    if asked.is_some() {
        made = made
            .status(StatusCode::PARTIAL_CONTENT)
            .header("accept-ranges", "bytes")
            .header("content-range", format!("bytes {start}-{}/{size}", end - 1));
    }
    let segment = Segment { content: object.content.clone(), position: start, end, not_before: None };
    Ok(made.body(Reply::of([segment]).counted(in_flight)).expect(OUR_HEADERS))
}

/// One member of an archive, or a TAR of those that match.
fn archived(request: &Request, bck: &Bck, key: &str, object: &Object, in_flight: InFlight) -> Answer {
    let path = request.value("archpath");
    if request.header("range").is_some() {
        return Err(bad_request("range read of an archived file is not supported"));
    }
    if !path.is_empty() {
        let bytes = object
            .member(path)
            .ok_or_else(|| Failure::new(StatusCode::NOT_FOUND, "ErrNotFound", format!("\"{path}\" in {bck}/{key} does not exist")))?;
        let made = Response::builder().header("content-type", "application/octet-stream").header("content-length", bytes.len());
        return Ok(made.body(Reply::text(bytes).counted(in_flight)).expect(OUR_HEADERS));
    }
    let (text, mode) = (request.value("archregx"), request.value("archmode"));
    let matches = |name: &str| match mode {
        "prefix" => name.starts_with(text),
        "suffix" => name.ends_with(text),
        "substr" => name.contains(text),
        // WebDataset's key: up to the first dot of the last part
        "wdskey" => {
            let base = name.rfind('/').map_or(0, |at| at + 1);
            name[base..].find('.').map_or(name, |dot| &name[..base + dot]) == text
        }
        _ => false,
    };
    if !["prefix", "suffix", "substr", "wdskey"].contains(&mode) {
        return Err(bad_request(format!("archmode {mode:?} is not made here")));
    }
    let mut segments = Vec::new();
    for name in object.members().into_iter().filter(|name| matches(name)) {
        let content = Content::Bytes(object.member(&name).expect("it was listed"));
        segments.extend(moss::tar_entry(&name, &content, 0, content.size()));
    }
    segments.push(moss::end_of_archive());
    let made = Response::builder().header("content-type", "application/x-tar");
    Ok(made.body(Reply::of(segments).chunked().counted(in_flight)).expect(OUR_HEADERS))
}
