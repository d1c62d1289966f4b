//! The same cold reads through other mounts: rclone where it is installed, mountpoint-s3 where the variable MOUNT_S3 names the program.
//! Each is mounted as its users would for training, lists the directories first, and gets a fresh cache.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use belady::demo::raw::plain_gets;

use crate::reader::{Found, How, Job, read};
use crate::rig::{BUCKET, Mount, Store, User, as_user, home};
use crate::scene::{ORDER, Scene};
use crate::table::{Table, median};
use crate::{Failure, Options, say, show};

/// A peer reads so slowly that this many files are enough.
const FIRST: usize = 800;
const CONNECTIONS: usize = 64;

/// Whose mount.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Peer {
    Belady(&'static str),
    Rclone,
    Mountpoint(OsString),
}

#[derive(Clone)]
struct Run {
    found: Found,
    scan_seconds: f64,
    cpu_ms: f64,
    peak_megabytes: f64,
    again: Found,
    again_ms: f64,
}

#[expect(clippy::disallowed_methods, reason = "a program that is not installed by any package has no other place to be named")]
fn peers() -> Vec<(&'static str, Peer)> {
    let mut peers = vec![("belady, order declared", Peer::Belady(ORDER)), ("belady, order none", Peer::Belady("none"))];
    let version = Command::new("rclone").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if version.is_ok_and(|status| status.success()) {
        peers.push(("rclone, --vfs-cache-mode full", Peer::Rclone));
    }
    if let Ok(program) = std::env::var("MOUNT_S3") {
        peers.push(("mountpoint-s3, --cache", Peer::Mountpoint(program.into())));
    }
    peers
}

pub(crate) async fn run(options: &Options) -> Result<(), Failure> {
    let scene = Scene::new(options.files, options.mean_bytes);
    let delay_ms = options.delay_ms.unwrap_or(30);
    let store = Store::serve(scene.files, scene.mean_bytes, delay_ms)?;
    let peers = peers();
    let (mut raws, mut runs) = (Vec::new(), vec![Vec::new(); peers.len()]);
    for rep in 0..options.reps {
        let raw = plain_gets(store.address, BUCKET, scene.wanted(ORDER, 0, FIRST)?, CONNECTIONS).await?;
        raws.push(raw.files_per_second());
        for ((name, peer), runs) in peers.iter().zip(&mut runs) {
            say(&format!("peers, {name}, repetition {rep}"));
            runs.push(one(options, &scene, &store, peer).await?);
        }
    }
    let mut table = Table::new(&[
        "",
        "files/s",
        "÷ raw",
        "p50 ms",
        "p99 ms",
        "CPU ms/file",
        "listing s",
        "again files/s",
        "again CPU ms/file",
        "peak MB",
    ]);
    let raw = median(raws);
    let blank = String::new;
    let name = format!("plain GETs, {CONNECTIONS} connections");
    table.row([name, format!("{raw:.0}"), "1".into(), blank(), blank(), blank(), blank(), blank(), blank(), blank()]);
    for ((name, _), runs) in peers.iter().zip(&runs) {
        let of = |value: fn(&Run) -> f64| median(runs.iter().map(value));
        table.row([
            (*name).to_owned(),
            format!("{:.0}", of(|run| run.found.files_per_second())),
            format!("{:.3}", of(|run| run.found.files_per_second()) / raw),
            format!("{:.1}", of(|run| run.found.p50_ms)),
            format!("{:.1}", of(|run| run.found.p99_ms)),
            format!("{:.2}", of(|run| run.cpu_ms)),
            format!("{:.2}", of(|run| run.scan_seconds)),
            format!("{:.0}", of(|run| run.again.files_per_second())),
            format!("{:.2}", of(|run| run.again_ms)),
            format!("{:.0}", of(|run| run.peak_megabytes)),
        ]);
    }
    show(&format!(
        "First byte after {delay_ms} ms, {FIRST} of {} files cold, then the same again, {} reader threads, median of {}:\n\n{table}",
        scene.files, options.threads, options.reps
    ))
}

async fn one(options: &Options, scene: &Scene, store: &Store, peer: &Peer) -> Result<Run, Failure> {
    let begun = std::time::Instant::now();
    let mount = match peer {
        Peer::Belady(order) => Mount::belady(store, User::Root, scene.all(), &["--order", order]).await?,
        Peer::Rclone => rclone(store).await?,
        Peer::Mountpoint(program) => mountpoint(store, program).await?,
    };
    let listed = walk(&mount.dir.join("train"))?;
    if listed != scene.files {
        return Err(format!("{peer:?} lists {listed} of {} files", scene.files).into());
    }
    let scan_seconds = begun.elapsed().as_secs_f64();
    let job = Job {
        root: mount.dir.clone(),
        files: scene.files,
        mean_bytes: scene.mean_bytes,
        order: ORDER.to_owned(),
        epoch: 0,
        first: FIRST,
        threads: options.threads,
        compare_every: 16,
        how: How::Files,
    };
    let timed = || -> Result<(Found, f64), Failure> {
        let before = mount.cpu();
        let found = read(&job, mount.user())?;
        let cpu_ms = found.per_file(mount.cpu() - before);
        Ok((found, cpu_ms))
    };
    let ((found, cpu_ms), (again, again_ms)) = (timed()?, timed()?);
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let peak_megabytes = mount.peak_bytes() as f64 / 1e6;
    mount.end().await?;
    Ok(Run { found, scan_seconds, cpu_ms, peak_megabytes, again, again_ms })
}

/// Files below, as `find -type f` counts them.
fn walk(dir: &Path) -> Result<u32, Failure> {
    let mut files = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        files += if entry.file_type()?.is_dir() { walk(&entry.path())? } else { 1 };
    }
    Ok(files)
}

async fn rclone(store: &Store) -> Result<Mount, Failure> {
    let home = home(User::Root)?;
    let config = home.path().join("rclone.conf");
    let keys = "access_key_id = a\nsecret_access_key = b\nregion = us-east-1";
    std::fs::write(&config, format!("[s3]\ntype = s3\nprovider = Other\n{keys}\nendpoint = {}\n", store.url()))?;
    let mut command = as_user(User::Root, "rclone");
    command.arg("--config").arg(config).arg("mount").arg(format!("s3:{BUCKET}")).arg(home.path().join("mnt"));
    command.args(["--read-only", "--vfs-cache-mode", "full", "--cache-dir"]).arg(home.path().join("cache"));
    command.args(["--dir-cache-time", "1h", "--use-server-modtime", "--no-checksum"]);
    Mount::start(command, home, User::Root).await
}

async fn mountpoint(store: &Store, program: &OsString) -> Result<Mount, Failure> {
    let home = home(User::Root)?;
    let mut command = as_user(User::Root, program);
    command.arg(BUCKET).arg(home.path().join("mnt")).args(["--endpoint-url", &store.url(), "--force-path-style", "--no-sign-request"]);
    command.args(["--region", "us-east-1", "--read-only", "--metadata-ttl", "indefinite", "--cache"]).arg(home.path().join("cache"));
    // Without a figure it asks the metadata service of a cloud for one.
    command.args(["--maximum-throughput-gbps", "10", "--foreground"]);
    Mount::start(command, home, User::Root).await
}
