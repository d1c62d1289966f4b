//! A bare HTTP client for AIStore: says what came, follows nothing unless told to. It drives the fake's own tests, and it puts objects into a
//! cluster, fake or real, for tests that need a writer beside the store.

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::header::HeaderMap;
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};

/// Redirects followed at most: AIStore needs one.
const MAX_REDIRECTS: usize = 3;
const RAW: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`').add(b'{').add(b'|').add(b'}');
const KEY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// As much as came.
    pub(crate) body: Bytes,
    /// Whether the body broke off.
    pub(crate) broken: bool,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().expect("printable")).unwrap_or_default()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The client of one node.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    client: Client<HttpConnector, Full<Bytes>>,
    endpoint: String,
    token: Option<String>,
}

impl Http {
    pub(crate) fn new(endpoint: &str) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { client, endpoint: endpoint.trim_end_matches('/').to_owned(), token: None }
    }

    pub(crate) fn token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// One request; `target` is a path with its query, or a whole URL. `None`: no answer came.
    pub(crate) async fn send(&self, method: Method, target: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Option<Answer> {
        let url = if target.starts_with("http://") { target.to_owned() } else { format!("{}{target}", self.endpoint) };
        // a redirect's path has some characters raw that a URL may not have
        let mut request = Request::builder().method(method).uri(utf8_percent_encode(&url, RAW).to_string());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = self.token.as_ref().filter(|_| url.starts_with(&self.endpoint)) {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Full::new(body.into())).expect("a request");
        let (parts, mut incoming) = self.client.request(request).await.ok()?.into_parts();
        let (mut body, mut broken) = (BytesMut::new(), false);
        while let Some(frame) = incoming.frame().await {
            match frame {
                Ok(frame) => body.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Err(_) => broken = true,
            }
            if broken {
                break;
            }
        }
        Some(Answer { status: parts.status, headers: parts.headers, body: body.freeze(), broken })
    }

    /// One request and the redirects it leads to, method and body unchanged.
    pub(crate) async fn follow(&self, method: Method, target: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Option<Answer> {
        let (mut target, body) = (target.to_owned(), body.into());
        for _ in 0..=MAX_REDIRECTS {
            let answer = self.send(method.clone(), &target, headers, body.clone()).await?;
            if !answer.status.is_redirection() {
                return Some(answer);
            }
            answer.header("location").clone_into(&mut target);
        }
        panic!("redirects without an end");
    }

    /// GET with redirects.
    pub(crate) async fn get(&self, target: &str) -> Answer {
        self.follow(Method::GET, target, &[], Bytes::new()).await.expect("an answer")
    }

    /// GET of a range with redirects.
    pub(crate) async fn get_range(&self, target: &str, range: &str) -> Answer {
        self.follow(Method::GET, target, &[("range", range)], Bytes::new()).await.expect("an answer")
    }

    /// GET with a body, which is how AIStore takes lists and batches; with redirects.
    pub(crate) async fn ask(&self, target: &str, body: &serde_json::Value) -> Answer {
        self.follow(Method::GET, target, &[("content-type", "application/json")], body.to_string()).await.expect("an answer")
    }

    /// Makes a bucket of this provider; it may be there.
    pub(crate) async fn create_bucket(&self, bucket: &str, provider: &str) {
        let (target, body) = (format!("/v1/buckets/{bucket}?provider={provider}"), r#"{"action":"create-bck","name":"","value":null}"#);
        let answer = self.follow(Method::POST, &target, &[("content-type", "application/json")], body).await.expect("an answer");
        assert!(answer.status.is_success() || answer.status == StatusCode::CONFLICT, "{}", answer.text());
    }

    /// Destroys a bucket and all in it.
    pub(crate) async fn destroy_bucket(&self, bucket: &str, provider: &str) {
        let (target, body) = (format!("/v1/buckets/{bucket}?provider={provider}"), r#"{"action":"destroy-bck","name":"","value":null}"#);
        let answer = self.follow(Method::DELETE, &target, &[("content-type", "application/json")], body).await.expect("an answer");
        assert!(answer.status.is_success(), "{}", answer.text());
    }

    /// Uploads an object.
    pub(crate) async fn put(&self, bucket: &str, provider: &str, key: &str, body: impl Into<Bytes>) {
        let answer = self.follow(Method::PUT, &object(bucket, provider, key), &[], body).await.expect("an answer");
        assert!(answer.status.is_success(), "{key}: {}", answer.text());
    }

    /// Deletes an object.
    pub(crate) async fn delete(&self, bucket: &str, provider: &str, key: &str) {
        let answer = self.follow(Method::DELETE, &object(bucket, provider, key), &[], Bytes::new()).await.expect("an answer");
        assert!(answer.status.is_success(), "{key}: {}", answer.text());
    }
}

/// The path of an object.
pub(crate) fn object(bucket: &str, provider: &str, key: &str) -> String {
    format!("/v1/objects/{bucket}/{}?provider={provider}", utf8_percent_encode(key, KEY))
}
