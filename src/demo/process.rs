//! What the kernel knows of processes, from /proc: CPU time of a thread and of a child, and what is mounted where. All of it is for
//! show: where the kernel does not say, there is no figure.

use std::path::Path;
use std::time::Duration;

/// /proc counts CPU in this many ticks a second: USER_HZ, 100 on every architecture that has FUSE.
const TICKS_PER_SECOND: u64 = 100;

/// CPU time of the calling thread.
#[must_use]
pub fn thread_cpu() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// CPU time of a process: user and system, all its threads, those that have ended too.
#[must_use]
pub fn process_cpu(pid: u32) -> Option<Duration> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Fields 14 and 15 of proc_pid_stat(5), counted behind the name, which may hold blanks and brackets.
fn parse_stat(stat: &str) -> Option<Duration> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND))
}

/// Whether something is mounted on exactly this path.
#[must_use]
pub fn is_mounted(path: &Path) -> bool {
    std::fs::read_to_string("/proc/self/mountinfo").is_ok_and(|text| lists_mount(&text, path))
}

/// Field 5 of proc_pid_mountinfo(5), where blanks and backslashes are written in octal.
fn lists_mount(mountinfo: &str, path: &Path) -> bool {
    let Some(path) = path.to_str() else { return false };
    let escaped = path.replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011").replace('\n', "\\012");
    mountinfo.lines().any(|line| line.split(' ').nth(4) == Some(&escaped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_behind_any_name() {
        let line = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 150 27 0 0 20 0 1 0 5 0 0";
        assert_eq!(parse_stat(line), Some(Duration::from_millis(1_770)));
        assert_eq!(parse_stat("7 (x) S 1"), None);
        assert!(process_cpu(std::process::id()).is_some());
    }

    #[test]
    fn a_mount_is_found_by_its_exact_path() {
        let text = "36 35 98:0 / /mnt/a\\040b rw - fuse x rw\n37 35 0:5 / /proc rw - proc proc rw\n";
        assert!(lists_mount(text, Path::new("/mnt/a b")) && lists_mount(text, Path::new("/proc")));
        assert!(!lists_mount(text, Path::new("/mnt/a")) && !lists_mount(text, Path::new("/")));
    }
}
