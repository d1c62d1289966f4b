//! Logs of opens, as text: what `--record-opens` writes, and `strace -f -e trace=openat`. For `belady order verify`.
//!
//! Recorded lines are `seconds<TAB>thread<TAB>path`, with `\n`, `\t` and `\\` in paths written so. A line that strace wrote begins with a thread
//! id (`123` or `[pid 123]`), perhaps a time (`-t`, `-tt`, `-ttt`, `-r`); an open counts at its call (`<unfinished ...>`) when it succeeded, as
//! the mount sees it. Directories and files opened for writing do not count. Everything else of a line is skipped and counted.

use std::collections::HashMap;
use std::io::{self, BufRead};

use crate::dataset::{Manifest, Node};
use crate::types::FileIndex;

/// Longest line that is read: a path of 4,096 bytes, each written as `\ooo`, and the call around it. Longer ones are skipped.
const LINE_BYTES_MAX: u64 = 32 << 10;
/// Opens kept: 16 M of them are a dozen epochs of ImageNet; about 100 B each.
const OPENS_MAX: usize = 16 << 20;
/// The clock of a record goes back by less than this where opens are written in another order than they came: they wait in one short queue.
const RESTART_SECONDS: f64 = 1.0;
/// Calls that are under way at once at most: threads of a node.
const UNFINISHED_MAX: usize = 1 << 16;

/// One open.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedOpen {
    /// Seconds since the first line with a time, or 0 where the log has none.
    pub seconds: f64,
    /// Thread id; 0: the log does not say (one thread).
    pub thread: u32,
    /// As the program, or the mount, named it.
    pub path: String,
}

/// A parsed log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// In the order they were called.
    pub opens: Vec<LoggedOpen>,
    /// Lines that are no open: other calls, failures, directories, damage.
    pub skipped: u64,
    /// Those of them that are of neither form.
    pub damaged: u64,
    /// strace wrote a part of it: it has all that its program opened, not the files of one mount.
    pub is_traced: bool,
}

impl Log {
    /// Of several records in one file, each with its own clock, only the last stays. Returns how many there were.
    pub fn keep_last_record(&mut self) -> usize {
        // strace's times may be those of the day, or since the line before
        if self.is_traced {
            return 1;
        }
        let restarts = self.opens.windows(2).zip(1..).filter(|(pair, _)| pair[1].seconds < pair[0].seconds - RESTART_SECONDS);
        let begins: Vec<usize> = restarts.map(|(_, at)| at).collect();
        if let Some(&last) = begins.last() {
            self.opens.drain(..last);
            let first = self.opens.first().map_or(0.0, |open| open.seconds);
            for open in &mut self.opens {
                open.seconds -= first;
            }
        }
        begins.len() + 1
    }
}

/// Reads a log of either form; each line by its own look.
///
/// # Errors
/// What `input` reports.
pub fn parse(mut input: impl BufRead) -> io::Result<Log> {
    let mut log = Log::default();
    // Place in `opens` of each thread's call that is under way.
    let mut unfinished: HashMap<u32, usize> = HashMap::new();
    let mut failed: Vec<usize> = Vec::new();
    let mut first: Option<f64> = None;
    let mut line = Vec::new();
    while let Some(is_whole) = next_line(&mut input, &mut line)? {
        if !is_whole {
            // its path may be cut short, and then names another file or none
            log.skipped += 1;
            log.damaged += 1;
            break;
        }
        let text = String::from_utf8_lossy(&line);
        let Some(parsed) = recorded(&text).or_else(|| strace(&text)) else {
            let is_traced = is_of_strace(&text);
            // an empty line may be anybody's
            log.is_traced |= is_surely_of_strace(&text);
            log.skipped += 1;
            log.damaged += u64::from(!is_traced);
            continue;
        };
        match parsed {
            Line::Open { seconds, thread, path, finished, is_traced } => {
                log.is_traced |= is_traced;
                if log.opens.len() >= OPENS_MAX {
                    log.skipped += 1;
                    continue;
                }
                let since = seconds.map_or(0.0, |seconds| seconds - *first.get_or_insert(seconds));
                if !finished && unfinished.len() < UNFINISHED_MAX {
                    unfinished.insert(thread, log.opens.len());
                }
                log.opens.push(LoggedOpen { seconds: since, thread, path });
            }
            Line::Resumed { thread, succeeded } => {
                if let Some(place) = unfinished.remove(&thread)
                    && !succeeded
                {
                    failed.push(place);
                    log.skipped += 1;
                }
            }
        }
    }
    failed.sort_unstable();
    let mut place = 0;
    log.opens.retain(|_| {
        place += 1;
        failed.binary_search(&(place - 1)).is_err()
    });
    Ok(log)
}

/// The files of a mount that the opens are of, as (thread, file), in order. Paths may begin with wherever the mount was: the longest end of a
/// path that is a file below `root` (or of the mount, where `root` is empty) counts. What is no file of it is left out.
#[must_use]
pub fn files(log: &Log, manifest: &Manifest, root: &str) -> Vec<(u32, FileIndex)> {
    // How many components to leave off: what worked last is nearly always right.
    let mut skip = 0;
    let find = |path: &str, skip: usize| -> Option<FileIndex> {
        let tail = match skip {
            0 => path,
            skip => path.match_indices('/').nth(skip - 1).map(|(at, _)| &path[at + 1..])?,
        };
        match manifest.find(tail) {
            Some(Node::File(file)) => Some(file),
            Some(Node::Dir(_)) | None => None,
        }
    };
    let below = |file: &FileIndex| root.is_empty() || manifest.path(*file).strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
    let mut files = Vec::new();
    for open in &log.opens {
        let path = open.path.trim_start_matches("./");
        let found = find(path, skip)
            .map(|file| (file, skip))
            .or_else(|| (0..=path.matches('/').count()).find_map(|skip| find(path, skip).map(|file| (file, skip))));
        if let Some((file, way)) = found.filter(|(file, _)| below(file)) {
            skip = way;
            files.push((open.thread, file));
        }
    }
    files
}

/// (stream, file) of (thread, file): streams numbered from 0 as they appear. For logs, where nothing else is known of the threads.
#[must_use]
pub fn streams(files: &[(u32, FileIndex)]) -> Vec<(u32, FileIndex)> {
    let mut numbers: HashMap<u32, u32> = HashMap::new();
    let mut number = |thread: u32| {
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        *numbers.entry(thread).or_insert(next)
    };
    files.iter().map(|&(thread, file)| (number(thread), file)).collect()
}

enum Line {
    Open { seconds: Option<f64>, thread: u32, path: String, finished: bool, is_traced: bool },
    Resumed { thread: u32, succeeded: bool },
}

/// The next line without its end, and whether it had one; an over-long one is empty. `None` at the end.
fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<bool>> {
    line.clear();
    let read = io::Read::take(&mut *input, LINE_BYTES_MAX).read_until(b'\n', line)?;
    if read == 0 {
        return Ok(None);
    }
    let is_whole = line.last() == Some(&b'\n') || read as u64 == LINE_BYTES_MAX;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if read as u64 == LINE_BYTES_MAX {
        // The rest of it, in pieces.
        loop {
            line.clear();
            let read = io::Read::take(&mut *input, LINE_BYTES_MAX).read_until(b'\n', line)?;
            if read == 0 || line.last() == Some(&b'\n') {
                line.clear();
                return Ok(Some(true));
            }
        }
    }
    Ok(Some(is_whole))
}

/// `seconds<TAB>thread<TAB>path`.
fn recorded(line: &str) -> Option<Line> {
    let mut parts = line.splitn(3, '\t');
    let seconds: f64 = parts.next()?.parse().ok().filter(|seconds: &f64| seconds.is_finite())?;
    let thread = parts.next()?.parse().ok()?;
    let path = unescape(parts.next()?)?;
    (!path.is_empty()).then_some(Line::Open { seconds: Some(seconds), thread, path, finished: true, is_traced: false })
}

/// A path as `--record-opens` writes it.
#[must_use]
pub fn escape(path: &str) -> std::borrow::Cow<'_, str> {
    if path.contains(['\\', '\n', '\t', '\r']) {
        path.replace('\\', "\\\\").replace('\n', "\\n").replace('\t', "\\t").replace('\r', "\\r").into()
    } else {
        path.into()
    }
}

/// One call or the end of one.
fn strace(line: &str) -> Option<Line> {
    let call = line.find("openat")?;
    let (thread, seconds) = front(&line[..call]);
    let rest = &line[call + "openat".len()..];
    if let Some(rest) = rest.strip_prefix(" resumed>") {
        return Some(Line::Resumed { thread, succeeded: succeeded(rest) });
    }
    // openat2 has its flags in a struct: flags=O_RDONLY.
    let arguments = rest.strip_prefix("2(").or_else(|| rest.strip_prefix('('))?;
    let quoted = arguments.find('"')?;
    // Up to the quote: the directory, AT_FDCWD or a number (with -y a path in <>).
    let text = &arguments[quoted + 1..];
    let end = end_of_string(text)?;
    let path = unescape(&text[..end])?;
    let rest = &text[end + 1..];
    // `"..."...` was cut by -s.
    if rest.starts_with("...") || ["O_DIRECTORY", "O_WRONLY", "O_RDWR", "O_CREAT"].iter().any(|flag| rest.contains(flag)) {
        return None;
    }
    let finished = !rest.trim_end().ends_with("<unfinished ...>");
    if path.is_empty() || (finished && !succeeded(rest)) {
        return None;
    }
    Some(Line::Open { seconds, thread, path, finished, is_traced: true })
}

/// Whether strace may have written a line: a call, its end, a signal, an exit, what it says itself.
fn is_of_strace(line: &str) -> bool {
    let line = line.trim();
    let call = line.strip_prefix("[pid").and_then(|rest| rest.split_once(']')).map_or(line, |(_, rest)| rest);
    // thread and time: `12  10:11:12.5 `
    let call = call.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.' || c == ':' || c.is_whitespace());
    let name = call.strip_prefix("<... ").unwrap_or(call);
    let length = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
    let is_call = length > 0 && (name[length..].starts_with('(') || name.len() < call.len());
    // An open of which a part is missing is damaged; one that failed, or is not for reading, is not.
    let is_whole = !call.starts_with("openat") || call.contains(") = ") || call.ends_with("<unfinished ...>") || call.ends_with(")");
    line.is_empty() || ["+++ ", "--- ", "strace: "].iter().any(|front| call.starts_with(front)) || is_call && is_whole
}

/// Whether nobody but strace writes such a line: a call with its result, or under way, its own words, a signal, an exit. Code has calls, too.
fn is_surely_of_strace(line: &str) -> bool {
    let call = line.trim();
    let has_result =
        call.rsplit_once(") = ").is_some_and(|(_, result)| result.starts_with(|c: char| c.is_ascii_digit() || "-?".contains(c)));
    let is_told = ["strace: Process ", "+++ exited ", "+++ killed ", "--- SIG"].iter().any(|front| call.contains(front));
    is_of_strace(line) && (has_result || is_told || call.ends_with("<unfinished ...>") || call.contains("<... "))
}

/// Thread and time of the front of a line: `[pid 12] 1701.5 `, `12  10:11:12.5 <... `.
fn front(text: &str) -> (u32, Option<f64>) {
    let text = text.trim_end().trim_end_matches("<...").trim();
    let (thread, rest) = match text.strip_prefix("[pid") {
        Some(rest) => rest.split_once(']').unwrap_or((rest, "")),
        None => text.split_once(char::is_whitespace).unwrap_or((text, "")),
    };
    match thread.trim().parse() {
        Ok(thread) => (thread, time(rest.trim())),
        // No thread: strace without -f, or -f with one thread.
        Err(_) => (0, time(text)),
    }
}

/// Seconds, or a time of the day.
fn time(text: &str) -> Option<f64> {
    let mut seconds = 0.0;
    for part in text.split(':') {
        seconds = seconds * 60.0 + part.parse::<f64>().ok().filter(|part| part.is_finite())?;
    }
    Some(seconds)
}

/// Whether a call's result is a descriptor.
fn succeeded(rest: &str) -> bool {
    rest.rsplit_once(" = ").is_some_and(|(_, result)| result.trim_start().starts_with(|c: char| c.is_ascii_digit()))
}

/// Where the string ends: its quote that no backslash is before.
fn end_of_string(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut place = 0;
    while place < bytes.len() {
        match bytes[place] {
            b'\\' => place += 2,
            b'"' => return Some(place),
            _ => place += 1,
        }
    }
    None
}

/// C escapes as strace writes them, octal and `-x`'s hexadecimal too. `None`: no UTF-8 (no key is), or damaged.
fn unescape(text: &str) -> Option<String> {
    if !text.contains('\\') {
        return Some(text.to_owned());
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (&escape, after) = rest.split_first()?;
        rest = after;
        match escape {
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'r' => bytes.push(b'\r'),
            b'v' => bytes.push(0x0b),
            b'f' => bytes.push(0x0c),
            b'x' => {
                let digits = rest.get(..2)?;
                bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
                rest = &rest[2..];
            }
            b'0'..=b'7' => {
                let more = rest.iter().take(2).take_while(|digit| (b'0'..=b'7').contains(*digit)).count();
                let value = std::iter::once(&escape).chain(&rest[..more]).fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0'));
                bytes.push(u8::try_from(value).ok()?);
                rest = &rest[more..];
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ObjectMeta;
    use proptest::prelude::*;

    fn paths(text: &str) -> Vec<(u32, String)> {
        parse(text.as_bytes()).unwrap().opens.into_iter().map(|open| (open.thread, open.path)).collect()
    }

    #[test]
    fn recorded_lines_are_read() {
        let log = parse(&b"0.000000\t27772\ttrain/n7/a.png\n0.002172\t27773\ta\\tb\\\\\n\nx\t1\tz\n"[..]).unwrap();
        assert_eq!(log.opens[0], LoggedOpen { seconds: 0.0, thread: 27772, path: "train/n7/a.png".into() });
        assert_eq!(log.opens[1], LoggedOpen { seconds: 0.002_172, thread: 27773, path: "a\tb\\".into() });
        assert_eq!((log.opens.len(), log.skipped), (2, 2));
    }

    #[test]
    fn of_several_records_in_one_file_the_last_stays() {
        let record =
            |from: f64, path: &str| (0..50).map(|n| format!("{:.6}\t7\t{path}{n}\n", from + f64::from(n) * 0.1)).collect::<String>();
        let kept = |text: String| {
            let mut log = parse(text.as_bytes()).unwrap();
            (log.keep_last_record(), log.opens.len(), log.opens[0].clone())
        };
        let first = |path: &str| LoggedOpen { seconds: 0.0, thread: 7, path: path.into() };
        assert_eq!(kept(record(3.0, "a")), (1, 50, first("a0")));
        assert_eq!(kept(record(3.0, "a") + &record(0.5, "b")), (2, 50, first("b0")), "another run");
        assert_eq!(kept(record(3.0, "a") + &record(6.0, "b")), (2, 50, first("b0")), "one that was mounted sooner, or read later");
        assert_eq!(kept("1.5\t7\ta\n0.9\t8\tb\n1.6\t7\tc\n".into()), (1, 3, first("a")), "two threads");
        let traced = kept("7 23:59:59 openat(AT_FDCWD, \"/a\", O_RDONLY) = 3\n7 00:00:00 openat(AT_FDCWD, \"/b\", O_RDONLY) = 3\n".into());
        assert_eq!((traced.0, traced.1), (1, 2), "midnight");
    }

    #[test]
    fn what_strace_writes_is_read() {
        let text = r#"execve("/usr/bin/python3", ["python3"], 0x7ffe /* 20 vars */) = 0
openat(AT_FDCWD, "/data/0.jpg", O_RDONLY|O_CLOEXEC) = 3
strace: Process 12 attached
[pid    12] openat(AT_FDCWD, "/data/a b\"\303\251.jpg", O_RDONLY|O_CLOEXEC) = 13
[pid 13] openat(AT_FDCWD, "/data/gone.jpg", O_RDONLY) = -1 ENOENT (No such file or directory)
[pid 13] openat(AT_FDCWD, "/data", O_RDONLY|O_NONBLOCK|O_CLOEXEC|O_DIRECTORY) = 4
[pid 13] openat(AT_FDCWD, "/tmp/out", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 4
12 1701253001.250000 openat(AT_FDCWD, "/data/1.jpg", O_RDONLY <unfinished ...>
13 1701253001.500000 openat(AT_FDCWD, "/data/2.jpg", O_RDONLY <unfinished ...>
14 10:00:01.5 openat(7</data>, "3.jpg", O_RDONLY) = 5</data/3.jpg>
13 1701253001.600000 <... openat resumed>) = 9
12 1701253001.700000 <... openat resumed>) = -1 EINTR (Interrupted)
15 openat2(AT_FDCWD, "/data/4.jpg", {flags=O_RDONLY, resolve=0}, 24) = 6
16 openat(AT_FDCWD, "/data/cut"..., O_RDONLY) = 6
--- SIGCHLD {si_signo=SIGCHLD} ---
+++ exited with 0 +++
"#;
        let expected = [(0, "/data/0.jpg"), (12, "/data/a b\"é.jpg"), (13, "/data/2.jpg"), (14, "3.jpg"), (15, "/data/4.jpg")];
        assert_eq!(paths(text), expected.map(|(thread, path)| (thread, path.to_owned())));
        let log = parse(text.as_bytes()).unwrap();
        assert!((log.opens[2].seconds - 0.25).abs() < 1e-6, "{:?}", log.opens[2]);
        assert_eq!((log.is_traced, log.damaged), (true, 0));
    }

    #[test]
    fn damage_is_told_from_lines_that_are_no_opens() {
        let text = "12 read(3, \"\\177ELF\"..., 832) = 832\n[pid 13] <... futex resumed>) = 0\n\n12 1701253001.5 close(3) = 0\n";
        let log = parse(text.as_bytes()).unwrap();
        assert_eq!((log.skipped, log.damaged, log.is_traced), (4, 0, true));
        let text = "\u{0}\u{1}PNG\n12 openat(AT_FDCWD, \"/data/0.jp\nx\t1\ty\nplain words\n0.5\t7\ta.jpg\n";
        let log = parse(text.as_bytes()).unwrap();
        assert_eq!((log.opens.len(), log.skipped, log.damaged), (1, 4, 4));
    }

    #[test]
    fn a_last_line_that_was_cut_is_damage_and_no_file() {
        let log = parse(&b"0.5\t7\ttrain/a.jpg\n0.6\t7\ttrain/b.j"[..]).unwrap();
        assert_eq!((log.opens.len(), log.skipped, log.damaged), (1, 1, 1));
        assert_eq!(paths("0.5\t7\ta.jpg\n0.6\t7\tb.jpg\n").len(), 2);
    }

    #[test]
    fn code_is_no_trace() {
        let code = "import torch\nprint(len(x))\nfor i in range(3):\n    f(i)\nx = g(1) = y\n";
        assert!(!parse(code.as_bytes()).unwrap().is_traced);
        assert!(parse(&b"brk(NULL) = 0x55\n"[..]).unwrap().is_traced);
        assert!(parse(&b"12 +++ exited with 0 +++\n"[..]).unwrap().is_traced);
    }

    #[test]
    fn files_are_found_wherever_the_mount_was() {
        let object = |path: &str| ObjectMeta { key: path.into(), size: 1, etag: "".into(), mtime_seconds: 0 };
        let manifest = Manifest::build("", ["t/a.jpg", "t/b.jpg", "v/a.jpg", "a.jpg"].map(object).into());
        let found = |text: &str, root: &str| -> Vec<(u32, u32)> {
            files(&parse(text.as_bytes()).unwrap(), &manifest, root).into_iter().map(|(thread, file)| (thread, file.0)).collect()
        };
        let text = "0.0\t1\t/mnt/x/t/b.jpg\n0.1\t2\t/etc/passwd\n0.2\t1\t/mnt/x/v/a.jpg\n0.3\t1\tt/a.jpg\n";
        assert_eq!(found(text, ""), [(1, 2), (1, 3), (1, 1)]);
        assert_eq!(found(text, "t"), [(1, 2), (1, 1)]);
        let numbered = streams(&[(31, FileIndex(5)), (30, FileIndex(6)), (31, FileIndex(7))]);
        assert_eq!(numbered, [(0, FileIndex(5)), (1, FileIndex(6)), (0, FileIndex(7))]);
    }

    #[test]
    fn lines_are_bounded() {
        let text = format!("{}\n0.1\t1\tx\n", "y".repeat(200_000));
        let log = parse(text.as_bytes()).unwrap();
        assert_eq!((log.opens.len(), log.skipped), (1, 1));
        assert_eq!(parse("z".repeat(100_000).as_bytes()).unwrap().opens, []);
    }

    proptest! {
        #[test]
        fn what_is_escaped_is_read_again(path in "[a-z\\\\\n\t\r\"é0-9]{1,20}") {
            let line = format!("1.5\t7\t{}\n", escape(&path));
            prop_assert_eq!(paths(&line), vec![(7, path)]);
        }

        #[test]
        fn any_bytes_are_harmless(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            parse(&bytes[..]).unwrap();
            let line = [b"12 openat(AT_FDCWD, \"", &bytes[..]].concat();
            parse(&line[..]).unwrap();
        }
    }
}
