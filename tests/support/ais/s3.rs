//! The S3 dialect under `/s3`, as a proxy speaks it: all pages of a list in one reply, objects by a 307 with an XML body.

use std::fmt::Write as _;

use hyper::{Method, Response, StatusCode};
use serde_json::json;

use super::Shared;
use super::body::Reply;
use super::fault::Op;
use super::list::Ask;
use super::node::Node;
use super::objects::{Bck, Checksum};
use super::proxy::{Answer, OUR_HEADERS, bad_request};
use super::request::{Failure, Request, check_key, xml};

fn xml_answer(text: String) -> Response<Reply> {
    let text = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{text}");
    Response::builder().header("content-type", "application/xml").body(Reply::text(text)).expect(OUR_HEADERS)
}

impl Shared {
    /// The one bucket of this name, whatever its provider.
    pub(super) fn bucket_by_name(&self, name: &str) -> Result<Bck, Failure> {
        let state = self.state.read().expect("no holder panics");
        let mut found = state.buckets.keys().filter(|bck| bck.name == name);
        match (found.next(), found.next()) {
            (Some(bck), None) => Ok(bck.clone()),
            (None, _) => Err(Failure::new(StatusCode::NOT_FOUND, "NoSuchBucket", format!("bucket {name:?} does not exist"))),
            _ => Err(Failure::new(StatusCode::CONFLICT, "AmbiguousBucketName", format!("bucket {name:?} exists more than once"))),
        }
    }

    pub(super) fn s3_at_proxy(&self, node: &Node, request: &Request, op: Op, bucket: Option<&str>, key: Option<&str>) -> Answer {
        let Some(bucket) = bucket else {
            let state = self.state.read().expect("no holder panics");
            let name = |bck: &Bck| format!("<Bucket><Name>{}</Name><CreationDate>2026-01-01T00:00:00Z</CreationDate></Bucket>", bck.name);
            let buckets: String = state.buckets.keys().map(name).collect();
            return Ok(xml_answer(format!(
                "<ListAllMyBucketsResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01\"><Owner><ID>1</ID><DisplayName>ListAllMyBucketsResult\
                 </DisplayName></Owner><Buckets>{buckets}</Buckets></ListAllMyBucketsResult>"
            )));
        };
        let bck = self.bucket_by_name(bucket)?;
        self.check_token(request, Some(&bck))?;
        match (&request.method, key) {
            (&Method::HEAD, None) => Ok(Response::new(Reply::empty())),
            (&Method::GET, None) if op == Op::List => self.s3_list(request, &bck),
            (_, Some(key)) => {
                check_key(key)?;
                let to = self.redirect_for(node, request, &bck, key)?;
                let body = format!(
                    "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>TemporaryRedirect</Code><Message>Redirect</Message><Endpoint>{}\
                     </Endpoint><Bucket>{bucket}</Bucket></Error>",
                    xml(&to)
                );
                let body = if request.is_head() { Reply::empty() } else { Reply::text(body) };
                let made = Response::builder().status(StatusCode::TEMPORARY_REDIRECT).header("location", to);
                Ok(made.header("content-type", "text/xml; charset=utf-8").header("server", "AIStore").body(body).expect(OUR_HEADERS))
            }
            _ => Err(bad_request("not made here")),
        }
    }

    /// ListObjectsV2 (also where the bucket's location is asked for): `max-keys` is the page's size towards the targets, and all pages are one
    /// reply. ETags are not quoted; an object of an ais:// bucket has one only where it has an MD5. The times here
    /// are those of the last access.
    fn s3_list(&self, request: &Request, bck: &Bck) -> Answer {
        let recursion = if request.value("delimiter").is_empty() { 0 } else { 2048 };
        let mut token = request.value("continuation-token").to_owned();
        let mut text = String::new();
        let mut keys = 0;
        let state = self.state.read().expect("no holder panics");
        let bucket = state.buckets.get(bck).ok_or_else(|| Failure::no_bucket(bck))?;
        loop {
            let ask: Ask = serde_json::from_value(json!({
                "prefix": request.value("prefix"), "continuation_token": token, "flags": recursion.to_string(), "props": "size",
                "start_after": if token.is_empty() { request.value("start-after") } else { "" },
            }))
            .map_err(|error| bad_request(error.to_string()))?;
            let page = ask.page(bck, bucket, String::new(), self.config.page_max, &|_| false).map_err(bad_request)?;
            for (name, directory, size) in page.rows() {
                keys += 1;
                let shown = xml(name);
                // writing to a String does not fail
                let _ = if directory {
                    write!(text, "<CommonPrefixes><Prefix>{shown}</Prefix></CommonPrefixes>")
                } else {
                    let object = bucket.objects.get(name).filter(|object| bck.is_remote() || object.checksum == Checksum::Md5);
                    let etag = object.and_then(|object| object.etag()).unwrap_or_default();
                    write!(
                        text,
                        "<Contents><Key>{shown}</Key><LastModified>2026-05-29T20:26:41Z</LastModified><ETag>{etag}</ETag><StorageClass>\
                         </StorageClass><Size>{size}</Size></Contents>"
                    )
                };
            }
            token = page.token().to_owned();
            if token.is_empty() {
                break;
            }
        }
        let (name, prefix) = (&bck.name, xml(request.value("prefix")));
        Ok(xml_answer(format!(
            "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01\"><Name>{name}</Name><Prefix>{prefix}</Prefix>\
             <ContinuationToken></ContinuationToken>{text}<KeyCount>{keys}</KeyCount><MaxKeys>1000</MaxKeys>\
             <IsTruncated>false</IsTruncated></ListBucketResult>"
        )))
    }
}
