//! A proxy: checks tokens, lists, tells the map, starts jobs, and redirects everything that is about an object's bytes.

use std::sync::Arc;

use hyper::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::body::Reply;
use super::counters::count;
use super::fault::Op;
use super::list::Ask;
use super::node::Node;
use super::objects::{Bck, Bucket, Checksum, base36};
use super::request::{Failure, Request, Route, check_key};
use super::smap::Member;
use super::{Access, Job, Shared};

pub(super) type Answer = Result<Response<Reply>, Failure>;

/// `utm` of the first redirect; each next is one later. (Upstream: nanoseconds since 1970.)
const FIRST_UTM: u64 = 1_780_000_000_000_000_000;

pub(super) const OUR_HEADERS: &str = "names and values are ours";

pub(super) fn json_answer(value: &Value) -> Response<Reply> {
    Response::builder().header("content-type", "application/json").body(Reply::text(value.to_string())).expect(OUR_HEADERS)
}

pub(super) fn plain(text: impl Into<bytes::Bytes>) -> Response<Reply> {
    Response::new(Reply::text(text))
}

pub(super) fn bad_request(message: impl Into<String>) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, "", message)
}

impl Shared {
    pub(super) fn at_proxy(self: &Arc<Self>, node: &Node, request: &Request, op: Op) -> Answer {
        let counting = &self.counting;
        match op {
            Op::List => count(&counting.proxy_list),
            Op::Head => count(&counting.proxy_head),
            Op::Get => count(&counting.proxy_get),
            Op::Batch => count(&counting.proxy_batch),
            Op::Write => count(&counting.proxy_write),
            Op::Smap | Op::Health | Op::Job | Op::Other => {}
        }
        if request.route == Route::Health {
            return Ok(self.health());
        }
        self.check_token(request, None)?;
        match (&request.method, &request.route) {
            (&Method::GET, Route::Node) => self.node_info(node, request),
            (&Method::GET, Route::Buckets(name)) => self.buckets(request, name.as_deref()),
            (&Method::HEAD, Route::Buckets(Some(name))) => {
                count(&counting.proxy_head_bucket);
                let bck = self.known_bucket(request, name)?;
                let spec = self.state.read().expect("no holder panics").buckets.get(&bck).map(|bucket| bucket.spec).unwrap_or_default();
                let props = json!({
                    "provider": bck.provider,
                    "checksum": { "type": spec.checksum.name(), "enable_read_range": spec.read_range_checksum },
                    "versioning": { "enabled": bck.is_remote() },
                });
                Ok(Response::builder().header("ais-bucket-props", props.to_string()).body(Reply::empty()).expect(OUR_HEADERS))
            }
            (&Method::POST | &Method::DELETE, Route::Buckets(Some(name))) => self.action(request, name),
            (&Method::GET | &Method::HEAD | &Method::PUT | &Method::DELETE, Route::Object { bucket, key }) => {
                check_key(key)?;
                let bck = self.known_bucket(request, bucket)?;
                let status = if op == Op::Get { StatusCode::MOVED_PERMANENTLY } else { StatusCode::TEMPORARY_REDIRECT };
                let to = self.redirect_for(node, request, &bck, key)?;
                let text = if op == Op::Get { format!("<a href=\"{to}\">Moved Permanently</a>.\n\n") } else { String::new() };
                Ok(Response::builder().status(status).header("location", &to).body(Reply::text(text)).expect(OUR_HEADERS))
            }
            (&Method::GET, Route::Moss(items)) => self.moss_at_proxy(node, request, items),
            (_, Route::S3 { bucket, key }) => {
                count(&counting.proxy_s3);
                self.s3_at_proxy(node, request, op, bucket.as_deref(), key.as_deref())
            }
            _ => Err(request.unknown()),
        }
    }

    pub(super) fn health(&self) -> Response<Reply> {
        count(&self.counting.health);
        let made = Response::builder().header("ais-cluster-uptime", "60000000000").header("ais-node-uptime", "60000000000");
        made.body(Reply::empty()).expect(OUR_HEADERS)
    }

    /// 401 without a good token, 403 where it may not read this bucket.
    pub(super) fn check_token(&self, request: &Request, bck: Option<&Bck>) -> Result<(), Failure> {
        let tokens = self.tokens.lock().expect("no holder panics");
        let Some(tokens) = &*tokens else { return Ok(()) };
        let bearer = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let token = bearer.or_else(|| request.header("x-amz-security-token"));
        let token = token.ok_or_else(|| Failure::new(StatusCode::UNAUTHORIZED, "", "token required"))?;
        let access = tokens.get(token).ok_or_else(|| Failure::new(StatusCode::UNAUTHORIZED, "", "invalid token"))?;
        match (access, bck) {
            (Access::Buckets(buckets), Some(bck)) if !buckets.contains(&bck.to_string()) => {
                Err(Failure::new(StatusCode::FORBIDDEN, "", format!("insufficient permissions, bucket \"{bck}\"")))
            }
            _ => Ok(()),
        }
    }

    /// The bucket of a request: it exists, and the token may read it.
    pub(super) fn known_bucket(&self, request: &Request, name: &str) -> Result<Bck, Failure> {
        let bck = request.bck(name)?;
        self.check_token(request, Some(&bck))?;
        let there = self.state.read().expect("no holder panics").buckets.contains_key(&bck);
        if there { Ok(bck) } else { Err(Failure::no_bucket(&bck)) }
    }

    /// Cluster map, own entry, configuration, states of jobs.
    pub(super) fn node_info(&self, node: &Node, request: &Request) -> Answer {
        let smap = self.state.read().expect("no holder panics").smap.clone();
        match request.value("what") {
            "smap" => {
                count(&self.counting.smap);
                Ok(json_answer(&smap.json(self.config.sign || self.config.keys)))
            }
            "snode" => {
                let map = smap.json(self.config.sign || self.config.keys);
                let kind = if node.is_target { "tmap" } else { "pmap" };
                Ok(json_answer(&map[kind][&node.id]))
            }
            "config" => Ok(json_answer(&json!({
                "features": "0",
                "checksum": { "type": "xxhash2", "enable_read_range": false },
                "auth": { "enabled": self.tokens.lock().expect("no holder panics").is_some(), "client_auth_required": false },
            }))),
            "remote" => Ok(json_answer(&json!({ "a": [], "ver": 0 }))),
            "qryxstats" => {
                let ask: Value = serde_json::from_slice(&request.body).unwrap_or_default();
                let jobs = self.jobs.lock().expect("no holder panics");
                let snaps: Vec<Value> = jobs
                    .iter()
                    .filter(|job| ask["id"].as_str().is_none_or(|id| id.is_empty() || id == job.id))
                    .filter(|job| ask["kind"].as_str().is_none_or(|kind| kind.is_empty() || kind == job.kind))
                    .map(|job| {
                        let end = if job.finished { "2026-01-01T00:00:01Z" } else { "0001-01-01T00:00:00Z" };
                        json!({ "id": job.id, "kind": job.kind, "start-time": "2026-01-01T00:00:00Z", "end-time": end, "aborted": false,
                                "is_idle": job.finished, "stats": { "loc-objs": "0", "loc-bytes": "0" } })
                    })
                    .collect();
                Ok(json_answer(&smap.live().map(|target| (target.id.clone(), json!(snaps))).collect::<serde_json::Map<_, _>>().into()))
            }
            other => Err(bad_request(format!("invalid what={other:?}"))),
        }
    }

    /// Lists of buckets, and pages of lists of objects.
    fn buckets(&self, request: &Request, name: Option<&str>) -> Answer {
        let body: Value =
            serde_json::from_slice(&request.body).map_err(|error| bad_request(format!("a list wants a JSON body: {error}")))?;
        if body["action"] != "list" {
            return Err(bad_request(format!("invalid action {}", body["action"])));
        }
        let Some(name) = name else {
            count(&self.counting.proxy_list_buckets);
            let provider = request.get("provider").and_then(|provider| Bck::new(provider, "", "any")).map(|any| any.provider);
            let state = self.state.read().expect("no holder panics");
            let of = |bck: &&Bck| provider.as_ref().is_none_or(|provider| *provider == bck.provider);
            let named = |bck: &Bck| {
                let namespace = json!({ "uuid": bck.ns_uuid, "name": bck.ns_name });
                json!({ "name": bck.name, "provider": bck.provider, "namespace": namespace })
            };
            return Ok(json_answer(&state.buckets.keys().filter(of).map(named).collect::<Vec<_>>().into()));
        };
        if body["value"].is_null() {
            return Err(bad_request(format!("bad list-buckets request: {name:?} vs \"\"")));
        }
        let bck = self.known_bucket(request, name)?;
        let ask: Ask =
            serde_json::from_value(body["value"].clone()).map_err(|error| bad_request(format!("invalid list message: {error}")))?;
        let page = {
            if !ask.continuation_token.is_empty() && ask.uuid.is_empty() {
                return Err(bad_request("a continuation token without the list's uuid"));
            }
            let uuid = if ask.uuid.is_empty() { format!("list{:06}", self.serial()) } else { ask.uuid.clone() };
            if !uuid.starts_with("list") {
                return Err(Failure::new(StatusCode::NOT_FOUND, "ErrXactNotFound", format!("xaction {uuid:?} not found")));
            }
            let state = self.state.read().expect("no holder panics");
            let bucket = state.buckets.get(&bck).ok_or_else(|| Failure::no_bucket(&bck))?;
            let target_of = |key: &str| state.smap.target_of(&bck, key).map(|target| target.id.as_str());
            let directories = ask.directories(&bck, bucket, target_of);
            let inside = format!("{}/", ask.prefix());
            let hidden = |key: &str| {
                let elsewhere = || target_of(key).is_some_and(|target| directories.contains(target));
                !directories.is_empty() && !key.starts_with(&inside) && elsewhere()
            };
            ask.page(&bck, bucket, uuid, self.config.page_max, &hidden).map_err(bad_request)?
        };
        if request.header("accept").is_some_and(|accept| accept.contains("application/msgpack")) {
            count(&self.counting.proxy_list_msgpack);
            let made = Response::builder().header("content-type", "application/msgpack").body(Reply::text(page.msgpack()));
            return Ok(made.expect(OUR_HEADERS));
        }
        let made = Response::builder().header("content-type", "application/json").body(Reply::text(page.json()));
        Ok(made.expect(OUR_HEADERS))
    }

    /// Buckets made and destroyed, jobs.
    fn action(self: &Arc<Self>, request: &Request, name: &str) -> Answer {
        let body: Value =
            serde_json::from_slice(&request.body).map_err(|error| bad_request(format!("an action wants a JSON body: {error}")))?;
        let kind = body["action"].as_str().unwrap_or_default().to_owned();
        match (&request.method, kind.as_str()) {
            (&Method::POST, "create-bck") => {
                let bck = request.bck(name)?;
                self.check_token(request, Some(&bck))?;
                let mut bucket = Bucket::default();
                let kind = body.pointer("/value/checksum/type").and_then(Value::as_str);
                if let Some(kind) = kind {
                    bucket.spec.checksum =
                        Checksum::of_name(kind).ok_or_else(|| bad_request(format!("checksum {kind:?} is not made here")))?;
                }
                let mut state = self.state.write().expect("no holder panics");
                if state.buckets.contains_key(&bck) {
                    return Err(Failure::new(StatusCode::CONFLICT, "ErrBckAlreadyExists", format!("bucket \"{bck}\" already exists")));
                }
                state.buckets.insert(bck, bucket);
                Ok(plain(""))
            }
            (&Method::DELETE, "destroy-bck") => {
                let bck = self.known_bucket(request, name)?;
                self.state.write().expect("no holder panics").buckets.remove(&bck);
                Ok(plain(""))
            }
            (&Method::POST, "prefetch-listrange") | (&Method::DELETE, "evict-listrange") => {
                let bck = self.known_bucket(request, name)?;
                if !bck.is_remote() {
                    return Err(bad_request(format!("bucket \"{bck}\" is not remote")));
                }
                Ok(plain(self.job(&bck, kind, &body["value"])?))
            }
            _ => Err(bad_request(format!("invalid action {kind:?}"))),
        }
    }

    /// Starts a job, and returns its id.
    fn job(self: &Arc<Self>, bck: &Bck, kind: String, value: &Value) -> Result<String, Failure> {
        count(&self.counting.jobs);
        let names = match (value["objnames"].as_array(), value["template"].as_str()) {
            (Some(names), _) => names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect(),
            (None, Some(template)) => expand(template).ok_or_else(|| bad_request(format!("invalid template {template:?}")))?,
            _ => return Err(bad_request("neither objnames nor a template")),
        };
        let id = format!("job{:06}", self.serial());
        let job = Job { id: id.clone(), kind, bucket: bck.to_string(), names, value: value.to_string(), finished: false };
        let (shared, bck, names, prefetch) = (Arc::clone(self), bck.clone(), job.names.clone(), job.kind == "prefetch-listrange");
        self.jobs.lock().expect("no holder panics").push(job);
        let done = id.clone();
        tokio::spawn(async move {
            for name in names {
                let Some(object) = shared.object(&bck, &name) else { continue };
                let target = shared.state.read().expect("no holder panics").smap.target_of(&bck, &name).map(|target| target.id.clone());
                match target {
                    Some(target) if prefetch => shared.ensure_present(&target, &bck, &object).await,
                    _ => object.evict(),
                }
            }
            let mut jobs = shared.jobs.lock().expect("no holder panics");
            jobs.iter_mut().filter(|job| job.id == done).for_each(|job| job.finished = true);
        });
        Ok(id)
    }

    /// Where to send a request for an object.
    pub(super) fn redirect_for(&self, node: &Node, request: &Request, bck: &Bck, key: &str) -> Result<String, Failure> {
        let (target, version) = {
            let state = self.state.read().expect("no holder panics");
            (state.smap.target_of(bck, key).cloned(), state.smap.version)
        };
        let target = target.ok_or_else(|| Failure::new(StatusCode::SERVICE_UNAVAILABLE, "ErrNoNodes", "no targets in the cluster"))?;
        Ok(self.redirect(node, &target, version, &request.path, &request.raw_query))
    }

    /// A redirect to this target; signed where the cluster signs.
    pub(super) fn redirect(&self, node: &Node, target: &Member, version: u64, path: &str, query: &str) -> String {
        count(&self.counting.redirects);
        let serial = self.serial();
        let and = if query.is_empty() { "" } else { "&" };
        let path_shown = if path.starts_with("/s3/") { Request::encoded_path_s3(path) } else { Request::encoded_path(path) };
        let mut to = format!("{}{}?{query}{and}pid={}&utm={}", target.url(), path_shown, node.id, base36(FIRST_UTM + serial));
        if self.config.sign {
            let nonce = base36(super::hash::mix(serial));
            let signature: String =
                (0..6).map(|part| format!("{:016x}", super::hash::mix(serial ^ (part << 32)))).collect::<String>()[..86].to_owned();
            to += &format!("&vpams={}&x={nonce}&u={signature}", base36(version));
            self.nonces.lock().expect("no holder panics").insert(nonce, (signature, path.to_owned()));
        }
        to
    }
}

/// The names of `prefix{0001..0100}suffix`, or of a prefix without braces: itself.
fn expand(template: &str) -> Option<Vec<String>> {
    let Some((prefix, rest)) = template.split_once('{') else { return Some(vec![template.to_owned()]) };
    let (span, suffix) = rest.split_once('}')?;
    let (first, last) = span.split_once("..")?;
    let (from, to) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
    (to >= from && to - from < 1_000_000)
        .then(|| (from..=to).map(|n| format!("{prefix}{n:0width$}{suffix}", width = first.len())).collect())
}
