//! One large cached file, read from begin to end by one thread, beside local files with the same bytes. The mounts' page cache is dropped
//! before each pass: what is measured is how the bytes come from the cache.

use std::io::{BufWriter, Write};
use std::path::Path;

use crate::reader::{Found, How, Job, read};
use crate::rig::{Store, User, number};
use crate::scene::{ORDER, Scene};
use crate::table::{Table, median};
use crate::warm::{COLUMNS, mount};
use crate::{Failure, Options, say, show};

/// Mean of the one file, unless told: its size is drawn from the dataset's distribution.
const MEAN_BYTES: u64 = 1_000_000_000;
/// Passes until all of it is cached: sequential reading completes a file in one, the second finds it so.
const FILL_PASSES: usize = 2;

struct Run {
    found: Found,
    daemon_seconds: f64,
    to_native: f64,
    requests: u64,
    passthrough: u64,
}

pub(crate) async fn run(options: &Options) -> Result<(), Failure> {
    let mean_bytes = if options.mean_bytes > 16 << 20 { options.mean_bytes } else { MEAN_BYTES };
    let scene = Scene::new(1, mean_bytes);
    let store = Store::serve(1, mean_bytes, options.delay_ms.unwrap_or(0))?;
    // The local file system, and a tmpfs, which is what the memory tier is.
    let locals = [std::env::temp_dir(), "/dev/shm".into()];
    let locals = locals.map(|dir| tempfile::Builder::new().prefix("belady-epoch-").tempdir_in(dir));
    let locals: Vec<_> = locals.into_iter().collect::<Result<_, _>>()?;
    let job = |root: &Path, how: How, compare_every: usize| Job {
        root: root.to_owned(),
        files: 1,
        mean_bytes,
        order: ORDER.to_owned(),
        epoch: 0,
        first: 1,
        threads: 1,
        compare_every,
        how,
    };
    for local in &locals {
        say("large: writing a local copy");
        write_local(&scene, local.path())?;
        read(&job(local.path(), How::Stream, 1), User::Root)?;
    }
    let mut mounts = Vec::new();
    for column in COLUMNS {
        say(&format!("large: filling, {}", column.0));
        let Some(mount) = mount(&store, &scene, &column, "none").await? else { continue };
        for _ in 0..FILL_PASSES {
            read(&job(&mount.dir, How::StreamCold, 1), mount.user())?;
        }
        mounts.push((column.0, mount));
    }
    let (mut natives, mut runs) = ([Vec::new(), Vec::new()], mounts.iter().map(|_| Vec::new()).collect::<Vec<_>>());
    for rep in 0..options.reps {
        say(&format!("large, repetition {rep}"));
        for (local, natives) in locals.iter().zip(&mut natives) {
            natives.push(read(&job(local.path(), How::Stream, usize::MAX), User::Root)?);
        }
        let native = natives[0][rep].megabytes_per_second();
        for ((_, mount), runs) in mounts.iter().zip(&mut runs) {
            let (stats, before) = (mount.stats()?, mount.cpu());
            let found = read(&job(&mount.dir, How::StreamCold, usize::MAX), mount.user())?;
            let (daemon_seconds, after) = (mount.cpu() - before, mount.stats()?);
            let since = |pointer: &str| number(&after, pointer) - number(&stats, pointer);
            let (requests, passthrough) = (since("/reads/requests"), since("/reads/passthrough_opens"));
            runs.push(Run { to_native: found.megabytes_per_second() / native, daemon_seconds, requests, passthrough, found });
        }
    }
    let text = table(&natives, mounts.iter().map(|(name, _)| *name).zip(&runs));
    for (_, mount) in mounts {
        mount.end().await?;
    }
    show(&format!("One cached file of {} bytes, 1 thread, reads of 1 MiB, median of {}:\n\n{text}", scene.bytes, options.reps))
}

fn table<'a>(natives: &[Vec<Found>; 2], runs: impl Iterator<Item = (&'static str, &'a Vec<Run>)>) -> Table {
    let mut table = Table::new(&["", "MB/s", "÷ local", "CPU s/GB", "of it daemon", "passthrough", "READs"]);
    #[expect(clippy::cast_precision_loss, reason = "sizes far below 2^52")]
    let per_gb = |found: &Found, cpu: f64| cpu / (found.bytes as f64 / 1e9);
    for (name, found) in ["local file system, warm", "tmpfs"].iter().zip(natives) {
        table.row([
            (*name).to_owned(),
            format!("{:.0}", median(found.iter().map(Found::megabytes_per_second))),
            format!("{:.2}", median(found.iter().zip(&natives[0]).map(|(one, local)| local.seconds / one.seconds))),
            format!("{:.3}", median(found.iter().map(|found| per_gb(found, found.cpu_seconds)))),
            "0".to_owned(),
            String::new(),
            String::new(),
        ]);
    }
    for (name, runs) in runs {
        table.row([
            name.to_owned(),
            format!("{:.0}", median(runs.iter().map(|run| run.found.megabytes_per_second()))),
            format!("{:.2}", median(runs.iter().map(|run| run.to_native))),
            format!("{:.3}", median(runs.iter().map(|run| per_gb(&run.found, run.found.cpu_seconds + run.daemon_seconds)))),
            format!("{:.3}", median(runs.iter().map(|run| per_gb(&run.found, run.daemon_seconds)))),
            format!("{}", runs.iter().map(|run| run.passthrough).max().unwrap_or_default()),
            format!("{}", runs.iter().map(|run| run.requests).max().unwrap_or_default()),
        ]);
    }
    table
}

fn write_local(scene: &Scene, root: &Path) -> Result<(), Failure> {
    let entry = scene.entries.first().ok_or("no file")?;
    let path = root.join(&entry.key);
    std::fs::create_dir_all(path.parent().ok_or("a key without a folder")?)?;
    let (mut file, mut position) = (BufWriter::new(std::fs::File::create(path)?), 0);
    while position < entry.content.size() {
        let piece = entry.content.piece(position, entry.content.size());
        file.write_all(&piece)?;
        position += piece.len() as u64;
    }
    Ok(file.flush()?)
}
