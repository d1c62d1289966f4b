//! Whether readers wait, for what, and what helps. Pure: snapshots in, one line out.

use super::snapshot::{Order, Reads, Snapshot};
use super::text::{duration, number, percent, size};

/// Below this share of the time, waiting is noise: a run 1 % faster is not worth an action.
const WAITING_SHARE: f64 = 0.01;

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

/// The verdict in words, with what helps.
pub(super) fn in_words(now: &Snapshot, before: Option<&Snapshot>) -> String {
    match Verdict::of(now, before) {
        Verdict::Idle => "nobody is reading".to_owned(),
        Verdict::Failing { errors } => format!("READS FAIL: {} of them ended with an error: see the log", number(errors)),
        Verdict::Flowing { share } => format!("readers are not waiting ({} of the time)", percent(share)),
        Verdict::Starved { share, by } => format!("READERS ARE STARVED {} of the time: {}", percent(share), remedy(by, now)),
        Verdict::Waiting { readers, by } => format!(
            "READERS WAIT: {} a minute, all their waits together, though seldom all of them at once; {}",
            duration(readers * 60.0),
            remedy(by, now)
        ),
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
                "the order {:?} is {}, so reads wait for the store's latency: check {} of --order",
                order.id,
                order.state,
                to_check(&order.hypothesis)
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

/// What decides where a declared order has its files: those of these keys that it has.
fn to_check(order: &str) -> String {
    const KEYS: [&str; 15] = [
        "seed",
        "seed_text",
        "generator",
        "offset",
        "stride",
        "between",
        "sampler",
        "again",
        "buffer",
        "initial",
        "split",
        "indices",
        "world",
        "batch",
        "root",
    ];
    let has = |key: &&str| order.split(':').any(|part| part.strip_prefix(*key).is_some_and(|rest| rest.starts_with('=')));
    let found: String = KEYS.iter().filter(|key| has(key)).map(|key| format!("{key}, ")).collect();
    if found.is_empty() { "files".to_owned() } else { format!("{} and files", found.trim_end_matches(", ")) }
}

/// Whether a tier is a directory.
fn has_disk(now: &Snapshot) -> bool {
    now.tiers.iter().any(|tier| !tier.path.is_empty())
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::snapshot::Tier;
    use super::super::text::{order_line, render};
    use super::*;

    /// A mount of a minute whose readers opened 1000 files.
    pub(in crate::stats) fn read() -> Snapshot {
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
        assert!(in_words(&waiting, None).starts_with("READERS WAIT: 3m00s a minute, all their waits together"));
        waiting.reads.wait_unfollowed_seconds = 100.0;
        assert_eq!(Verdict::of(&waiting, None), Verdict::Waiting { readers: 3.0, by: Binding::FoundLate });
        let mut later = waiting.clone();
        (later.uptime_seconds, later.reads.opens, later.reads.wait_seconds) = (120.0, 2_000, 190.0);
        assert!(matches!(Verdict::of(&later, Some(&waiting)), Verdict::Waiting { by: Binding::Bandwidth, .. }), "it is followed since");
    }

    #[test]
    fn what_is_to_be_checked_is_what_the_order_has() {
        assert_eq!(
            to_check("torch-random:seed=1:generator=default:offset=1:stride=4:files=imagefolder"),
            "seed, generator, offset, stride and files"
        );
        assert_eq!(to_check("torch-distributed:seed=0:world=8:rank=0-7:root=a:files=sorted"), "seed, world, root and files");
        assert_eq!(to_check("list:files=list:/a"), "files");
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
}
