//! A snapshot in the text format 0.0.4 of Prometheus. Names end in their unit; counters in `_total`. Pure.
//!
//! Labels are few and bounded (tier, order, outcome, kind): no key, path or process ever becomes one.

use std::fmt::{Display, Write};

use super::snapshot::Snapshot;

/// The media type of [`render`]'s text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Text under construction.
struct Page(String);

impl Page {
    /// One metric with its samples: (labels, value).
    fn metric<'a, V: Display>(
        &mut self,
        kind: &str,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<(&'a str, &'a str)>, V)>,
    ) {
        let _ = writeln!(self.0, "# HELP belady_{name} {help}\n# TYPE belady_{name} {kind}");
        for (labels, value) in samples {
            let _ = write!(self.0, "belady_{name}");
            for (at, (label, text)) in labels.iter().enumerate() {
                let _ = write!(self.0, "{}{label}=\"{}\"", if at == 0 { '{' } else { ',' }, escaped(text));
            }
            let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
        }
    }
    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.metric("counter", name, help, [(vec![], value)]);
    }
    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.metric("gauge", name, help, [(vec![], value)]);
    }
}

/// The whole page.
#[must_use]
pub fn render(s: &Snapshot) -> String {
    let mut page = Page(String::with_capacity(8 << 10));
    let labels = vec![("version", s.version.as_str()), ("url", &s.url), ("mountpoint", &s.mountpoint), ("manifest_id", &s.manifest_id)];
    page.metric("gauge", "info", "What is mounted.", [(labels, 1)]);
    page.gauge("uptime_seconds", "Time since the mount began.", s.uptime_seconds);
    reads(&mut page, s);
    orders(&mut page, s);
    store(&mut page, s);
    tiers(&mut page, s);
    page.gauge("namespace_objects", "Files of the namespace.", s.namespace.objects);
    page.gauge("namespace_bytes", "Bytes of the namespace.", s.namespace.bytes);
    page.gauge("namespace_hidden_keys", "Keys that no path can show.", s.namespace.hidden_keys);
    let listing = |state| u8::from(s.namespace.listing == state);
    let states = ["running", "complete", "failed"].map(|state| (vec![("state", state)], listing(state)));
    page.metric("gauge", "namespace_listing", "1 for the state the listing is in.", states);
    page.gauge("kernel_passthrough", "1 when the kernel reads cached files without us.", u8::from(s.kernel.passthrough));
    page.counter("panics_total", "Parts that panicked and were restarted or given up.", s.panics);
    page.0
}

fn reads(page: &mut Page, s: &Snapshot) {
    let r = &s.reads;
    page.counter("opens_total", "Opens answered without error.", r.opens);
    page.counter("passthrough_opens_total", "Opens whose reads the kernel does without us.", r.passthrough_opens);
    page.counter("read_requests_total", "READ requests answered.", r.requests);
    let outcomes =
        |values: [u64; 4]| ["retained", "in_time", "late", "miss"].into_iter().zip(values).map(|(o, v)| (vec![("outcome", o)], v));
    page.metric("counter", "accesses_total", "Accesses by outcome.", outcomes([r.retained, r.in_time, r.late, r.miss]));
    let bytes = outcomes([r.bytes.retained, r.bytes.in_time, r.bytes.late, r.bytes.miss]);
    page.metric("counter", "accessed_bytes_total", "Bytes of the objects accessed, by outcome.", bytes);
    page.counter("opened_bytes_total", "Bytes of the objects opened.", r.bytes.opened);
    page.counter("served_bytes_total", "Bytes answered to READ, without passthrough and page cache.", r.bytes.served);
    page.counter("wait_seconds_total", "Time readers waited for the store, summed over all of them.", r.wait_seconds);
    page.counter("starved_seconds_total", "Time in which all reader processes of one rank waited at once.", r.starved_seconds);
    page.counter("read_errors_total", "Opens and reads answered with an error of the store or ours.", r.errors);
    page.counter("events_dropped_total", "Reader events the planner did not get.", r.events_dropped);
    page.counter("opens_unrecorded_total", "Opens that --record-opens lost.", r.opens_unrecorded);
}

fn orders(page: &mut Page, s: &Snapshot) {
    let all = |value: fn(&super::snapshot::Order) -> f64| s.orders.iter().map(move |o| (vec![("order", o.id.as_str())], value(o)));
    let states = s.orders.iter().flat_map(|o| {
        ["searching", "locked", "lost"].map(|state| (vec![("order", o.id.as_str()), ("state", state)], u8::from(o.state == state)))
    });
    page.metric("gauge", "order_state", "1 for the state the order is in.", states);
    #[expect(clippy::cast_precision_loss, reason = "Prometheus values are doubles anyway")]
    {
        page.metric("gauge", "order_epoch", "Epoch the readers are in.", all(|o| o.epoch as f64));
        page.metric("gauge", "order_position", "Place in the epoch's order.", all(|o| o.position as f64));
        page.metric("gauge", "order_length", "Length of the epoch's order.", all(|o| o.length as f64));
        page.metric("counter", "order_observed_total", "Opens compared with the order.", all(|o| o.observed as f64));
        page.metric("counter", "order_predicted_total", "Opens the order had predicted.", all(|o| o.predicted as f64));
    }
    page.metric("gauge", "order_confidence", "Belief in the order, 0 to 1.", all(|o| o.confidence));
    let bound = s.orders.iter().filter_map(|o| o.epochs.last().map(|e| (vec![("order", o.id.as_str())], e.bound.retained_rate)));
    page.metric("gauge", "order_bound_retained_rate", "Best possible retained rate of the running epoch.", bound);
    let p = &s.prefetch;
    page.counter("prefetch_issued_total", "Objects fetched ahead.", p.issued);
    page.counter("prefetch_useful_total", "Objects fetched ahead and then read.", p.useful);
    page.counter("prefetch_wasted_total", "Objects fetched ahead and retired unread.", p.wasted);
    page.counter("prefetch_wasted_bytes_total", "Their bytes.", p.wasted_bytes);
    page.gauge("prefetch_in_flight", "Objects being fetched ahead now.", p.in_flight);
    page.gauge("prefetch_window_bytes", "The look-ahead in force.", p.window_bytes);
    page.gauge("prefetch_window_wanted_bytes", "The look-ahead the measurements ask for.", p.window_wanted_bytes);
}

fn store(page: &mut Page, s: &Snapshot) {
    let r = &s.store.requests;
    let requests = [("list", r.list), ("head", r.head), ("get", r.get), ("batch", r.batch)].map(|(kind, n)| (vec![("kind", kind)], n));
    page.metric("counter", "store_requests_total", "Requests to the store by kind.", requests);
    page.counter("store_received_bytes_total", "Body bytes received from the store.", s.store.bytes);
    page.counter("store_extra_bytes_total", "Of these, bytes of hedged, retried and abandoned requests.", s.store.bytes_extra);
    page.counter("store_retries_total", "Requests repeated.", s.store.retries);
    page.counter("store_hedges_total", "Second requests for a first byte that was late.", s.store.hedges);
    page.counter("store_throttled_total", "Answers that asked for a slower pace.", s.store.throttled);
    page.counter("store_errors_total", "Requests that failed for good.", s.store.errors);
    page.gauge("store_concurrency", "Requests allowed at once now.", s.store.concurrency);
    let latency = [(vec![("quantile", "0.5")], s.store.latency_seconds.p50), (vec![("quantile", "0.99")], s.store.latency_seconds.p99)];
    page.metric("gauge", "store_latency_seconds", "Request to last byte, over the last 60 s.", latency);
}

fn tiers(page: &mut Page, s: &Snapshot) {
    let all = |value: fn(&super::snapshot::Tier) -> u64| s.tiers.iter().map(move |t| (vec![("tier", t.name.as_str())], value(t)));
    page.metric("gauge", "tier_capacity_bytes", "Budget of the tier.", all(|t| t.capacity_bytes));
    page.metric("gauge", "tier_used_bytes", "Bytes that take room in the tier.", all(|t| t.used_bytes));
    page.metric("gauge", "tier_objects", "Complete files in the tier.", all(|t| t.objects));
    page.metric("counter", "tier_hits_total", "Opens answered from the tier.", all(|t| t.hits));
    page.metric("counter", "tier_admitted_total", "Files put into the tier.", all(|t| t.admitted));
    page.metric("counter", "tier_evicted_total", "Files taken out of the tier.", all(|t| t.evicted));
    page.metric("counter", "tier_errors_total", "Failures of the tier's disk.", all(|t| t.errors));
    let states = s.tiers.iter().flat_map(|t| {
        ["ok", "degraded", "off"].map(|state| (vec![("tier", t.name.as_str()), ("state", state)], u8::from(t.state == state)))
    });
    page.metric("gauge", "tier_state", "1 for the state the tier is in.", states);
}

/// A label value: backslash, quote and line feed are escaped, as the format asks.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::{EpochOfOrder, Order, Tier};
    use super::*;
    use std::collections::HashSet;

    fn page() -> String {
        let mut s = Snapshot { url: "s3://b/a\"b\\c".into(), ..Snapshot::default() };
        s.reads.late = 7;
        s.namespace.listing = "complete".into();
        s.orders = vec![Order { id: "train".into(), state: "locked".into(), epochs: vec![EpochOfOrder::default()], ..Order::default() }];
        s.tiers = vec![
            Tier { name: "memory".into(), state: "ok".into(), hits: 3, ..Tier::default() },
            Tier { name: "disk".into(), state: "off".into(), ..Tier::default() },
        ];
        render(&s)
    }

    #[test]
    fn values_arrive_under_their_names() {
        let page = page();
        for wanted in [
            "belady_accesses_total{outcome=\"late\"} 7\n",
            "belady_tier_hits_total{tier=\"memory\"} 3\n",
            "belady_tier_state{tier=\"disk\",state=\"off\"} 1\n",
            "belady_order_state{order=\"train\",state=\"locked\"} 1\n",
            "belady_namespace_listing{state=\"complete\"} 1\n",
            "url=\"s3://b/a\\\"b\\\\c\"",
            "belady_uptime_seconds 0\n",
        ] {
            assert!(page.contains(wanted), "{wanted:?} is not in\n{page}");
        }
    }

    /// The rules of the format a scraper refuses a page for: each metric declared once, before its samples, and every value a number.
    #[test]
    fn the_page_is_well_formed() {
        let page = page();
        let (mut declared, mut series) = (HashSet::new(), HashSet::new());
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(declared.insert(name), "{name} twice");
                assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
            } else if !line.starts_with("# HELP ") {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert!(value.parse::<f64>().is_ok(), "{line}");
                assert!(declared.contains(name.split('{').next().unwrap()), "{line} before its TYPE");
                assert!(series.insert(name), "{name} twice");
            }
        }
        assert!(series.len() > 60, "{}", series.len());
    }
}
