//! Into the background: the command starts itself again as a child of its own session, waits for the child's word, and ends with it.
//!
//! Promises: the command returns 0 only when the mount answers, and otherwise after the child has ended, with its error; the child keeps
//! none of the command's standard descriptors, so that `x=$(belady mount ...)` returns. The child is a new process and not a fork of this
//! one, so that no runtime, lock or thread is carried over (tokio#4301). They talk over a socket pair that is the child's standard input:
//! that needs no descriptor number, and the child sees when the command is interrupted.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

/// The flag that tells a process it is the child.
const CHILD_FLAG: &str = "--background-child";

/// What the child says, a JSON line each.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message {
    /// Shown on a terminal only.
    Progress(String),
    Ready(String),
    Failed(String),
}

/// The command was interrupted while the mount was being made: nobody waits for it, and it must not stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the command that started this mount is gone")]
pub struct Abandoned;

/// Tells whoever started the mount how it goes. Neither waits nor fails where it is called from the runtime.
#[derive(Debug)]
pub struct Ready {
    /// `None` in the foreground.
    parent: Option<UnixStream>,
}

impl Ready {
    /// For a mount in the foreground: progress and the final line go to the terminal.
    #[must_use]
    pub const fn foreground() -> Self {
        Self { parent: None }
    }

    /// For the child, first of all it does: leaves the session of the command.
    ///
    /// # Errors
    /// Standard input is no socket: the flag was given by hand.
    pub fn background_child() -> io::Result<Self> {
        let parent = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        parent.peer_addr()?;
        // A full socket means a command that is stopped (Ctrl-Z): its progress lines are dropped, the last one has room.
        parent.set_nonblocking(true)?;
        // It fails only for a process that leads a group already, and then there is no terminal to leave.
        let _ = rustix::process::setsid();
        Ok(Self { parent: Some(parent) })
    }

    /// What goes on, for people: at most a few lines a second.
    pub fn progress(&self, text: &str) {
        match &self.parent {
            Some(_) => drop(self.tell(&Message::Progress(text.to_owned()))),
            None if io::stderr().is_terminal() => drop(writeln!(io::stderr(), "belady: {text}")),
            None => {}
        }
    }

    /// Resolves when the command is gone before its last word, and never otherwise: a Ctrl-C does not reach the session of the child.
    /// Call it on a runtime.
    pub async fn abandoned(&self) {
        if let Some(Ok(parent)) = self.parent.as_ref().map(UnixStream::try_clone)
            && let Ok(parent) = tokio::net::UnixStream::from_std(parent)
        {
            // The command says nothing; what can be read is its end.
            while let Ok(()) = parent.readable().await {
                match parent.try_read(&mut [0]) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    _ => return,
                }
            }
        }
        std::future::pending().await
    }

    /// The mount answers; `text` is printed.
    ///
    /// # Errors
    /// Nobody waits for it any more: take the mount away again.
    pub fn ready(self, text: &str) -> Result<(), Abandoned> {
        match &self.parent {
            Some(_) => self.tell(&Message::Ready(text.to_owned())).map_err(|_| Abandoned),
            None => {
                let _ = writeln!(io::stdout(), "{text}");
                Ok(())
            }
        }
    }

    /// There will be no mount. The command waits for the end of this process and shows the error.
    pub fn failed(self, error: &str) {
        match &self.parent {
            Some(_) => drop(self.tell(&Message::Failed(error.to_owned()))),
            None => drop(writeln!(io::stderr(), "belady: {error}")),
        }
    }

    fn tell(&self, message: &Message) -> io::Result<()> {
        let Some(mut parent) = self.parent.as_ref() else { return Ok(()) };
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        parent.write_all(&line)
    }
}

/// Starts this program again in the background, with `args` (the first is the subcommand), and waits for its word. `Ok` is the line to print.
///
/// # Errors
/// The child's error, or how it died.
pub fn start(args: impl IntoIterator<Item = OsString>) -> Result<String, String> {
    let cannot = |error: io::Error| format!("cannot start in the background ({error}): use --foreground");
    let (ours, theirs) = UnixStream::pair().map_err(cannot)?;
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe"));
    let mut args = args.into_iter();
    let mut command = Command::new(program);
    // The flag stands before the rest: after a `--` it would be a name.
    command.args(args.next()).arg(CHILD_FLAG).args(args);
    command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(cannot)?;
    drop(command); // and with it our copy of the child's end: its death is our end of file
    match listen(BufReader::new(ours)) {
        Some(Message::Ready(text)) => Ok(text),
        // Not before the child has cleaned up: nothing is left mounted when we return.
        Some(Message::Failed(error)) => {
            let _ = child.wait();
            Err(error)
        }
        _ => {
            let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
            Err(format!("the background process ended before the mount answered ({status}): use --foreground or --log-file to see why"))
        }
    }
}

/// Relays progress until the last word; `None` when the child is gone.
fn listen(reader: impl BufRead) -> Option<Message> {
    for line in reader.lines() {
        match serde_json::from_str(&line.ok()?).ok()? {
            Message::Progress(text) if io::stderr().is_terminal() => drop(writeln!(io::stderr(), "belady: {text}")),
            Message::Progress(_) => {}
            last => return Some(last),
        }
    }
    None
}

/// How a mount is told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Unmount, finish the reads in flight, end.
    Drain,
    /// Unmount lazily and end now: the user asked a second time.
    Now,
}

/// SIGTERM, SIGINT or SIGHUP, once and again, as [`Stop`]s.
///
/// # Errors
/// The system gives no signal handlers.
pub fn signals() -> io::Result<mpsc::Receiver<Stop>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt, mut hangup) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?);
    let (sender, receiver) = mpsc::channel(2);
    tokio::spawn(async move {
        for stop in [Stop::Drain, Stop::Now] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hangup.recv() => {}
            }
            if sender.send(stop).await.is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn pair() -> (Ready, UnixStream) {
        let (child, parent) = UnixStream::pair().unwrap();
        child.set_nonblocking(true).unwrap();
        (Ready { parent: Some(child) }, parent)
    }

    #[test]
    fn the_last_word_arrives_after_the_progress() {
        let (ready, parent) = pair();
        ready.progress("1,000 keys\nlisted");
        ready.progress("2,000 keys");
        ready.ready("mounted").unwrap();
        assert_eq!(listen(BufReader::new(parent)), Some(Message::Ready("mounted".into())));
        let (ready, parent) = pair();
        ready.failed("no such bucket");
        assert_eq!(listen(BufReader::new(parent)), Some(Message::Failed("no such bucket".into())));
    }

    #[test]
    fn a_child_that_dies_is_noticed() {
        let (ready, parent) = pair();
        ready.progress("listing");
        drop(ready);
        assert_eq!(listen(BufReader::new(parent)), None);
    }

    #[test]
    fn a_command_that_was_interrupted_is_noticed() {
        let (ready, parent) = pair();
        drop(parent);
        assert_eq!(ready.ready("mounted"), Err(Abandoned));
    }

    #[tokio::test]
    async fn a_command_that_goes_while_the_child_works_is_noticed_at_once() {
        let (ready, parent) = pair();
        assert_eq!(ready.abandoned().now_or_never(), None);
        ready.progress("listing");
        drop(parent);
        ready.abandoned().await;
        assert_eq!(Ready::foreground().abandoned().now_or_never(), None, "nobody to lose");
    }

    /// A stopped command reads nothing: the child goes on, and says its last word when it is read again.
    #[test]
    fn a_stopped_command_does_not_stop_the_child() {
        let (ready, _parent) = pair();
        for _ in 0..10_000 {
            ready.progress(&"x".repeat(100));
        }
    }
}
