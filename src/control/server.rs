//! The daemon's end of the control socket.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::{Answer, Handler, REQUEST_MAX_BYTES, Request};

/// Connections at once: a few commands and a `--watch` or two. More wait in the kernel's backlog.
const CONNECTIONS: usize = 16;
/// At the end, answers under way are finished for so long: a command that asked for the unmount shall hear of it.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// A connection with no request for so long is closed: `--watch` asks at least once an hour and connects anew when it must.
const IDLE: Duration = Duration::from_secs(60);

/// A bound socket. Its file goes away with it.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already gone (somebody cleaned /run) is as good.
        let _ = fs::remove_file(&self.path);
    }
}

/// Makes the socket, 0600 in a directory 0700. One left by a daemon that died is replaced.
///
/// # Errors
/// One line with cause and remedy: a living daemon has it, or the directory is not ours alone.
pub fn bind(path: &Path) -> Result<Server, String> {
    let shown = path.display();
    let dir = path.parent().ok_or_else(|| format!("control socket {shown}: has no directory"))?;
    own_directory(dir)?;
    if path.exists() {
        match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => {
                return Err(format!("control socket {shown}: a running belady answers there: unmount it first (belady list shows it)"));
            }
            Err(_) => drop(fs::remove_file(path)),
        }
    }
    let listener = UnixListener::bind(path).map_err(|error| format!("control socket {shown}: {error}"))?;
    let server = Server { listener, path: path.to_owned() };
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(|error| format!("control socket {shown}: {error}"))?;
    Ok(server)
}

/// A directory of this user that nobody else may enter. In /tmp somebody else may have made it first: then it is refused.
fn own_directory(dir: &Path) -> Result<(), String> {
    let shown = dir.display();
    if let Err(error) = fs::DirBuilder::new().mode(0o700).recursive(true).create(dir) {
        return Err(format!("control directory {shown}: {error}"));
    }
    let metadata = fs::symlink_metadata(dir).map_err(|error| format!("control directory {shown}: {error}"))?;
    if !metadata.is_dir() || metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(format!("control directory {shown}: belongs to somebody else: remove it, or set XDG_RUNTIME_DIR"));
    }
    if metadata.mode() & 0o077 != 0 {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(|error| format!("control directory {shown}: {error}"))?;
    }
    Ok(())
}

impl Server {
    /// Answers until `shutdown` resolves; then the socket's file is removed and answers under way are finished. Connections open at that time live on until the process ends:
    /// a command that waits for the end of the daemon sees it as the end of its connection.
    pub async fn serve(self, handler: Arc<dyn Handler>, shutdown: impl Future<Output = ()>) {
        let (slots, answering) = (Arc::new(Semaphore::new(CONNECTIONS)), Arc::new(Semaphore::new(CONNECTIONS)));
        tokio::pin!(shutdown);
        loop {
            let slot = tokio::select! {
                () = &mut shutdown => break,
                slot = Arc::clone(&slots).acquire_owned() => slot.expect("the semaphore is never closed"),
            };
            let stream = tokio::select! {
                () = &mut shutdown => break,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        // Out of descriptors, most likely: trying again at once would spin.
                        tracing::warn!("the control socket cannot accept a connection: {error}");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                },
            };
            if !may_ask(&stream) {
                tracing::warn!("the control socket refused another user");
                continue;
            }
            let (handler, answering) = (Arc::clone(&handler), Arc::clone(&answering));
            tokio::spawn(async move {
                if let Err(error) = connection(stream, handler, &answering).await {
                    tracing::debug!("control connection: {error}");
                }
                drop(slot);
            });
        }
        drop(self);
        // All permits at once: nobody is answering. Out of time: somebody does not read its answer.
        let _ = tokio::time::timeout(LAST_ANSWERS, answering.acquire_many(CONNECTIONS as u32)).await;
    }
}

/// The file modes say the same; this holds where they cannot (a file system without modes, a socket handed on).
fn may_ask(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == rustix::process::geteuid().as_raw())
}

async fn connection(stream: UnixStream, handler: Arc<dyn Handler>, answering: &Semaphore) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        let mut bounded = (&mut reader).take(REQUEST_MAX_BYTES as u64);
        let Ok(read) = tokio::time::timeout(IDLE, bounded.read_until(b'\n', &mut line)).await else { return Ok(()) };
        if read? == 0 {
            return Ok(());
        }
        let _under_way = answering.acquire().await.map_err(io::Error::other)?;
        let (answer, go_on) = match (line.last(), serde_json::from_slice(&line)) {
            (Some(b'\n'), Ok(request)) => (handle(&handler, request).await, true),
            (Some(b'\n'), Err(error)) => {
                (Answer::Error { message: format!("this daemon does not know the request ({error}): is it another version?") }, true)
            }
            _ => (Answer::Error { message: format!("a request is one line of at most {REQUEST_MAX_BYTES} bytes") }, false),
        };
        let mut text = serde_json::to_vec(&answer).map_err(io::Error::other)?;
        text.push(b'\n');
        tokio::time::timeout(IDLE, writer.write_all(&text)).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        if !go_on {
            return Ok(());
        }
    }
}

/// Off the runtime: unmounting blocks, and a panic there is an answer, too.
async fn handle(handler: &Arc<dyn Handler>, request: Request) -> Answer {
    let handler = Arc::clone(handler);
    match tokio::task::spawn_blocking(move || handler.handle(request)).await {
        Ok(answer) => answer,
        Err(_) => Answer::Error { message: "the daemon failed while answering: see its log".to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Info, client, socket_path};
    use super::*;
    use tokio::sync::oneshot;

    fn info() -> Info {
        Info { version: "1".into(), url: "s3://b".into(), mountpoint: "/m".into(), pid: 7, uptime_seconds: 1.0 }
    }

    /// A server whose handler answers Info, refuses Unmount and panics on Stats.
    fn start(path: &Path) -> (tokio::task::JoinHandle<()>, oneshot::Sender<()>) {
        let (stop, stopped) = oneshot::channel::<()>();
        let handler = |request: Request| match request {
            Request::Info => Answer::Info(info()),
            Request::Unmount { .. } | Request::OrderImport { .. } => Answer::Error { message: "busy".into() },
            Request::Stats => panic!("a bug"),
        };
        let server = bind(path).unwrap();
        (tokio::spawn(server.serve(Arc::new(handler), async move { drop(stopped.await) })), stop)
    }

    /// The commands block; the test's runtime must not.
    async fn ask(path: &Path, request: Request) -> Result<Answer, String> {
        let path = path.to_owned();
        tokio::task::spawn_blocking(move || client::ask(&path, request)).await.unwrap()
    }

    #[tokio::test]
    async fn answers_until_shutdown_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = socket_path(&dir.path().join("run"), Path::new("/m"));
        let (server, stop) = start(&path);
        assert_eq!(ask(&path, Request::Info).await, Ok(Answer::Info(info())));
        assert_eq!(ask(&path, Request::Unmount { lazy: false }).await, Ok(Answer::Error { message: "busy".into() }));
        let failed = ask(&path, Request::Stats).await.unwrap();
        assert!(matches!(failed, Answer::Error { message } if message.contains("see its log")), "a panic is an answer");
        assert_eq!(ask(&path, Request::Info).await, Ok(Answer::Info(info())), "and the server lives on");
        stop.send(()).unwrap();
        server.await.unwrap();
        assert!(!path.exists());
        assert!(ask(&path, Request::Info).await.is_err());
    }

    /// The answer to an unmount is the reason for the shutdown: it must not be lost to it. (Time stands still while a
    /// blocking task runs, so the server's last second does not pass.)
    #[tokio::test(start_paused = true)]
    async fn an_answer_under_way_is_finished_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.sock");
        let (stop, stopped) = oneshot::channel::<()>();
        let stop = std::sync::Mutex::new(Some(stop));
        let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
        let may_go_on = std::sync::Mutex::new(may_go_on);
        let handler = move |_: Request| {
            stop.lock().unwrap().take().unwrap().send(()).unwrap();
            may_go_on.lock().unwrap().recv().unwrap();
            Answer::Done
        };
        let server = tokio::spawn(bind(&path).unwrap().serve(Arc::new(handler), async move { drop(stopped.await) }));
        let command = tokio::spawn({
            let path = path.clone();
            async move { ask(&path, Request::Unmount { lazy: false }).await }
        });
        // The file goes first of all: then the server is in its last second.
        while path.exists() {
            tokio::task::yield_now().await;
        }
        assert!(!server.is_finished(), "it waits for the answer");
        go_on.send(()).unwrap();
        server.await.unwrap();
        assert_eq!(command.await.unwrap(), Ok(Answer::Done));
    }

    #[tokio::test]
    async fn only_its_user_may_enter() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        fs::create_dir(&run).unwrap();
        fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).unwrap();
        let path = socket_path(&run, Path::new("/m"));
        let _server = bind(&path).unwrap();
        assert_eq!(fs::metadata(&run).unwrap().mode() & 0o777, 0o700, "too open a directory is closed");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        std::os::unix::fs::symlink(&run, dir.path().join("link")).unwrap();
        assert!(bind(&dir.path().join("link/x.sock")).unwrap_err().contains("somebody else"), "a planted link is refused");
    }

    #[tokio::test]
    async fn a_dead_socket_is_replaced_and_a_living_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "left by a daemon that died");
        let living = bind(&path).unwrap();
        assert!(bind(&path).unwrap_err().contains("unmount it first"));
        drop(living);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn nonsense_and_long_lines_get_an_error_and_no_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.sock");
        let (_server, _stop) = start(&path);
        let mut stream = BufReader::new(UnixStream::connect(&path).await.unwrap());
        let mut line = String::new();
        stream.write_all(b"{\"request\":\"shell\"}\n").await.unwrap();
        stream.read_line(&mut line).await.unwrap();
        assert!(line.contains("does not know the request"), "{line}");
        line.clear();
        stream.write_all(&vec![b'x'; REQUEST_MAX_BYTES]).await.unwrap();
        stream.read_line(&mut line).await.unwrap();
        assert!(line.contains("at most"), "{line}");
        assert_eq!(stream.read_line(&mut line).await.unwrap(), 0, "and the connection is closed");
    }
}
