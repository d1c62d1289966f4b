//! The contract over S3: our client, SDK and lean GET, against the embedded server, with signatures checked and anonymous.

use std::sync::Arc;

use async_trait::async_trait;
use belady::demo::server::{Credentials, Server, ServerConfig};
use belady::stats::Stats;
use belady::store::Store;
use belady::store::s3::{S3Config, S3Store};

use crate::store_contract::{Keys, Writer, contract, objects};

struct Behind<'a>(&'a Server);

#[async_trait]
impl Writer for Behind<'_> {
    async fn put(&self, key: &str, body: &[u8]) {
        self.0.put(key, body.to_vec());
    }
    async fn delete(&self, key: &str) {
        assert!(self.0.delete(key), "{key:?} was there");
    }
}

async fn holds(credentials: Option<Credentials>) {
    let server = Server::start(ServerConfig { credentials: credentials.clone(), ..ServerConfig::default() }).expect("a loopback port");
    let objects = objects(Keys::Any);
    for (key, body) in &objects {
        server.put(key, body.clone());
    }
    let keys = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut config = S3Config { endpoint_url: Some(server.url()), region: Some("us-east-1".to_owned()), ..S3Config::new(server.bucket()) };
    match credentials {
        Some(Credentials { access_key, secret_key, .. }) => {
            let text = format!("AWS_ACCESS_KEY_ID={access_key}\nAWS_SECRET_ACCESS_KEY={secret_key}\n");
            std::fs::write(keys.path(), text).expect("writes");
            config.env_file = Some(keys.path().to_owned());
        }
        None => config.no_sign_request = true,
    }
    let store: Arc<dyn Store> = Arc::new(S3Store::connect(config, "", Arc::new(Stats::default())).await.expect("the bucket is there"));
    contract(store, &Behind(&server), &objects).await;
    assert_eq!(server.counters().refused, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_with_signatures_keeps_the_contract() {
    holds(Some(Credentials { access_key: "AKIDTESTONLY".to_owned(), secret_key: "s3cr3tTestOnly".to_owned(), session_token: None })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn anonymous_s3_keeps_the_contract() {
    holds(None).await;
}
