//! NVIDIA's own AIStore client (`aistore` for Python) against our fake cluster, so that the fake is tied to upstream and not to the store it
//! tests; and the same script against a real cluster, where one is named (`BELADY_TEST_AIS_ENDPOINT`).

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::ais::hash::{digest, mix, xxh64};
use crate::support::ais::{Access, AisCluster, AisConfig, Bck, Op};
use crate::support::sha256::sha256_hex;

const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/ais-venv/bin/python");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/ais_client.py");
const HOW: &str = "/usr/bin/python3 -m venv target/ais-venv && target/ais-venv/bin/pip install -r tests/support/ais-requirements.txt";
/// Of a list: several pages for a few objects.
const PAGE: u64 = 4;

/// Whether NVIDIA's client is here. Where all tests must run (`BELADY_TEST_REQUIRE_ALL`), it has to be.
fn client_is_here() -> bool {
    let imports = || Command::new(PYTHON).args(["-c", "import aistore.sdk"]).output().is_ok_and(|output| output.status.success());
    let here = Path::new(PYTHON).exists() && imports();
    assert!(here || std::env::var_os("BELADY_TEST_REQUIRE_ALL").is_none(), "AIStore's Python client is missing: {HOW}");
    if !here {
        eprintln!("left out: no AIStore client for Python ({HOW})");
    }
    here
}

/// Runs the script with this plan, and returns its report.
fn run(endpoint: &str, token: Option<&str>, plan: &Value) -> Value {
    let mut command = Command::new(PYTHON);
    command.args([SCRIPT, endpoint]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env_remove("AIS_AUTHN_TOKEN").envs(token.map(|token| ("AIS_AUTHN_TOKEN", token)));
    let mut child = command.spawn().expect("python starts");
    child.stdin.take().expect("piped").write_all(plan.to_string().as_bytes()).expect("the script reads its plan");
    let output = child.wait_with_output().expect("python ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(text.trim()).expect("one JSON object")
}

type Objects = BTreeMap<String, Vec<u8>>;

/// A few small objects whose names need care, an empty one, and a shard.
fn objects() -> Objects {
    let noise = |seed: u64, length: usize| -> Vec<u8> {
        (0..length as u64).flat_map(|at| mix(seed ^ (at << 20)).to_le_bytes()).take(length).collect()
    };
    let mut shard = tar::Builder::new(Vec::new());
    for (name, body) in [("a.jpg", noise(1, 700)), ("dir/b.cls", b"7".to_vec())] {
        let mut header = tar::Header::new_ustar();
        header.set_size(body.len() as u64);
        header.set_mode(0o644);
        shard.append_data(&mut header, name, &body[..]).expect("a vector takes all");
    }
    let mut objects: Objects = [
        ("train/a/0001.jpg".to_owned(), noise(2, 5_000)),
        ("train/a/0002.jpg".to_owned(), noise(3, 100)),
        ("train/b/0001.jpg".to_owned(), noise(4, 70_000)),
        ("x y#?%41+&.bin".to_owned(), noise(5, 33)),
        ("grüße/ümlaut.txt".to_owned(), b"hello".to_vec()),
        ("empty".to_owned(), Vec::new()),
        ("large.bin".to_owned(), noise(6, 3_000_000)),
        (format!("{}/{}.jpg", "long".repeat(30), "name".repeat(20)), noise(7, 600)),
    ]
    .into();
    objects.insert("shards/s-0000.tar".to_owned(), shard.into_inner().expect("a vector takes all"));
    objects
}

fn saw(bytes: &[u8]) -> Value {
    json!({ "size": bytes.len(), "sha256": sha256_hex(bytes) })
}

/// The entries of a batch: whole objects, one twice, a missing one, a member, ranges; and what must come.
fn batch(objects: &Objects) -> (Value, Vec<Value>) {
    let whole = |name: &str| (json!({ "objname": name }), Some(objects[name].clone()));
    let ranged = |name: &str, start: usize, length: i64, end: usize| {
        (json!({ "objname": name, "start": start, "length": length }), Some(objects[name][start..end].to_vec()))
    };
    let large = objects["large.bin"].len();
    let long = objects.keys().find(|name| name.starts_with("long")).expect("the long name").clone();
    let wanted = [
        whole("train/b/0001.jpg"),
        whole("train/a/0001.jpg"),
        whole("empty"),
        whole("train/a/0001.jpg"),
        (json!({ "objname": "no/such" }), None),
        (json!({ "objname": "shards/s-0000.tar", "archpath": "dir/b.cls" }), Some(b"7".to_vec())),
        ranged("large.bin", 1_000_000, 4_096, 1_004_096),
        ranged("large.bin", large - 5, -1, large),
        whole("x y#?%41+&.bin"),
        whole("grüße/ümlaut.txt"),
        whole(&long),
    ];
    let saw = |(entry, bytes): &(Value, Option<Vec<u8>>)| {
        let bytes_or_none = bytes.clone().unwrap_or_default();
        json!({
            "objname": entry["objname"],
            "archpath": entry.get("archpath").unwrap_or(&json!("")),
            "missing": bytes.is_none(),
            "size": bytes_or_none.len(),
            "sha256": sha256_hex(&bytes_or_none),
        })
    };
    (wanted.iter().map(|(entry, _)| entry.clone()).collect(), wanted.iter().map(saw).collect())
}

fn plan(name: &str, provider: &str, objects: &Objects, entries: &Value) -> Value {
    json!({
        "name": name,
        "provider": provider,
        "page_size": PAGE,
        "keys": objects.keys().collect::<Vec<_>>(),
        "members": [["shards/s-0000.tar", "a.jpg"], ["shards/s-0000.tar", "dir/b.cls"]],
        "batch": { "entries": entries, "only_obj_name": false },
    })
}

/// Everything that is true of any cluster with these objects in this bucket.
fn check(found: &Value, objects: &Objects, batch: &[Value]) {
    let listed = |list: &Value| -> BTreeMap<String, (u64, u64)> {
        let entries = list.as_array().expect("a list");
        let one = |entry: &Value| {
            (
                entry["name"].as_str().expect("a name").to_owned(),
                (entry["size"].as_u64().expect("a size"), entry["flags"].as_u64().expect("flags")),
            )
        };
        let all: BTreeMap<_, _> = entries.iter().map(one).collect();
        assert_eq!(all.len(), entries.len(), "no name twice");
        all
    };
    let all = listed(&found["list"]["all"]);
    let wanted: BTreeMap<&String, u64> = objects.iter().map(|(name, bytes)| (name, bytes.len() as u64)).collect();
    assert_eq!(all.iter().map(|(name, (size, _))| (name, *size)).collect::<BTreeMap<_, _>>(), wanted);
    let pages: Vec<u64> = found["list"]["pages"].as_array().expect("pages").iter().filter_map(Value::as_u64).collect();
    assert_eq!(pages.iter().sum::<u64>(), objects.len() as u64);
    assert!(pages.len() >= objects.len() / PAGE as usize && pages.iter().all(|page| *page <= PAGE), "{pages:?}");
    let top: BTreeMap<String, bool> = objects
        .keys()
        .map(|name| match name.split_once('/') {
            Some((folder, _)) => (folder.to_owned(), true),
            None => (name.clone(), false),
        })
        .collect();
    let folders = listed(&found["list"]["folders"]);
    let shown: BTreeMap<String, bool> =
        folders.iter().map(|(name, (_, flags))| (name.trim_end_matches('/').to_owned(), flags & 256 != 0)).collect();
    assert_eq!(shown, top, "{}", found["list"]["folders"]);

    for (name, bytes) in objects {
        let got = &found["objects"][name];
        let part = |got: &Value| json!({ "size": got["size"], "sha256": got["sha256"] });
        assert_eq!(part(got), saw(bytes), "{name}");
        assert_eq!(got["direct"], saw(bytes), "{name}, straight from its target");
        let sum = format!("{:016x}", xxh64(bytes, 0));
        assert_eq!(got["xxh64"], json!(sum), "{name}");
        for kind in ["get", "head"] {
            let checksum = &got[kind]["checksum"];
            assert!(checksum[0].as_str().is_some_and(|kind| kind.starts_with("xxhash")), "{name}: {}", got[kind]);
            assert_eq!(checksum[1], json!(sum), "{name}");
            assert_eq!(got[kind]["size"], json!(bytes.len()), "{name}");
        }
        assert!(got["head"]["last_modified"].as_str().is_some_and(|time| time.ends_with("GMT")), "{}", got["head"]);
        assert!(got["head"]["etag"].as_str().is_some_and(|etag| !etag.is_empty()), "{}", got["head"]);
        if bytes.len() > 4 {
            assert_eq!(got["range"], saw(&bytes[1..4]), "{name}");
            assert_eq!(got["tail"], saw(&bytes[bytes.len() - 1..]), "{name}");
        }
    }
    for ask in ["missing", "missing_head"] {
        assert_eq!(found[ask]["status"], 404, "{}", found[ask]);
    }
    assert_eq!(found["missing"]["error"], "ErrObjNotFound");
    assert_eq!(found["beyond"]["status"], 416, "{}", found["beyond"]);
    assert_eq!(found["members"]["shards/s-0000.tar|dir/b.cls"], saw(b"7"));
    assert_eq!(found["members"]["shards/s-0000.tar|a.jpg"]["size"], 700);
    for kind in ["streamed", "buffered"] {
        let got = found["batch"][kind].as_array().expect("a batch");
        assert_eq!(got.len(), batch.len(), "{kind}");
        for (got, wanted) in got.iter().zip(batch) {
            // what a buffered batch says of a member depends on which target read it (seen on 5.0): its bytes do not
            let (mut got, mut wanted) = (got.clone(), wanted.clone());
            if wanted["archpath"] != "" {
                for name in ["objname", "archpath"] {
                    got[name].take();
                    wanted[name].take();
                }
            }
            assert_eq!(got, wanted, "{kind}");
        }
    }
}

fn put_all(cluster: &AisCluster, bucket: &str, objects: &Objects) {
    for (name, bytes) in objects {
        cluster.put(bucket, name, bytes.clone());
    }
}

#[test]
fn the_official_client_reads_the_fake() {
    if !client_is_here() {
        return;
    }
    let cluster = AisCluster::start(AisConfig { proxies: 2, ..AisConfig::default() });
    let objects = objects();
    put_all(&cluster, "ais://im", &objects);
    put_all(&cluster, "s3://cold", &objects);
    cluster.record_requests();
    let (entries, wanted) = batch(&objects);
    let unames: Vec<String> = (0..200).map(|number| format!("ais/@#/mybucket/obj{number}")).collect();
    let mut remote = plan("cold", "aws", &objects, &entries);
    remote["prefetch"] = json!(["train/a/0001.jpg", "empty"]);
    let plan = json!({ "buckets": [plan("im", "ais", &objects, &entries), remote], "unames": unames });
    let report = run(&cluster.endpoint(), None, &plan);

    check(&report["buckets"]["im"], &objects, &wanted);
    // whatever was read before the batch is in the cluster by then
    check(&report["buckets"]["cold"], &objects, &wanted);
    assert_eq!(report["targets"], json!(["t1", "t2", "t3"]));
    assert_eq!((&report["buckets"]["im"]["listed"], &report["buckets"]["cold"]["listed"]), (&json!(["im"]), &json!(["cold"])));
    assert_eq!(report["no_bucket"], json!({ "status": 404, "error": "ErrBckNotFound" }));
    // NVIDIA's choice of targets is the fake's
    let mut used = std::collections::BTreeSet::new();
    for uname in &unames {
        let key = uname.rsplit('/').next().expect("a key");
        let target = cluster.target_of("mybucket", key).expect("three targets");
        assert_eq!(report["choices"][uname], json!(target), "{uname}");
        used.insert(target);
    }
    assert_eq!(used.len(), 3);

    let counters = cluster.counters();
    assert_eq!((counters.wrong_target, counters.direct_refused, counters.forbidden), (0, 0, 0));
    // read through a proxy, then straight from the target: one fetch each, and none by the batches or the job
    assert_eq!(counters.cold_fetches, objects.len() as u64);
    assert_eq!(counters.direct, 2 * objects.len() as u64);
    assert_eq!((counters.batches, counters.batch_entries), (4, 4 * wanted.len() as u64));
    assert_eq!(counters.batch_soft_errors, 4);
    assert_eq!(counters.redirects, counters.proxy_get + counters.proxy_head + counters.proxy_batch);
    // the script asks for a bucket that is not there, once for each that is
    assert_eq!(counters.proxy_list_msgpack, counters.proxy_list - 2);
    let jobs = cluster.jobs();
    assert_eq!((jobs.len(), jobs[0].kind.as_str(), jobs[0].bucket.as_str()), (1, "prefetch-listrange", "s3://cold"));
    assert_eq!(jobs[0].names, ["train/a/0001.jpg", "empty"]);
    assert_eq!(report["buckets"]["cold"]["job"], json!(jobs[0].id));
    assert!(cluster.recorded().iter().filter(|request| request.op == Op::Batch).all(|request| !request.body.is_empty()));
}

#[test]
fn the_official_client_follows_signed_redirects_with_a_token() {
    if !client_is_here() {
        return;
    }
    let tokens = Some(vec![("good".to_owned(), Access::All)]);
    let cluster = AisCluster::start(AisConfig { tokens, sign: true, ..AisConfig::default() });
    cluster.put("im", "a b", "bytes");
    let plan = json!({ "reads": [{ "bucket": "im", "provider": "ais", "key": "a b" }] });
    let report = run(&cluster.endpoint(), Some("good"), &plan);
    assert_eq!(report["reads"][0]["redirected"], saw(b"bytes"));
    assert_eq!(report["reads"][0]["direct"]["status"], 403);
    let counters = cluster.counters();
    assert_eq!((counters.bad_redirects, counters.unauthorized), (0, 0));
    let refused = run(&cluster.endpoint(), Some("bad"), &json!({ "ping": true }));
    assert_eq!(refused["ping"]["status"], 401);
}

#[test]
fn the_official_client_reads_a_real_cluster() {
    let Some(endpoint) = std::env::var_os("BELADY_TEST_AIS_ENDPOINT") else {
        eprintln!("left out: BELADY_TEST_AIS_ENDPOINT names no cluster");
        return;
    };
    if !client_is_here() {
        return;
    }
    let objects = objects();
    let (entries, wanted) = batch(&objects);
    let name = format!("belady-test-{}", std::process::id());
    let mut bucket = plan(&name, "ais", &objects, &entries);
    bucket["objects"] = objects.iter().map(|(key, bytes)| (key.clone(), json!(hex(bytes)))).collect::<serde_json::Map<_, _>>().into();
    let token = std::env::var_os("AIS_AUTHN_TOKEN").and_then(|token| token.into_string().ok());
    let report = run(endpoint.to_str().expect("a URL"), token.as_deref(), &json!({ "buckets": [bucket], "put": true }));
    check(&report["buckets"][&name], &objects, &wanted);
    assert_eq!(report["no_bucket"]["status"], 404);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Vectors of upstream's own unit tests, and of names hashed by its Python client.
#[test]
fn the_fake_hashes_as_upstream_does() {
    assert_eq!(mix(0), 1_905_207_664_160_064_169);
    assert_eq!(mix(4_573_842), 5_026_071_747_115_404_967);
    for (name, hash) in [
        ("t1", 14_214_570_646_889_990_061),
        ("t2", 17_780_131_176_456_335_389),
        ("t3", 7_900_451_649_967_436_292),
        ("t8081", 8_068_595_039_456_460_735),
        ("ais/@#/mybucket/obj1", 17_037_399_786_638_499_582),
        ("aws/@#/b/imagenet/train-000000.tar", 5_457_955_807_616_641_361),
        ("ais/@uuid#ns/b/x", 16_627_063_805_262_011_241),
    ] {
        assert_eq!(digest(name), hash, "{name}");
    }
    assert_eq!(Bck::parse("s3://b").uname("imagenet/train-000000.tar"), "aws/@#/b/imagenet/train-000000.tar");
    assert_eq!(Bck::parse("ais://@uuid#ns/b").uname("x"), "ais/@uuid#ns/b/x");
    let cluster = AisCluster::start(AisConfig::default());
    for (key, target) in [("obj0", "t1"), ("obj1", "t2"), ("obj2", "t3"), ("obj3", "t3"), ("obj4", "t3"), ("obj5", "t1")] {
        assert_eq!(cluster.target_of("mybucket", key).as_deref(), Some(target), "{key}");
    }
    assert_eq!(cluster.target_of("s3://b", "imagenet/train-000000.tar").as_deref(), Some("t3"));
    // xxHash's own sanity values: no input, and inputs of each path of the algorithm against the crate that others use
    assert_eq!(xxh64(b"", 0), 0xef46_db37_51d8_e999);
    let bytes: Vec<u8> = (0..200_u8).collect();
    for length in 0..bytes.len() {
        assert_eq!(xxh64(&bytes[..length], 7), xxhash_rust::xxh64::xxh64(&bytes[..length], 7), "{length}");
    }
}
