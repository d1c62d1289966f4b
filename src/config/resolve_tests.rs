//! Tests of `resolve.rs` and `print.rs`: layers in, settings or errors out.

use super::super::{KernelFeature, OnChange, print};
use super::*;
use clap::Parser;
use std::collections::HashMap;

fn machine() -> Machine {
    Machine {
        memory_total: 200 << 30,
        memory_available: 100 << 30,
        cgroup_headroom: None,
        cgroup_limit: None,
        uid: 0,
        gid: 0,
        user_allow_other: false,
        runtime_dir: "/run/belady".into(),
        disk: |_| Ok((500 << 30, 1000 << 30)),
    }
}

/// What `belady mount s3://b /mnt FLAGS...` resolves to, in this environment, on this machine.
fn resolved_on(flags: &[&str], env: &[(&str, &str)], machine: &Machine) -> Result<Settings, Vec<String>> {
    let cli = super::super::cli::Cli::try_parse_from([&["belady", "mount", "s3://b", "/mnt"], flags].concat()).unwrap();
    let super::super::cli::Command::Mount(args) = cli.command else { panic!("not mount") };
    let env: HashMap<_, _> = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    resolve(&args.url, &args.dir, Layers::gather(&args, &|name| env.get(name).cloned())?, machine)
}

fn resolved(flags: &[&str]) -> Settings {
    resolved_on(flags, &[], &machine()).unwrap()
}

fn errors(flags: &[&str]) -> Vec<String> {
    resolved_on(flags, &[], &machine()).unwrap_err()
}

fn origin(settings: &Settings, key: &str) -> String {
    settings.effective.iter().find(|effective| effective.name == key).unwrap().origin.to_string()
}

#[test]
fn defaults_are_as_published() {
    let s = resolved(&[]);
    assert_eq!(s.memory, ByteSize(10 << 30), "10 % of what is available");
    assert!(s.tiers.is_empty() && s.allow_other && s.listen.is_none() && !s.foreground);
    assert_eq!((s.orders, s.on_change), (Orders::Auto, OnChange::ServeNew));
    assert_eq!((s.read_deadline.as_secs(), s.max_requests, s.max_connections), (300, 256, 256));
    assert_eq!((s.file_mode, s.dir_mode, s.store.force_path_style), (0o444, 0o555, None));
    let disk = &resolved(&["--cache-dir", "/c"]).tiers[0];
    assert_eq!((disk.name.as_str(), disk.capacity, disk.automatic), ("disk", ByteSize(400 << 30), true), "free less 10 % of the disk");
}

#[test]
fn memory_default_respects_the_container_and_has_a_floor() {
    let memory = |available, headroom| {
        let machine = Machine { memory_available: available, cgroup_headroom: headroom, ..machine() };
        resolved_on(&[], &[], &machine).unwrap().memory
    };
    assert_eq!(memory(100 << 30, Some(4 << 30)), ByteSize(1 << 30));
    assert_eq!(memory(100 << 30, Some(1000 << 30)), ByteSize(10 << 30));
    assert_eq!(memory(1 << 30, None), ByteSize(256 << 20));
    assert_eq!(memory(100 << 30, Some(0)), ByteSize(256 << 20));
    // 256 MiB in a container of 100 MiB got the daemon killed.
    let small = Machine { cgroup_headroom: Some(90 << 20), cgroup_limit: Some(100 << 20), ..machine() };
    assert_eq!(resolved_on(&[], &[], &small).unwrap().memory, ByteSize(25 << 20));
    let used = Machine { cgroup_headroom: Some(0), cgroup_limit: Some(4 << 30), ..machine() };
    assert_eq!(resolved_on(&[], &[], &used).unwrap().memory, ByteSize(256 << 20), "used by the page cache, as it should be");
}

#[test]
fn users_do_not_share_by_default_and_need_the_systems_word() {
    let user = Machine { uid: 7, gid: 8, ..machine() };
    let s = resolved_on(&[], &[], &user).unwrap();
    assert_eq!((s.allow_other, s.uid, s.gid), (false, 7, 8));
    assert!(resolved_on(&["--allow-other"], &[], &user).unwrap_err()[0].contains("/etc/fuse.conf"));
    assert!(resolved_on(&["--allow-other"], &[], &Machine { user_allow_other: true, ..user }).unwrap().allow_other);
    assert!(!resolved(&["--no-allow-other"]).allow_other, "root can switch it off");
}

/// flag > environment > file > AWS variable > default, for each pair of neighbours.
#[test]
fn the_strongest_layer_wins() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("b.toml");
    fs::write(&file, "region = \"file\"\n").unwrap();
    let file = file.to_str().unwrap();
    let region = |flags: &[&str], env: &[(&str, &str)]| {
        let s = resolved_on(flags, env, &machine()).unwrap();
        (s.store.region.clone().unwrap_or_default(), origin(&s, "region"))
    };
    let wanted = |value: &str, origin: &str| (value.to_owned(), origin.to_owned());
    let (aws, ours) = (("AWS_REGION", "aws"), ("BELADY_REGION", "env"));
    assert_eq!(region(&[], &[]), wanted("", "default"));
    assert_eq!(region(&[], &[aws]), wanted("aws", "environment AWS_REGION"));
    assert_eq!(region(&["--config", file], &[aws]), wanted("file", file));
    assert_eq!(region(&[], &[("BELADY_CONFIG", file)]), wanted("file", file));
    assert_eq!(region(&["--config", file], &[aws, ours]), wanted("env", "environment BELADY_REGION"));
    assert_eq!(region(&["--config", file, "--region", "flag"], &[aws, ours]), wanted("flag", "command line"));
}

#[test]
fn all_errors_are_told_at_once_each_with_its_place() {
    let flags = ["--memory", "much", "--listen", "here", "--uid", "me", "--disk", "1GiB", "--tier", "x", "--on-change", "pin"];
    let errors = resolved_on(&flags, &[("BELADY_MAX_REQUESTS", "0")], &machine()).unwrap_err();
    assert_eq!(errors.len(), 7, "{errors:#?}");
    for place in ["--memory: ", "--listen: ", "--uid: ", "--disk: ", "--tier: ", "--on-change: ", "BELADY_MAX_REQUESTS: "] {
        assert!(errors.iter().any(|error| error.starts_with(place)), "{place} in {errors:#?}");
    }
}

#[test]
fn errors_of_the_file_are_told_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("b.toml");
    fs::write(&file, "memory = \"much\"\n").unwrap();
    let told = errors(&["--config", file.to_str().unwrap()]);
    assert!(told[0].starts_with(&format!("memory in {}: ", file.display())), "{told:?}");
    assert!(errors(&["--config", "/no/such.toml"])[0].contains("/no/such.toml"));
}

#[test]
fn the_cache_is_not_on_the_mount() {
    for path in ["/mnt", "/mnt/cache", "/mnt/../mnt/cache", "/"] {
        let told = errors(&["--cache-dir", path, "--disk", "1GiB"]);
        assert!(told[0].contains("lie in each other"), "{path}: {told:?}");
    }
    assert_eq!(resolved(&["--cache-dir", "/mnt2", "--disk", "1GiB"]).tiers.len(), 1, "a name that begins alike is another");
}

#[test]
fn tiers_are_told_apart() {
    let s = resolved(&["--cache-dir", "/c", "--disk", "1GiB", "--tier", "hdd:/h:2GiB+net:/n:3GiB"]);
    assert_eq!(s.tiers.iter().map(|tier| tier.name.as_str()).collect::<Vec<_>>(), ["disk", "hdd", "net"]);
    assert!(errors(&["--tier", "a:/x:1GiB", "--tier", "a:/y:1GiB"])[0].contains("name is taken"));
    assert!(errors(&["--tier", "memory:/x:1GiB"])[0].contains("name is taken"));
    assert!(errors(&["--tier", "a:/x:1GiB", "--tier", "b:/x/y:1GiB"])[0].contains("lie in each other"));
}

#[test]
fn relative_paths_are_made_absolute() {
    let s = resolved(&["--cache-dir", "rel ative", "--disk", "1GiB", "--log-file", "l", "--env-file", "e"]);
    let here = std::env::current_dir().unwrap();
    assert_eq!(s.tiers[0].path, here.join("rel ative"));
    assert_eq!((s.log_file, s.store.env_file), (Some(here.join("l")), Some(here.join("e"))));
    // The daemon's directory is `/`: there the list of an order would be another file.
    let Orders::Declared(specs) = resolved(&["--order", "list:l", "--order", "sequential:files=list:../l"]).orders else { panic!() };
    assert_eq!(specs[0].files, SampleRule::list(here.join("l")));
    assert_eq!(specs[1].files, SampleRule::list(here.join("../l")));
}

#[test]
fn orders_alike_have_names_of_their_own() {
    let Orders::Declared(specs) = resolved(&["--order", "sequential+sequential:files=sorted"]).orders else { panic!() };
    assert_eq!(specs.iter().map(|spec| spec.id.as_str()).collect::<Vec<_>>(), ["sequential", "sequential-2"]);
}

#[test]
fn zero_is_no_tier_and_what_the_machine_has_not_is_refused() {
    assert!(resolved(&["--cache-dir", "/c", "--disk", "0", "--tier", "a:/a:0"]).tiers.is_empty());
    let full = Machine { disk: |_| Ok((0, 1000 << 30)), ..machine() };
    assert_eq!(resolved_on(&["--cache-dir", "/c"], &[], &full).unwrap().tiers.len(), 1, "a full disk may hold an earlier run's files");
    assert!(errors(&["--memory", "201GiB"])[0].contains("more than the 200GiB of this machine"));
    assert_eq!(resolved(&["--memory", "200GiB"]).memory, ByteSize(200 << 30));
}

/// The listing would show the cached copies as data, and the cache would write into the dataset.
#[test]
fn the_cache_is_not_in_the_source() {
    let refused = |url: &str, dir: &str| {
        let layers = Layers(vec![(Origin::Flag, Layer::from([("cache_dir", vec![dir.to_owned()]), ("disk", vec!["1GiB".to_owned()])]))]);
        resolve(url, Path::new("/mnt"), layers, &machine()).err().is_some_and(|errors| errors[0].contains("to be mounted"))
    };
    for dir in ["/data", "/data/cache", "/data/../data/x"] {
        assert!(refused("file:///data", dir), "{dir}");
        assert!(refused("FILE:///data/", dir), "{dir}");
    }
    assert!(!refused("file:///data", "/data2") && !refused("file:///data/set", "/data/cache") && !refused("s3://data", "/data"));
}

#[test]
fn switches_and_lists() {
    assert_eq!(resolved(&["--order", "none"]).orders, Orders::None);
    assert!(errors(&["--order", "none", "--order", "auto"])[0].contains("stand alone"));
    let s = resolved(&["--disable-kernel", "passthrough+tmpfs", "--force-path-style", "--no-sign-request"]);
    assert!(!s.may_use(KernelFeature::Passthrough) && !s.may_use(KernelFeature::Tmpfs) && s.may_use(KernelFeature::ReaddirPlus));
    assert_eq!((s.store.force_path_style, s.store.no_sign_request), (Some(true), true));
    assert!(errors(&["--no-sign-request", "--profile", "p"])[0].contains("leave one of them out"));
    assert_eq!(resolved(&["--max-bandwidth", "0"]).max_bandwidth, None);
    assert_eq!(resolved(&["--memory", "0"]).memory, ByteSize(0), "0 is off, not «default»");
}

/// B103: each key set to something else than its default, in each layer, arrives; and what is printed gives the same settings again.
#[test]
fn what_is_printed_is_a_file_with_the_same_meaning() {
    let flags = [
        "--endpoint-url=http://h:9000",
        "--region=r",
        "--profile=p",
        "--requester-pays",
        "--force-path-style=false",
        "--memory=1GiB",
        "--cache-dir=/c,\"d",
        "--disk=3GiB",
        "--tier=t:/t:5GiB",
        "--order=none",
        "--expect-manifest=00ff00ff00ff00ff00ff00ff00ff00ff",
        "--on-change=fail",
        "--verify=always",
        "--read-deadline=7s",
        "--max-bandwidth=1GB",
        "--max-requests=7",
        "--max-connections=9",
        "--no-allow-other",
        "--uid=5",
        "--gid=6",
        "--file-mode=0400",
        "--dir-mode=0500",
        "--listen=9100",
        "--disable-kernel=passthrough+tmpfs",
        "--foreground",
        "--log-level=warn+belady=debug",
        "--log-file=/l",
    ];
    for flags in [&flags[..], &[]] {
        let first = resolved(flags);
        let text = print::render(&first);
        for key in KEYS {
            assert!(text.lines().any(|line| line.starts_with(&format!("{} = ", key.name))), "{} is not in\n{text}", key.name);
        }
        let mut again = resolve("s3://b", Path::new("/mnt"), Layers::from_file(&text, "printed").expect(&text), &machine()).unwrap();
        again.effective.clone_from(&first.effective);
        assert_eq!(again, first, "{text}");
    }
    let text = print::render(&resolved(&["--memory=1GiB"]));
    assert!(text.contains("memory = \"1GiB\"  # command line\n"), "{text}");
    assert!(text.contains("region = \"\"  # default: not set\n"), "{text}");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let cache = file.join("cache");
    let s = resolved(&[
        "--env-file",
        "/no/such",
        "--cache-dir",
        cache.to_str().unwrap(),
        "--disk",
        "1GiB",
        "--log-file",
        cache.to_str().unwrap(),
    ]);
    let told = check_files(&s);
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].starts_with("--env-file /no/such: ") && told[1].contains("cannot be written"), "{told:?}");
    let s = resolved_on(&[], &[("AWS_CA_BUNDLE", "/no/such"), ("BELADY_LOG_FILE", "/no/such/log")], &machine()).unwrap();
    let told = check_files(&s);
    assert!(told[0].starts_with("AWS_CA_BUNDLE /no/such: ") && told[1].starts_with("BELADY_LOG_FILE /no/such/log: "), "{told:?}");
    assert!(resolved_on(&[], &[("BELADY_CONFIG", "/no/such")], &machine()).unwrap_err()[0].starts_with("BELADY_CONFIG /no/such: "));
    let made = dir.path().join("a/b");
    assert!(check_files(&resolved(&["--cache-dir", made.to_str().unwrap(), "--disk", "1GiB"])).is_empty());
    assert!(made.is_dir() && fs::read_dir(&made).unwrap().next().is_none(), "made, and left empty");
}
