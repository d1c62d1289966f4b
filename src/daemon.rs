//! Stand-in until the parts are assembled: answers on the control socket and mounts nothing.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::config::Settings;
use crate::control::{Answer, Info, Request, server, socket_path};
use crate::daemonize::{Ready, Stop};
use crate::stats::Stats;
use crate::stats::snapshot::Snapshot;

/// Serves `settings` until told to stop.
///
/// # Errors
/// One line with cause and remedy; `ready` has told it, too.
pub async fn run(settings: Settings, ready: Ready, mut stop: mpsc::Receiver<Stop>) -> Result<(), String> {
    let began = Instant::now();
    let mountpoint = settings.mountpoint.clone();
    let stats = Arc::new(Stats { url: settings.url.clone(), mountpoint: mountpoint.display().to_string(), ..Stats::default() });
    let server = match server::bind(&socket_path(&settings.runtime_dir, &mountpoint)) {
        Ok(server) => server,
        Err(error) => {
            ready.failed(&error);
            return Err(error);
        }
    };
    let (unmounted, mut unmount) = mpsc::channel::<()>(1);
    let handler = move |request: Request| match request {
        Request::Stats => Answer::Stats { snapshot: Box::new(Snapshot::take(&stats, began.elapsed())) },
        Request::Info => Answer::Info(Info {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            url: stats.url.clone(),
            mountpoint: mountpoint.clone(),
            pid: std::process::id(),
            uptime_seconds: began.elapsed().as_secs_f64(),
        }),
        Request::Unmount { .. } => {
            let _ = unmounted.try_send(());
            Answer::Done
        }
    };
    if ready.ready(&format!("{} on {}", settings.url, settings.mountpoint.display())).is_err() {
        return Ok(());
    }
    let shutdown = async {
        tokio::select! { _ = stop.recv() => {} _ = unmount.recv() => {} }
    };
    server.serve(Arc::new(handler), shutdown).await;
    Ok(())
}
