//! `configs/`: every file parses, and default.toml is the complete list of settings at their defaults.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use belady::config::keys::KEYS;
use belady::config::machine::Machine;
use belady::config::resolve::{Layers, resolve};
use belady::config::{Settings, file};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("configs")
}

/// A machine with root's defaults, so that the file's figures are the same everywhere.
fn machine() -> Machine {
    Machine {
        memory_total: 128 << 30,
        memory_available: 64 << 30,
        cgroup_headroom: None,
        cgroup_limit: None,
        uid: 0,
        gid: 0,
        user_allow_other: false,
        runtime_dir: "/run/belady".into(),
        disk: |_| Ok((1 << 40, 2 << 40)),
    }
}

fn settings(text: &str) -> Settings {
    let layers = Layers::from_file(text, "default.toml").unwrap();
    let mut settings = resolve("s3://b", Path::new("/mnt"), layers, &machine()).unwrap();
    settings.effective.clear(); // origins differ, of course
    settings
}

/// The lines `# key = value`, without the `# `.
fn uncommented(text: &str) -> String {
    let is_key = |line: &&str| line.split_once(" = ").is_some_and(|(name, _)| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
    text.lines().filter_map(|line| line.strip_prefix("# ")).filter(is_key).fold(String::new(), |text, line| text + line + "\n")
}

#[test]
fn every_file_parses() {
    let mut seen = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let name = path.display().to_string();
            file::parse(&fs::read_to_string(&path).unwrap(), &name).unwrap_or_else(|errors| panic!("{errors:#?}"));
            seen += 1;
        }
    }
    assert!(seen >= 4, "only {seen} files");
}

/// Every file but the ones with host files in them resolves to settings, orders included.
#[test]
fn every_order_in_them_is_one() {
    for name in ["imagenet.toml", "ddp.toml", "minio.toml"] {
        let layers = Layers::from_file(&fs::read_to_string(folder().join(name)).unwrap(), name).unwrap();
        resolve("s3://b", Path::new("/mnt"), layers, &machine()).unwrap_or_else(|errors| panic!("{errors:#?}"));
    }
}

#[test]
fn default_toml_names_exactly_the_known_keys_in_their_order() {
    let text = fs::read_to_string(folder().join("default.toml")).unwrap();
    assert!(file::parse(&text, "default.toml").unwrap().is_empty(), "everything in it is commented out");
    let named: Vec<String> = uncommented(&text).lines().map(|line| line.split(" = ").next().unwrap().to_owned()).collect();
    assert_eq!(named, KEYS.map(|key| key.name.to_owned()));
    assert_eq!(named.iter().collect::<BTreeSet<_>>().len(), KEYS.len());
}

#[test]
fn default_toml_shows_the_defaults() {
    let text = uncommented(&fs::read_to_string(folder().join("default.toml")).unwrap());
    assert_eq!(settings(&text), settings(""));
    // With a cache directory the size of the disk tier is seen, too.
    let with_cache = |text: &str| settings(&(text.replace("cache_dir = \"\"\n", "") + "cache_dir = \"/cache\"\n"));
    assert_eq!(with_cache(&text), with_cache(""));
    assert_ne!(settings(&text.replace("300s", "301s")), settings(""), "the comparison sees a difference");
}

#[test]
fn every_key_in_default_toml_has_its_sentence() {
    let text = fs::read_to_string(folder().join("default.toml")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for key in KEYS {
        let at = lines.iter().position(|line| line.starts_with(&format!("# {} = ", key.name))).unwrap();
        assert!(
            lines[at - 1].starts_with("# ") && lines[at - 1].ends_with('.') || lines[at - 1].ends_with(". "),
            "{}: {:?}",
            key.name,
            lines[at - 1]
        );
        assert_eq!(lines.get(at + 1).copied().unwrap_or(""), "", "one key, one paragraph: {}", key.name);
    }
}
