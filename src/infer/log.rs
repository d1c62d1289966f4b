//! Logs of opens: `seconds<TAB>pid<TAB>path` a line, or what `strace -f -ttt -e trace=openat` writes.

use std::time::Duration;

/// One open as logged.
#[derive(Clone, Debug, PartialEq)]
pub struct Logged {
    pub at: Duration,
    pub process: u32,
    pub path: String,
}

/// All opens of a log, in the sequence of the log; lines that are neither form are left out and counted.
#[must_use]
pub fn parse(text: &str) -> (Vec<Logged>, usize) {
    let (mut opens, mut left_out) = (Vec::new(), 0);
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match tabbed(line).or_else(|| strace(line)) {
            Some(Some(open)) => opens.push(open),
            Some(None) => {}
            None => left_out += 1,
        }
    }
    (opens, left_out)
}

#[expect(clippy::option_option, reason = "understood and an open, understood and none, not understood")]
fn tabbed(line: &str) -> Option<Option<Logged>> {
    let mut parts = line.splitn(3, '\t');
    let (seconds, process, path) = (parts.next()?, parts.next()?, parts.next()?);
    let at = Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?;
    Some(Some(Logged { at, process: process.parse().ok()?, path: path.to_owned() }))
}

/// `[pid] 1234 1700000000.123456 openat(AT_FDCWD, "/data/x.jpg", O_RDONLY|O_CLOEXEC) = 3`. Other calls, failures and directories are none.
#[expect(clippy::option_option, reason = "as above")]
fn strace(line: &str) -> Option<Option<Logged>> {
    let (head, call) = line.split_once("open").map(|(head, _)| (head, &line[head.len()..]))?;
    let mut words = head.split_whitespace().map(|word| word.trim_matches(|c| c == '[' || c == ']')).filter(|word| *word != "pid");
    let (first, second) = (words.next(), words.next());
    let (process, time) = match (first, second) {
        (Some(process), Some(time)) => (process.parse().ok()?, time),
        (Some(time), None) => (0, time),
        _ => return None,
    };
    let at = Duration::try_from_secs_f64(time.parse().ok()?).ok()?;
    let (_, rest) = call.split_once('"')?;
    let (path, rest) = rest.split_once('"')?;
    let failed = rest.rsplit_once("= ").is_none_or(|(_, result)| result.starts_with('-'));
    if failed || rest.contains("O_DIRECTORY") || rest.contains("O_WRONLY") || rest.contains("O_RDWR") {
        return Some(None);
    }
    Some(Some(Logged { at, process, path: path.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_the_rest_is_counted() {
        let text = "0.5\t7\ttrain/a b.png\n\
            812 1700000001.250000 openat(AT_FDCWD, \"/d/x.jpg\", O_RDONLY|O_CLOEXEC) = 3\n\
            [pid 813] 1700000001.500000 openat(AT_FDCWD, \"/d/y.jpg\", O_RDONLY) = -1 ENOENT (No such file or directory)\n\
            812 1700000001.250000 openat(AT_FDCWD, \"/d\", O_RDONLY|O_DIRECTORY) = 3\n\
            +++ exited with 0 +++\n";
        let (opens, left_out) = parse(text);
        assert_eq!(left_out, 1);
        assert_eq!(
            opens.iter().map(|open| (open.process, open.path.as_str())).collect::<Vec<_>>(),
            [(7, "train/a b.png"), (812, "/d/x.jpg")]
        );
        assert_eq!(opens[0].at, Duration::from_millis(500));
    }
}
