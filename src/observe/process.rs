//! What `/proc` says of a reading thread. Read once for each new thread, on a blocking thread; costs some tens of microseconds.
//!
//! Nothing here is an error: a process that is gone, another pid namespace or missing rights leave things unknown, and [`Peek::refused`]
//! says what would help. Of the environment and the command line only what `hints` and [`ProcFacts`] name is kept.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use crate::observe::hints::{self, Hints};
use crate::observe::ranked::without_ranks;

/// Ancestors looked at: a mover, its worker, a fork server, the rank process, three wrappers of it, its launcher.
const LINE_MAX: usize = 8;
/// No file of `/proc` that is read here is longer, but for the environment.
const SMALL_BYTES_MAX: u64 = 16 << 10;
/// Kernels bound arguments and environment together by a quarter of the stack's limit, 2 MiB by default (execve(2)).
const ENVIRONMENT_BYTES_MAX: u64 = 2 << 20;

/// How a process came to be, as far as it matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Launch {
    /// A program, or a fork of one.
    #[default]
    Plain,
    /// `multiprocessing` started it anew (`spawn`, or `forkserver`'s children before they fork).
    Spawned,
    /// `multiprocessing`'s fork server.
    ForkServer,
    /// A program that moves one file's bytes to its parent: `pipe:cat`.
    Mover,
    /// A program that runs another one and waits for it: a shell script, `numactl`.
    Wrapper,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    pub id: u32,
    /// When it started, in clock ticks since boot: tells two processes of one id apart. Of forked workers too.
    pub start: u64,
    /// Hash of its command line: a fork's is its parent's. 0: unknown.
    pub command: u64,
    /// ... without the numbers of ranks in it: all ranks of a job have the same.
    pub program: u64,
    /// Whether it has such numbers.
    pub ranked: bool,
    pub launch: Launch,
}

/// A reading thread, its process and the processes above it, nearest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcFacts {
    /// Thread id, as FUSE gives it.
    pub thread: u32,
    /// When the thread started, in clock ticks since boot.
    pub thread_start: u64,
    /// `line[0]` is the thread's own process; empty: nothing is known.
    pub line: Vec<Process>,
    /// Its environment says that it is a rank of several.
    pub ranked: bool,
}

/// Why nothing, or no environment, is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// FUSE gave 0: the reader is in a pid namespace that this one does not see.
    OtherNamespace,
    /// The process ended before it was looked at: nothing to be done.
    Gone,
    /// Its environment is not for our eyes.
    NoRights,
}

impl Refusal {
    /// What it costs and what would help, for people; `None`: nothing would.
    #[must_use]
    pub const fn note(self) -> Option<&'static str> {
        match self {
            Self::OtherNamespace => Some(
                "readers are in another pid namespace: their streams cannot be told apart and orders are found later or not at all; share it (shareProcessNamespace, --pid=host)",
            ),
            Self::NoRights => Some(
                "the environment of readers cannot be read, so RANK, WORLD_SIZE and BELADY_ORDER are not known: run belady as the readers' user or with CAP_SYS_PTRACE",
            ),
            Self::Gone => None,
        }
    }
}

/// All that one look found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peek {
    pub facts: ProcFacts,
    /// `None`: not asked for, or refused.
    pub hints: Option<Hints>,
    pub refused: Option<Refusal>,
}

/// Looks at a thread below `proc` (`/proc`). `environment`: also at its hints (`--no-peek` switches that off). Blocks: not on an async thread.
#[must_use]
pub fn peek(proc: &Path, thread: u32, environment: bool) -> Peek {
    let mut peek = Peek { facts: ProcFacts { thread, ..ProcFacts::default() }, ..Peek::default() };
    if thread == 0 {
        peek.refused = Some(Refusal::OtherNamespace);
        return peek;
    }
    let Some((process, mut parent)) = ids(proc, thread) else {
        peek.refused = Some(Refusal::Gone);
        return peek;
    };
    peek.facts.thread_start = start(proc, thread).unwrap_or(0);
    let mut next = Some(process);
    while let Some(id) = next.filter(|_| peek.facts.line.len() < LINE_MAX) {
        let Some(start) = start(proc, id) else { break };
        peek.facts.line.push(command(proc, id, start));
        // 0: the parent is outside this namespace. 1 is init, or a container's first process, which may be the trainer's.
        next = Some(parent).filter(|parent| *parent > 0);
        parent = next.and_then(|id| ids(proc, id)).map_or(0, |(_, parent)| parent);
    }
    if environment {
        match file(proc, process, "environ", ENVIRONMENT_BYTES_MAX) {
            Ok(bytes) => {
                let cgroup = file(proc, process, "cgroup", SMALL_BYTES_MAX).unwrap_or_default();
                let hints = hints::read(&bytes, &String::from_utf8_lossy(&cgroup));
                peek.facts.ranked = hints.rank.is_some() && hints.world_size.is_some_and(|world| world > 1);
                peek.hints = Some(hints);
            }
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => peek.refused = Some(Refusal::NoRights),
            Err(_) => peek.refused = Some(Refusal::Gone),
        }
    }
    peek
}

fn file(proc: &Path, id: u32, name: &str, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(proc.join(id.to_string()).join(name))?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Process and parent of a thread.
fn ids(proc: &Path, thread: u32) -> Option<(u32, u32)> {
    let bytes = file(proc, thread, "status", SMALL_BYTES_MAX).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let number = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some((number("Tgid:")?, number("PPid:")?))
}

/// Field 22 of `stat`; the name before it is in brackets and may have spaces and brackets itself (proc_pid_stat(5)).
fn start(proc: &Path, id: u32) -> Option<u64> {
    let bytes = file(proc, id, "stat", SMALL_BYTES_MAX).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let (_, fields) = text.rsplit_once(')')?;
    // Field 3 is the first after the name.
    fields.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

/// A process by its command line.
fn command(proc: &Path, id: u32, start: u64) -> Process {
    let line = file(proc, id, "cmdline", SMALL_BYTES_MAX).unwrap_or_default();
    if line.is_empty() {
        return Process { id, start, ..Process::default() };
    }
    let (program, ranked) = without_ranks(&line);
    Process { id, start, command: xxh3_64(&line).max(1), program, ranked, launch: launch(&line) }
}

/// From a command line, arguments ended by NUL.
fn launch(line: &[u8]) -> Launch {
    /// Programs that webdataset's `pipe:` and the like start for one file.
    const MOVERS: [&[u8]; 16] = [
        b"cat", b"dd", b"gzip", b"gunzip", b"zcat", b"pigz", b"unpigz", b"zstd", b"zstdcat", b"lz4", b"lz4cat", b"xz", b"xzcat", b"bzip2",
        b"tar", b"head",
    ];
    /// Programs that only change how the one they run is run.
    const WRAPPERS: [&[u8]; 9] = [b"env", b"nice", b"ionice", b"numactl", b"taskset", b"timeout", b"time", b"stdbuf", b"setsid"];
    let has = |text: &[u8]| line.windows(text.len()).any(|part| part == text);
    // CPython 3: multiprocessing/spawn.py and forkserver.py start `python -c "from multiprocessing.X import main; main(...)"`.
    if has(b"multiprocessing.forkserver") {
        return Launch::ForkServer;
    }
    if has(b"multiprocessing.spawn") {
        return Launch::Spawned;
    }
    let mut arguments = line.split(|byte| *byte == 0);
    let program = arguments.next().unwrap_or_default();
    let name = program.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    // `sh -c "cat x"`, where the shell waits for it. Above a trainer it is a launcher or a wrapper, which nobody takes for a mover: only the
    // front of a line counts.
    let is_shell = matches!(name, b"sh" | b"dash" | b"bash" | b"zsh");
    match arguments.next() {
        Some(b"-c") if is_shell => Launch::Mover,
        // a script; without one somebody types in it
        Some(script) if is_shell && !script.is_empty() && !script.starts_with(b"-") => Launch::Wrapper,
        _ if MOVERS.contains(&name) => Launch::Mover,
        _ if WRAPPERS.contains(&name) => Launch::Wrapper,
        _ => Launch::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A `/proc` with one process in it for each (id, parent, command line).
    fn proc(processes: &[(u32, u32, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (id, parent, line) in processes {
            let folder = dir.path().join(id.to_string());
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("status"), format!("Name:\tx\nTgid:\t{id}\nPid:\t{id}\nPPid:\t{parent}\n")).unwrap();
            let stat = format!("{id} (a) b ({id}) S {parent} 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 {} 1 1\n", 5000 + id);
            fs::write(folder.join("stat"), stat).unwrap();
            fs::write(folder.join("cmdline"), line.replace(' ', "\0") + "\0").unwrap();
            fs::write(folder.join("environ"), "RANK=3\0SECRET=x\0").unwrap();
        }
        dir
    }

    #[test]
    fn a_worker_and_what_is_above_it() {
        let dir = proc(&[
            (1, 0, "/sbin/init"),
            (5, 1, "bash run.sh"),
            (20, 5, "python3 train.py"),
            (31, 20, "python3 train.py"),
            (40, 31, "/bin/cat /data/x"),
        ]);
        let peeked = peek(dir.path(), 40, true);
        let line = &peeked.facts.line;
        assert_eq!(line.iter().map(|process| process.id).collect::<Vec<_>>(), [40, 31, 20, 5, 1]);
        assert_eq!((line[0].launch, line[0].start, peeked.facts.thread_start), (Launch::Mover, 5040, 5040));
        assert!(line[1].command == line[2].command && line[2].command != line[3].command);
        assert_eq!((peeked.hints.unwrap().rank, peeked.refused), (Some(3), None));
        assert_eq!(peek(dir.path(), 31, false).hints, None, "--no-peek");
    }

    #[test]
    fn nothing_is_an_error() {
        let dir = proc(&[(31, 20, "python3 train.py")]);
        assert_eq!(peek(dir.path(), 0, true).refused, Some(Refusal::OtherNamespace));
        assert_eq!(peek(dir.path(), 99, true).refused, Some(Refusal::Gone));
        // The parent is gone.
        assert_eq!(peek(dir.path(), 31, true).facts.line.len(), 1);
        for damaged in ["stat", "status", "cmdline", "environ"] {
            fs::write(dir.path().join("31").join(damaged), b"\xff)\0(").unwrap();
            assert!(peek(dir.path(), 31, true).facts.line.len() <= 1);
            fs::remove_file(dir.path().join("31").join(damaged)).unwrap();
            assert!(peek(dir.path(), 31, true).facts.line.len() <= 1);
        }
        assert!(Refusal::NoRights.note().unwrap().contains("CAP_SYS_PTRACE") && Refusal::Gone.note().is_none());
    }

    #[test]
    fn command_lines_tell_how_a_process_was_started() {
        for (line, expected) in [
            (
                "/usr/bin/python3\0-c\0from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)\0--multiprocessing-fork\0",
                Launch::Spawned,
            ),
            ("python\0-c\0from multiprocessing.forkserver import main; main(12)\0", Launch::ForkServer),
            ("/bin/zstd\0-dc\0x.zst\0", Launch::Mover),
            ("python\0cat.py\0", Launch::Plain),
            ("/bin/sh\0-c\0cat x\0", Launch::Mover),
            ("bash\0run.sh\0", Launch::Wrapper),
            ("/usr/bin/numactl\0--cpunodebind=0\0python\0", Launch::Wrapper),
            ("-bash\0", Launch::Plain),
            ("bash\0-l\0", Launch::Plain),
            ("", Launch::Plain),
        ] {
            assert_eq!(launch(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn this_very_process_is_known() {
        let id = std::process::id();
        let peeked = peek(Path::new("/proc"), id, true);
        assert_eq!((peeked.facts.line[0].id, peeked.refused), (id, None));
        assert!(peeked.facts.line[0].start > 0 && peeked.facts.line[0].command != 0 && peeked.hints.is_some());
        // A thread of it.
        let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let peeked = peek(Path::new("/proc"), thread, false);
        assert_eq!((peeked.facts.thread, peeked.facts.line[0].id), (thread, id));
    }
}
