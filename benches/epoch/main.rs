//! One epoch through the real stack, beside the limits and the peers: the program's own store (`belady demo --serve-only`), a real mount
//! and a real reader, each a process of its own, so that the CPU of each can be told.
//!
//! Prints markdown tables: medians of interleaved repetitions, and ratios within one run. Says nothing on whether a figure is good enough
//! (`benches/README.md` does), and runs nothing unless a part is named: `cargo test --all-targets` runs it without.

mod ais;
mod cold;
#[path = "../../tests/support/ais/mod.rs"]
mod fake_ais;
mod large;
mod peers;
mod reader;
mod retain;
mod rig;
mod scene;
mod table;
mod warm;
mod wrong;

use std::io::Write;

use clap::{CommandFactory, Parser, ValueEnum};

/// Whatever stops a part: told, and the program ends with 1.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// A first epoch beside plain GETs, with CPU per file
    Cold,
    /// Four epochs with a cache for part of the dataset, beside the best possible
    Retain,
    /// Small cached files beside a local file system
    Warm,
    /// One large cached file beside a local file system
    Large,
    /// Orders that are not the reader's, beside no order
    Wrong,
    /// A first epoch from an AIStore cluster: GetBatch, straight to the target, redirected
    Ais,
    /// Other mounts
    Peers,
    /// All of these
    All,
}

/// The real stack beside its limits.
#[derive(Clone, Debug, Parser)]
#[command(name = "epoch", override_usage = "cargo bench --bench epoch -- PART [OPTIONS]")]
struct Options {
    part: Option<Part>,
    /// Files of the dataset
    #[arg(long, default_value_t = 8_000)]
    files: u32,
    /// Mean size of a file, bytes; of the one file in `large`: 1 GB
    #[arg(long, default_value_t = 110_000)]
    mean_bytes: u64,
    /// Time to the store's first byte [default: cold 50 and 20, peers 30, warm and large 0, else 20]
    #[arg(long)]
    delay_ms: Option<u64>,
    /// Reader threads
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// Repetitions, of which the median is shown
    #[arg(long, default_value_t = 3)]
    reps: usize,
    /// Cargo says so when it runs benchmarks
    #[arg(long, hide = true)]
    bench: bool,
}

// One thread: the plain client runs on it, and its CPU time is this thread's. Nothing else runs here while a child is waited for.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, job] = arguments.as_slice()
        && word == reader::WORD
    {
        return reader::serve(job).await;
    }
    let options = match Options::try_parse_from(&arguments) {
        Ok(options) => options,
        // `cargo test --all-targets FILTER` hands its filter to every target.
        Err(_) if !arguments.iter().any(|argument| argument == "--bench") => return usage(),
        Err(error) => error.exit(),
    };
    let Some(part) = options.part else { return usage() };
    for (one, name) in [
        (Part::Cold, "cold"),
        (Part::Retain, "retain"),
        (Part::Warm, "warm"),
        (Part::Large, "large"),
        (Part::Wrong, "wrong"),
        (Part::Ais, "ais"),
        (Part::Peers, "peers"),
    ] {
        if part != one && part != Part::All {
            continue;
        }
        show(&format!("## {name}\n\n{}\n", scene::machine()))?;
        let others = scene::Others::since_now();
        match one {
            Part::Cold => cold::run(&options).await?,
            Part::Retain => retain::run(&options).await?,
            Part::Warm => warm::run(&options).await?,
            Part::Large => large::run(&options).await?,
            Part::Wrong => wrong::run(&options).await?,
            Part::Ais => ais::run(&options).await?,
            Part::Peers | Part::All => peers::run(&options).await?,
        }
        show(&format!("Meanwhile other programs took {:.0} % of the cores.\n", others.share() * 100.0))?;
    }
    Ok(())
}

fn usage() -> Result<(), Failure> {
    show(&Options::command().render_help().to_string())
}

/// On stdout: tables.
fn show(text: &str) -> Result<(), Failure> {
    writeln!(std::io::stdout(), "{text}")?;
    Ok(())
}

/// On stderr: how far it is.
fn say(text: &str) {
    eprintln!("epoch: {text}");
}
