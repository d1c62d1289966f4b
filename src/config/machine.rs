//! What the defaults depend on: memory, container limits, disks, the user. And the environment: the only place that reads it.
//!
//! Best effort: what cannot be read is taken as «no limit», and the smallest default still holds.

use std::fs;
use std::path::{Path, PathBuf};

/// A cgroup v1 limit from here on is the kernel's word for "none".
const NO_LIMIT: u64 = 1 << 62;

/// What may run out of memory: the machine, or a control group around us. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headroom {
    /// What may still be taken, clean file pages that the kernel would give up included.
    pub available: u64,
    pub total: u64,
}

/// The machine and every control group around us that has a limit, now. Empty when the machine tells nothing. Reads a few small files of the
/// kernel: off the async threads.
#[must_use]
pub fn headrooms() -> Vec<Headroom> {
    headrooms_by(&|path: &Path| fs::read_to_string(path).ok())
}

fn headrooms_by(read: &dyn Fn(&Path) -> Option<String>) -> Vec<Headroom> {
    let Some(machine) = read(Path::new("/proc/meminfo")).and_then(|text| meminfo(&text)) else { return Vec::new() };
    // A limit above the machine's memory binds nobody.
    let groups = cgroup_headrooms(read).into_iter().filter(|group| group.total < machine.total);
    std::iter::once(machine).chain(groups).collect()
}

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
        let memory = read(Path::new("/proc/meminfo")).and_then(|text| meminfo(&text));
        let groups = cgroup_headrooms(&read);
        Self {
            memory_total: memory.map_or(u64::MAX, |memory| memory.total),
            memory_available: memory.map_or(0, |memory| memory.available),
            cgroup_headroom: groups.iter().map(|group| group.available).min(),
            cgroup_limit: groups.iter().map(|group| group.total).min(),
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

/// MemAvailable and MemTotal of /proc/meminfo.
fn meminfo(text: &str) -> Option<Headroom> {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
    };
    Some(Headroom { available: bytes("MemAvailable:")?, total: bytes("MemTotal:")? })
}

/// All control groups around us with a limit, versions 2 and 1.
fn cgroup_headrooms(read: &dyn Fn(&Path) -> Option<String>) -> Vec<Headroom> {
    let mut found = Vec::new();
    for line in read(Path::new("/proc/self/cgroup")).unwrap_or_default().lines() {
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
            if let Some(total) = number(limit).filter(|&total| total < NO_LIMIT)
                && let Some(used) = number(used)
            {
                let cached = read(&folder.join("memory.stat")).map_or(0, |text| reclaimable(&text));
                found.push(Headroom { available: total.saturating_sub(used.saturating_sub(cached)), total });
            }
        }
    }
    found
}

/// What the kernel would give up before it kills, of a group's memory.stat: file pages not in use, and half of those in use (libraries and data
/// that are read again and again; MemAvailable leaves out as much at most). tmpfs pages are on neither list.
fn reclaimable(stat: &str) -> u64 {
    // version 1 counts the children in its `total_` lines only
    let value = |name: &str| {
        let of = |wanted: &str| stat.lines().find_map(|line| line.strip_prefix(wanted)?.strip_prefix(' ')?.trim().parse::<u64>().ok());
        of(&format!("total_{name}")).or_else(|| of(name)).unwrap_or(0)
    };
    value("inactive_file").saturating_add(value("active_file") / 2)
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
        let read = meminfo("MemTotal:  4096 kB\nMemAvailable:   2048 kB\n");
        assert_eq!(read, Some(Headroom { available: 2 << 20, total: 4 << 20 }));
        assert_eq!(meminfo("nothing"), None);
    }

    /// The tightest ancestor counts, whichever it is; "max" is none; version 1 beside version 2.
    #[test]
    fn the_tightest_control_group_counts() {
        let check = |files: &[(&str, &str)], wanted| {
            let files: HashMap<_, _> = files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect();
            let found = cgroup_headrooms(&|path| files.get(path).cloned());
            let least = |of: fn(&Headroom) -> u64| found.iter().map(of).min();
            assert_eq!(least(|group| group.available).zip(least(|group| group.total)), wanted);
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
        let mut unlimited = v1;
        unlimited[1].1 = "9223372036854771712\n";
        check(&unlimited, None);
    }

    /// File pages would be given up before anybody is killed; a limit larger than the machine is none.
    #[test]
    fn file_pages_are_no_use_of_memory() {
        let files = |group: &'static str, stat: &'static str| {
            move |path: &Path| match path.to_str()? {
                "/proc/meminfo" => Some("MemTotal: 4 kB\nMemAvailable: 2 kB\n".to_owned()),
                "/proc/self/cgroup" => Some("0::/a\n".to_owned()),
                "/sys/fs/cgroup/a/memory.max" => Some(group.to_owned()),
                "/sys/fs/cgroup/a/memory.current" => Some("900\n".to_owned()),
                "/sys/fs/cgroup/a/memory.stat" => Some(stat.to_owned()),
                _ => None,
            }
        };
        let machine = Headroom { available: 2048, total: 4096 };
        let v2 = "anon 1\nfile 800\nshmem 500\ninactive_file 100\nactive_file 200\n";
        assert_eq!(headrooms_by(&files("1000\n", v2)), [machine, Headroom { available: 300, total: 1000 }]);
        let v1 = "inactive_file 1\nactive_file 1\ntotal_inactive_file 100\ntotal_active_file 200\n";
        assert_eq!(headrooms_by(&files("1000\n", v1)), [machine, Headroom { available: 300, total: 1000 }]);
        assert_eq!(headrooms_by(&files("1000\n", "")), [machine, Headroom { available: 100, total: 1000 }]);
        assert_eq!(headrooms_by(&files("8192\n", v2)), [machine]);
        assert_eq!(headrooms_by(&|_| None), []);
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
        assert!(headrooms().iter().all(|place| place.available <= place.total) && !headrooms().is_empty());
        let (free, total) = (machine.disk)(Path::new("/does/not/exist/yet")).unwrap();
        assert!(total > 0 && free <= total);
    }
}
