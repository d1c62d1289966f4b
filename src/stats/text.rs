//! The first screen of `belady stats`: are readers waiting, how much, and what would have to be larger or faster; then the figures behind it.
//!
//! Pure: snapshots in, text out. With an earlier snapshot, reads and store are rates of the time between the two; without one, totals since
//! the mount began. Not here: the verdict (`verdict`).

use std::fmt::Write;

use super::snapshot::{Order, Snapshot};
use super::verdict::in_words;
use crate::types::ByteSize;

/// Prices of S3 Standard in us-east-1, list price: dollars per request and per GiB. Bytes within the region cost nothing.
const DOLLARS_PER_GET: f64 = 0.0004 / 1000.0;
const DOLLARS_PER_LIST: f64 = 0.005 / 1000.0;
const DOLLARS_PER_GIB_OUT: f64 = 0.09;

/// What is written above the epochs' bounds.
const BOUND_LEGEND: &str = "(bound, least possible: what Bélády's MIN would do in the cache less the read-ahead's room; an epoch that leaves that room unused can beat it by a few percent)";

/// The whole screen, lines of at most some 150 characters.
#[must_use]
pub fn render(now: &Snapshot, before: Option<&Snapshot>) -> String {
    let mut out = String::new();
    let what = before.map_or_else(
        || "since it was mounted".to_owned(),
        |b| format!("of the last {} (lines with *: since it was mounted)", duration(now.uptime_seconds - b.uptime_seconds)),
    );
    line(&mut out, "belady", &format!("{} on {}, up {}; figures {what}", now.url, now.mountpoint, duration(now.uptime_seconds)));
    line(&mut out, "verdict", &in_words(now, before));
    let waiting = waiting(&now.computing, &now.imported, &now.kept);
    if now.orders.is_empty() && waiting.is_empty() {
        line(&mut out, "order", without_order(now.finds_orders, now.reads.opens));
    }
    for order in &waiting {
        line(&mut out, "order", order);
    }
    for order in &now.orders {
        line(&mut out, "order", &order_line(order));
        if !order.note.is_empty() {
            line(&mut out, "", &order.note);
        }
    }
    let zero = Snapshot::default();
    let since = before.unwrap_or(&zero);
    let seconds = before.map(|b| now.uptime_seconds - b.uptime_seconds).filter(|s| *s > 0.0);
    reads(&mut out, now, since, seconds);
    reuse(&mut out, now, seconds.is_some());
    store(&mut out, now, since, seconds);
    cache(&mut out, now, seconds.is_some());
    let listing = &now.namespace;
    line(
        &mut out,
        "files",
        &format!(
            "{} of {}, listing {}, {} keys no path can show",
            number(listing.objects),
            size(listing.bytes),
            listing.listing,
            number(listing.hidden_keys)
        ),
    );
    if now.panics > 0 {
        line(&mut out, "notes", &format!("{} parts panicked and were given up or restarted: please report the log", now.panics));
    }
    for note in &now.notes {
        line(&mut out, "notes", note);
    }
    out
}

/// What is said where no order is followed and none waits.
#[must_use]
pub const fn without_order(finds: bool, opens: u64) -> &'static str {
    match (finds, opens) {
        (true, 0) => "none yet: it is looked for in what is opened, nothing need be declared",
        (true, _) => "none was found so far: files are not fetched ahead (belady order show says what was looked for)",
        (false, _) => "none is declared or looked for (--order none): files are not fetched ahead",
    }
}

/// Orders that are not followed yet, a line each.
#[must_use]
pub fn waiting(computing: &[String], imported: &[String], kept: &[String]) -> Vec<String> {
    let lines = [
        (computing, "declared, is being computed"),
        (imported, "imported, waits for its readers"),
        (kept, "kept from an earlier run, waits for its readers"),
    ];
    lines.into_iter().flat_map(|(orders, what)| orders.iter().map(move |order| format!("{order}: {what}"))).collect()
}

pub(super) fn order_line(order: &Order) -> String {
    let mut text = format!(
        "{}: {} ({}), seed {}, world {}, ranks {}: {}",
        order.id,
        order.kind,
        order.source,
        order.seed,
        order.world,
        order.ranks,
        order.state.to_uppercase()
    );
    if order.state == "locked" {
        let _ = write!(
            text,
            " at epoch {}, {} of {} ({})",
            order.epoch,
            number(order.position),
            number(order.length),
            percent(ratio(order.position, order.length))
        );
    }
    if order.length == 0 && order.source != "inferred" {
        text += ", it is being computed";
    }
    if order.observed > 0 {
        let _ = write!(text, "; {} of {} opens were predicted", percent(ratio(order.predicted, order.observed)), number(order.observed));
    }
    text
}

fn reads(out: &mut String, now: &Snapshot, since: &Snapshot, seconds: Option<f64>) {
    let (reads, before) = (&now.reads, &since.reads);
    let accesses = reads.accesses.saturating_sub(before.accesses);
    let bytes = reads.bytes.opened.saturating_sub(before.bytes.opened);
    let share = |now: u64, before: u64| percent(ratio(now.saturating_sub(before), accesses));
    let amount = match seconds {
        Some(seconds) => format!("{} accesses/s, {}/s", per_second(accesses, seconds), size(scaled(bytes, seconds))),
        None => format!("{} accesses, {}", number(accesses), size(bytes)),
    };
    line(
        out,
        "reads",
        &format!(
            "{amount}; ready {}: retained {}, in time {}; late {}, miss {}; {} errors",
            share(reads.retained + reads.in_time, before.retained + before.in_time),
            share(reads.retained, before.retained),
            share(reads.in_time, before.in_time),
            share(reads.late, before.late),
            share(reads.miss, before.miss),
            number(reads.errors.saturating_sub(before.errors)),
        ),
    );
    line(
        out,
        "",
        &format!(
            "{} opens, {} of them by passthrough; served {} (reads by passthrough and from the page cache are not in it)",
            number(reads.opens.saturating_sub(before.opens)),
            number(reads.passthrough_opens.saturating_sub(before.passthrough_opens)),
            size(reads.bytes.served.saturating_sub(before.bytes.served)),
        ),
    );
}

/// The name of a line whose figures count since the mount began, `beside` those of the last seconds.
fn since_mount(name: &str, beside: bool) -> String {
    if beside { format!("{name}*") } else { name.to_owned() }
}

fn reuse(out: &mut String, now: &Snapshot, beside: bool) {
    line(
        out,
        &since_mount("reuse", beside),
        &format!("{} of the bytes read were retained from an earlier epoch or run", percent(now.reads.retained_rate)),
    );
    if now.orders.iter().any(|order| !order.epochs.is_empty()) {
        line(out, "", BOUND_LEGEND);
    }
    for order in &now.orders {
        // The running epoch and the two before it: what a user compares. All of them are in stats.json.
        for epoch in order.epochs.iter().rev().take(3).rev() {
            let sum = epoch.bytes.retained + epoch.bytes.in_time + epoch.bytes.late + epoch.bytes.miss;
            line(
                out,
                "",
                &format!(
                    "{} epoch {}{}: retained {} (bound {}); from the store {} (least possible {}); {}",
                    order.id,
                    epoch.epoch,
                    if is_running(order, epoch.epoch) { " (running)" } else { "" },
                    percent(ratio(epoch.bytes.retained, sum)),
                    percent(epoch.bound.retained_rate),
                    size(epoch.store_bytes),
                    size(epoch.bound.store_bytes),
                    duration(epoch.seconds),
                ),
            );
        }
    }
    let prefetch = &now.prefetch;
    line(
        out,
        &since_mount("ahead", beside),
        &format!(
            "{} fetched ahead, {} read since, {} in vain ({}); window {} of {} wanted",
            number(prefetch.issued),
            number(prefetch.useful),
            number(prefetch.wasted),
            size(prefetch.wasted_bytes),
            size(prefetch.window_bytes),
            size(prefetch.window_wanted_bytes)
        ),
    );
}

fn store(out: &mut String, now: &Snapshot, since: &Snapshot, seconds: Option<f64>) {
    let (store, before) = (&now.store, &since.store);
    let bytes = store.bytes.saturating_sub(before.bytes);
    let get = store.requests.get.saturating_sub(before.requests.get);
    let amount = match seconds {
        Some(seconds) => format!("{} GET/s, {}/s", per_second(get, seconds), size(scaled(bytes, seconds))),
        None => format!(
            "{} GET, {} LIST, {} HEAD; {}",
            number(store.requests.get),
            number(store.requests.list),
            number(store.requests.head),
            size(bytes)
        ),
    };
    line(
        out,
        "store",
        &format!(
            "{amount} ({} of it hedged, retried or abandoned); p50 {}, p99 {}; {} retries, {} throttled, {} errors",
            size(store.bytes_extra.saturating_sub(before.bytes_extra)),
            duration(store.latency_seconds.p50),
            duration(store.latency_seconds.p99),
            number(store.retries.saturating_sub(before.retries)),
            number(store.throttled.saturating_sub(before.throttled)),
            number(store.errors.saturating_sub(before.errors)),
        ),
    );
    if store.redirects + store.direct + store.requests.batch > 0 {
        line(
            out,
            "cluster",
            &format!(
                "{} batches of {} files, {} of them cut short; {} redirects, {} GET straight to the target",
                number(store.requests.batch.saturating_sub(before.requests.batch)),
                number(store.batch_entries.saturating_sub(before.batch_entries)),
                number(store.batch_fallbacks.saturating_sub(before.batch_fallbacks)),
                number(store.redirects.saturating_sub(before.redirects)),
                number(store.direct.saturating_sub(before.direct)),
            ),
        );
    }
    #[expect(clippy::cast_precision_loss, reason = "a bill to the cent")]
    let (reads, lists, gib) =
        ((store.requests.get + store.requests.head) as f64, store.requests.list as f64, store.bytes as f64 / f64::from(1 << 30));
    line(
        out,
        "bill",
        &format!(
            "requests ${:.2} since it was mounted; bytes $0 within the region, ${:.2} out of it (S3 list prices: GET $0.0004, LIST $0.005 per 1,000; $0.09/GiB out)",
            reads * DOLLARS_PER_GET + lists * DOLLARS_PER_LIST,
            gib * DOLLARS_PER_GIB_OUT
        ),
    );
}

/// Whether an epoch of an order is being read: its figures are those so far.
fn is_running(order: &Order, epoch: u64) -> bool {
    order.epoch == epoch && order.position < order.length
}

fn cache(out: &mut String, now: &Snapshot, beside: bool) {
    if now.tiers.is_empty() {
        line(out, "cache", "none: every read goes to the store (--memory, --cache-dir)");
    }
    for tier in &now.tiers {
        let mut text = format!(
            "{}: {} of {}, {} files, {} hits, {} admitted, {} evicted",
            tier.name,
            size(tier.used_bytes),
            size(tier.capacity_bytes),
            number(tier.objects),
            number(tier.hits),
            number(tier.admitted),
            number(tier.evicted)
        );
        if tier.state != "ok" || tier.errors > 0 {
            let _ = write!(text, "; {} after {} errors", tier.state.to_uppercase(), tier.errors);
        }
        line(out, &since_mount("cache", beside), &text);
    }
}

fn line(out: &mut String, name: &str, text: &str) {
    let _ = writeln!(out, "{name:<9}{text}");
}

pub(super) fn size(bytes: u64) -> String {
    ByteSize(bytes).to_string()
}

/// Digits in groups of three.
pub(super) fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

#[expect(clippy::cast_precision_loss, reason = "a share for people, one decimal")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn per_second(n: u64, seconds: f64) -> String {
    format!("{:.1}", n as f64 / seconds)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes per second for people, not negative"
)]
fn scaled(bytes: u64, seconds: f64) -> u64 {
    (bytes as f64 / seconds) as u64
}

/// `1h02m`, `3m05s`, `12.3s`, `31ms`.
#[must_use]
pub fn duration(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time for people, not negative")]
    let whole = seconds.max(0.0) as u64;
    if whole >= 3600 {
        format!("{}h{:02}m", whole / 3600, whole % 3600 / 60)
    } else if whole >= 60 {
        format!("{}m{:02}s", whole / 60, whole % 60)
    } else if seconds >= 1.0 {
        format!("{seconds:.1}s")
    } else {
        format!("{:.0}ms", seconds.max(0.0) * 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::{Bound, EpochOfOrder, OutcomeBytes, Tier};
    use super::super::verdict::tests::read;
    use super::*;

    #[test]
    fn the_first_screen() {
        let mut s = read();
        (s.orders[0].epoch, s.orders[0].position, s.orders[0].length) = (1, 900, 1000);
        assert!(is_running(&s.orders[0], 1) && !is_running(&s.orders[0], 0));
        s.orders[0].epochs = vec![EpochOfOrder {
            epoch: 1,
            bytes: OutcomeBytes { retained: 49, in_time: 51, late: 0, miss: 0 },
            bound: Bound { retained_rate: 0.5, store_bytes: 50 },
            seconds: 12.3,
            ..EpochOfOrder::default()
        }];
        s.store.requests.get = 1_000_000;
        s.store.requests.list = 1_000;
        s.store.bytes = 100 << 30;
        s.tiers = vec![Tier { name: "disk".into(), state: "degraded".into(), errors: 2, ..Tier::default() }];
        s.notes = vec!["no passthrough: needs CAP_SYS_ADMIN".into()];
        let text = render(&s, None);
        for wanted in [
            "verdict  readers are not waiting (0.0% of the time)",
            "ready 90.0%: retained 50.0%, in time 40.0%; late 6.0%, miss 4.0%",
            "page cache are not in it",
            "can beat it by a few percent",
            "train epoch 1 (running): retained 49.0% (bound 50.0%)",
            "1,000,000 GET, 1,000 LIST",
            "requests $0.41 since it was mounted; bytes $0 within the region, $9.00 out of it (S3 list prices",
            "DEGRADED after 2 errors",
            "notes    no passthrough",
        ] {
            assert!(text.contains(wanted), "{wanted:?} is not in\n{text}");
        }
        assert!(text.lines().nth(1).is_some_and(|l| l.starts_with("verdict")), "the verdict comes first\n{text}");
    }

    #[test]
    fn rates_between_two_snapshots() {
        let before = read();
        let mut now = before.clone();
        now.uptime_seconds += 2.0;
        now.reads.opens += 100;
        now.reads.accesses += 100;
        now.reads.miss += 100;
        now.reads.bytes.opened += 4 << 20;
        let text = render(&now, Some(&before));
        assert!(text.contains("50.0 accesses/s, 2MiB/s; ready 0.0%"), "{text}");
        assert!(text.contains("of the last 2.0s (lines with *: since it was mounted)"), "{text}");
        assert!(text.contains("\nreuse*   0.0%") && text.contains("\nahead*   "), "{text}");
        assert!(!render(&now, None).contains('*'));
    }

    #[test]
    fn figures_as_people_write_them() {
        assert_eq!([number(0), number(999), number(1000), number(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([duration(0.031), duration(12.34), duration(185.0), duration(3720.0)], ["31ms", "12.3s", "3m05s", "1h02m"]);
    }
}
