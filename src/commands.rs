//! The commands, one function each: settings in, text out. They hold no logic of their own beyond the order of the steps.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::Duration;

use rustix::mount::UnmountFlags;

use crate::config::cli::{Cli, Command, DemoArgs, ListArgs, MountArgs, StatsArgs, UmountArgs};
use crate::config::machine::Machine;
use crate::config::{self, Settings, mountpoint};
use crate::control::{Answer, Request, client, socket_above, socket_path};
use crate::daemonize::{self, Ready};
use crate::demo::{self, DemoOptions};
use crate::logging;
use crate::stats::snapshot::Snapshot;
use crate::stats::text;
use crate::store::url::StoreUrl;

mod order;

/// Why a command ends with another status than 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// What was typed is wrong: all errors (status 2).
    Usage(Vec<String>),
    /// It did not work (status 1).
    Failed(String),
    /// It did not work, and the user has been told (status 1).
    Told,
}

impl From<String> for Failure {
    fn from(error: String) -> Self {
        Self::Failed(error)
    }
}

/// Does what the command line says.
///
/// # Errors
/// See [`Failure`].
pub fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::Mount(args) => mount(&args),
        Command::Umount(args) => umount(&args),
        Command::List(args) => list(args),
        Command::Stats(args) => stats(&args),
        Command::Order(args) => order::run(args.command),
        Command::Demo(args) => demo(args),
    }
}

fn mount(args: &MountArgs) -> Result<(), Failure> {
    if args.background_child {
        let ready = Ready::background_child().map_err(|_| "--background-child is for belady itself".to_owned())?;
        return match load(args) {
            Ok(settings) => serve(settings, ready),
            Err(errors) => {
                ready.failed(&errors.join("; "));
                Err(Failure::Told)
            }
        };
    }
    let settings = load(args).map_err(Failure::Usage)?;
    if args.print_config {
        return print(&config::print::render(&settings));
    }
    clear_dead_mount(&settings)?;
    mountpoint::check_free(&settings.mountpoint)?;
    if settings.foreground {
        return serve(settings, Ready::foreground());
    }
    let text = daemonize::start(std::env::args_os().skip(1))?;
    // It is mounted, whether or not somebody wants to read so.
    let _ = print(&format!("{text}\n"));
    Ok(())
}

/// All that is wrong with the settings and the address.
fn load(args: &MountArgs) -> Result<Settings, Vec<String>> {
    let address = args.url.parse::<StoreUrl>().map_err(|error| error.to_string());
    match (config::load(args), address) {
        (Ok(settings), Ok(_)) => Ok(settings),
        (Ok(_), Err(error)) => Err(vec![error]),
        (Err(errors), address) => Err(address.err().into_iter().chain(errors).collect()),
    }
}

/// The daemon itself, in this process, until the mount ends.
fn serve(settings: Settings, ready: Ready) -> Result<(), Failure> {
    let target = match &settings.log_file {
        Some(path) => logging::Target::File(path),
        None if settings.foreground => logging::Target::Stderr,
        None => logging::Target::Syslog,
    };
    let started = logging::start(&settings.log_level, target).and_then(|()| {
        // The directory the command was started in stays free to be unmounted; all paths of the settings are absolute.
        rustix::process::chdir("/").map_err(|error| error.to_string())?;
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| format!("cannot start threads: {error}"))
    });
    match started {
        Ok(runtime) => {
            let served = runtime.block_on(async {
                let stop = daemonize::signals().map_err(|error| error.to_string())?;
                // it has told its error through `ready`
                crate::daemon::run(settings, ready, stop).await.map_err(|_| Failure::Told)
            });
            // an order that is being computed is not waited for
            runtime.shutdown_background();
            served
        }
        Err(error) => {
            ready.failed(&error);
            Err(Failure::Told)
        }
    }
}

/// A mount of ours whose daemon died answers every access with an error until somebody takes it away: we do.
fn clear_dead_mount(settings: &Settings) -> Result<(), String> {
    let path = &settings.mountpoint;
    if mountpoint::mounted_on(path).is_some_and(|mounted| mounted.is_ours())
        && !client::is_held(&socket_path(&settings.runtime_dir, path))
        && !answers(path)
    {
        tracing::warn!("{}: a mount whose daemon is gone is taken away", path.display());
        detach(path, true)?;
    }
    Ok(())
}

/// Whether somebody serves the mount: a dead one refuses with ENOTCONN at once. Only for mounts whose socket nobody holds: a daemon that is
/// there and does not answer would hang us.
fn answers(path: &Path) -> bool {
    !matches!(rustix::fs::statfs(path), Err(rustix::io::Errno::NOTCONN | rustix::io::Errno::CONNABORTED))
}

fn umount(args: &UmountArgs) -> Result<(), Failure> {
    let path = mountpoint::real(&args.dir)?;
    let socket = socket_path(&Machine::here().runtime_dir, &path);
    let was_ours = mountpoint::mounted_on(&path).is_some_and(|mounted| mounted.is_ours());
    // Asked first whether it answers at all: a daemon that is stopped says so in seconds and not in the minute an unmount may take.
    match client::ask(&socket, Request::Info).and_then(|_| client::unmount(&socket, args.lazy)) {
        Ok(true) => Ok(()),
        Ok(false) => print(&format!("{} is unmounted; its daemon still finishes the reads in flight\n", path.display())),
        // Nobody there, or nobody who answers: what is left of the mount can still go.
        Err(error) => match mountpoint::mounted_on(&path) {
            Some(mounted) if mounted.is_ours() && (args.lazy || !client::is_held(&socket) && !answers(&path)) => Ok(detach(&path, true)?),
            // Another user's, or its socket was cleaned away: the kernel knows whether it is busy, and the daemon sees it go.
            Some(mounted) if mounted.is_ours() && !socket.exists() => Ok(detach(&path, false)?),
            Some(mounted) if mounted.is_ours() => {
                Err(Failure::Failed(format!("{}; --lazy takes it out of the tree all the same", naming(&path, &error))))
            }
            Some(mounted) => {
                Err(Failure::Failed(format!("{}: {} is mounted there, not by belady: use umount", path.display(), mounted.source)))
            }
            // Somebody else was faster, or the daemon ended before it could say so.
            None if was_ours => Ok(()),
            None if socket.exists() => Err(Failure::Failed(naming(&path, &error))),
            None => Err(Failure::Failed(format!("{}: nothing is mounted there (belady list shows the mounts)", path.display()))),
        },
    }
}

/// An error with the path it is of, once: the daemon's own often name it.
fn naming(path: &Path, error: &str) -> String {
    let path = path.display().to_string();
    if error.contains(&path) { error.to_owned() } else { format!("{path}: {error}") }
}

/// Takes a mount away without its daemon.
fn detach(path: &Path, lazy: bool) -> Result<(), String> {
    let refused = |reason: String| format!("cannot unmount {}: {reason}", path.display());
    if rustix::process::geteuid().is_root() {
        let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        return rustix::mount::unmount(path, flags).map_err(|error| refused(error.to_string()));
    }
    let mut reason = "neither fusermount3 nor fusermount is installed".to_owned();
    for helper in ["fusermount3", "fusermount"] {
        match Process::new(helper).arg(if lazy { "-uz" } else { "-u" }).arg("--").arg(path).output() {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => reason = String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(_) => {}
        }
    }
    Err(refused(reason))
}

fn list(args: ListArgs) -> Result<(), Failure> {
    let found = client::list(&Machine::here().runtime_dir);
    let mut out = String::new();
    for found in found {
        match found {
            client::Found::Running(info) if args.json => {
                out += &serde_json::to_string(&info).map_err(|error| error.to_string())?;
                out.push('\n');
            }
            client::Found::Running(info) => {
                out +=
                    &format!("{}  {}  pid {}  up {}\n", info.url, info.mountpoint.display(), info.pid, text::duration(info.uptime_seconds));
            }
            client::Found::Silent { socket, reason } => tell(&format!("{}: {reason}", socket.display())),
        }
    }
    print(&out)
}

fn stats(args: &StatsArgs) -> Result<(), Failure> {
    let path = mountpoint::real(&args.dir)?;
    let socket = socket_above(&Machine::here().runtime_dir, &path);
    let mut before = snapshot(&socket, &path)?;
    check_there(&before, &path)?;
    show(args, &before, None)?;
    let Some(seconds) = args.watch else { return Ok(()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(|error| error.to_string())?;
    loop {
        runtime.block_on(async { tokio::time::sleep(Duration::from_secs(seconds)).await });
        let now = snapshot(&socket, &path)?;
        show(args, &now, Some(&before))?;
        before = now;
    }
}

fn show(args: &StatsArgs, now: &Snapshot, before: Option<&Snapshot>) -> Result<(), Failure> {
    if args.json {
        return print(&(now.to_json() + "\n"));
    }
    // Home and clear, as `watch` does.
    let clear = if args.watch.is_some() && io::stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "" };
    print(&format!("{clear}{}", text::render(now, before)))
}

fn snapshot(socket: &Path, path: &Path) -> Result<Snapshot, String> {
    match client::ask(socket, Request::Stats) {
        Ok(Answer::Stats { snapshot }) => Ok(*snapshot),
        Ok(Answer::Error { message }) => Err(message),
        Ok(_) => Err("the daemon gave another answer than asked for: is it another version?".to_owned()),
        Err(_) if !socket.exists() => Err(match mountpoint::mounted_on(path) {
            Some(mounted) if mounted.is_ours() => {
                format!("{}: the daemon of this mount is gone, or another user's: belady umount {}", path.display(), path.display())
            }
            _ => format!("{}: no belady is mounted there (belady list shows the mounts)", path.display()),
        }),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Whether a path, which lies below the mount's root, is there: a misspelt one is no part of the mount.
fn check_there(snapshot: &Snapshot, path: &Path) -> Result<(), String> {
    // The root is: its daemon has answered.
    match path == Path::new(&snapshot.mountpoint) || path.symlink_metadata().is_ok() {
        true => Ok(()),
        false => Err(format!("{}: there is no such file or directory in the mount on {}", path.display(), snapshot.mountpoint)),
    }
}

fn demo(args: DemoArgs) -> Result<(), Failure> {
    let DemoArgs { json, files, mean_size, delay_ms, epochs, threads, cache, keep, serve_only, port } = args;
    let options = DemoOptions { json, files, mean_size, delay_ms, epochs, threads, cache, keep, port, ..DemoOptions::default() };
    let done = if serve_only { demo::serve_only(options) } else { demo::run(options).map(drop) };
    done.map_err(|error| Failure::Failed(error.to_string()))
}

/// To standard output. A reader that has gone (`| head`) ends the command quietly.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|_| Failure::Told)
}

/// One line to standard error; a closed one is no reason to fail.
pub fn tell(error: &str) {
    let _ = writeln!(io::stderr(), "belady: {error}");
}

/// Where this user's sockets are, for tests and scripts.
#[must_use]
pub fn runtime_dir() -> PathBuf {
    Machine::here().runtime_dir
}
