//! The promises of the README, each a test of the same name, on the real program over the real kernel and our S3 server.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use belady::demo::dataset::{Dataset, DatasetSpec};
use belady::demo::server::fault::{Does, Fault, Operation, When};
use belady::demo::server::{Credentials, FirstByte, Server, ServerConfig};

use crate::support::belady::Belady;

fn server_with(config: ServerConfig, files: u32) -> (Server, Dataset) {
    let server = Server::start_with_threads(config, 1).expect("a loopback port");
    let dataset = DatasetSpec { files, classes: 8, mean_bytes: 30_000, ..DatasetSpec::default() }.build();
    server.add_dataset(&dataset);
    (server, dataset)
}

fn check_all(mount: &Belady, dataset: &Dataset) {
    for entry in &dataset.entries {
        let bytes = fs::read(mount.dir.join(&entry.key)).unwrap_or_else(|error| panic!("{}: {error}", entry.key));
        assert!(entry.content.matches(&bytes), "{} has wrong bytes", entry.key);
    }
}

fn du(dir: &std::path::Path) -> u64 {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .map_while(Result::ok)
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => du(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0, // gone in between
        })
        .sum()
}

#[test]
fn a_read_returns_exactly_the_bytes_of_one_version_or_an_error() {
    let (server, dataset) = server_with(ServerConfig::default(), 300);
    // a rough store: refusals, cut bodies, resets, lies about the length
    for (p, does) in [
        (0.10, Does::Status { status: 503, code: "SlowDown", retry_after: None }),
        (0.10, Does::Cut { after: 7_000 }),
        (0.05, Does::ResetBeforeBody),
        (0.05, Does::CloseIdle),
        (0.05, Does::WrongContentLength { delta: -9 }),
        (0.05, Does::IgnoreRange),
        (0.05, Does::ErrorAsSuccess { code: "InternalError" }),
    ] {
        server.add_fault(Fault::on(Operation::Get, When::Probability { p, seed: dataset.total_bytes() ^ p.to_bits() ^ 7 }, does));
    }
    let mount = Belady::mount_bucket(&server, &["--memory", "4MiB"]);
    check_all(&mount, &dataset);
    check_all(&mount, &dataset);
    assert!(mount.stat("/store/retries") > 10.0, "the faults struck");
    assert!(server.counters().faults > 30);
}

#[test]
fn a_changed_object_is_never_mixed() {
    let (server, _) = server_with(ServerConfig::default(), 4);
    let (old, new) = (vec![b'a'; 3 << 20], vec![b'b'; 2 << 20]);
    server.put("big/object.bin", old.clone());
    let large = vec![b'c'; 40 << 20];
    server.put("big/large.bin", large.clone());
    let mount = Belady::mount_bucket(&server, &["--memory", "64MiB"]);
    let path = mount.dir.join("big/object.bin");
    assert_eq!(fs::read(&path).expect("first version"), old);
    let mut held = File::open(mount.dir.join("big/large.bin")).expect("opens");
    let mut first = vec![0; 1 << 20];
    held.read_exact(&mut first).expect("first MiB of the old version");
    server.put("big/large.bin", vec![b'd'; 40 << 20]);
    server.put("big/object.bin", new.clone());
    // cached: still the first version, whole; never a mix
    let again = fs::read(&path).expect("reads");
    assert!(again == old || again == new, "a mix of {} bytes", again.len());
    let mut tail = vec![0; 1 << 20];
    match held.read_exact_at(&mut tail, 39 << 20) {
        Ok(()) => assert!(tail.iter().all(|&byte| byte == b'c'), "the open handle got bytes of another version"),
        Err(error) => assert!(matches!(error.raw_os_error(), Some(116 | 5)), "ESTALE or EIO, not {error}"),
    }
}

/// The kernel keeps pages and length by inode: a new reader's must not reach a handle of the old version, nor its end cut that one short.
#[test]
fn a_handle_of_a_replaced_version_sees_none_of_the_new_one() {
    let (server, _) = server_with(ServerConfig::default(), 4);
    for (name, new_len) in [("same", 4_000_000), ("shorter", 1_500_000), ("longer", 6_000_000)] {
        let (old, new) = (vec![b'a'; 4_000_000], vec![b'b'; new_len]);
        server.put("object.bin", old);
        let mount = Belady::mount_bucket(&server, &["--memory", "0", "--disable-kernel", "passthrough"]);
        let path = mount.dir.join("object.bin");
        let mut held = File::open(&path).expect("opens");
        held.read_exact(&mut vec![0; 1 << 20]).expect("first MiB of the old version");
        server.put("object.bin", new.clone());
        assert!(fs::read(&path).expect("a new open gets the new version") == new, "{name}");
        assert_eq!(fs::metadata(&path).expect("stat").len(), new_len as u64, "{name}");
        let mut rest = Vec::new();
        let error = held.read_to_end(&mut rest).expect_err("not an end, and no bytes of the new version");
        assert_eq!(error.raw_os_error(), Some(116), "{name}: ESTALE, not {error}");
        assert!(rest.iter().all(|&byte| byte == b'a'), "{name}: mixed");
    }
}

/// A part of another shard that nobody reads any more makes room; and a shard that once had none is kept when it is opened with room.
#[test]
fn a_large_object_without_room_is_kept_once_there_is_room() {
    let (server, _) = server_with(ServerConfig::default(), 4);
    let body = |seed: u8| (0..30_u32 << 20).map(|at| (at >> 7) as u8 ^ seed).collect::<Vec<u8>>();
    server.put("a.tar", body(1));
    server.put("b.tar", body(2));
    let mount = Belady::mount_bucket(&server, &["--memory", "40MiB"]);
    let mut a = File::open(mount.dir.join("a.tar")).expect("opens");
    a.read_exact(&mut vec![0; 24 << 20]).expect("reads a part");
    assert!(fs::read(mount.dir.join("b.tar")).expect("reads past the cache") == body(2));
    drop(a);
    // The kernel tells of a close later, and an open before that finds no room: a later one does.
    let begun = std::time::Instant::now();
    loop {
        server.reset_counters();
        assert!(fs::read(mount.dir.join("b.tar")).expect("reads into the cache, then from it") == body(2));
        if server.counters().get == 0 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "never kept");
    }
}

#[test]
fn the_next_open_serves_the_new_version() {
    let (server, _) = server_with(ServerConfig::default(), 4);
    server.put("one.bin", vec![1; 100_000]);
    let mount = Belady::mount_bucket(&server, &["--memory", "0"]);
    let path = mount.dir.join("one.bin");
    assert_eq!(fs::metadata(&path).expect("stat").len(), 100_000);
    let new = vec![2; 150_001];
    server.put("one.bin", new.clone());
    assert_eq!(fs::read(&path).expect("adopts the new version"), new);
    assert_eq!(fs::metadata(&path).expect("stat").len(), 150_001);
    assert!(server.counters().head <= 1, "one HEAD, counted: {:?}", server.counters());
}

#[test]
fn a_read_ends_within_the_read_deadline() {
    let (server, dataset) = server_with(ServerConfig::default(), 40);
    let stuck = dataset.entries[3].key.clone();
    server.add_fault(Fault::on(Operation::Get, When::Always, Does::Stall { after: 10 }).below(&stuck));
    let mount = Belady::mount_bucket(&server, &["--memory", "8MiB", "--read-deadline", "3s"]);
    let path = mount.dir.join(&stuck);
    let reader = std::thread::spawn(move || fs::read(path).map(|bytes| bytes.len()));
    // one stuck request never stalls another
    for entry in dataset.entries.iter().filter(|entry| entry.key != stuck) {
        assert!(entry.content.matches(&fs::read(mount.dir.join(&entry.key)).expect("the others answer")));
    }
    let error = reader.join().expect("no panic").expect_err("the stuck one ends with an error");
    assert_eq!(error.raw_os_error(), Some(5), "EIO, not {error}");
    assert!(mount.stat("/reads/errors") >= 1.0);
}

#[test]
fn a_request_that_hangs_is_given_up_while_its_reader_still_waits() {
    let (server, dataset) = server_with(ServerConfig::default(), 8);
    let mount = Belady::mount_bucket(&server, &["--memory", "8MiB", "--read-deadline", "9s"]);
    server.add_fault(Fault::on(Operation::Get, When::First(1), Does::Hang));
    let entry = &dataset.entries[0];
    assert!(entry.content.matches(&fs::read(mount.dir.join(&entry.key)).expect("the second request answers")));
}

/// The kernel repeats a failed read by itself: that is no second deadline.
#[test]
fn a_read_is_not_waited_for_twice() {
    let (server, dataset) = server_with(ServerConfig::default(), 8);
    server.add_fault(Fault::on(Operation::Get, When::Always, Does::Hang));
    let mount = Belady::mount_bucket(&server, &["--memory", "8MiB", "--read-deadline", "6s"]);
    let mut file = File::open(mount.dir.join(&dataset.entries[0].key)).expect("opens after the open hold");
    let began = std::time::Instant::now();
    let error = file.read(&mut [0; 20_000]).expect_err("nothing ever comes");
    assert_eq!(error.raw_os_error(), Some(5), "EIO, not {error}");
    assert!(began.elapsed() < Duration::from_secs(11), "two deadlines of 6 s: {:?}", began.elapsed());
}

#[test]
fn budgets_hold_always() {
    let (server, dataset) = server_with(ServerConfig::default(), 600);
    let cache = tempfile::tempdir().expect("a temporary directory");
    let dir = cache.path().to_str().expect("plain");
    let order = "torch-distributed:seed=1:world=1:rank=0:root=train";
    let mount = Arc::new(Belady::mount_bucket(&server, &["--memory", "3MiB", "--cache-dir", dir, "--disk", "5MiB", "--order", order]));
    let readers: Vec<_> = (0..4)
        .map(|part| {
            let (mount, dataset) = (Arc::clone(&mount), dataset.clone());
            std::thread::spawn(move || {
                for round in 0..3 {
                    for entry in dataset.entries.iter().skip(part + round).step_by(4) {
                        assert!(entry.content.matches(&fs::read(mount.dir.join(&entry.key)).expect("reads")), "{}", entry.key);
                    }
                }
            })
        })
        .collect();
    let mut samples = 0;
    while readers.iter().any(|reader| !reader.is_finished()) {
        let stats = mount.stats();
        for tier in stats["tiers"].as_array().expect("tiers") {
            assert!(tier["used_bytes"].as_u64() <= tier["capacity_bytes"].as_u64(), "{tier}");
        }
        assert!(du(cache.path()) <= 5 << 20, "the disk holds more than its budget");
        samples += 1;
    }
    for reader in readers {
        reader.join().expect("every byte right");
    }
    assert!(samples > 3, "the budgets were looked at while it ran");
}

#[test]
fn the_cache_survives_restarts_and_crashes() {
    let (server, dataset) = server_with(ServerConfig::default(), 400);
    let cache = tempfile::tempdir().expect("a temporary directory");
    let dir = cache.path().to_str().expect("plain");
    let args = ["--memory", "0", "--cache-dir", dir, "--disk", "100MiB"];
    let mount = Arc::new(Belady::mount_bucket(&server, &args));
    // kill -9 in the middle of cache writes
    let readers: Vec<_> = (0..4)
        .map(|part| {
            let (mount, dataset) = (mount.dir.clone(), dataset.clone());
            std::thread::spawn(move || {
                let kept = dataset.entries.iter().skip(part).step_by(4);
                kept.take_while(|entry| fs::read(mount.join(&entry.key)).is_ok()).count()
            })
        })
        .collect();
    mount.wait_for("half of it read", |stats| stats["reads"]["opens"].as_u64() > Some(200));
    Arc::into_inner(mount).expect("one holder").kill();
    let read: usize = readers.into_iter().map(|reader| reader.join().expect("no panic")).sum();
    assert!(read >= 190, "{read}");
    server.reset_counters();
    let mount = Belady::mount_bucket(&server, &args);
    check_all(&mount, &dataset);
    let gets = server.counters().get;
    assert!(gets <= 400 - 180, "what was cached was used: {gets} GETs for 400 files after {read} reads");
    // an orderly restart keeps everything
    assert_eq!(mount.unmount(), 0);
    server.reset_counters();
    let mount = Belady::mount_bucket(&server, &args);
    check_all(&mount, &dataset);
    assert_eq!(server.counters().get, 0, "everything was here");
    assert!(mount.stat("/reads/hits/disk") > 0.0);
}

#[test]
fn damage_in_the_cache_is_noticed_and_fetched_again() {
    let (server, dataset) = server_with(ServerConfig::default(), 60);
    let cache = tempfile::tempdir().expect("a temporary directory");
    let dir = cache.path().to_str().expect("plain");
    let args = ["--memory", "0", "--cache-dir", dir, "--disk", "100MiB"];
    let mount = Belady::mount_bucket(&server, &args);
    check_all(&mount, &dataset);
    assert_eq!(mount.unmount(), 0);
    let mut damaged = 0;
    damage(cache.path(), &mut damaged);
    assert!(damaged >= 50, "{damaged} cache files were found and damaged");
    let mount = Belady::mount_bucket(&server, &args);
    check_all(&mount, &dataset);
}

/// Flips a byte in the middle of every large file, cuts every third short.
fn damage(dir: &std::path::Path, count: &mut usize) {
    for entry in fs::read_dir(dir).expect("a directory").map_while(Result::ok) {
        let meta = entry.metadata().expect("stat");
        if meta.is_dir() {
            damage(&entry.path(), count);
        } else if meta.len() > 1_000 {
            *count += 1;
            let file = fs::OpenOptions::new().read(true).write(true).open(entry.path()).expect("opens");
            if count.is_multiple_of(3) {
                file.set_len(meta.len() / 2).expect("cuts");
            } else {
                let mut byte = [0];
                file.read_exact_at(&mut byte, meta.len() / 2).expect("reads");
                file.write_all_at(&[!byte[0]], meta.len() / 2).expect("writes");
            }
        }
    }
}

#[test]
fn a_deleted_cache_directory_degrades_nothing_a_reader_sees() {
    let (server, dataset) = server_with(ServerConfig::default(), 60);
    let cache = tempfile::tempdir().expect("a temporary directory");
    let inner = cache.path().join("inner");
    fs::create_dir(&inner).expect("creates");
    let mount = Belady::mount_bucket(&server, &["--memory", "0", "--cache-dir", inner.to_str().expect("plain"), "--disk", "100MiB"]);
    check_all(&mount, &dataset);
    fs::remove_dir_all(&inner).expect("removes");
    check_all(&mount, &dataset);
    check_all(&mount, &dataset);
}

#[test]
fn listing_costs_list_pages_only() {
    let server = Server::start_with_threads(ServerConfig::default(), 1).expect("a loopback port");
    server.add_dataset(&DatasetSpec { files: 10_000, classes: 50, mean_bytes: 2_000, ..DatasetSpec::default() }.build());
    let mount = Belady::mount_bucket(&server, &[]);
    for (program, args) in [("ls", ["-lR"].as_slice()), ("du", &["-s"]), ("find", &["-size", "+1"])] {
        let mut command = Command::new(program);
        let output =
            if program == "find" { command.arg(&mount.dir).args(args).output() } else { command.args(args).arg(&mount.dir).output() };
        let output = output.expect("coreutils");
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let names: BTreeSet<_> = fs::read_dir(mount.dir.join("train")).expect("lists").map(|entry| entry.expect("entry").file_name()).collect();
    assert_eq!(names.len(), 50);
    let counters = server.counters();
    assert_eq!((counters.head, counters.get), (0, 0), "{counters:?}");
    assert!(counters.list <= 20, "10 pages of 1,000 and little more: {counters:?}");
}

#[test]
fn one_cold_file_is_fetched_once_for_64_threads() {
    let (server, dataset) =
        server_with(ServerConfig { first_byte: FirstByte::constant(Duration::from_millis(50)), ..ServerConfig::default() }, 10);
    let mount = Belady::mount_bucket(&server, &["--memory", "16MiB"]);
    let entry = dataset.entries[5].clone();
    let start = Arc::new(Barrier::new(64));
    let readers: Vec<_> = (0..64)
        .map(|_| {
            let (path, entry, start) = (mount.dir.join(&entry.key), entry.clone(), Arc::clone(&start));
            std::thread::spawn(move || {
                start.wait();
                entry.content.matches(&fs::read(path).expect("reads"))
            })
        })
        .collect();
    assert!(readers.into_iter().all(|reader| reader.join().expect("no panic")));
    assert_eq!(server.counters().get, 1);
}

#[test]
fn read_only_and_no_credential_in_any_text() {
    let credentials = Credentials { access_key: "AKIDTESTONLY".to_owned(), secret_key: "s3cr3tTestOnly".to_owned(), session_token: None };
    let (server, dataset) = server_with(ServerConfig { credentials: Some(credentials), ..ServerConfig::default() }, 10);
    let keys = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(keys.path(), "[default]\naws_access_key_id = AKIDTESTONLY\naws_secret_access_key = s3cr3tTestOnly\n").expect("writes");
    let (url, endpoint) = (format!("s3://{}", server.bucket()), server.url());
    let log = tempfile::NamedTempFile::new().expect("a temporary file");
    let mount = Belady::mount(
        &url,
        &[
            "--endpoint-url",
            &endpoint,
            "--region",
            "us-east-1",
            "--credentials-file",
            keys.path().to_str().expect("plain"),
            "--log-level",
            "trace",
            "--log-file",
            log.path().to_str().expect("plain"),
        ],
    );
    check_all(&mount, &dataset);
    let path = mount.dir.join(&dataset.entries[0].key);
    for error in [
        File::options().write(true).open(&path).expect_err("opened for writing"),
        fs::write(mount.dir.join("new"), b"x").expect_err("created"),
        fs::create_dir(mount.dir.join("d")).expect_err("mkdir"),
        fs::remove_file(&path).expect_err("unlinked"),
        fs::rename(&path, mount.dir.join("x")).expect_err("renamed"),
    ] {
        assert_eq!(error.raw_os_error(), Some(30), "EROFS, not {error}");
    }
    let mut texts = fs::read_to_string(log.path()).expect("the log reads");
    for name in ["stats", "stats.json", "config.toml", "order"] {
        texts += &fs::read_to_string(mount.dir.join(".belady").join(name)).expect("control files read");
    }
    assert!(texts.len() > 1_000);
    assert!(!texts.contains("s3cr3tTestOnly") && !texts.contains("Signature="), "a credential in a text");
}

#[test]
fn more_open_files_than_memory_are_all_served() {
    let server = Server::start_with_threads(ServerConfig::default(), 1).expect("a loopback port");
    let body = |n: u8| vec![n; 3 << 20];
    for n in 0..60 {
        server.put(&format!("f/{n:02}.bin"), body(n));
    }
    // 180 MiB held open; 4 MiB of tier, and the transient budget below that
    let mount = Belady::mount_bucket(&server, &["--memory", "4MiB"]);
    let mut files: Vec<File> = (0..60).map(|n| File::open(mount.dir.join(format!("f/{n:02}.bin"))).expect("opens")).collect();
    for (n, file) in (0..60).zip(&mut files) {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).expect("reads");
        assert!(bytes == body(n), "file {n}");
    }
    for tier in mount.stats()["tiers"].as_array().expect("tiers") {
        assert!(tier["used_bytes"].as_u64() <= tier["capacity_bytes"].as_u64(), "{tier}");
    }
}

#[test]
fn parts_of_a_large_object_are_fetched_once_and_kept_between_opens() {
    let server = Server::start_with_threads(ServerConfig::default(), 1).expect("a loopback port");
    let body: Vec<u8> = (0..48_u32 << 20).map(|i| (i / 7 % 251) as u8).collect();
    server.put("shards/0.tar", body.clone());
    let mount = Belady::mount_bucket(&server, &["--memory", "128MiB", "--disable-kernel", "keep-cache"]);
    let path = mount.dir.join("shards/0.tar");
    let piece = |offset: u64| {
        let mut bytes = vec![0; 64 << 10];
        File::open(&path).expect("opens").read_exact_at(&mut bytes, offset).expect("reads");
        let at = usize::try_from(offset).expect("small");
        assert!(bytes == body[at..at + bytes.len()], "wrong bytes at {offset}");
    };
    // a header, an index at the end, records here and there: paid for once, in blocks, and not run ahead of
    for _ in 0..2 {
        for offset in [0, 47 << 20, 20 << 20, 33 << 20, 5 << 20] {
            piece(offset);
        }
    }
    let sparse = server.counters();
    assert!(sparse.bytes <= 5 * (2 << 20), "{sparse:?}");
    // a scan fetches the rest, each block once, and leaves an ordinary cached file
    assert!(fs::read(&path).expect("reads") == body);
    let scanned = server.counters();
    assert!(scanned.bytes <= (48 << 20) + (1 << 20), "{scanned:?}");
    assert!(fs::read(&path).expect("reads") == body);
    assert_eq!(server.counters().get, scanned.get, "nothing is fetched again");
    assert_eq!(mount.stat("/reads/errors"), 0.0);
}

#[test]
fn a_restart_under_an_order_starts_with_what_the_disk_holds() {
    let (server, dataset) = server_with(ServerConfig::default(), 600);
    let cache = tempfile::tempdir().expect("a temporary directory");
    let (memory, disk) = (format!("{}", dataset.total_bytes() / 8), format!("{}", dataset.total_bytes() / 2));
    let dir = cache.path().to_str().expect("plain");
    let args = ["--memory", &memory, "--cache-dir", dir, "--disk", &disk, "--order", "sequential:root=train"];
    let mount = Belady::mount_bucket(&server, &args);
    check_all(&mount, &dataset);
    assert_eq!(mount.unmount(), 0);
    server.reset_counters();
    let mount = Belady::mount_bucket(&server, &args);
    check_all(&mount, &dataset);
    mount.wait_for("all accesses counted", |stats| stats["reads"]["accesses"] == 600);
    let kept = mount.stat("/reads/bytes/retained") / mount.stat("/reads/bytes/opened");
    assert!(kept > 0.30, "half of it was on the disk, and {kept} of it was used");
    let fetched = server.counters().bytes as f64 / dataset.total_bytes() as f64;
    assert!(fetched < 0.9, "{fetched} of the dataset was fetched again");
}

#[test]
fn large_objects_in_an_order_are_read_by_ranges_and_fetched_once() {
    let server = Server::start_with_threads(ServerConfig::default(), 1).expect("a loopback port");
    let body = |n: u8| -> Vec<u8> { (0..20_u32 << 20).map(|i| (i % 253) as u8 ^ n).collect() };
    for n in 0..4 {
        server.put(&format!("shards/{n}.tar"), body(n));
        server.put(&format!("shards/{n}.json"), vec![n; 2000]);
    }
    let cache = tempfile::tempdir().expect("a temporary directory");
    let dir = cache.path().to_str().expect("plain");
    let args = ["--memory", "0", "--cache-dir", dir, "--disk", "200MiB", "--order", "sequential:root=shards:files=sorted"];
    let mount = Belady::mount_bucket(&server, &args);
    for _ in 0..2 {
        for n in 0..4 {
            assert!(fs::read(mount.dir.join(format!("shards/{n}.json"))).expect("reads") == vec![n; 2000]);
            assert!(fs::read(mount.dir.join(format!("shards/{n}.tar"))).expect("reads") == body(n), "shard {n}");
        }
    }
    let counters = server.counters();
    assert!(counters.bytes <= (4 * (20 << 20)) + (4 << 20), "{counters:?}");
}

#[test]
fn a_lazy_unmount_serves_open_files_until_they_are_closed() {
    let server = Server::start_with_threads(ServerConfig::default(), 1).expect("a loopback port");
    let body: Vec<u8> = (0..24_u32 << 20).map(|i| (i % 241) as u8).collect();
    server.put("f/large.bin", body.clone());
    let mount = Belady::mount_bucket(&server, &["--memory", "64MiB"]);
    let mut file = File::open(mount.dir.join("f/large.bin")).expect("opens");
    let dir = mount.dir.to_str().expect("plain").to_owned();
    let busy = crate::support::belady::run(&["umount", &dir]);
    assert!(!busy.status.success() && String::from_utf8_lossy(&busy.stderr).contains("--lazy"), "{busy:?}");
    assert!(crate::support::belady::run(&["umount", "--lazy", &dir]).status.success());
    assert!(!crate::support::belady::is_mounted(&mount.dir));
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).expect("the open file is served");
    assert!(bytes == body);
    drop(file);
    assert_eq!(mount.wait(), 0, "the daemon ends with its last reader");
}
