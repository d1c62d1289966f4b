//! Settings → parts, one function each.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::oneshot;

use crate::cache::{CacheConfig, DiskTier, TieredCache, automatic_bytes, tier_counters, write_automatic_bytes};
use crate::config::machine;
use crate::config::{KernelFeature, OnChange, Orders, Settings, StoreFeature, Verify};
use crate::daemonize::Ready;
use crate::dataset::samples::samples;
use crate::dataset::{Manifest, Node};
use crate::fs::{self, FsConfig};
use crate::fuse::{Feature, MountConfig, default_threads};
use crate::infer::InferConfig;
use crate::observe::record::Recorder;
use crate::observe::recorded::{self, Folder};
use crate::prefetch::Order;
use crate::prefetch::keeping::Keeper;
use crate::stats::{Stats, TierCounters};
use crate::store::aistore::AisConfig;
use crate::store::aistore::bucket::Bucket;
use crate::store::listing::list_all;
use crate::store::open::open;
use crate::store::s3::S3Config;
use crate::store::s3::env_file_value;
use crate::store::url::StoreUrl;
use crate::store::{Store, StoreError};
use crate::types::rule::NameFile;
use crate::types::{ByteSize, FileIndex};

/// Keys between two progress lines of a listing: a few lines a second.
const PROGRESS_KEYS: u64 = 50_000;

/// Searches take a tenth of the cores at most (and one thread at least), at the lowest priority: the trainer's loaders need the rest.
const SEARCH_SHARE_OF_CORES: usize = 10;
/// Orders kept for later runs take this part of the first disk tier at most.
const KEPT_SHARE_OF_DISK: u64 = 50;
/// Longest list in the bucket: the names of 14 M files take less. It is held in memory while the order is built.
const NAMES_BYTES_MAX: u64 = 1 << 30;

/// No timeout of a request is shorter, whatever the read deadline: a slow answer is not a lost one.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);

pub(super) fn url(settings: &Settings) -> Result<StoreUrl, String> {
    settings.url.parse::<StoreUrl>().map_err(|error| error.to_string())
}

pub(super) fn cache_config(settings: &Settings, url: &StoreUrl) -> CacheConfig {
    // a cache folder serves one bucket at one endpoint; the prefix is no part of it: keys are whole keys
    let place = match url {
        StoreUrl::S3 { bucket, .. } => format!("{}|{bucket}", settings.store.endpoint_urls.first().map_or("aws", String::as_str)),
        StoreUrl::Ais { bucket, .. } => {
            // The cluster's own id is known only to who has asked it; the addresses given are, in any order, the cluster to the user.
            let mut endpoints = settings.store.endpoint_urls.clone();
            endpoints.sort();
            endpoints.dedup();
            format!("ais|{}|{}|{}|{}", endpoints.join("+"), bucket.provider, bucket.namespace, bucket.name)
        }
        StoreUrl::Directory { path } => path.display().to_string(),
    };
    let namespace = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(place.as_bytes()));
    let disks = settings.tiers.iter().map(|tier| DiskTier {
        name: tier.name.clone(),
        path: tier.path.clone(),
        bytes: if tier.automatic { automatic_bytes(&tier.path, &namespace, tier.capacity.0) } else { tier.capacity.0 },
        namespace: namespace.clone(),
    });
    CacheConfig {
        memory: (settings.memory.0 > 0).then_some(settings.memory.0),
        disks: disks.collect(),
        verify_always: settings.verify == Verify::Always,
        memory_in_heap: !settings.may_use(KernelFeature::Tmpfs),
        ..CacheConfig::default()
    }
}

pub(super) fn stats(settings: &Settings, tiers: &CacheConfig) -> Stats {
    Stats {
        url: settings.url.clone(),
        mountpoint: settings.mountpoint.display().to_string(),
        finds_orders: matches!(settings.orders, Orders::Auto),
        tiers: tier_counters(tiers),
        ..Stats::default()
    }
}

pub(super) async fn store(settings: &Settings, url: &StoreUrl, stats: &Arc<Stats>) -> Result<Arc<dyn Store>, String> {
    let said = &settings.store;
    let usual = S3Config::new("");
    // A request that hangs must end while its readers still wait, and leave them time for another.
    let share = (settings.read_deadline / 3).max(TIMEOUT_MIN);
    let config = S3Config {
        endpoint_url: said.endpoint_urls.first().cloned(),
        region: said.region.clone(),
        profile: said.profile.clone(),
        credentials_file: said.credentials_file.clone(),
        env_file: said.env_file.clone(),
        no_sign_request: said.no_sign_request,
        requester_pays: said.requester_pays,
        force_path_style: said.force_path_style,
        ca_bundle: said.ca_bundle.clone(),
        max_connections: settings.max_connections as usize,
        connect_timeout: usual.connect_timeout.min(share),
        first_byte_timeout: usual.first_byte_timeout.min(share),
        idle_timeout: usual.idle_timeout.min(share),
        ..usual
    };
    let ais = ais(settings, share).map_err(|error| error.to_string())?;
    open(url, &config, &ais, stats).await.map_err(|error| error.to_string())
}

/// How an AIStore cluster is reached: what was said, and what its own programs take from the environment (or from --env-file).
fn ais(settings: &Settings, share: Duration) -> Result<AisConfig, StoreError> {
    let said = &settings.store;
    let usual = AisConfig::new(Bucket::new(""), said.endpoint_urls.clone());
    let config = AisConfig {
        ca_bundle: said.ca_bundle.clone(),
        announce: said.announce,
        direct: !settings.disable_store.contains(&StoreFeature::Direct),
        batches: !settings.disable_store.contains(&StoreFeature::Batch),
        max_connections: settings.max_connections as usize,
        connect_timeout: usual.connect_timeout.min(share),
        first_byte_timeout: usual.first_byte_timeout.min(share),
        idle_timeout: usual.idle_timeout.min(share),
        ..usual
    };
    let file = said.env_file.as_deref().and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    config.from_environment(&|name| env_file_value(&file, name).or_else(|| machine::variable(name)))
}

/// The complete namespace, or an error.
pub(super) async fn manifest(
    settings: &Settings,
    url: &StoreUrl,
    store: &Arc<dyn Store>,
    stats: &Stats,
    ready: &Ready,
) -> Result<Manifest, String> {
    let told = std::sync::atomic::AtomicU64::new(0);
    let progress = |keys: u64| {
        let step = keys / PROGRESS_KEYS;
        if told.swap(step, std::sync::atomic::Ordering::Relaxed) < step {
            ready.progress(&format!("listing {}: {keys} keys so far", settings.url));
        }
    };
    let objects = list_all(store, url.prefix(), &progress).await.map_err(|error| format!("listing {}: {error}", settings.url))?;
    let prefix = url.prefix().to_owned();
    let manifest = tokio::task::spawn_blocking(move || Manifest::build(&prefix, objects)).await.map_err(|error| error.to_string())?;
    stats.namespace.objects.set(manifest.len() as u64);
    stats.namespace.bytes.set(manifest.total_bytes());
    stats.namespace.hidden_keys.set(manifest.hidden_keys());
    stats.namespace.listing.set(1);
    for (reason, count, example) in manifest.hidden().iter() {
        let note = format!("{count} keys cannot be shown as files ({}), for example {example:?}", reason.name());
        tracing::warn!("{note}");
        stats.note(note);
    }
    if manifest.is_empty() {
        // no error: an empty bucket may be mounted; but a prefix with a typo looks the same
        let note = format!("nothing is below {}: check the prefix, or mount again when it is filled", settings.url);
        tracing::warn!("{note}");
        stats.note(note);
    }
    manifest.id().clone_into(&mut stats.manifest_id.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    if let Some(expected) = settings.expect_manifest.as_deref().filter(|expected| *expected != manifest.id()) {
        return Err(format!(
            "the manifest of {} is {}, not {expected} as --expect-manifest says: the nodes of a job would disagree on the order; list again \
             after writers have finished, or take the new id",
            settings.url,
            manifest.id()
        ));
    }
    Ok(manifest)
}

/// The declared orders, each with its files.
pub(super) async fn orders(settings: &Settings, manifest: &Manifest, store: &Arc<dyn Store>) -> Result<Vec<Order>, String> {
    let Orders::Declared(specs) = &settings.orders else { return Ok(Vec::new()) };
    let mut orders = Vec::with_capacity(specs.len());
    for spec in specs {
        let text = match spec.files.names() {
            None => None,
            Some(NameFile::Local(path)) => Some(
                std::fs::read_to_string(path).map_err(|error| format!("the list {} of --order cannot be read: {error}", path.display()))?,
            ),
            Some(NameFile::Mount(path)) => {
                Some(text_in_mount(manifest, store, path).await.map_err(|error| format!("the list {path} of --order: {error}"))?)
            }
        };
        let files = samples(manifest, &spec.root, &spec.files, text.as_deref()).map_err(|error| format!("--order {}: {error}", spec.id))?;
        let count = u32::try_from(files.len()).map_err(|_| format!("--order {}: more than 2^32 samples", spec.id))?;
        let sampler = spec.sampler(count).map_err(|error| format!("--order: {error}"))?;
        orders.push(Order { spec: spec.clone(), sampler, samples: Arc::<[FileIndex]>::from(files) });
    }
    Ok(orders)
}

/// How orders are found out, if they are.
pub(super) fn infer(settings: &Settings) -> Option<InferConfig> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    matches!(settings.orders, Orders::Auto).then(|| InferConfig {
        threads: settings.search_threads.map_or((cores / SEARCH_SHARE_OF_CORES).max(1), |threads| threads as usize),
        exhaustive: settings.search_exhaustive,
        ..InferConfig::default()
    })
}

/// The whole of a text that lies in the bucket.
async fn text_in_mount(manifest: &Manifest, store: &Arc<dyn Store>, path: &str) -> Result<String, String> {
    let Some(Node::File(file)) = manifest.find(path) else { return Err("there is no such file in the mount".to_owned()) };
    let object = manifest.object(file);
    if object.size > NAMES_BYTES_MAX {
        return Err(format!("it has {} bytes, more than {NAMES_BYTES_MAX}", object.size));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(object.size).unwrap_or(0));
    if object.size > 0 {
        let mut body = store.read(&object.version(), 0..object.size).await.map_err(|error| error.to_string())?;
        while let Some(chunk) = body.next().await {
            bytes.extend_from_slice(&chunk.map_err(|error| error.to_string())?);
        }
    }
    String::from_utf8(bytes).map_err(|_| "it is no UTF-8 text".to_owned())
}

/// The record of opens, where one is asked for.
pub(super) fn recorder(settings: &Settings, manifest: &Arc<Manifest>, stats: &Arc<Stats>) -> Result<Option<Recorder>, String> {
    let Some(path) = &settings.record_opens else { return Ok(None) };
    let recorder = Recorder::start(path, Arc::clone(manifest), Arc::clone(stats));
    recorder.map(Some).map_err(|error| format!("--record-opens {}: {error}", path.display()))
}

/// Where orders are kept for later runs: beside the first disk tier's files, when that tier has been built (its folder is known to be ours).
pub(super) fn keeper(tiers: &CacheConfig, manifest: &Arc<Manifest>, stats: &Arc<Stats>) -> Option<Keeper> {
    let disk = tiers.disks.iter().find(|disk| disk.bytes > 0)?;
    let bytes_max = recorded::BYTES_MAX.min(disk.bytes / KEPT_SHARE_OF_DISK);
    let folder = Folder::new(disk.path.join(&disk.namespace).join("orders"), bytes_max);
    Some(Keeper::new(folder, Arc::clone(manifest), Arc::clone(stats)))
}

/// The tiers, and word of when all that an earlier run left is known: the scan goes on in the background, reads do not wait for it.
pub(super) async fn cache(
    settings: &Settings,
    config: CacheConfig,
    stats: &Arc<Stats>,
) -> Result<(Arc<TieredCache>, oneshot::Receiver<()>), String> {
    let on_disk = !config.disks.is_empty();
    let (tell, scanned) = oneshot::channel();
    let counted = Arc::clone(stats);
    let automatic: Vec<bool> = settings.tiers.iter().map(|tier| tier.automatic).collect();
    let build = move || {
        let built = TieredCache::new(config.clone(), counted);
        for (disk, _) in config.disks.iter().zip(automatic).filter(|(_, automatic)| *automatic && built.is_ok()) {
            write_automatic_bytes(&disk.path, &disk.namespace, disk.bytes);
        }
        built
    };
    let built = tokio::task::spawn_blocking(build).await.map_err(|error| error.to_string())?;
    let (cache, notes) = built.map_err(|error| error.to_string())?;
    for note in notes {
        tracing::warn!("{note}");
        stats.note(note);
    }
    if on_disk {
        let cache = Arc::clone(&cache);
        tokio::task::spawn_blocking(move || {
            let found = cache.recover();
            tracing::info!(files = found.files, bytes = found.bytes, removed = found.removed, "the cache directory is scanned");
            // nobody listens when no order is declared
            let _ = tell.send(());
        });
    } else {
        let _ = tell.send(());
    }
    Ok((cache, scanned))
}

pub(super) const fn fs_config(settings: &Settings) -> FsConfig {
    FsConfig {
        file_mode: settings.file_mode,
        dir_mode: settings.dir_mode,
        read_deadline: settings.read_deadline,
        on_change: match settings.on_change {
            OnChange::ServeNew => fs::OnChange::ServeNew,
            OnChange::Fail => fs::OnChange::Fail,
        },
        ..FsConfig::owned_by(settings.uid, settings.gid)
    }
}

pub(super) fn mount_config(settings: &Settings) -> Result<MountConfig, String> {
    let disable: BTreeSet<Feature> = settings
        .disable_kernel
        .iter()
        .filter_map(|feature| match feature {
            KernelFeature::Passthrough => Some(Feature::Passthrough),
            KernelFeature::ReaddirPlus => Some(Feature::Readdirplus),
            KernelFeature::KeepCache => Some(Feature::KeepCache),
            KernelFeature::ParallelDirops => Some(Feature::ParallelDirops),
            KernelFeature::ReadAhead => Some(Feature::Readahead),
            KernelFeature::Tmpfs => None, // the cache's
        })
        .collect();
    Ok(MountConfig {
        mountpoint: settings.mountpoint.clone(),
        fsname: settings.url.clone(),
        allow_other: settings.allow_other,
        threads: default_threads(),
        nonempty: false,
        disable,
    })
}

/// The line a user sees when the mount answers: what is in force.
pub(super) fn summary(settings: &Settings, stats: &Stats, listening: Option<SocketAddr>) -> String {
    let size = |tier: &TierCounters| ByteSize(tier.capacity_bytes.get());
    let place = |tier: &TierCounters| if tier.path.is_empty() { String::new() } else { format!(" at {}", tier.path) };
    let mut tiers: Vec<String> = stats.tiers.iter().map(|tier| format!("{} {}{}", tier.name, size(tier), place(tier))).collect();
    if tiers.is_empty() {
        tiers.push("no cache".to_owned());
    }
    let order = match &settings.orders {
        Orders::Declared(specs) => specs.iter().map(|spec| format!("{} ({})", spec.id, spec.kind)).collect::<Vec<_>>().join(", "),
        Orders::Auto => "to be found in the opens".to_owned(),
        Orders::None => "none".to_owned(),
    };
    let more = if settings.tiers.is_empty() { "; --cache-dir adds a disk tier that survives restarts" } else { "" };
    // the port is news where 0 was asked for
    let nothing = if stats.namespace.objects.get() == 0 { " (nothing is there: check the prefix)" } else { "" };
    let metrics = listening.map(|address| format!("; http://{address}/metrics")).unwrap_or_default();
    format!(
        "{} on {}: {} files, {}{nothing}; {}; order {order}{metrics}{more}",
        settings.url,
        settings.mountpoint.display(),
        stats.namespace.objects.get(),
        ByteSize(stats.namespace.bytes.get()),
        tiers.join(", "),
    )
}
