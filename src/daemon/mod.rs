//! One mount, from settings to the end: assembles the parts, mounts, serves, drains in order. It decides nothing that a part could.
//!
//! Order at the start: store (checked) → listing (complete) → orders → tiers → door → file system → kernel → control socket → «ready». A failure
//! anywhere is one line, and nothing stays mounted. Order at the end: out of the tree → open files served until closed, or the grace
//! is over → tasks → tiers.

mod assemble;
pub mod pressure;

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::config::{Orders, Settings};
use crate::control::{Answer, Info, Request, server, socket_path};
use crate::daemonize::{Ready, Stop};
use crate::fetch::{Door, DoorConfig};
use crate::fs::control::{ControlFile, ControlFiles};
use crate::fs::{BeladyFs, FsConfig};
use crate::fuse::{self, MountError, Mounted, Unmount};
use crate::order::spec::OrderSpec;
use crate::prefetch;
use crate::stats::snapshot::Snapshot;
use crate::stats::{Stats, serve, text};
use crate::types::FileIndex;

use pressure::Watch;

/// Read events that wait for the planner: a second of opens at 64,000 a second; 32 B each.
const READ_EVENTS_MAX: usize = 1 << 16;
/// Orders found elsewhere that wait for the planner: one for each part of a dataset and then some.
const IMPORTS_MAX: usize = 64;
/// Landings that wait for the planner: more than can be in flight.
const DOOR_EVENTS_MAX: usize = 1 << 13;
/// After a signal, open files are served this long: container runtimes kill after 10 s by default.
const GRACE: Duration = Duration::from_secs(8);

/// A mount with everything that belongs to it.
struct Running {
    mounted: Arc<Mounted>,
    stats: Arc<Stats>,
    began: Instant,
    stopping: watch::Sender<bool>,
    prefetch: Option<tokio::task::JoinHandle<()>>,
    pressure: Option<tokio::task::JoinHandle<()>>,
    /// Orders found elsewhere, for the planner's task.
    imports: mpsc::Sender<OrderSpec>,
}

/// Serves `settings` until told to stop, or unmounted from outside.
///
/// # Errors
/// One line with cause and remedy; `ready` has told it.
pub async fn run(settings: Settings, ready: Ready, stop: mpsc::Receiver<Stop>) -> Result<(), String> {
    run_watching(settings, ready, stop, Watch::here()).await
}

/// As [`run`], with the memory figures of `watch`.
///
/// # Errors
/// As [`run`].
pub async fn run_watching(settings: Settings, ready: Ready, mut stop: mpsc::Receiver<Stop>, watch: Watch) -> Result<(), String> {
    let started = tokio::select! {
        started = start(&settings, &ready, watch) => started,
        _ = stop.recv() => Err("interrupted before the mount answered".to_owned()),
        () = ready.abandoned() => Err("the command was interrupted before the mount answered".to_owned()),
    };
    let (running, control) = match started {
        Ok(started) => started,
        Err(error) => {
            ready.failed(&error);
            return Err(error);
        }
    };
    let (ask_unmount, mut unmount_asked) = mpsc::channel(1);
    let mut tasks = vec![tokio::spawn(control.serve(handler(&settings, &running, ask_unmount), ended(running.stopping.subscribe())))];
    let mut listening = None;
    if let Some(address) = settings.listen {
        match serve::bind(address).await {
            Ok(listener) => {
                listening = listener.local_addr().ok();
                let source = snapshots(&running);
                tasks.push(tokio::spawn(serve::serve(listener, source, ended(running.stopping.subscribe()))));
            }
            Err(error) => {
                ready.failed(&error);
                drain(running, tasks, Some(GRACE)).await;
                return Err(error);
            }
        }
    }
    if ready.ready(&assemble::summary(&settings, &running.stats, listening)).is_err() {
        drain(running, tasks, Some(GRACE)).await;
        return Ok(());
    }
    tracing::info!(url = %settings.url, mountpoint = %settings.mountpoint.display(), "mounted");
    let gone = Arc::clone(&running.mounted);
    let grace = tokio::select! {
        () = gone.wait() => None,
        // whoever unmounts lazily wants open files served until they are closed
        _ = unmount_asked.recv() => None,
        _ = stop.recv() => Some(GRACE),
    };
    drop(gone);
    tokio::select! {
        () = drain(running, tasks, grace) => {}
        Some(Stop::Drain | Stop::Now) = stop.recv() => tracing::warn!("asked to stop a second time: open files are cut off"),
    }
    Ok(())
}

/// Everything up to the point where the mount answers.
async fn start(settings: &Settings, ready: &Ready, watch: Watch) -> Result<(Running, server::Server), String> {
    let control = server::bind(&socket_path(&settings.runtime_dir, &settings.mountpoint))?;
    let url = assemble::url(settings)?;
    let tiers = assemble::cache_config(settings, &url);
    let stats = Arc::new(assemble::stats(settings, &tiers));
    let store = assemble::store(settings, &url, &stats).await?;
    let manifest = Arc::new(assemble::manifest(settings, &url, &store, &stats, ready).await?);
    let orders = assemble::orders(settings, &manifest, &store).await?;
    *stats.computing.lock().unwrap_or_else(PoisonError::into_inner) = orders.iter().map(|order| order.spec.to_string()).collect();
    let keeper = assemble::keeper(&tiers, &manifest, &stats);
    let (cache, scanned) = assemble::cache(settings, tiers, &stats).await?;

    let (stopping, stop) = watch::channel(false);
    let infer = assemble::infer(settings);
    let recorder = assemble::recorder(settings, &manifest, &stats)?;
    let with_plan = !orders.is_empty() || infer.is_some() || recorder.is_some();
    let (import, imports) = mpsc::channel(IMPORTS_MAX);
    let (door_events, landings) = mpsc::channel(DOOR_EVENTS_MAX);
    let (read_events, reads) = mpsc::channel(READ_EVENTS_MAX);
    let door_config = DoorConfig {
        max_requests: settings.max_requests as usize,
        max_bandwidth: settings.max_bandwidth.map(|size| size.0),
        read_deadline: settings.read_deadline,
    };
    let runtime = Handle::current();
    let door = Door::new(store, cache, Arc::clone(&stats), runtime.clone(), door_config, with_plan.then_some(door_events));
    let began = Instant::now();
    let config = FsConfig { count_accesses: !with_plan, ..assemble::fs_config(settings) };
    let control_files = control_files(settings, &stats, began);
    let fs = BeladyFs::new(
        config,
        Arc::clone(&manifest),
        Arc::clone(&door),
        with_plan.then_some(read_events),
        Arc::clone(&stats),
        control_files,
        runtime,
    );

    let (mount_fs, mount_config) = (Arc::clone(&fs), assemble::mount_config(settings)?);
    let mounted = tokio::task::spawn_blocking(move || fuse::mount(&mount_fs, mount_config))
        .await
        .map_err(|error| format!("mounting failed: {error}"))?
        .map_err(|error| error.to_string())?;
    let mounted = Arc::new(mounted);

    let (limit, memory_limit) = watch::channel(settings.memory.0);
    let pressure = (settings.memory.0 > 0).then(|| {
        let mean_file = manifest.total_bytes() / (manifest.len() as u64).max(1);
        let (door, stats) = (Arc::clone(&door), Arc::clone(&stats));
        let parts = pressure::Parts { watch, door, stats, configured: settings.memory.0, mean_file, limit };
        tokio::spawn(pressure::run(parts, stop.clone()))
    });
    let prefetch = with_plan.then(|| {
        let (objects, inodes, invalidator) = (Arc::clone(&fs), Arc::clone(&fs), mounted.invalidator());
        let parts = prefetch::Parts {
            manifest,
            door,
            stats: Arc::clone(&stats),
            orders,
            infer,
            peek: settings.peek,
            imports,
            keeper,
            recorder,
            scanned,
            memory_limit,
            object: Arc::new(move |file: FileIndex| objects.object(file)),
            invalidate: Arc::new(move |file: FileIndex| drop_pages(&invalidator, inodes.ino(file))),
        };
        tokio::spawn(prefetch::run(parts, reads, landings, stop))
    });
    Ok((Running { mounted, stats, began, stopping, prefetch, pressure, imports: import }, control))
}

/// Best effort: pages that stay after a full queue are the kernel's to reclaim.
fn drop_pages(invalidator: &fuse::Invalidator, ino: u64) {
    if !invalidator.inval(ino) {
        tracing::debug!(ino, "the invalidation queue is full");
    }
}

/// Out of the tree, then the open files (`grace`: no longer than that), then the tasks.
async fn drain(running: Running, tasks: Vec<tokio::task::JoinHandle<()>>, grace: Option<Duration>) {
    let Running { mounted, stopping, prefetch, pressure, .. } = running;
    let unmount = Arc::clone(&mounted);
    if !mounted.has_ended() {
        match tokio::task::spawn_blocking(move || unmount.unmount(Unmount::Lazy)).await {
            // somebody was faster
            Ok(Err(MountError::NotMounted(_))) => {}
            Ok(Err(error)) if !mounted.has_ended() => tracing::warn!(%error, "unmounting"),
            _ => {}
        }
    }
    match grace {
        None => mounted.wait().await,
        Some(grace) if tokio::time::timeout(grace, mounted.wait()).await.is_err() => {
            tracing::warn!("files are still open {} s after the unmount: they are cut off", grace.as_secs());
        }
        Some(_) => {}
    }
    stopping.send_replace(true);
    for task in prefetch.into_iter().chain(pressure).chain(tasks) {
        // each ends on `stopping`; one that panicked has been logged by the runtime
        let _ = tokio::time::timeout(Duration::from_secs(1), task).await;
    }
}

async fn ended(mut stopping: watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await;
}

fn snapshots(running: &Running) -> Arc<dyn Fn() -> Snapshot + Send + Sync> {
    let (stats, began) = (Arc::clone(&running.stats), running.began);
    Arc::new(move || Snapshot::take(&stats, began.elapsed()))
}

fn handler(settings: &Settings, running: &Running, ask_unmount: mpsc::Sender<()>) -> Arc<dyn crate::control::Handler> {
    let (snapshot, began, mounted) = (snapshots(running), running.began, Arc::downgrade(&running.mounted));
    let (url, mountpoint) = (settings.url.clone(), settings.mountpoint.clone());
    let (imports, finds) = (running.imports.clone(), matches!(settings.orders, Orders::Auto));
    Arc::new(move |request: Request| match request {
        Request::Stats => Answer::Stats { snapshot: Box::new(snapshot()) },
        Request::Info => Answer::Info(Info {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            url: url.clone(),
            mountpoint: mountpoint.clone(),
            pid: std::process::id(),
            uptime_seconds: began.elapsed().as_secs_f64(),
        }),
        Request::OrderImport { order } => match order.parse::<OrderSpec>() {
            _ if !finds => Answer::Error { message: "this mount finds no orders out: mount with --order auto".to_owned() },
            Ok(spec) => match imports.try_send(spec) {
                Ok(()) => Answer::Done,
                Err(_) => Answer::Error { message: "the mount cannot take another order now: try again".to_owned() },
            },
            Err(error) => Answer::Error { message: error.to_string() },
        },
        Request::Unmount { lazy } => {
            let how = if lazy { Unmount::Lazy } else { Unmount::WhenIdle };
            let result = mounted.upgrade().map_or(Ok(()), |mounted| tokio::task::block_in_place(|| mounted.unmount(how)));
            match result {
                Ok(()) => {
                    // full: it is being stopped already
                    let _ = ask_unmount.try_send(());
                    Answer::Done
                }
                Err(error) => Answer::Error { message: error.to_string() },
            }
        }
    })
}

fn control_files(settings: &Settings, stats: &Arc<Stats>, began: Instant) -> ControlFiles {
    let (stats, config) = (Arc::clone(stats), crate::config::print::render(settings));
    ControlFiles(Arc::new(move |file| match file {
        ControlFile::Stats => text::render(&Snapshot::take(&stats, began.elapsed()), None).into_bytes(),
        ControlFile::StatsJson => (Snapshot::take(&stats, began.elapsed()).to_json() + "\n").into_bytes(),
        ControlFile::Config => config.clone().into_bytes(),
        ControlFile::Order => prefetch::predicted(&stats).into_bytes(),
    }))
}
