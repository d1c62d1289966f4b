//! The first screen of `belady stats`: are readers waiting, how much, and what would have to be larger or faster; then the figures behind it.
//!
//! Pure: snapshots in, text out. With an earlier snapshot, reads and store are rates of the time between the two; without one, totals since
//! the mount began. [`Verdict`] decides, the rest prints.

use std::fmt::Write;

use super::snapshot::{Order, Reads, Snapshot};
use crate::types::ByteSize;

/// Prices of S3 Standard in us-east-1, list price: dollars per request and per GiB. Bytes within the region cost nothing.
const DOLLARS_PER_GET: f64 = 0.0004 / 1000.0;
const DOLLARS_PER_LIST: f64 = 0.005 / 1000.0;
const DOLLARS_PER_GIB_OUT: f64 = 0.09;

/// Below this share of the time, waiting is noise: a run 1 % faster is not worth an action.
const WAITING_SHARE: f64 = 0.01;

/// What is written above the epochs' bounds.
const BOUND_LEGEND: &str = "(bound, least possible: what Bélády's MIN would do in the cache less the read-ahead's room; an epoch that leaves that room unused can beat it by a few percent)";

/// Fewer errors than one in so many are told beside the reads.
const FAILING_ONE_IN: u64 = 100;

/// The window follows what is wanted in steps of an eighth (`plan/lookahead.rs`): less than that is missing without any lack of room.
const WINDOW_LAG: u64 = 8;

/// What holds the readers up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// The store answers with errors.
    StoreErrors,
    /// The store asks for a slower pace.
    Throttling,
    /// No order is followed: every first read waits for the store's latency.
    UnknownOrder,
    /// Most of it was before an order was followed.
    FoundLate,
    /// Files are read that no order knew to be next, and an order says what is odd.
    WrongOrder,
    /// The look-ahead does not fit into the cache.
    Window,
    /// Most files are read by somebody whose order is not known, beside one that is followed.
    Others,
    /// The store's bandwidth or our connections: everything is known ahead and still late.
    Bandwidth,
}

/// Whether the readers wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// Nobody has read anything.
    Idle,
    /// At least one of a hundred opens and reads ended with an error: nothing else matters then.
    Failing { errors: u64 },
    /// They wait less than anybody would notice.
    Flowing { share: f64 },
    /// All readers of a rank stand still this share of the time.
    Starved { share: f64, by: Binding },
    /// So many readers wait on average, though others of their rank go on (or ranks are not known).
    Waiting { readers: f64, by: Binding },
}

impl Verdict {
    /// Of the time between the two snapshots, or since the mount began.
    #[must_use]
    pub fn of(now: &Snapshot, before: Option<&Snapshot>) -> Self {
        let zero = Snapshot::default();
        let before = before.unwrap_or(&zero);
        let seconds = now.uptime_seconds - before.uptime_seconds;
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let tried = since(now.reads.opens, before.reads.opens) + since(now.reads.requests, before.reads.requests);
        let errors = since(now.reads.errors, before.reads.errors);
        // An open that fails is no open.
        if tried + errors == 0 || seconds <= 0.0 {
            return Self::Idle;
        }
        if errors > 0 && errors.saturating_mul(FAILING_ONE_IN) >= tried + errors {
            return Self::Failing { errors };
        }
        let starved = ((now.reads.starved_seconds - before.reads.starved_seconds) / seconds).clamp(0.0, 1.0);
        let waiting = ((now.reads.wait_seconds - before.reads.wait_seconds) / seconds).max(0.0);
        // Of the starved time, or the waits: more than half came while no order was followed.
        let of = |reads: &Reads| match starved >= WAITING_SHARE {
            true => (reads.starved_seconds, reads.starved_unfollowed_seconds),
            false => (reads.wait_seconds, reads.wait_unfollowed_seconds),
        };
        let ((all, unfollowed), (all_before, unfollowed_before)) = (of(&now.reads), of(&before.reads));
        let by = binding(now, before, (unfollowed - unfollowed_before) * 2.0 > all - all_before);
        if starved >= WAITING_SHARE {
            Self::Starved { share: starved, by }
        } else if waiting >= WAITING_SHARE {
            Self::Waiting { readers: waiting, by }
        } else {
            Self::Flowing { share: waiting }
        }
    }
}

/// The first of the known causes that applies, the one with the simplest remedy first. `unfollowed`: most of it was while no order was followed.
fn binding(now: &Snapshot, before: &Snapshot, unfollowed: bool) -> Binding {
    if now.store.errors > before.store.errors {
        Binding::StoreErrors
    } else if now.store.throttled > before.store.throttled {
        Binding::Throttling
    } else if !now.orders.iter().any(|order| order.state == "locked") {
        Binding::UnknownOrder
    } else if unfollowed {
        Binding::FoundLate
    } else if missed_most(now, before) && now.orders.iter().any(is_odd) {
        Binding::WrongOrder
    } else if now.prefetch.window_wanted_bytes.saturating_sub(now.prefetch.window_bytes) > now.prefetch.window_bytes / WINDOW_LAG {
        Binding::Window
    } else if missed_most(now, before) {
        Binding::Others
    } else {
        Binding::Bandwidth
    }
}

/// Its note says what is wrong; that of an order which was found and has had what was read since says only why it was found.
fn is_odd(order: &Order) -> bool {
    let was_right = order.source == "inferred" && order.state == "locked" && order.predicted * 10 >= order.observed * 9;
    !order.note.is_empty() && !was_right
}

/// More than half of the accesses were of files that nothing had asked for.
fn missed_most(now: &Snapshot, before: &Snapshot) -> bool {
    let accesses = now.reads.accesses.saturating_sub(before.reads.accesses);
    now.reads.miss.saturating_sub(before.reads.miss) * 2 > accesses
}

/// The whole screen, lines of at most some 150 characters.
#[must_use]
pub fn render(now: &Snapshot, before: Option<&Snapshot>) -> String {
    let mut out = String::new();
    let what = before
        .map_or_else(|| "since it was mounted".to_owned(), |b| format!("of the last {}", duration(now.uptime_seconds - b.uptime_seconds)));
    line(&mut out, "belady", &format!("{} on {}, up {}; figures {what}", now.url, now.mountpoint, duration(now.uptime_seconds)));
    line(&mut out, "verdict", &verdict(now, before));
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
    reuse(&mut out, now);
    store(&mut out, now, since, seconds);
    cache(&mut out, now);
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

fn verdict(now: &Snapshot, before: Option<&Snapshot>) -> String {
    match Verdict::of(now, before) {
        Verdict::Idle => "nobody is reading".to_owned(),
        Verdict::Failing { errors } => format!("READS FAIL: {} of them ended with an error: see the log", number(errors)),
        Verdict::Flowing { share } => format!("readers are not waiting ({} of the time)", percent(share)),
        Verdict::Starved { share, by } => format!("READERS ARE STARVED {} of the time: {}", percent(share), remedy(by, now)),
        Verdict::Waiting { readers, by } => format!("READERS WAIT: {readers:.2} of them at any time; {}", remedy(by, now)),
    }
}

/// The cause and what to do about it.
fn remedy(by: Binding, now: &Snapshot) -> String {
    match by {
        Binding::StoreErrors => format!("the store fails ({} errors so far): see the log", now.store.errors),
        Binding::Throttling => "the store asks us to slow down: lower --max-requests, or spread the keys over more prefixes".to_owned(),
        Binding::FoundLate => {
            let order = now.orders.iter().find(|order| order.state == "locked");
            let id = order.map_or("", |order| order.id.as_str());
            if order.is_none_or(|order| order.source != "inferred") {
                format!("most of that was before the first opens showed where the order {id:?} is; it is followed now, nothing need be done")
            } else if has_disk(now) {
                format!("most of that was before the order {id:?} was found; it is followed now, and kept in --cache-dir for the next run of the script")
            } else {
                format!("most of that was before the order {id:?} was found; it is followed now (a run that declares or imports it, as belady order export writes it, has it sooner)")
            }
        }
        Binding::WrongOrder => {
            let odd = now.orders.iter().find(|order| is_odd(order)).map_or("", |order| order.note.as_str());
            format!("most files come unforeseen: {odd}")
        }
        Binding::UnknownOrder => match now.orders.first() {
            // whoever declared nothing has nothing to check
            Some(order) if order.source == "inferred" => format!(
                "the order {:?}, found in the opens, is {}, so reads wait for the store's latency until one is found again",
                order.id, order.state
            ),
            Some(order) => format!(
                "the order {:?} is {}, so reads wait for the store's latency: check seed, world and files of --order",
                order.id, order.state
            ),
            None if now.finds_orders => "no order was found in the opens so far, so first reads wait for the store's latency: belady order show says what was looked for; an order that is not found can be declared (--order)".to_owned(),
            None => "no order is looked for (--order none), so first reads wait for the store's latency: --order auto finds most, others can be declared".to_owned(),
        },
        Binding::Window => format!(
            "the cache is too small for the look-ahead ({} of {}): raise --memory or {}",
            size(now.prefetch.window_bytes),
            size(now.prefetch.window_wanted_bytes),
            if has_disk(now) { "--disk" } else { "add --cache-dir" }
        ),
        Binding::Others => {
            "most files are read by programs whose order is not known, beside one that is followed: belady order show says what is known".to_owned()
        }
        Binding::Bandwidth => format!(
            "files are known ahead and come later than they are read: the store (or --max-bandwidth, where given) is no faster; a nearer store helps, or more cache (--memory, {})",
            if has_disk(now) { "--disk" } else { "--cache-dir" }
        ),
    }
}

/// Whether a tier is a directory.
fn has_disk(now: &Snapshot) -> bool {
    now.tiers.iter().any(|tier| !tier.path.is_empty())
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

fn order_line(order: &Order) -> String {
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

fn reuse(out: &mut String, now: &Snapshot) {
    line(out, "reuse", &format!("{} of the bytes read were retained from an earlier epoch or run", percent(now.reads.retained_rate)));
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
                    "{} epoch {}: retained {} (bound {}); from the store {} (least possible {}); {}",
                    order.id,
                    epoch.epoch,
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
        "ahead",
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

fn cache(out: &mut String, now: &Snapshot) {
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
        line(out, "cache", &text);
    }
}

fn line(out: &mut String, name: &str, text: &str) {
    let _ = writeln!(out, "{name:<9}{text}");
}

fn size(bytes: u64) -> String {
    ByteSize(bytes).to_string()
}

/// Digits in groups of three.
fn number(n: u64) -> String {
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

fn percent(share: f64) -> String {
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
    use super::*;

    /// A mount of a minute whose readers opened 1000 files.
    fn read() -> Snapshot {
        let mut s = Snapshot { url: "s3://b/p".into(), mountpoint: "/data".into(), uptime_seconds: 60.0, ..Snapshot::default() };
        s.reads.opens = 1000;
        s.reads.accesses = 1000;
        s.reads.retained = 500;
        s.reads.in_time = 400;
        s.reads.late = 60;
        s.reads.miss = 40;
        s.orders = vec![Order { id: "train".into(), state: "locked".into(), ..Order::default() }];
        s
    }

    #[test]
    fn the_verdict_names_who_waits_and_what_binds() {
        let flowing = read();
        assert_eq!(Verdict::of(&flowing, None), Verdict::Flowing { share: 0.0 });
        assert_eq!(Verdict::of(&Snapshot { uptime_seconds: 60.0, ..Snapshot::default() }, None), Verdict::Idle);

        let mut denied = Snapshot { uptime_seconds: 60.0, ..Snapshot::default() };
        denied.reads.errors = 22;
        assert_eq!(Verdict::of(&denied, None), Verdict::Failing { errors: 22 }, "no open succeeds, but somebody is reading");
        denied.reads.opens = 100_000;
        assert_eq!(Verdict::of(&denied, None), Verdict::Flowing { share: 0.0 }, "22 of 100,000 are told beside the reads");

        let mut starved = read();
        starved.reads.starved_seconds = 30.0;
        starved.reads.wait_seconds = 500.0;
        let verdict = |s: &Snapshot| match Verdict::of(s, None) {
            Verdict::Starved { share, by } => (share, by),
            other => panic!("{other:?}"),
        };
        assert_eq!(verdict(&starved), (0.5, Binding::Bandwidth));
        starved.prefetch.window_wanted_bytes = 10;
        assert_eq!(verdict(&starved).1, Binding::Window);
        starved.prefetch.window_bytes = 1000;
        starved.prefetch.window_wanted_bytes = 1100;
        assert_eq!(verdict(&starved).1, Binding::Bandwidth, "the window lags a little behind what is wanted: that is no lack of cache");
        starved.prefetch.window_wanted_bytes = 1200;
        assert_eq!(verdict(&starved).1, Binding::Window);
        (starved.reads.accesses, starved.reads.miss) = (100, 90);
        starved.orders[0].note = "files are read, but none of this node's stream".into();
        assert_eq!(verdict(&starved).1, Binding::WrongOrder);
        starved.orders[0].state = "lost".into();
        assert_eq!(verdict(&starved).1, Binding::UnknownOrder);
        assert!(remedy(Binding::UnknownOrder, &starved).contains("of --order"));
        starved.orders[0].source = "inferred".into();
        assert!(!remedy(Binding::UnknownOrder, &starved).contains("--order"), "nothing was declared");
        (starved.orders[0].state, starved.orders[0].note) = ("locked".into(), "a usual seed".into());
        (starved.orders[0].observed, starved.orders[0].predicted) = (1_000, 990);
        assert_eq!(verdict(&starved).1, Binding::Window, "why it was found is nothing odd");
        starved.prefetch.window_bytes = 1200;
        assert_eq!(verdict(&starved).1, Binding::Others);
        starved.orders[0].predicted = 500;
        assert_eq!(verdict(&starved).1, Binding::WrongOrder);
        starved.reads.starved_unfollowed_seconds = 20.0;
        assert_eq!(verdict(&starved).1, Binding::FoundLate);
        starved.store.throttled = 1;
        assert_eq!(verdict(&starved).1, Binding::Throttling);
        starved.store.errors = 1;
        assert_eq!(verdict(&starved).1, Binding::StoreErrors);

        let mut waiting = read();
        waiting.reads.wait_seconds = 180.0;
        assert_eq!(Verdict::of(&waiting, None), Verdict::Waiting { readers: 3.0, by: Binding::Bandwidth });
        waiting.reads.wait_unfollowed_seconds = 100.0;
        assert_eq!(Verdict::of(&waiting, None), Verdict::Waiting { readers: 3.0, by: Binding::FoundLate });
        let mut later = waiting.clone();
        (later.uptime_seconds, later.reads.opens, later.reads.wait_seconds) = (120.0, 2_000, 190.0);
        assert!(matches!(Verdict::of(&later, Some(&waiting)), Verdict::Waiting { by: Binding::Bandwidth, .. }), "it is followed since");
    }

    #[test]
    fn what_helps_is_what_is_not_there_yet() {
        let mut s = read();
        assert!(remedy(Binding::Window, &s).contains("add --cache-dir") && remedy(Binding::Bandwidth, &s).contains("--cache-dir"));
        s.orders[0].source = "inferred".into();
        assert!(remedy(Binding::FoundLate, &s).contains("order export"));
        s.tiers = vec![Tier { name: "disk".into(), path: "/c".into(), ..Tier::default() }];
        assert!(remedy(Binding::Window, &s).ends_with("--disk") && remedy(Binding::Bandwidth, &s).contains("--disk"));
        assert!(remedy(Binding::FoundLate, &s).contains("kept in --cache-dir"));
        s.orders[0].source = "declared".into();
        assert!(order_line(&s.orders[0]).contains("is being computed"));
        assert!(remedy(Binding::FoundLate, &s).contains("nothing need be done"));
        s.orders.clear();
        assert!(render(&s, None).contains("--order none"));
        s.finds_orders = true;
        assert!(render(&s, None).contains("none was found so far") && remedy(Binding::UnknownOrder, &s).contains("so far"));
        s.reads.opens = 0;
        assert!(render(&s, None).contains("nothing need be declared"));
    }

    #[test]
    fn the_verdict_is_of_the_time_between_two_snapshots() {
        let mut before = read();
        before.reads.starved_seconds = 50.0;
        let mut now = before.clone();
        now.uptime_seconds = 70.0;
        assert_eq!(Verdict::of(&now, Some(&before)), Verdict::Idle, "what was before does not count");
        now.reads.opens = 1100;
        now.reads.starved_seconds = 51.0;
        assert!(matches!(Verdict::of(&now, Some(&before)), Verdict::Starved { share, .. } if (share - 0.1).abs() < 1e-9));
    }

    #[test]
    fn the_first_screen() {
        let mut s = read();
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
            "train epoch 1: retained 49.0% (bound 50.0%)",
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
        assert!(text.contains("of the last 2.0s"), "{text}");
    }

    #[test]
    fn figures_as_people_write_them() {
        assert_eq!([number(0), number(999), number(1000), number(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([duration(0.031), duration(12.34), duration(185.0), duration(3720.0)], ["31ms", "12.3s", "3m05s", "1h02m"]);
    }
}
