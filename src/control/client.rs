//! The commands' end of the control socket. Blocking: a command asks one thing and prints it.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{ANSWER_MAX_BYTES, Answer, Info, Request};

/// A snapshot takes microseconds. A daemon that does not answer in this time is stopped or swapped out.
const PATIENCE: Duration = Duration::from_secs(10);
/// Draining may take as long as the reads in flight: after this the command says so and goes.
const PATIENCE_FOR_THE_END: Duration = Duration::from_secs(60);
/// A lazy unmount leaves open files open for as long as their readers like: only an idle daemon is waited for.
const PATIENCE_WHEN_LAZY: Duration = Duration::from_secs(1);

/// Asks one request.
///
/// # Errors
/// Nobody listens, or no answer came in time: one line. A refusal is [`Answer::Error`].
pub fn ask(socket: &Path, request: Request) -> Result<Answer, String> {
    exchange(socket, request).map(|(answer, _)| answer)
}

/// Asks for the mount to go, and waits until the daemon has ended. `Ok(false)`: it is out of the tree, but the daemon still drains.
///
/// # Errors
/// As [`ask`], and the daemon's refusal.
pub fn unmount(socket: &Path, lazy: bool) -> Result<bool, String> {
    let (answer, mut reader) = exchange(socket, Request::Unmount { lazy })?;
    match answer {
        Answer::Done => {}
        Answer::Error { message } => return Err(message),
        other => return Err(format!("the daemon gave another answer than asked for ({other:?}): is it another version?")),
    }
    // The daemon keeps the connection until it ends.
    let patience = if lazy { PATIENCE_WHEN_LAZY } else { PATIENCE_FOR_THE_END };
    reader.get_ref().set_read_timeout(Some(patience)).map_err(|error| error.to_string())?;
    Ok(!matches!(reader.read(&mut [0]), Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)))
}

/// Whether a daemon holds the socket, even one that is stopped and answers nothing: then its mount must not be touched, it would hang the
/// caller, too.
#[must_use]
pub fn is_held(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

/// A daemon behind a socket, or what is left of one.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    Running(Info),
    /// The daemon is there and did not answer.
    Silent {
        socket: PathBuf,
        reason: String,
    },
}

/// All mounts with a socket in `runtime_dir`, in the order of their mount points; sockets of dead daemons are removed.
#[must_use]
pub fn list(runtime_dir: &Path) -> Vec<Found> {
    let Ok(entries) = fs::read_dir(runtime_dir) else { return Vec::new() };
    let sockets = entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|extension| extension == "sock"));
    let mut found: Vec<Found> = sockets.filter_map(probe).collect();
    found.sort_by(|a, b| key(a).cmp(key(b)));
    found
}

fn key(found: &Found) -> &Path {
    match found {
        Found::Running(info) => &info.mountpoint,
        Found::Silent { socket, .. } => socket,
    }
}

fn probe(socket: PathBuf) -> Option<Found> {
    match UnixStream::connect(&socket).map_err(|error| error.kind()) {
        // Only a daemon that died leaves a socket nobody listens on.
        Err(io::ErrorKind::ConnectionRefused) => {
            let _ = fs::remove_file(&socket);
            return None;
        }
        // It was there when the directory was read, and its mount has ended since.
        Err(io::ErrorKind::NotFound) => return None,
        _ => {}
    }
    Some(match ask(&socket, Request::Info) {
        Ok(Answer::Info(info)) => Found::Running(info),
        Ok(Answer::Error { message }) => Found::Silent { socket, reason: message },
        Ok(_) => Found::Silent { socket, reason: "gave another answer than asked for: is it another version?".into() },
        Err(reason) => Found::Silent { socket, reason },
    })
}

fn exchange(socket: &Path, request: Request) -> Result<(Answer, BufReader<UnixStream>), String> {
    let shown = socket.display();
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => format!("no belady answers at {shown}"),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => format!("the belady at {shown} went away before it answered"),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => format!("the belady at {shown} does not answer"),
        _ => format!("the belady at {shown}: {error}"),
    };
    let mut stream = UnixStream::connect(socket).map_err(failed)?;
    // Unmounting may wait for the kernel and a helper; the others, and taking a mount out of the tree, answer at once.
    let patience = if matches!(request, Request::Unmount { lazy: false }) { PATIENCE_FOR_THE_END } else { PATIENCE };
    stream.set_read_timeout(Some(patience)).and_then(|()| stream.set_write_timeout(Some(PATIENCE))).map_err(failed)?;
    let mut line = serde_json::to_vec(&request).expect("a request has no part that refuses to serialize");
    line.push(b'\n');
    stream.write_all(&line).map_err(failed)?;
    let mut reader = BufReader::new(stream);
    let mut answer = Vec::new();
    reader.by_ref().take(ANSWER_MAX_BYTES as u64).read_until(b'\n', &mut answer).map_err(failed)?;
    if answer.last() != Some(&b'\n') {
        return Err(format!("the belady at {shown} went away before it answered"));
    }
    let answer = serde_json::from_slice(&answer)
        .map_err(|error| format!("the belady at {shown} gave an answer that is not understood ({error}): is it another version?"))?;
    Ok((answer, reader))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn nobody_there_is_said_in_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("x.sock");
        assert!(ask(&socket, Request::Info).unwrap_err().starts_with("no belady answers at "));
        assert!(list(&dir.path().join("none")).is_empty());
    }

    #[test]
    fn listing_removes_what_dead_daemons_left_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (dead, other) = (dir.path().join("dead.sock"), dir.path().join("other.txt"));
        drop(UnixListener::bind(&dead).unwrap());
        fs::write(&other, "").unwrap();
        assert!(list(dir.path()).is_empty());
        assert!(!dead.exists() && other.exists());
    }

    /// Serves one connection after the probe's, answering `answer`, then closes it.
    fn one_answer(path: &Path, answer: &'static str) -> std::thread::JoinHandle<()> {
        let listener = UnixListener::bind(path).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().take(2).flatten() {
                let mut line = String::new();
                let mut reader = BufReader::new(&stream);
                if reader.read_line(&mut line).is_ok_and(|n| n > 0) {
                    (&stream).write_all(answer.as_bytes()).unwrap();
                }
            }
        })
    }

    #[test]
    fn a_daemon_that_makes_no_sense_is_listed_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("x.sock");
        let server = one_answer(&socket, "nonsense\n");
        let found = list(dir.path());
        assert!(matches!(&found[..], [Found::Silent { reason, .. }] if reason.contains("not understood")), "{found:?}");
        assert!(socket.exists());
        server.join().unwrap();
    }

    #[test]
    fn unmounting_waits_for_the_end_of_the_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("x.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let daemon = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            stream.write_all(b"{\"answer\":\"done\"}\n").unwrap();
            ended.recv().unwrap();
            line
        });
        let command = std::thread::spawn(move || unmount(&socket, true));
        end.send(()).unwrap();
        assert_eq!(command.join().unwrap(), Ok(true));
        assert_eq!(daemon.join().unwrap(), "{\"request\":\"unmount\",\"lazy\":true}\n");
    }
}
