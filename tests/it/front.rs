//! The program as a user calls it: exit codes, one-line errors, no mount left. What needs a real mount is elsewhere.

use std::process::{Command, Output};

/// `belady WORDS...`, with nothing of this environment.
fn belady(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_belady")).args(words).env_clear().output().unwrap()
}

/// Ends with `status` and says `cause` in lines that all begin with `belady: `.
fn check_error(words: &[&str], status: i32, cause: &str) {
    let output = belady(words);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{words:?}: {error}");
    assert!(error.contains(cause), "{words:?}: {error:?} does not say {cause:?}");
    assert!(error.lines().all(|line| line.starts_with("belady: ")), "{words:?}: {error}");
    assert!(output.stdout.is_empty(), "{words:?}");
}

#[test]
fn wrong_usage_is_status_2_and_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().to_str().unwrap();
    check_error(&["mount", "s3://b"], 2, "<DIR>");
    check_error(&["mount", "s3://b", dir, "--cachedir", "/x"], 2, "--cache-dir");
    check_error(&["frobnicate"], 2, "frobnicate");
    check_error(&["mount", "bucket", dir], 2, "s3://bucket");
    check_error(&["mount", "s3://b", dir, "--memory", "lots"], 2, "32GiB");
    check_error(&["mount", "s3://b", dir, "--config", "/no/such.toml"], 2, "/no/such.toml");
    check_error(&["mount", "s3://b", dir, "--cache-dir", &format!("{dir}/cache")], 2, "choose a cache directory elsewhere");
}

#[test]
fn several_errors_are_told_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let output = belady(&["mount", "s3://b", dir.path().to_str().unwrap(), "--memory=x", "--listen=x", "--uid=x"]);
    assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 3);
}

#[test]
fn bad_mount_points_are_named_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let full = dir.path().join("full");
    std::fs::create_dir_all(full.join("x")).unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    check_error(&["mount", "file:///etc", &path("none")], 1, "mkdir");
    check_error(&["mount", "file:///etc", &path("file")], 1, "not a directory");
    check_error(&["mount", "file:///etc", &path("full")], 1, "not empty");
    check_error(&["mount", "file:///etc", "/proc"], 1, "mounted there already");
    check_error(&["umount", &path("full")], 1, "nothing is mounted there");
    check_error(&["stats", &path("full")], 1, "no belady is mounted there");
}

#[test]
fn version_and_help_go_to_standard_output() {
    let output = belady(&["--version"]);
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("belady {}\n", env!("CARGO_PKG_VERSION")));
    let help = String::from_utf8(belady(&["mount", "--help"]).stdout).unwrap();
    for key in belady::config::keys::KEYS {
        assert!(help.contains(&format!("--{}", key.name.replace('_', "-"))), "{} is not in the help", key.name);
    }
}

#[test]
fn print_config_mounts_nothing_and_shows_origins() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_belady"));
    let command = command.args(["mount", "s3://b", dir.path().to_str().unwrap(), "--print-config", "--memory=1GiB"]);
    let output = command.env_clear().env("BELADY_MAX_REQUESTS", "9").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("memory = \"1GiB\"  # command line\n"), "{text}");
    assert!(text.contains("max_requests = 9  # environment BELADY_MAX_REQUESTS\n"), "{text}");
    assert!(text.contains("read_deadline = \"300s\"  # default\n"), "{text}");
}
