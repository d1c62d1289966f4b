//! `belady demo` as a user runs it: a real mount, real readers, a real table; and nothing left behind.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::belady::{command, run};

const SMALL: [&str; 7] = ["demo", "--files", "120", "--mean-size", "8KB", "--delay-ms", "2"];

/// What would be left of the demo that ran as this process.
fn left_behind(pid: u32) -> Option<String> {
    let directory = std::env::temp_dir().join(format!("belady-demo-{pid}"));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounted = mounts.lines().find(|line| line.contains(directory.to_str().unwrap())).map(str::to_owned);
    mounted.or_else(|| directory.exists().then(|| directory.display().to_string()))
}

fn started(extra: &[&str]) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut child = command(&[&SMALL[..], extra].concat()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    (child, stderr)
}

#[test]
fn demo_accounts_for_every_read_and_compares_every_byte() {
    let (mut child, mut stderr) = started(&["--json", "--epochs", "3"]);
    let (mut progress, mut json) = (String::new(), String::new());
    stderr.read_to_string(&mut progress).unwrap();
    child.stdout.take().unwrap().read_to_string(&mut json).unwrap();
    assert!(child.wait().unwrap().success(), "{progress}");
    assert_eq!(left_behind(child.id()), None);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["compared_files"], 120);
    assert_eq!((&report["plain"][0]["connections"], &report["plain"][1]["files"]), (&Value::from(1), &Value::from(120)));
    let epochs = report["epochs"].as_array().unwrap();
    assert_eq!(epochs.len(), 3);
    for row in epochs {
        let found = &row["accesses"];
        let total: u64 = ["retained", "in_time", "late", "miss"].iter().map(|name| found[name].as_u64().unwrap()).sum();
        assert_eq!((total, &row["files"], &row["store_head"]), (120, &Value::from(120), &Value::from(0)), "{row}");
        // the bound leaves the window out; no cache of half the data retains more than half
        assert!(row["retained_rate"].as_f64() <= Some(0.5), "{row}");
    }
    assert_eq!(epochs[0]["accesses"]["retained"], 0);
    assert_eq!((&epochs[1]["store_list"], &epochs[2]["store_list"]), (&Value::from(0), &Value::from(0)));
    assert!(epochs[2]["accesses"]["retained"].as_u64() > Some(0), "{}", epochs[2]);
}

#[test]
fn an_interrupted_demo_leaves_nothing_mounted() {
    let (mut child, stderr) = started(&["--keep", "--epochs", "1"]);
    let mut lines = stderr.lines().map_while(Result::ok);
    let kept = lines.find(|line| line.contains("Ctrl-C")).expect("it says that it stays");
    assert!(left_behind(child.id()).is_some() && kept.contains("mounted on"), "{kept}");
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(left_behind(child.id()), None);

    let (mut child, stderr) = started(&["--epochs", "100"]);
    let mut lines = stderr.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("reading epoch 1")));
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), Signal::TERM).unwrap();
    let status = child.wait().unwrap();
    let words: Vec<String> = lines.collect();
    assert!(!status.success() && words.iter().any(|line| line.contains("interrupted")), "{words:?}");
    assert_eq!(left_behind(child.id()), None);
}

#[test]
fn a_demo_on_a_taken_port_says_so() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = run(&["demo", "--port", &port, "--files", "1"]);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && words.contains(&format!("port {port} is taken")), "{words}");
}

#[test]
fn serve_only_serves_until_interrupted() {
    let mut child = command(&[&SMALL[..], &["--serve-only"]].concat()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    assert!(line.starts_with("serving 120 files") && line.contains("s3://demo/ at http://127.0.0.1:"), "{line}");
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(lines.next().unwrap().unwrap().starts_with("served 0 LIST"));
}
