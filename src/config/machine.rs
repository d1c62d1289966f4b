//! What the defaults depend on: memory, container limits, disks, the user. And the environment: the only place that reads it.
//!
//! Best effort: what cannot be read is taken as «no limit», and the smallest default still holds.

use std::fs;
use std::path::{Path, PathBuf};

/// The facts, as values, so that resolving is a function of its arguments.
#[derive(Clone, Debug)]
pub struct Machine {
    /// MemTotal, bytes.
    pub memory_total: u64,
    /// MemAvailable, bytes.
    pub memory_available: u64,
    /// What the tightest control group around us may still take, bytes.
    pub cgroup_headroom: Option<u64>,
    /// The least limit of these groups, bytes.
    pub cgroup_limit: Option<u64>,
    pub uid: u32,
    pub gid: u32,
    /// /etc/fuse.conf lets users share their mounts.
    pub user_allow_other: bool,
    pub runtime_dir: PathBuf,
    /// (free, total) bytes of the disk a path is or would be on.
    pub disk: fn(&Path) -> Result<(u64, u64), String>,
}

impl Machine {
    /// This one, now.
    #[must_use]
    pub fn here() -> Self {
        let read = |path: &Path| fs::read_to_string(path).ok();
        let uid = rustix::process::geteuid().as_raw();
        let memory = read(Path::new("/proc/meminfo")).unwrap_or_default();
        let (cgroup_headroom, cgroup_limit) = cgroup(&read).unzip();
        Self {
            memory_total: meminfo(&memory, "MemTotal:").unwrap_or(u64::MAX),
            memory_available: meminfo(&memory, "MemAvailable:").unwrap_or(0),
            cgroup_headroom,
            cgroup_limit,
            uid,
            gid: rustix::process::getegid().as_raw(),
            user_allow_other: read(Path::new("/etc/fuse.conf"))
                .is_some_and(|text| text.lines().any(|line| line.trim() == "user_allow_other")),
            runtime_dir: runtime_dir(uid, variable("XDG_RUNTIME_DIR")),
            disk,
        }
    }

    /// Whether the kernel lets us do what needs root.
    #[must_use]
    pub const fn is_root(&self) -> bool {
        self.uid == 0
    }
}

/// An environment variable; empty is not set.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the place in config/ that reads the environment")]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Where the sockets of a user's mounts are: not in a home directory, which may be a network mount or missing.
fn runtime_dir(uid: u32, xdg: Option<String>) -> PathBuf {
    match xdg {
        _ if uid == 0 => PathBuf::from("/run/belady"),
        Some(dir) if Path::new(&dir).is_absolute() => Path::new(&dir).join("belady"),
        _ => PathBuf::from(format!("/tmp/belady-{uid}")),
    }
}

/// A line of /proc/meminfo, bytes.
fn meminfo(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// The least (limit − use) and the least limit over all control groups around us, versions 2 and 1.
fn cgroup(read: &dyn Fn(&Path) -> Option<String>) -> Option<(u64, u64)> {
    let groups = read(Path::new("/proc/self/cgroup"))?;
    let mut least = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next(), fields.next().unwrap_or(""), fields.next().unwrap_or("/"));
        let (root, limit, used) = if controllers.is_empty() {
            ("/sys/fs/cgroup", "memory.max", "memory.current")
        } else if controllers.split(',').any(|c| c == "memory") {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
        } else {
            continue;
        };
        // In a container the path may be the host's, which is not visible: then only the root of what is mounted answers.
        let relative = path.trim_start_matches('/');
        for ancestor in Path::new(relative).ancestors() {
            let folder = Path::new(root).join(ancestor);
            let number = |file: &str| read(&folder.join(file)).and_then(|text| text.trim().parse::<u64>().ok());
            if let (Some(limit), Some(used)) = (number(limit), number(used)) {
                let headroom = limit.saturating_sub(used);
                least = Some(least.map_or((headroom, limit), |(room, least): (u64, u64)| (room.min(headroom), least.min(limit))));
            }
        }
    }
    least
}

/// Of the nearest ancestor that exists: the directory itself may still have to be made.
fn disk(path: &Path) -> Result<(u64, u64), String> {
    let existing = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/"));
    let stat =
        rustix::fs::statvfs(existing).map_err(|error| format!("the size of its disk cannot be found ({error}): give it with --disk"))?;
    Ok((stat.f_bavail.saturating_mul(stat.f_frsize), stat.f_blocks.saturating_mul(stat.f_frsize)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn memory_is_read() {
        let text = "MemTotal:  4096 kB\nMemAvailable:   2048 kB\n";
        assert_eq!((meminfo(text, "MemTotal:"), meminfo(text, "MemAvailable:")), (Some(4 << 20), Some(2 << 20)));
        assert_eq!(meminfo("nothing", "MemTotal:"), None);
    }

    /// The tightest ancestor counts, whichever it is; "max" is none; version 1 beside version 2.
    #[test]
    fn the_tightest_control_group_counts() {
        let check = |files: &[(&str, &str)], wanted| {
            let files: HashMap<_, _> = files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect();
            assert_eq!(cgroup(&|path| files.get(path).cloned()), wanted);
        };
        check(&[], None);
        check(
            &[("/proc/self/cgroup", "0::/a/b\n"), ("/sys/fs/cgroup/a/b/memory.max", "max\n"), ("/sys/fs/cgroup/a/b/memory.current", "5\n")],
            None,
        );
        let v2 = [
            ("/proc/self/cgroup", "0::/a/b\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "1000\n"),
            ("/sys/fs/cgroup/a/b/memory.current", "100\n"),
            ("/sys/fs/cgroup/a/memory.max", "500\n"),
            ("/sys/fs/cgroup/a/memory.current", "450\n"),
        ];
        check(&v2, Some((50, 500)));
        let v1 = [
            ("/proc/self/cgroup", "4:cpu,memory:/x\n0::/\n"),
            ("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "300"),
            ("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "400"),
        ];
        check(&v1, Some((0, 300)));
    }

    #[test]
    fn sockets_have_a_place_without_a_home() {
        assert_eq!(runtime_dir(0, Some("/run/user/0".into())), Path::new("/run/belady"));
        assert_eq!(runtime_dir(7, Some("/run/user/7".into())), Path::new("/run/user/7/belady"));
        assert_eq!(runtime_dir(7, Some("relative".into())), Path::new("/tmp/belady-7"));
        assert_eq!(runtime_dir(7, None), Path::new("/tmp/belady-7"));
    }

    #[test]
    fn this_machine_has_memory_and_a_disk() {
        let machine = Machine::here();
        assert!(machine.memory_available > 0 && machine.memory_total < u64::MAX);
        let (free, total) = (machine.disk)(Path::new("/does/not/exist/yet")).unwrap();
        assert!(total > 0 && free <= total);
    }
}
