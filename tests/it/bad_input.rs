//! Everything a user can get wrong at a mount: exit status not 0, one line that names cause and remedy, nothing left mounted.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use belady::demo::server::fault::{Does, Fault, Operation, When};
use belady::demo::server::{Credentials, Server, ServerConfig};

use crate::support::belady::{Belady, command, is_mounted, run};

fn server(credentials: Option<Credentials>) -> Server {
    let server = Server::start_with_threads(ServerConfig { credentials, ..ServerConfig::default() }, 1).expect("a loopback port");
    server.put("train/a/1.jpg", vec![1; 1000]);
    server.put("train/b/2.jpg", vec![2; 1000]);
    server
}

/// Mounts in both forms, background (as users do) and foreground; expects refusal with these words in one line.
fn refused(url: &str, dir: &str, args: &[&str], words: &[&str]) {
    for foreground in [true, false] {
        let mut all = vec!["mount", url, dir];
        all.extend(args);
        if foreground {
            all.push("--foreground");
        }
        let output = run(&all);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{all:?} was not refused: {}", String::from_utf8_lossy(&output.stdout));
        let errors: Vec<&str> = text.lines().filter(|line| line.starts_with("belady: ")).collect();
        assert_eq!(errors.len(), 1, "one line, not {text:?}");
        for word in words {
            assert!(errors[0].to_lowercase().contains(&word.to_lowercase()), "{word:?} is not in {:?}", errors[0]);
        }
        assert!(!is_mounted(dir.as_ref()), "left mounted");
    }
}

#[test]
fn wrong_stores_are_refused() {
    let credentials = Credentials { access_key: "AKIDTESTONLY".to_owned(), secret_key: "right".to_owned(), session_token: None };
    let open = server(None);
    let locked = server(Some(credentials));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mnt = dir.path().to_str().expect("plain");
    let keys = dir.path().with_extension("keys");
    fs::write(&keys, "[default]\naws_access_key_id = AKIDTESTONLY\naws_secret_access_key = wrong\n").expect("writes");
    let keys_path = keys.to_str().expect("plain");
    let (open_url, locked_url) = (open.url(), locked.url());
    let base = ["--region", "us-east-1", "--endpoint-url"];
    let with = |url: &'static str| [base[0], base[1], base[2], url];
    let open_url: &'static str = Box::leak(open_url.into_boxed_str());
    let locked_url: &'static str = Box::leak(locked_url.into_boxed_str());

    refused("s3://nosuch", mnt, &[&with(open_url)[..], &["--no-sign-request"]].concat(), &["nosuch", "does not exist"]);
    refused("s3://demo", mnt, &[&with(locked_url)[..], &["--credentials-file", keys_path]].concat(), &["secret"]);
    refused("s3://demo", mnt, &[&with(locked_url)[..], &["--no-sign-request"]].concat(), &["denied"]);
    refused("s3://demo", mnt, &[&with("http://127.0.0.1:9")[..], &["--no-sign-request"]].concat(), &["127.0.0.1:9"]);
    // An empty prefix may be mounted, and says so: one with a typo looks the same.
    let empty = Belady::mount("s3://demo/trian", &[&with(open_url)[..], &["--no-sign-request"]].concat());
    assert!(empty.stats()["notes"].to_string().contains("nothing is below s3://demo/trian"));
    drop(empty);
    refused("s3:/demo", mnt, &[], &["s3://bucket"]);
    refused("ftp://demo", mnt, &[], &["s3://"]);
    refused("file:///no/such/folder", mnt, &[], &["/no/such/folder"]);
    fs::remove_file(keys).expect("removes");
}

#[test]
fn wrong_mount_points_are_refused() {
    let source = tempfile::tempdir().expect("a temporary directory");
    fs::write(source.path().join("f"), "x").expect("writes");
    let url = format!("file://{}", source.path().display());
    let dir = tempfile::tempdir().expect("a temporary directory");
    refused(&url, dir.path().join("missing").to_str().expect("plain"), &[], &["missing", "mkdir"]);
    let file = dir.path().join("file");
    fs::write(&file, "x").expect("writes");
    refused(&url, file.to_str().expect("plain"), &[], &["not a directory"]);
    refused(&url, dir.path().to_str().expect("plain"), &[], &["not empty"]);

    let mount = Belady::mount(&url, &[]);
    let busy = run(&["mount", &url, mount.dir.to_str().expect("plain")]);
    assert!(!busy.status.success());
    let text = String::from_utf8_lossy(&busy.stderr);
    assert!(text.contains("belady umount"), "{text}");
    assert_eq!(fs::read(mount.dir.join("f")).expect("the first mount still serves"), b"x");

    // what is no part of it is no mount either
    let missing = mount.dir.join("no such");
    for command in [&["order", "show"][..], &["order", "export"], &["stats"]] {
        let output = run(&[command, &[missing.to_str().expect("plain")]].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && text.contains("no such file or directory in the mount"), "{command:?}: {text}");
    }
    let open = fs::File::open(mount.dir.join("f")).expect("a file");
    let shown = mount.dir.to_str().expect("plain");
    let held = run(&["umount", shown]);
    let text = String::from_utf8_lossy(&held.stderr);
    assert!(text.contains("busy") && text.matches(shown).count() == 1, "{text}");
    drop(open);
}

#[test]
fn wrong_settings_are_refused() {
    let source = tempfile::tempdir().expect("a temporary directory");
    fs::create_dir_all(source.path().join("train/a")).expect("creates");
    fs::write(source.path().join("train/a/1.jpg"), "x").expect("writes");
    let url = format!("file://{}", source.path().display());
    let home = tempfile::tempdir().expect("a temporary directory");
    let mnt = home.path().join("mnt");
    fs::create_dir(&mnt).expect("creates");
    let mnt = mnt.to_str().expect("plain");

    refused(&url, mnt, &["--memory", "lots"], &["lots", "memory"]);
    refused(&url, mnt, &["--order", "torch-distribted:seed=0"], &["torch-distribted", "torch-distributed"]);
    refused(&url, mnt, &["--order", "torch-distributed:world=4:rank=7"], &["rank", "7", "4"]);
    refused(&url, mnt, &["--order", "torch-distributed:root=nosuch"], &["nosuch"]);
    refused(&url, mnt, &["--order", "list:/no/such/list"], &["/no/such/list"]);
    refused(&url, mnt, &["--cache-dir", "/proc/nosuch"], &["/proc/nosuch"]);
    refused(&url, mnt, &["--cache-dir", mnt], &["mount point"]);
    let within = source.path().join("cache");
    refused(&url, mnt, &["--cache-dir", within.to_str().expect("plain")], &["to be mounted"]);
    assert!(!within.exists(), "the dataset is left alone");
    refused(&url, mnt, &["--memory", "999999TiB"], &["of this machine"]);
    refused(&url, mnt, &["--expect-manifest", "00000000000000000000000000000000"], &["manifest"]);
    refused(&url, mnt, &["--listen", "127.0.0.1:notaport"], &["listen"]);
    refused(&url, mnt, &["--read-deadline", "soon"], &["soon"]);
    let config = home.path().join("belady.toml");
    fs::write(&config, "memroy = \"1GiB\"\n").expect("writes");
    refused(&url, mnt, &["--config", config.to_str().expect("plain")], &["memroy", "memory"]);
}

/// Many nodes begin at the same moment: a store that asks for patience gets some.
#[test]
fn a_store_that_is_busy_at_first_is_asked_again() {
    for (status, code) in [(503, "SlowDown"), (500, "InternalError")] {
        let server = server(None);
        server.add_fault(Fault::on(Operation::List, When::First(2), Does::Status { status, code, retry_after: None }));
        let mount = Belady::mount_bucket(&server, &[]);
        assert_eq!(fs::read(mount.dir.join("train/a/1.jpg")).expect("it serves").len(), 1000, "{status}");
    }
}

/// Ctrl-C reaches the command but not the session of its background child, which would list the bucket to the end and hold the mount point.
#[test]
fn a_command_that_is_interrupted_leaves_no_child_behind() {
    const PATIENCE: Duration = Duration::from_secs(20); // less than the store's 30 s to answer
    let server = server(None);
    server.add_fault(Fault::on(Operation::List, When::Always, Does::Hang));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (url, mnt) = (server.url(), dir.path().to_str().expect("plain"));
    let args = ["mount", "s3://demo", mnt, "--endpoint-url", &url, "--no-sign-request", "--region", "us-east-1"];
    let mut interrupted = command(&args).stderr(Stdio::null()).spawn().expect("the program starts");
    let began = Instant::now();
    while server.counters().list == 0 {
        assert!(began.elapsed() < PATIENCE, "the child does not ask the store");
        std::thread::yield_now();
    }
    let of_command = format!("/proc/{0}/task/{0}/children", interrupted.id());
    let child: u32 = fs::read_to_string(of_command).expect("proc is mounted").trim().parse().expect("one child");
    interrupted.kill().expect("our child");
    interrupted.wait().expect("our child");
    let began = Instant::now();
    // An ended process that nobody has waited for yet has no command line any more.
    while fs::read(format!("/proc/{child}/cmdline")).is_ok_and(|words| !words.is_empty()) {
        assert!(began.elapsed() < PATIENCE, "the child lives on");
        std::thread::yield_now();
    }
    assert!(!is_mounted(dir.path()));
}

/// A daemon that is stopped (or hangs) holds its mount: no command may touch that and hang, too.
#[test]
fn a_daemon_that_hangs_does_not_hang_the_commands() {
    const ENDS: Duration = Duration::from_secs(40); // each waits 10 s for an answer, once
    let server = server(None);
    let mount = Belady::mount_bucket(&server, &[]);
    let (dir, pid) = (mount.dir.to_str().expect("plain"), mount.pid());
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("our child");
    let ask = |args: &[&str]| {
        let asking = command(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let (id, (said, saying)) = (rustix::process::Pid::from_child(&asking), std::sync::mpsc::channel());
        std::thread::spawn(move || said.send(asking.wait_with_output()));
        let output = saying.recv_timeout(ENDS).unwrap_or_else(|_| {
            // Else it would hang for ever, and the test with it.
            rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("our child");
            rustix::process::kill_process(id, rustix::process::Signal::KILL).expect("our child");
            panic!("{args:?} hangs");
        });
        String::from_utf8(output.expect("our child").stderr).expect("text")
    };
    assert!(ask(&["mount", "s3://demo", dir]).contains("belady umount"));
    std::thread::scope(|scope| {
        let stats = scope.spawn(|| ask(&["stats", dir]));
        assert!(ask(&["umount", dir]).contains("--lazy"));
        assert!(stats.join().expect("no panic").contains("does not answer"));
    });
    assert!(is_mounted(&mount.dir));
    assert_eq!(ask(&["umount", dir, "--lazy"]), "");
    assert!(!is_mounted(&mount.dir));
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("our child");
}

#[test]
fn a_second_mount_does_not_share_a_locked_cache() {
    let server = server(None);
    let cache = tempfile::tempdir().expect("a temporary directory");
    let args = ["--cache-dir", cache.path().to_str().expect("plain"), "--disk", "10MiB"];
    let first = Belady::mount_bucket(&server, &args);
    let (url, endpoint) = (format!("s3://{}", server.bucket()), server.url());
    let mut all = vec!["--endpoint-url", &endpoint, "--no-sign-request", "--region", "us-east-1"];
    all.extend(args);
    let words = Belady::try_mount(&url, &all).expect_err("one owner of a cache folder");
    assert!(words.contains(cache.path().to_str().expect("plain")), "{words}");
    assert_eq!(fs::read(first.dir.join("train/a/1.jpg")).expect("the first mount still serves").len(), 1000);
}
