//! What one GET costs the client in CPU: the SDK's `GetObject` beside the lean GET of `src/store/s3/get.rs`.
//!
//!     cargo bench --bench get_cpu -- http://127.0.0.1:9300 BUCKET KEY [GETS]
//!
//! The server is another process, so that its work is not counted. Rounds alternate; medians are printed.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region, StalledStreamProtectionConfig};
use belady::store::s3::{S3Config, S3Store};
use belady::store::{Store, StoreError};
use belady::types::ObjectMeta;
use futures_util::StreamExt;

const AT_ONCE: usize = 64;
const ROUNDS: usize = 5;
const DEFAULT_GETS: usize = 2_000;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// CPU time of all threads of this process, in ms. Not getrusage: its ticks are 10 ms on some kernels.
fn cpu_ms() -> Result<f64, Failure> {
    let mut nanos = 0.0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let line = std::fs::read_to_string(task?.path().join("schedstat"))?;
        nanos += line.split_whitespace().next().unwrap_or("0").parse::<f64>()?;
    }
    Ok(nanos / 1e6)
}

async fn lean(store: &S3Store, object: &ObjectMeta) -> Result<(), StoreError> {
    let mut body = store.read(&object.version(), 0..object.size).await?;
    while let Some(chunk) = body.next().await {
        std::hint::black_box(chunk?);
    }
    Ok(())
}

async fn sdk(client: &aws_sdk_s3::Client, bucket: &str, object: &ObjectMeta) -> Result<(), Failure> {
    let range = format!("bytes=0-{}", object.size - 1);
    let mut body = client.get_object().bucket(bucket).key(&*object.key).range(range).if_match(&*object.etag).send().await?.body;
    let mut len = 0;
    while let Some(chunk) = body.next().await {
        len += chunk?.len() as u64;
    }
    if len == object.size { Ok(()) } else { Err(format!("{len} bytes of {}", object.size).into()) }
}

/// CPU and wall time of `gets` calls of `get`, in ms per GET.
async fn round<F, T, E>(gets: usize, get: F) -> Result<(f64, f64), Failure>
where
    F: Fn() -> T,
    T: Future<Output = Result<(), E>>,
    E: Into<Failure>,
{
    let (cpu, wall) = (cpu_ms()?, Instant::now());
    let mut running = futures_util::stream::iter(0..gets).map(|_| get()).buffer_unordered(AT_ONCE);
    while let Some(done) = running.next().await {
        done.map_err(Into::into)?;
    }
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let each = gets as f64;
    Ok(((cpu_ms()? - cpu) / each, wall.elapsed().as_secs_f64() * 1e3 / each))
}

fn median(mut values: Vec<(f64, f64)>) -> (f64, f64) {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    values[values.len() / 2]
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let [endpoint, bucket, key, rest @ ..] = arguments.as_slice() else {
        // Not an error: `cargo test --all-targets` runs this too.
        eprintln!("usage: cargo bench --bench get_cpu -- http://127.0.0.1:PORT BUCKET KEY [GETS]");
        return Ok(());
    };
    let gets = rest.first().map_or(Ok(DEFAULT_GETS), |text| text.parse())?;
    let dir = std::env::temp_dir().join(format!("belady-get-cpu-{}", std::process::id()));
    std::fs::write(&dir, "AWS_ACCESS_KEY_ID=bench\nAWS_SECRET_ACCESS_KEY=bench\n")?;
    let config = S3Config {
        endpoint_url: Some(endpoint.clone()),
        region: Some("us-east-1".into()),
        env_file: Some(dir.clone()),
        max_connections: AT_ONCE,
        ..S3Config::new(bucket)
    };
    let store = S3Store::connect(config, "", Arc::default()).await;
    std::fs::remove_file(&dir)?;
    let store = store?;
    let object = store.head(key).await?;
    let conf = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("bench", "bench", None, None, "bench"))
        .http_client(aws_smithy_http_client::Builder::new().pool_max_idle_per_host(AT_ONCE).build_http())
        .endpoint_url(endpoint)
        .force_path_style(true)
        .retry_config(RetryConfig::disabled())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .build();
    let client = aws_sdk_s3::Client::from_conf(conf);
    round(gets / 4, || lean(&store, &object)).await?;
    round(gets / 4, || sdk(&client, bucket, &object)).await?;
    let (mut of_lean, mut of_sdk) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        of_lean.push(round(gets, || lean(&store, &object)).await?);
        of_sdk.push(round(gets, || sdk(&client, bucket, &object)).await?);
    }
    let mut table = format!("{gets} GETs of {} bytes, {AT_ONCE} at once, median of {ROUNDS} rounds\n", object.size);
    for (name, values) in [("lean", of_lean), ("sdk", of_sdk)] {
        let (cpu, wall) = median(values);
        writeln!(table, "{name:<5} {cpu:.3} ms CPU per GET   {:.0} GETs/s", 1e3 / wall)?;
    }
    print!("{table}");
    Ok(())
}
