//! `belady order ...`: what is followed and why, offline checks, and orders handed from node to node.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Failure, check_there, print, snapshot};
use crate::config::cli::{OrderCommand, VerifyArgs};
use crate::config::machine::Machine;
use crate::config::mountpoint;
use crate::control::{Answer, Request, client, socket_above};
use crate::dataset::Manifest;
use crate::infer::InferConfig;
use crate::infer::verify::{Logged, Report, manifest_of, verify};
use crate::observe::log;
use crate::observe::log_root::{is_below, root_of};
use crate::order::spec::OrderSpec;
use crate::stats::snapshot::{Order, Snapshot};
use crate::stats::text;

/// Bytes of an export that are read: some hundred thousand orders. What is longer is cut off, and damaged then.
const IMPORT_MAX: u64 = 16 << 20;

pub(super) fn run(command: OrderCommand) -> Result<(), Failure> {
    match command {
        OrderCommand::Show { dir, json } => show(&dir, json),
        OrderCommand::Verify(args) => check(&args),
        OrderCommand::Export { dir, output } => export(&dir, output.as_deref()),
        OrderCommand::Import { dir, file } => import(&dir, &file),
    }
}

fn stats_of(dir: &Path) -> Result<Snapshot, String> {
    let path = mountpoint::real(dir)?;
    let stats = snapshot(&socket_above(&Machine::here().runtime_dir, &path), &path)?;
    check_there(&stats, &path).map(|()| stats)
}

fn show(dir: &Path, json: bool) -> Result<(), Failure> {
    let Snapshot { orders, computing, imported, kept, unexplained, finds_orders, reads, .. } = stats_of(dir)?;
    if json {
        return print(&(serde_json::to_string(&orders).map_err(|error| error.to_string())? + "\n"));
    }
    let waiting = text::waiting(&computing, &imported, &kept);
    let mut out: String = orders.iter().map(shown).chain(waiting.iter().map(|order| format!("{order}\n"))).collect();
    if out.is_empty() {
        out = format!("order: {}\n", text::without_order(finds_orders, reads.opens));
    }
    for what in &unexplained {
        out += &format!("{what}\n");
    }
    print(&out)
}

/// One order in a few lines.
fn shown(order: &Order) -> String {
    let place = match order.length {
        0 if order.source != "inferred" => format!("epoch {} is being computed", order.epoch),
        length => format!("epoch {}, place {} of {length}", order.epoch, order.position),
    };
    let belief = format!("confidence {:.6}; {} of {} opens where it had them", order.confidence, order.predicted, order.observed);
    let search = if order.search_seconds > 0.0 { format!("; found in {:.1} s of search", order.search_seconds) } else { String::new() };
    let note = if order.note.is_empty() { String::new() } else { format!("\n  {}", order.note) };
    format!("{}: {} ({})\n  {}\n  {place}\n  {belief}{search}{note}\n", order.id, order.state, order.source, order.hypothesis)
}

fn check(args: &VerifyArgs) -> Result<(), Failure> {
    let shown = args.log.display();
    let file = File::open(&args.log).map_err(|error| format!("{shown}: {error}"))?;
    let mut parsed = log::parse(BufReader::new(file)).map_err(|error| format!("{shown}: {error}"))?;
    if parsed.opens.is_empty() {
        return Err(Failure::Failed(format!("{shown}: {}", without_opens(&parsed))));
    }
    let manifest = match &args.manifest {
        Some(path) => {
            let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
            Some(Manifest::load(BufReader::new(file)).map_err(|error| format!("{}: {error}", path.display()))?)
        }
        None => None,
    };
    let mut assumed: Vec<String> = Vec::new();
    let all = parsed.opens.len();
    let records = parsed.keep_last_record();
    if records > 1 {
        assumed.push(format!(
            "the last of {records} records in the file counts, {} of {all} opens: its clock began anew (a file for each mount keeps them apart)",
            parsed.opens.len()
        ));
    }
    let all = parsed.opens.len();
    if let Some(root) = &args.root {
        parsed.opens.retain(|open| is_below(&open.path, root));
        if parsed.opens.is_empty() {
            return Err(Failure::Failed(format!("{shown}: none of its {all} opens is below {root} (--root)")));
        }
    } else if manifest.is_none() && parsed.is_traced {
        let Some(root) = root_of(&parsed.opens) else {
            return Err(Failure::Failed(format!(
                "{shown}: its {all} opens are all of code and of the system's files (--root says otherwise)"
            )));
        };
        parsed.opens.retain(|open| is_below(&open.path, &root));
        let root = if root.is_empty() { "/" } else { &root };
        assumed.push(format!("the samples lie below {root}: {} of {all} opens (--root says otherwise)", parsed.opens.len()));
    }
    let damaged_lines = parsed.damaged;
    let opens = opens(parsed, manifest.as_ref());
    if manifest.is_none() {
        assumed.push("the files that were opened are all there are (--manifest says otherwise)".to_owned());
    }
    let manifest = Arc::new(manifest.unwrap_or_else(|| manifest_of(&opens)));
    let config = InferConfig { threads: usize::from(args.threads), exhaustive: !args.quick, deep: true, patient: true };
    let began = Instant::now();
    let progress = |text: &str| eprintln!("{text} ({} threads; --quick does without)", args.threads);
    let report = verify(&manifest, &opens, config, &|| began.elapsed(), &progress);
    let report = Report { assumed: assumed.join("; "), damaged_lines, ..report };
    if args.json {
        return print(&(serde_json::to_string(&report).map_err(|error| error.to_string())? + "\n"));
    }
    print(&explained(&report))
}

/// What is wrong with a log that has no opens.
fn without_opens(parsed: &log::Log) -> String {
    match (parsed.skipped, parsed.is_traced) {
        (0, _) => "it is empty".to_owned(),
        (_, true) => "strace wrote it, and no call of it opens a file for reading (strace -f also follows a loader's workers)".to_owned(),
        (lines, false) => format!(
            "none of its {lines} lines is an open: --record-opens writes 0.25<TAB>4242<TAB>train/a.jpg (seconds, process, path), strace -f -e trace=openat writes 4242 openat(AT_FDCWD, \"/data/a.jpg\", O_RDONLY) = 3"
        ),
    }
}

/// The opens with paths as the manifest has them; without one, below the directory that all have in common.
fn opens(parsed: log::Log, manifest: Option<&Manifest>) -> Vec<Logged> {
    let common = if manifest.is_some() { 0 } else { common_directory(&parsed) };
    let at = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let path = |path: String| match manifest {
        Some(manifest) => (0..=path.matches('/').count())
            .map(|skip| if skip == 0 { &*path } else { path.match_indices('/').nth(skip - 1).map_or("", |(at, _)| &path[at + 1..]) })
            .find(|tail| manifest.find(tail).is_some())
            .map(str::to_owned)
            .unwrap_or(path),
        None => path.get(common..).unwrap_or(&path).trim_start_matches('/').to_owned(),
    };
    parsed.opens.into_iter().map(|open| Logged { at: at(open.seconds), process: open.thread, path: path(open.path) }).collect()
}

/// Length of what comes before the last directory that all paths have in common.
fn common_directory(parsed: &log::Log) -> usize {
    let mut common = parsed.opens.first().map_or("", |open| open.path.as_str());
    for open in &parsed.opens {
        let same = common.bytes().zip(open.path.bytes()).take_while(|(a, b)| a == b).count();
        common = common.get(..same).unwrap_or("");
    }
    let directory = common.rsplit_once('/').map_or("", |(directory, _)| directory);
    directory.rsplit_once('/').map_or(0, |(before, _)| before.len() + 1)
}

fn explained(report: &Report) -> String {
    let mut text = format!("{} opens of {} files: {}\n", report.opens, report.files, report.state);
    if !report.assumed.is_empty() {
        text += &format!("assumed: {}\n", report.assumed);
    }
    if report.damaged_lines > 0 {
        text += &format!("left out: {} lines of the log that are neither strace's nor ours\n", report.damaged_lines);
    }
    for order in &report.orders {
        let root = if order.root.is_empty() { "the mount" } else { &order.root };
        text += &format!(
            "{}: {}\n  {}\n  {}\n  followed after {} opens, confidence {:.6}\n",
            root, order.state, order.order, order.why, order.locked_after, order.confidence
        );
    }
    for what in &report.unexplained {
        text += &format!("{what}\n");
    }
    if !report.orders.is_empty() {
        text += &format!("{:.1} % of the later opens were where the order had them\n", report.predicted_fraction * 100.0);
    }
    text += &format!("{} searches, {:.1} s\n", report.searches, report.search_seconds);
    for (opens, what) in &report.events {
        text += &format!("  after {opens} opens: {what}\n");
    }
    text
}

/// First line of an export, before the id of the listing.
const EXPORT_HEAD: &str = "# belady orders 1 manifest=";
/// Last line of it, before the xxh3 of all lines before.
const EXPORT_TAIL: &str = "# xxh3 ";

/// A line an order, as `--order` takes it, between one that says of which listing they are and one that shows damage.
fn export(dir: &Path, output: Option<&Path>) -> Result<(), Failure> {
    let stats = stats_of(dir)?;
    // A pass as it was read is no specification: it is kept beside the cache.
    let orders = stats.orders.iter().filter(|order| !order.hypothesis.is_empty() && order.kind != "list" && order.state == "locked");
    let lines: String = orders.map(|order| format!("{}\n", order.hypothesis)).collect();
    if lines.is_empty() {
        return Err(Failure::Failed(format!("{}: no order is followed that another mount could take", dir.display())));
    }
    let text = format!("{EXPORT_HEAD}{}\n{lines}", stats.manifest_id);
    let text = format!("{text}{EXPORT_TAIL}{:016x}\n", xxhash_rust::xxh3::xxh3_64(text.as_bytes()));
    match output {
        Some(path) => Ok(fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?),
        None => print(&text),
    }
}

/// The listing's id and the orders of an export.
fn exported(text: &str) -> Result<(&str, Vec<OrderSpec>), String> {
    let Some((id, _)) = text.strip_prefix(EXPORT_HEAD).and_then(|rest| rest.split_once('\n')) else {
        return Err("these are no orders that belady exported (belady order export)".to_owned());
    };
    let tail = text.trim_end_matches('\n').rsplit_once('\n').filter(|(_, last)| last.starts_with(EXPORT_TAIL));
    let Some((body, tail)) = tail else { return Err("it is damaged: its end is missing; export it again".to_owned()) };
    let sum = xxhash_rust::xxh3::xxh3_64(&text.as_bytes()[..=body.len()]);
    if tail[EXPORT_TAIL.len()..] != format!("{sum:016x}") {
        return Err("it is damaged: its checksum does not match its content; export it again".to_owned());
    }
    let specs = body.lines().skip(1).map(|line| line.parse::<OrderSpec>().map_err(|error| format!("{line}: {error}")));
    Ok((id, specs.collect::<Result<_, _>>()?))
}

fn import(dir: &Path, file: &Path) -> Result<(), Failure> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        io::stdin().take(IMPORT_MAX).read_to_string(&mut text)
    } else {
        File::open(file).and_then(|f| f.take(IMPORT_MAX).read_to_string(&mut text))
    };
    let shown = file.display();
    read.map_err(|error| format!("{shown}: {error}"))?;
    let (id, specs) = exported(&text).map_err(|error| format!("{shown}: {error}"))?;
    let here = stats_of(dir)?.manifest_id;
    if here != id {
        let error = format!("{shown}: its orders are of another listing ({id}) than the one of {} ({here})", dir.display());
        return Err(Failure::Failed(error));
    }
    let path = mountpoint::real(dir)?;
    let socket = socket_above(&Machine::here().runtime_dir, &path);
    let count = specs.len();
    for spec in specs {
        match client::ask(&socket, Request::OrderImport { order: spec.to_string() })? {
            Answer::Done => {}
            Answer::Error { message } => return Err(Failure::Failed(message)),
            _ => return Err(Failure::Failed("the daemon gave another answer than asked for: is it another version?".to_owned())),
        }
    }
    print(&format!("{count} imported: followed when opens prove them\n"))
}
