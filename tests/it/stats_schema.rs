//! `belady stats --json` against schema 1, on which scripts and dashboards rely: each field by name and type, and figures that add up.

use std::fs;

use belady::demo::dataset::DatasetSpec;
use belady::demo::server::{Server, ServerConfig};
use serde_json::Value;

use crate::support::belady::{Belady, run};

/// Schema 1, as published: additions are free, names and types are not.
const SCHEMA_1: &str = r#"
{"schema":1,"version":"0.1.0","url":"s3://b/p","mountpoint":"/data","uptime_seconds":1.0,"manifest_id":"...",
 "reads":{"opens":0,"accesses":0,"retained":0,"in_time":0,"late":0,"miss":0,
          "bytes":{"opened":0,"served":0,"retained":0,"in_time":0,"late":0,"miss":0},
          "ready_rate":0.0,"retained_rate":0.0,"hits":{"memory":0,"disk":0},"wait_seconds":0.0,"starved_seconds":0.0,"errors":0},
 "orders":[{"id":"train","job":"","root":"train","source":"declared","state":"searching","kind":"torch-distributed","seed":0,
            "world":8,"ranks":"0-7","epoch":0,"position":0,"length":0,"confidence":0.0,"observed":0,"predicted":0,
            "epochs":[{"epoch":0,"accesses":0,"retained":0,"in_time":0,"late":0,"miss":0,"bytes":{},"store_bytes":0,"seconds":0.0,
                       "starved_seconds":0.0,"bound":{"retained_rate":0.0,"store_bytes":0}}]}],
 "prefetch":{"issued":0,"useful":0,"wasted":0,"in_flight":0,"window_bytes":0,"window_wanted_bytes":0},
 "store":{"requests":{"list":0,"head":0,"get":0,"batch":0},"batch_entries":0,"batch_fallbacks":0,"batch_singles":0,"redirects":0,"direct":0,"bytes":0,"bytes_extra":0,"retries":0,"throttled":0,"errors":0,
          "latency_seconds":{"p50":0.0,"p99":0.0}},
 "tiers":[{"name":"memory","path":"","capacity_bytes":0,"used_bytes":0,"objects":0,"hits":0,"admitted":0,"evicted":0,"errors":0,
           "state":"ok"}],
 "namespace":{"objects":0,"bytes":0,"hidden_keys":0,"listing":"running"},"kernel":{"passthrough":true}}"#;

/// Everything in `wanted` is in `found`, with the same type: whole numbers stay whole, so that a reader may parse them as such.
fn compare(place: &str, wanted: &Value, found: &Value) {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            for (name, wanted) in wanted {
                let found = found.get(name).unwrap_or_else(|| panic!("{place}.{name} is missing"));
                compare(&format!("{place}.{name}"), wanted, found);
            }
        }
        (Value::Array(wanted), Value::Array(found)) => {
            assert!(!found.is_empty(), "{place} is empty: nothing to compare");
            found.iter().enumerate().for_each(|(at, found)| compare(&format!("{place}[{at}]"), &wanted[0], found));
        }
        (Value::Number(wanted), Value::Number(found)) => assert_eq!(wanted.is_f64(), found.is_f64(), "{place}: {found}"),
        (Value::String(_), Value::String(_)) | (Value::Bool(_), Value::Bool(_)) => {}
        _ => panic!("{place}: {found} is of another type than {wanted}"),
    }
}

fn sum(parts: &Value, names: &[&str]) -> u64 {
    names.iter().map(|name| parts[name].as_u64().expect("a count")).sum()
}

const OUTCOMES: [&str; 4] = ["retained", "in_time", "late", "miss"];

#[test]
fn stats_json_is_schema_1_and_its_figures_add_up() {
    let server = Server::start_with_threads(ServerConfig::default(), 1).expect("a loopback port");
    let dataset = DatasetSpec { files: 60, classes: 3, mean_bytes: 20_000, ..DatasetSpec::default() }.build();
    server.add_dataset(&dataset);
    let cache = tempfile::tempdir().expect("a temporary directory");
    let cache_dir = cache.path().to_str().expect("plain");
    let args = ["--order", "sequential:root=train", "--memory", "400KB", "--cache-dir", cache_dir, "--disk", "10MB"];
    let mount = Belady::mount_bucket(&server, &args);
    let mut bytes = 0;
    for _ in 0..2 {
        for key in server.keys() {
            bytes += fs::read(mount.dir.join(&key)).expect("reads").len() as u64;
        }
    }
    mount.wait_for("all is accounted for", |stats| stats["reads"]["accesses"] == 120);

    let output = run(&["stats", mount.dir.to_str().expect("plain"), "--json"]);
    let stats: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    compare("", &serde_json::from_str(SCHEMA_1).expect("JSON"), &stats);
    assert_eq!(stats["schema"], 1);
    assert_eq!(stats["mountpoint"].as_str(), mount.dir.to_str());
    assert!(["searching", "locked", "lost"].contains(&stats["orders"][0]["state"].as_str().expect("a word")));

    let reads = &stats["reads"];
    assert_eq!(sum(reads, &OUTCOMES), 120, "each access is one of four: {reads:#}");
    assert_eq!(sum(&reads["bytes"], &OUTCOMES), bytes, "and so are its bytes: {reads:#}");
    assert_eq!(reads["bytes"]["opened"], bytes);
    let ready = sum(reads, &["retained", "in_time"]) as f64 / 120.0;
    assert!((reads["ready_rate"].as_f64().expect("a rate") - ready).abs() < 1e-9, "{reads:#}");
    for epoch in stats["orders"][0]["epochs"].as_array().expect("epochs") {
        assert_eq!(sum(epoch, &OUTCOMES), epoch["accesses"].as_u64().expect("a count"), "{epoch:#}");
    }
    assert_eq!(stats["store"]["requests"]["get"], server.counters().get, "what the store counts");
    assert!(stats["reads"]["starved_seconds"].as_f64() <= stats["uptime_seconds"].as_f64(), "{stats:#}");
    for tier in stats["tiers"].as_array().expect("tiers") {
        assert!(tier["used_bytes"].as_u64() <= tier["capacity_bytes"].as_u64(), "{tier:#}");
    }
}
