//! Requests to the cluster: which proxy is asked, the token, the one redirect to a target.
//!
//! A redirect is for one request: it is followed and forgotten (AIStore answers GET with 301, and means it for this once). The token goes to proxies and
//! never to targets. Another proxy is tried where the first gave no answer; nothing else is repeated, but once after a 401 with a newer token.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::AisConfig;
use super::error::{Complaint, ERROR_BODY_MAX_BYTES};
use super::token::Token;
use crate::stats::Stats;
use crate::store::http::{self as shared, HttpClient, USER_AGENT, text, transport_error};
use crate::store::{StoreError, tls};
use crate::types::ErrorKind;

/// A proxy that did not answer is asked last for so long: a restart of one takes about that.
const DOWN: Duration = Duration::from_secs(10);
/// Proxies asked for one request: each that is unreachable may cost the connect timeout.
const PROXIES_TRIED: usize = 4;
/// From a proxy to a target, and once more from there (a target that leaves may pass a request on).
const REDIRECTS_MAX: usize = 2;
/// An error's body comes with its head or not at all.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) method: Method,
    /// Path and query, escaped.
    pub(super) path: String,
    /// `bytes=a-b`.
    pub(super) range: Option<String>,
    /// JSON; empty: none.
    pub(super) body: Bytes,
    pub(super) accept: Option<&'static str>,
}

impl Ask {
    pub(super) const fn new(method: Method, path: String) -> Self {
        Self { method, path, range: None, body: Bytes::new(), accept: None }
    }

    fn request(&self, uri: &str, token: Option<&HeaderValue>) -> Result<Request<Full<Bytes>>, http::Error> {
        let mut request = Request::builder().method(self.method.clone()).uri(uri).header(header::USER_AGENT, USER_AGENT);
        if let Some(range) = &self.range {
            request = request.header(header::RANGE, range);
        }
        if let Some(accept) = self.accept {
            request = request.header(header::ACCEPT, accept);
        }
        if !self.body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, token);
        }
        request.body(Full::new(self.body.clone()))
    }
}

/// The head of an answer, its body still to be read.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) response: Response<Incoming>,
    /// Where the redirect led: scheme, host, and what AIStore put into the query.
    pub(super) target: Option<Uri>,
}

/// The proxies, those in front that answered last. Pure: `now` is an argument.
#[derive(Debug)]
struct Proxies {
    /// Address, whether it was configured (the others are the map's), and until when it is thought to be down.
    known: Vec<(String, bool, Option<Instant>)>,
    turn: usize,
}

impl Proxies {
    /// Whom to ask, in this order: configured ones by turns, then those of the map, then those thought to be down.
    fn order(&mut self, now: Instant) -> Vec<String> {
        self.turn = self.turn.wrapping_add(1);
        let configured = self.known.iter().filter(|(_, configured, _)| *configured).count().max(1);
        let turn = self.turn % configured;
        let mut order: Vec<_> = self.known.iter().enumerate().collect();
        order.sort_by_key(|(at, (_, is_configured, down))| {
            let rank = if *is_configured { (at + configured - turn) % configured } else { configured + at };
            (down.is_some_and(|until| now < until), rank)
        });
        order.into_iter().take(PROXIES_TRIED).map(|(_, (url, ..))| url.clone()).collect()
    }

    fn down(&mut self, url: &str, until: Option<Instant>) {
        self.known.iter_mut().filter(|(known, ..)| known == url).for_each(|(.., down)| *down = until);
    }

    /// The proxies of a new map, beside the configured ones.
    fn learn(&mut self, urls: &[String]) {
        self.known.retain(|(url, configured, _)| *configured || urls.contains(url));
        for url in urls {
            if self.known.iter().all(|(known, ..)| known != url) {
                self.known.push((url.clone(), false, None));
            }
        }
    }
}

/// The cluster, as a client sees it. One per store.
#[derive(Debug)]
pub(super) struct Cluster {
    client: HttpClient,
    proxies: Mutex<Proxies>,
    token: Option<Token>,
    /// All addresses given are `https://`.
    tls: bool,
    answer_timeout: Duration,
    stats: Arc<Stats>,
}

impl Cluster {
    pub(super) fn new(config: &AisConfig, connections: usize, stats: Arc<Stats>) -> Result<Self, StoreError> {
        if config.endpoints.is_empty() {
            let text = "no address of a cluster: give a proxy's with --endpoint-url, or in AIS_ENDPOINT";
            return Err(StoreError::new(ErrorKind::Invalid, text));
        }
        for endpoint in &config.endpoints {
            let is_address = endpoint.parse::<Uri>().is_ok_and(|uri| {
                matches!(uri.scheme_str(), Some("http" | "https")) && uri.authority().is_some_and(|host| !host.as_str().contains('@'))
            });
            if !is_address {
                return Err(StoreError::new(
                    ErrorKind::Invalid,
                    "an address of the cluster is none: check --endpoint-url and AIS_ENDPOINT",
                ));
            }
        }
        let bundle = config.ca_bundle.as_deref().map(tls::read_bundle).transpose()?;
        let tls = tls::configure(bundle.as_deref(), config.identity.as_ref(), config.skip_verify)?;
        let known = config.endpoints.iter().map(|url| (url.trim_end_matches('/').to_owned(), true, None)).collect();
        Ok(Self {
            client: shared::client(tls, config.connect_timeout, connections),
            proxies: Mutex::new(Proxies { known, turn: 0 }),
            token: config.token.clone().map(Token::new).transpose()?,
            tls: config.endpoints.iter().all(|url| url.starts_with("https://")),
            answer_timeout: config.connect_timeout + config.first_byte_timeout,
            stats,
        })
    }

    pub(super) const fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Whether the user asks for TLS everywhere: then nobody is asked without it.
    pub(super) const fn is_tls(&self) -> bool {
        self.tls
    }

    pub(super) fn learn_proxies(&self, urls: &[String]) {
        let usable: Vec<String> = urls.iter().filter(|url| !self.tls || url.starts_with("https://")).cloned().collect();
        self.proxies.lock().unwrap_or_else(PoisonError::into_inner).learn(&usable);
    }

    /// Asks a proxy and follows where it leads. The answer may be any but a redirect.
    pub(super) async fn ask(&self, what: &str, ask: &Ask) -> Result<Answer, StoreError> {
        let mut token = self.token.as_ref().map(Token::header);
        let (mut proxy, mut response) = self.ask_some_proxy(what, ask, token.as_ref()).await?;
        if response.status() == StatusCode::UNAUTHORIZED
            && let (Some(source), Some(used)) = (&self.token, &token)
            && let Some(newer) = source.renewed(used)
        {
            token = Some(newer);
            (proxy, response) = self.ask_some_proxy(what, ask, token.as_ref()).await?;
        }
        let mut target: Option<Uri> = None;
        for _ in 0..REDIRECTS_MAX {
            if !is_redirect(response.status()) {
                return Ok(Answer { response, target });
            }
            let from =
                target.as_ref().and_then(Uri::scheme_str).unwrap_or_else(|| if proxy.starts_with("https") { "https" } else { "http" });
            let location = text(response.headers(), header::LOCATION).unwrap_or_default();
            let next = redirect(from, location).map_err(|reason| StoreError::new(ErrorKind::Corrupt, format!("{what}: {reason}")))?;
            // Read to its end, so that the connection to the proxy is free again.
            let _ = shared::collect(response.into_body(), ERROR_BODY_MAX_BYTES, BODY_TIMEOUT).await;
            self.stats.store.redirects.add(1);
            response = self.at(what, ask, &next.to_string()).await?;
            target = Some(next);
        }
        if is_redirect(response.status()) {
            return Err(StoreError::new(ErrorKind::Corrupt, format!("{what}: redirected more than {REDIRECTS_MAX} times")));
        }
        Ok(Answer { response, target })
    }

    async fn ask_some_proxy(&self, what: &str, ask: &Ask, token: Option<&HeaderValue>) -> Result<(String, Response<Incoming>), StoreError> {
        let mut failure = None;
        let order = self.proxies.lock().unwrap_or_else(PoisonError::into_inner).order(Instant::now());
        for proxy in order {
            match self.send(what, ask, &format!("{proxy}{}", ask.path), token).await {
                Ok(response) => {
                    self.proxies.lock().unwrap_or_else(PoisonError::into_inner).down(&proxy, None);
                    return Ok((proxy, response));
                }
                Err(error) => {
                    let until = Instant::now() + DOWN;
                    self.proxies.lock().unwrap_or_else(PoisonError::into_inner).down(&proxy, Some(until));
                    // What the first one said is what the user configured.
                    let is_over = error.kind == ErrorKind::Invalid;
                    failure.get_or_insert(error);
                    if is_over {
                        break;
                    }
                }
            }
        }
        Err(failure.unwrap_or_else(|| StoreError::new(ErrorKind::Invalid, format!("{what}: no proxy to ask"))))
    }

    /// Asks one node, without a token; what it answers is its answer.
    pub(super) async fn at(&self, what: &str, ask: &Ask, url: &str) -> Result<Response<Incoming>, StoreError> {
        self.send(what, ask, url, None).await
    }

    async fn send(&self, what: &str, ask: &Ask, url: &str, token: Option<&HeaderValue>) -> Result<Response<Incoming>, StoreError> {
        let host = url.split('/').nth(2).unwrap_or_default();
        let request = ask.request(url, token);
        let request = request.map_err(|error| StoreError::new(ErrorKind::Invalid, format!("{what}: cannot be asked for: {error}")))?;
        match tokio::time::timeout(self.answer_timeout, self.client.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(transport_error(what, host, &error)),
            Err(_) => {
                let seconds = self.answer_timeout.as_secs_f64();
                Err(StoreError::new(ErrorKind::Timeout, format!("{what}: no answer from {host} in {seconds} s")))
            }
        }
    }

    /// What an answer that is no success says.
    pub(super) async fn complaint(&self, response: Response<Incoming>) -> Complaint {
        let status = response.status().as_u16();
        if status == 429 {
            self.stats.store.throttled.add(1);
        }
        if let Some(said) = response.headers().get("hdr-error") {
            return Complaint::new(status, said.as_bytes());
        }
        let body = shared::collect(response.into_body(), ERROR_BODY_MAX_BYTES, BODY_TIMEOUT).await.unwrap_or_default();
        Complaint::new(status, &body)
    }

    pub(super) fn error(&self, what: &str, complaint: Complaint) -> StoreError {
        complaint.into_error(what, self.token.as_ref().map(Token::place).as_deref())
    }
}

const fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 307 | 308)
}

/// Where a redirect leads. From TLS only to TLS; no user name in it.
fn redirect(from: &str, location: &str) -> Result<Uri, &'static str> {
    let uri = shared::location(location).ok_or("the cluster redirects to something that is no address")?;
    match (uri.scheme_str(), uri.authority()) {
        (Some("https"), Some(host)) if !host.as_str().contains('@') => Ok(uri),
        (Some("http"), Some(host)) if from == "http" && !host.as_str().contains('@') => Ok(uri),
        (Some("http"), Some(_)) if from == "https" => Err("the cluster redirects from TLS to plain text: not followed"),
        _ => Err("the cluster redirects to something that is no address of a target: not followed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_take_turns_and_those_that_are_down_come_last() {
        let now = Instant::now();
        let known = ["a", "b"].map(|url| (url.to_owned(), true, None)).to_vec();
        let mut proxies = Proxies { known, turn: 0 };
        proxies.learn(&["b".into(), "c".into()]);
        let first: Vec<_> = (0..4).map(|_| proxies.order(now)).collect();
        assert_eq!(first[0], ["b", "a", "c"]);
        assert_eq!(first[1], ["a", "b", "c"]);
        assert_eq!(first[2], first[0]);
        proxies.down("b", Some(now + DOWN));
        assert!((0..2).all(|_| proxies.order(now) == ["a", "c", "b"]));
        assert!((0..2).any(|_| proxies.order(now + DOWN)[0] == "b"));
        proxies.learn(&["d".into()]);
        assert_eq!(proxies.order(now).len(), 3, "c has left the map, a and b are the user's");
    }

    #[test]
    fn redirects_do_not_leave_tls_and_carry_no_user() {
        assert!(redirect("http", "http://t:1/v1/objects/b/o?pid=x&utm=1").is_ok());
        assert_eq!(redirect("http", "http://t:1/<a>\\\"%20").expect("an address").path(), "/%3Ca%3E%5C%22%20");
        assert!(redirect("http", "https://t:1/x").is_ok() && redirect("https", "https://t:1/x").is_ok());
        for (from, bad) in [
            ("https", "http://t/x"),
            ("http", "/x"),
            ("http", ""),
            ("http", "ftp://t/x"),
            ("http", "http://u:p@t/x"),
            ("http", "http:///x"),
        ] {
            assert!(redirect(from, bad).is_err(), "{bad}");
        }
    }
}
