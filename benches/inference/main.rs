//! What `--order auto` finds out: unmodified PyTorch loops on a real mount of the real program, and how soon, how surely and at what cost the
//! mount knows their order. Nothing is declared to it.
//!
//! Prints markdown tables, names each bound that was missed, and ends with 1 if there was one. Runs nothing unless a scene is named:
//! `cargo test --all-targets` runs it without. The rig's parts that are not about inference are those of the epoch benchmark.

mod bounds;
mod epochs;
mod loaders;
mod ranks;
#[allow(dead_code, reason = "the epoch benchmark's file: not all of it is needed here")]
#[path = "../epoch/reader.rs"]
mod reader;
#[allow(dead_code, reason = "the epoch benchmark's file: not all of it is needed here")]
#[path = "../epoch/rig.rs"]
mod rig;
#[allow(dead_code, reason = "the epoch benchmark's file: not all of it is needed here")]
#[path = "../epoch/scene.rs"]
mod scene;
mod script;
mod searches;
mod stage;
#[allow(dead_code, reason = "the epoch benchmark's file: not all of it is needed here")]
#[path = "../epoch/table.rs"]
mod table;
mod walks;
mod watch;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use self::bounds::Bounds;

/// Whatever stops a scene: told, and the program ends with 2.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scene {
    /// Twenty seeded loaders: workers, batches, persistent workers, validation, a model before
    Loaders,
    /// Unseeded loaders over 10,000 files: full searches of 2^32 seeds
    Unseeded,
    /// Unseeded loaders over 1,281,167 files
    Imagenet,
    /// 64 readers, 8 of 128 ranks; then resumed with other world sizes from within an epoch
    Ranks,
    /// Reads without an order that could be found: nothing false is believed, and what it costs
    Walks,
    /// Throughput over epochs beside a declared order and none
    Epochs,
}

/// What `--order auto` finds out.
#[derive(Clone, Debug, Parser)]
#[command(name = "inference", override_usage = "cargo bench --bench inference -- SCENE [OPTIONS]")]
struct Options {
    scene: Option<Scene>,
    /// A smaller scene, to see that it works
    #[arg(long)]
    quick: bool,
    /// The order that the mount is told; a scene's own, for a look at the rig itself: `declared`
    #[arg(long, default_value = "auto")]
    order: String,
    /// Repetitions of what is compared [default: 5]
    #[arg(long)]
    reps: Option<usize>,
    /// Only configurations whose name contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Shows what the mount last said of its orders, for each run
    #[arg(long)]
    verbose: bool,
    /// Cargo says so when it runs benchmarks
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    /// What `--order` gets: `declared` is the scene's own order.
    fn order<'a>(&'a self, declared: &'a str) -> &'a str {
        if self.order == "declared" { declared } else { &self.order }
    }
}

// One thread: nothing else runs here while children are watched.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // What is dropped ends its children and unmounts.
    let ended = tokio::select! {
        ended = run() => ended,
        () = interrupted() => Err("interrupted".into()),
    };
    ended.unwrap_or_else(|error| {
        say(&format!("stopped: {error}"));
        ExitCode::from(2)
    })
}

/// Returns at SIGINT or SIGTERM.
async fn interrupted() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

async fn run() -> Result<ExitCode, Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.as_slice() {
        [_, word, job] if word == reader::WORD => return reader::serve(job).await.map(|()| ExitCode::SUCCESS),
        [_, word, sets] if word == stage::WORD => return stage::serve(sets).map(|()| ExitCode::SUCCESS),
        _ => {}
    }
    let options = match Options::try_parse_from(&arguments) {
        Ok(options) => options,
        // `cargo test --all-targets FILTER` hands its filter to every target.
        Err(_) if !arguments.iter().any(|argument| argument == "--bench") => return usage(),
        Err(error) => error.exit(),
    };
    let Some(scene) = options.scene else { return usage() };
    if scene != Scene::Epochs {
        script::need_torch()?;
    }
    let name = scene.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
    show(&format!("## {name}\n\n{}, {}.\n", scene::machine().trim_end_matches('.'), vectors()))?;
    let others = scene::Others::since_now();
    let begun = std::time::Instant::now();
    let mut bounds = Bounds::default();
    match scene {
        Scene::Loaders => loaders::run(&options, &mut bounds).await?,
        Scene::Unseeded => searches::unseeded(&options, &mut bounds).await?,
        Scene::Imagenet => searches::imagenet(&options, &mut bounds).await?,
        Scene::Ranks => ranks::run(&options, &mut bounds).await?,
        Scene::Walks => walks::run(&options, &mut bounds).await?,
        Scene::Epochs => epochs::run(&options, &mut bounds).await?,
    }
    let meanwhile = others.share() * 100.0;
    show(&format!("{bounds}\n{:.0} s; meanwhile other programs took {meanwhile:.0} % of the cores.\n", begun.elapsed().as_secs_f64()))?;
    Ok(if bounds.are_kept() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn usage() -> Result<ExitCode, Failure> {
    show(&Options::command().render_help().to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// The widest vectors this processor has: what the seed search runs on.
fn vectors() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            return "AVX-512";
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            return "AVX2";
        }
    }
    "no wide vectors"
}

/// On stdout: tables.
fn show(text: &str) -> Result<(), Failure> {
    writeln!(std::io::stdout(), "{text}")?;
    Ok(())
}

/// On stderr: how far it is.
fn say(text: &str) {
    eprintln!("inference: {text}");
}
