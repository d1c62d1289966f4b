//! Orders that are not the reader's: what a wrong declaration costs beside no declaration, and how soon it is noticed.

use serde_json::Value;
use tokio::time::{Duration, sleep};

use crate::reader::{Found, How, Job, finish, start};
use crate::rig::{Mount, Store, User, number};
use crate::scene::{ORDER, Scene};
use crate::table::{Table, median};
use crate::{Failure, Options, say, show};

/// Without prefetch each thread waits for each file: so many are enough to tell ten percent.
const FIRST: usize = 1_000;
/// How often the mount is asked whether it has noticed.
const LOOK: Duration = Duration::from_millis(5);

/// What is read in truth, and what is declared instead.
struct Case {
    truth: &'static str,
    declared: &'static [(&'static str, &'static str)],
}

const CASES: [Case; 3] = [
    Case {
        truth: ORDER,
        declared: &[("seed 1, read with seed 0", "torch-distributed:seed=1:world=1:rank=0:root=train:files=imagefolder")],
    },
    Case {
        truth: "torch-distributed:seed=0:world=8:rank=0:root=train:files=imagefolder",
        declared: &[
            ("world 4 rank 0, read as world 8 rank 0", "torch-distributed:seed=0:world=4:rank=0:root=train:files=imagefolder"),
            ("world 8 rank 1, read as world 8 rank 0", "torch-distributed:seed=0:world=8:rank=1:root=train:files=imagefolder"),
        ],
    },
    Case {
        truth: "torch-distributed:seed=0:world=4:rank=0:root=train:files=imagefolder",
        declared: &[("world 8 rank 0, read as world 4 rank 0", "torch-distributed:seed=0:world=8:rank=0:root=train:files=imagefolder")],
    },
];

#[derive(Clone)]
struct Run {
    found: Found,
    to_none: f64,
    /// Opens when the mount was first seen to have dropped the order, or to say of it that it is not what is read.
    noticed_after: Option<u64>,
    stats: Value,
}

pub(crate) async fn run(options: &Options) -> Result<(), Failure> {
    let scene = Scene::new(options.files, options.mean_bytes);
    let delay_ms = options.delay_ms.unwrap_or(20);
    let store = Store::serve(scene.files, scene.mean_bytes, delay_ms)?;
    let mut table = Table::new(&["", "files/s", "÷ none", "noticed after opens", "prefetched", "wasted", "store MB ÷ none"]);
    let mut notes = String::new();
    for case in &CASES {
        let (mut none, mut runs) = (Vec::new(), vec![Vec::new(); case.declared.len()]);
        for rep in 0..options.reps {
            say(&format!("wrong, {}, repetition {rep}", case.declared[0].0));
            let base = one(options, &scene, &store, case.truth, "none", None).await?;
            for (declared, runs) in case.declared.iter().zip(&mut runs) {
                runs.push(one(options, &scene, &store, case.truth, declared.1, Some(&base.found)).await?);
            }
            none.push(base);
        }
        let of_none = median(none.iter().map(|run| run.found.files_per_second()));
        let bytes_of_none = median(none.iter().map(|run| bytes(&run.stats)));
        table.row(["none".to_owned(), format!("{of_none:.0}"), "1".into(), String::new(), "0".into(), "0".into(), "1".into()]);
        for (declared, runs) in case.declared.iter().zip(&runs) {
            let count = |pointer: &str| runs.iter().map(|run| number(&run.stats, pointer)).max().unwrap_or_default().to_string();
            let noticed = runs.iter().map(|run| run.noticed_after).collect::<Option<Vec<u64>>>();
            table.row([
                declared.0.to_owned(),
                format!("{:.0}", median(runs.iter().map(|run| run.found.files_per_second()))),
                format!("{:.2}", median(runs.iter().map(|run| run.to_none))),
                noticed.map_or("not noticed".to_owned(), |opens| format!("≤ {}", opens.into_iter().max().unwrap_or_default())),
                count("/prefetch/issued"),
                count("/prefetch/wasted"),
                format!("{:.2}", median(runs.iter().map(|run| bytes(&run.stats))) / bytes_of_none),
            ]);
            let order = runs.last().and_then(|run| run.stats.pointer("/orders/0")).cloned().unwrap_or_default();
            notes += &format!("- {}: state {}, note {}\n", declared.0, order["state"], order["note"]);
        }
    }
    show(&format!(
        "First byte after {delay_ms} ms, the first {FIRST} of a stream over {} files, {} reader threads, median of {} (opens, prefetched and \
         wasted: the largest; the stats are written every 100 ms):\n\n{table}\n{notes}",
        scene.files, options.threads, options.reps
    ))
}

fn has_noticed(stats: &Value) -> bool {
    let order = &stats["orders"][0];
    order["state"] == "lost" || order["note"].as_str().is_some_and(|note| !note.is_empty())
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn bytes(stats: &Value) -> f64 {
    number(stats, "/store/bytes") as f64
}

async fn one(options: &Options, scene: &Scene, store: &Store, truth: &str, declared: &str, none: Option<&Found>) -> Result<Run, Failure> {
    let mount = Mount::belady(store, User::Root, scene.charged / 2, &["--order", declared]).await?;
    let job = Job {
        root: mount.dir.clone(),
        files: scene.files,
        mean_bytes: scene.mean_bytes,
        order: truth.to_owned(),
        epoch: 0,
        first: FIRST,
        threads: options.threads,
        compare_every: 16,
        how: How::Files,
    };
    let mut reader = start(&job, mount.user())?;
    let mut noticed_after = None;
    while reader.try_wait()?.is_none() {
        // Without an order there is nothing to ask, but asking costs: both are asked.
        let stats = mount.stats()?;
        if noticed_after.is_none() && has_noticed(&stats) {
            noticed_after = Some(number(&stats, "/reads/opens"));
        }
        sleep(LOOK).await;
    }
    let found = finish(reader)?;
    let stats = mount.stats()?;
    if noticed_after.is_none() && has_noticed(&stats) {
        noticed_after = Some(number(&stats, "/reads/opens"));
    }
    mount.end().await?;
    let to_none = none.map_or(1.0, |none| found.files_per_second() / none.files_per_second());
    Ok(Run { found, to_none, noticed_after, stats })
}
