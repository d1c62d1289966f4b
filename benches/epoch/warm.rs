//! Cached small files beside a local file system: CPU of a file, reader and daemon together. Three mounts at once, read in turn: all
//! kernel features, without passthrough, and not root; a fourth without passthrough whose page cache is not kept, because elsewhere the
//! page cache may do the work (the READs tell).

use std::path::Path;

use crate::reader::{Found, How, Job, read};
use crate::rig::{Mount, Store, User, number};
use crate::scene::{ORDER, Scene};
use crate::table::{Table, median};
use crate::{Failure, Options, say, show};

/// A way to mount: name, whose it is, arguments.
pub(crate) type Column = (&'static str, User, &'static [&'static str]);

/// The columns of every benchmark of the kernel's side.
pub(crate) const COLUMNS: [Column; 4] = [
    ("all features", User::Root, &[]),
    ("no passthrough", User::Root, &["--disable-kernel", "passthrough"]),
    ("no passthrough, no keep-cache", User::Root, &["--disable-kernel", "passthrough", "--disable-kernel", "keep-cache"]),
    ("not root", User::Nobody, &[]),
];

/// One read of the whole dataset.
struct Run {
    found: Found,
    daemon_ms: f64,
    to_native: f64,
    requests: u64,
    passthrough: u64,
}

pub(crate) async fn run(options: &Options) -> Result<(), Failure> {
    let scene = Scene::new(options.files, options.mean_bytes);
    let store = Store::serve(scene.files, scene.mean_bytes, options.delay_ms.unwrap_or(0))?;
    let local = tempfile::Builder::new().prefix("belady-epoch-").tempdir()?;
    say("warm: writing the local copy");
    write_local(&scene, local.path())?;
    let mut job = Job {
        root: local.path().to_owned(),
        files: scene.files,
        mean_bytes: scene.mean_bytes,
        order: ORDER.to_owned(),
        epoch: 0,
        first: usize::MAX,
        threads: options.threads,
        compare_every: 1,
        how: How::Files,
    };
    read(&job, User::Root)?;
    let mut mounts = Vec::new();
    for column in COLUMNS {
        say(&format!("warm: filling, {}", column.0));
        let Some(mount) = mount(&store, &scene, &column, ORDER).await? else { continue };
        read(&Job { root: mount.dir.clone(), ..job.clone() }, mount.user())?;
        mounts.push((column.0, mount));
    }
    job.compare_every = usize::MAX;
    for threads in [1, options.threads] {
        job.threads = threads;
        let (mut native, mut runs) = (Vec::new(), mounts.iter().map(|_| Vec::new()).collect::<Vec<_>>());
        for rep in 0..options.reps {
            say(&format!("warm, {threads} threads, repetition {rep}"));
            // The epoch that each mount is at: they are read equally often.
            job.epoch += 1;
            let local = read(&Job { root: local.path().to_owned(), ..job.clone() }, User::Root)?;
            for ((_, mount), runs) in mounts.iter().zip(&mut runs) {
                runs.push(mounted(&job, mount, &local)?);
            }
            native.push(local);
        }
        show(&format!(
            "{} cached files of mean {} bytes, {threads} reader threads, median of {}:\n\n{}",
            scene.files,
            scene.mean_bytes,
            options.reps,
            table(&native, mounts.iter().map(|(name, _)| *name).zip(&runs), scene.files)
        ))?;
    }
    for (name, mount) in mounts {
        let stats = mount.stats()?;
        show(&format!("{name}: {}\n", stats["notes"]))?;
        mount.end().await?;
    }
    Ok(())
}

fn table<'a>(native: &[Found], runs: impl Iterator<Item = (&'static str, &'a Vec<Run>)>, files: u32) -> Table {
    let mut table = Table::new(&[
        "",
        "files/s",
        "CPU ms/file",
        "of it reader",
        "of it daemon",
        "÷ native",
        "p50 ms",
        "p99 ms",
        "passthrough",
        "READs/file",
    ]);
    let of = |value: fn(&Found) -> f64| median(native.iter().map(value));
    let cpu = of(|found| found.per_file(found.cpu_seconds));
    table.row([
        "local file system, warm".to_owned(),
        format!("{:.0}", of(Found::files_per_second)),
        format!("{cpu:.4}"),
        format!("{cpu:.4}"),
        "0".to_owned(),
        "1".to_owned(),
        format!("{:.3}", of(|found| found.p50_ms)),
        format!("{:.3}", of(|found| found.p99_ms)),
        String::new(),
        String::new(),
    ]);
    for (name, runs) in runs {
        let of = |value: fn(&Run) -> f64| median(runs.iter().map(value));
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let per_file = |value: fn(&Run) -> u64| median(runs.iter().map(|run| value(run) as f64 / f64::from(files)));
        table.row([
            name.to_owned(),
            format!("{:.0}", of(|run| run.found.files_per_second())),
            format!("{:.4}", of(|run| run.daemon_ms + run.found.per_file(run.found.cpu_seconds))),
            format!("{:.4}", of(|run| run.found.per_file(run.found.cpu_seconds))),
            format!("{:.4}", of(|run| run.daemon_ms)),
            format!("{:.2}", of(|run| run.to_native)),
            format!("{:.3}", of(|run| run.found.p50_ms)),
            format!("{:.3}", of(|run| run.found.p99_ms)),
            format!("{:.3}", per_file(|run| run.passthrough)),
            format!("{:.3}", per_file(|run| run.requests)),
        ]);
    }
    table
}

fn mounted(job: &Job, mount: &Mount, native: &Found) -> Result<Run, Failure> {
    let (stats, before) = (mount.stats()?, mount.cpu());
    let found = read(&Job { root: mount.dir.clone(), ..job.clone() }, mount.user())?;
    let (daemon, after) = (mount.cpu() - before, mount.stats()?);
    let since = |pointer: &str| number(&after, pointer) - number(&stats, pointer);
    let daemon_ms = found.per_file(daemon);
    Ok(Run {
        to_native: (daemon_ms + found.per_file(found.cpu_seconds)) / native.per_file(native.cpu_seconds),
        daemon_ms,
        requests: since("/reads/requests"),
        passthrough: since("/reads/passthrough_opens"),
        found,
    })
}

/// The column's mount; `None`, and the reason told, where it cannot be had here without root.
pub(crate) async fn mount(store: &Store, scene: &Scene, column: &Column, order: &str) -> Result<Option<Mount>, Failure> {
    match Mount::belady(store, column.1, scene.all(), &[&["--order", order], column.2].concat()).await {
        Ok(mount) => Ok(Some(mount)),
        Err(error) if column.1 == User::Nobody => {
            show(&format!("{} is left out: {error}", column.0))?;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The dataset as files, for the yardstick.
pub(crate) fn write_local(scene: &Scene, root: &Path) -> Result<(), Failure> {
    for entry in scene.entries.iter() {
        let path = root.join(&entry.key);
        std::fs::create_dir_all(path.parent().ok_or("a key without a folder")?)?;
        std::fs::write(path, entry.content.to_bytes())?;
    }
    Ok(())
}
