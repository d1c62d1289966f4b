//! Where log lines go: to standard error in the foreground, to a file where one is named, else to syslog, because a daemon has no terminal.
//!
//! Started once per process, before anything logs.

use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

/// `daemon.info`, RFC 5424 §6.2.1: facility 3, severity 6. The level is in the text.
const SYSLOG_PRIORITY: u8 = 3 * 8 + 6;
/// The classic limit of a syslog message; longer ones are cut.
const SYSLOG_MAX_BYTES: usize = 2048;

/// Where to.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    Stderr,
    File(&'a Path),
    Syslog,
}

/// Starts logging what passes `filter` (tracing's syntax). A second start in one process changes nothing.
///
/// # Errors
/// One line: the file cannot be opened, or the filter is none.
pub fn start(filter: &str, target: Target<'_>) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|error| format!("--log-level {filter}: {error}"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_target(false);
    let started = match target {
        Target::Stderr => builder.with_ansi(io::stderr().is_terminal()).with_writer(io::stderr).try_init(),
        Target::File(path) => {
            let file = OpenOptions::new().append(true).create(true).open(path);
            let file = file.map_err(|error| format!("--log-file {}: cannot be written ({error})", path.display()))?;
            builder.with_ansi(false).with_writer(Mutex::new(file)).try_init()
        }
        Target::Syslog => builder.with_ansi(false).without_time().with_writer(BoxMakeWriter::new(Syslog::connect())).try_init(),
    };
    // Somebody (a test) has started it before: then lines go there.
    drop(started);
    Ok(())
}

/// The local syslog, or nothing where there is none (a container): then stats are all there is, and `--log-file` helps.
#[derive(Debug)]
struct Syslog(Option<UnixDatagram>);

impl Syslog {
    fn connect() -> Self {
        let socket = UnixDatagram::unbound().and_then(|socket| {
            socket.connect("/dev/log")?;
            // A syslog that hangs must not hang a reader.
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        Self(socket.ok())
    }
}

/// One event; the formatter writes it whole.
struct Line<'a>(&'a Syslog);

impl<'a> MakeWriter<'a> for Syslog {
    type Writer = Line<'a>;
    fn make_writer(&'a self) -> Line<'a> {
        Line(self)
    }
}

impl Write for Line<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if let Some(socket) = &self.0.0 {
            let mut message = format!("<{SYSLOG_PRIORITY}>belady[{}]: ", std::process::id()).into_bytes();
            message.extend_from_slice(text.trim_ascii_end());
            message.truncate(SYSLOG_MAX_BYTES);
            // A lost line is lost: there is nowhere to say so.
            let _ = socket.send(&message);
        }
        Ok(text.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syslog_line_has_a_priority_and_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let server = UnixDatagram::bind(&path).unwrap();
        let socket = UnixDatagram::unbound().unwrap();
        socket.connect(&path).unwrap();
        let syslog = Syslog(Some(socket));
        let check = |text: &[u8]| {
            syslog.make_writer().write_all(text).unwrap();
            let mut buffer = vec![0; 2 * SYSLOG_MAX_BYTES];
            let length = server.recv(&mut buffer).unwrap();
            String::from_utf8(buffer[..length].to_vec()).unwrap()
        };
        assert_eq!(check(b"INFO mounted\n"), format!("<30>belady[{}]: INFO mounted", std::process::id()));
        assert_eq!(check(&[b'x'; 5000]).len(), SYSLOG_MAX_BYTES);
        assert!(Syslog(None).make_writer().write_all(b"nowhere").is_ok());
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        assert!(start("info", Target::File(Path::new("/no/such/log"))).unwrap_err().starts_with("--log-file /no/such/log: "));
        assert!(start("belady=loud", Target::Stderr).unwrap_err().starts_with("--log-level "));
    }
}
