//! From an address to a store that has been seen to answer: the one constructor.

use std::sync::Arc;

use crate::stats::Stats;
use crate::store::aistore::{AisConfig, AisStore};
use crate::store::directory::DirectoryStore;
use crate::store::s3::{S3Config, S3Store};
use crate::store::url::StoreUrl;
use crate::store::{Store, StoreError};

/// Opens the store at `url` and checks with one small list (a directory: by reading it) that it can be used. `s3` is used for `s3://`, `ais`
/// for `ais://`; the bucket is the one of the URL.
///
/// # Errors
/// One line that names the cause (bucket, keys, permission, endpoint, TLS, directory) and the remedy.
pub async fn open(url: &StoreUrl, s3: &S3Config, ais: &AisConfig, stats: &Arc<Stats>) -> Result<Arc<dyn Store>, StoreError> {
    match url {
        StoreUrl::S3 { bucket, prefix } => {
            let config = S3Config { bucket: bucket.clone(), ..s3.clone() };
            Ok(Arc::new(S3Store::connect(config, prefix, Arc::clone(stats)).await?))
        }
        StoreUrl::Ais { bucket, prefix } => {
            let config = AisConfig { bucket: bucket.clone(), ..ais.clone() };
            Ok(Arc::new(AisStore::connect(config, prefix, Arc::clone(stats)).await?))
        }
        StoreUrl::Directory { path } => Ok(Arc::new(DirectoryStore::open(path, Arc::clone(stats)).await?)),
    }
}
