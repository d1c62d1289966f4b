//! Whether, and where, a target is asked without a proxy: the state of the direct way, and the map it goes by.
//!
//! It is taken only for the cluster's own buckets (at a wrong target those give 404; a cloud's object would be fetched a second time), without a token, with a
//! map that has no placement weights, where no redirect was seen to be signed, and after one direct GET has succeeded. It is left for a while after a 403
//! (what a cluster that signs, or asks for tokens, answers). Pure but for its
//! lock; `now` is an argument.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Uri;
use tokio::time::Instant;

use super::smap::Smap;

/// A map this old is asked for again: what joined without a word gets its share of requests within half a minute.
const AGE_MAX: Duration = Duration::from_secs(30);
/// Between two requests for the map: a cluster that changes answers many requests with hints that ours is old.
const REFRESH_LEAST: Duration = Duration::from_secs(1);
/// A cluster that refused the direct way is tried again after this: it is a matter of its configuration.
const REFUSED: Duration = Duration::from_secs(600);
/// After a probe that failed in another way, and for a target that could not be reached: a restart takes about that, and each try may cost the connect
/// timeout.
const FAILED: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not tried yet, or left until then.
    Unproven(Option<Instant>),
    /// One GET is on its way.
    Probing,
    Proven,
}

#[derive(Debug)]
struct Inner {
    map: Option<Arc<Smap>>,
    state: State,
    asked: Option<Instant>,
    is_stale: bool,
    /// Targets that could not be reached, and until when they are left alone. At most one entry per target.
    unreachable: Vec<(String, Instant)>,
    /// A redirect carried a signature: direct requests would have none.
    signed: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Route {
    enabled: bool,
    inner: Mutex<Inner>,
}

/// A direct way to take; dropped without a word (a cancelled request), a probe counts as not made.
#[derive(Debug)]
pub(super) struct Pick<'a> {
    /// `http://host:port` of the target.
    pub(super) url: String,
    route: &'a Route,
    probe: bool,
}

/// How a direct request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direct {
    Served,
    /// 403: it is not allowed here.
    Refused,
    /// No answer: the target is down.
    Unreachable,
    /// Anything else: the map is old.
    Failed,
}

impl Route {
    pub(super) const fn new(enabled: bool) -> Self {
        let inner = Inner { map: None, state: State::Unproven(None), asked: None, is_stale: true, unreachable: Vec::new(), signed: false };
        Self { enabled, inner: Mutex::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The target to ask for this object, if the direct way is open (or to be probed by this very request).
    pub(super) fn pick(&self, uname: &str, now: Instant) -> Option<Pick<'_>> {
        if !self.enabled {
            return None;
        }
        let mut inner = self.lock();
        if inner.signed {
            return None;
        }
        let map = inner.map.clone().filter(|map| map.indirect.is_none())?;
        let url = map.target(uname)?.url.clone();
        inner.unreachable.retain(|(_, until)| now < *until);
        if inner.unreachable.iter().any(|(known, _)| *known == url) {
            return None;
        }
        let probe = match inner.state {
            State::Proven => false,
            State::Unproven(until) if until.is_none_or(|until| now >= until) => {
                inner.state = State::Probing;
                true
            }
            State::Unproven(_) | State::Probing => return None,
        };
        Some(Pick { url, route: self, probe })
    }

    /// Whether the map should be asked for now; says yes once.
    pub(super) fn wants_map(&self, now: Instant) -> bool {
        let mut inner = self.lock();
        let since = inner.asked.map(|asked| now.duration_since(asked));
        let is_due = since.is_none_or(|age| age >= AGE_MAX || (inner.is_stale && age >= REFRESH_LEAST));
        if is_due {
            inner.asked = Some(now);
            inner.is_stale = false;
        }
        is_due
    }

    /// Takes a map, if it is not older than ours.
    pub(super) fn learn(&self, map: Smap) {
        let mut inner = self.lock();
        // Another uuid is another cluster at the same address: its versions begin anew.
        if inner.map.as_ref().is_none_or(|ours| ours.uuid != map.uuid || ours.version <= map.version) {
            inner.map = Some(Arc::new(map));
        }
    }

    /// What a redirect tells: a target that we would not have chosen means that our map is old; a signature, that direct requests lack one.
    pub(super) fn saw_redirect(&self, uname: &str, target: &Uri) {
        let query = target.query().unwrap_or_default();
        let mut inner = self.lock();
        if query.split('&').any(|part| part.starts_with("vpams=")) {
            inner.signed = true;
        }
        let ours = inner.map.as_ref().and_then(|map| map.target(uname)).map(|target| target.url.clone());
        let theirs = target.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        if ours.is_some_and(|ours| ours.split_once("://").is_none_or(|(_, host)| host != theirs)) {
            inner.is_stale = true;
        }
    }

    #[cfg(test)]
    fn is_open(&self) -> bool {
        self.lock().state == State::Proven
    }
}

impl Pick<'_> {
    /// The end of the request.
    pub(super) fn ended(mut self, how: Direct, now: Instant) {
        let mut inner = self.route.lock();
        match how {
            Direct::Served => inner.state = State::Proven,
            Direct::Refused => inner.state = State::Unproven(Some(now + REFUSED)),
            Direct::Failed | Direct::Unreachable if self.probe => inner.state = State::Unproven(Some(now + FAILED)),
            Direct::Failed | Direct::Unreachable => {}
        }
        if how == Direct::Unreachable {
            inner.unreachable.retain(|(known, _)| *known != self.url);
            inner.unreachable.push((self.url.clone(), now + FAILED));
        }
        inner.is_stale |= how != Direct::Served;
        self.probe = false;
    }
}

impl Drop for Pick<'_> {
    fn drop(&mut self) {
        if self.probe {
            let mut inner = self.route.lock();
            if inner.state == State::Probing {
                inner.state = State::Unproven(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::smap::tests::{map, node};
    use super::*;

    const OBJECT: &str = "ais/@#/mybucket/obj1"; // at t2

    fn route(version: u64, more: &str) -> Route {
        let route = Route::new(true);
        learn(&route, version, more);
        route
    }

    fn learn(route: &Route, version: u64, more: &str) {
        let nodes: Vec<_> = ["t1", "t2", "t3"].iter().map(|id| node(id, &format!("http://{id}:1"), more)).collect();
        route.learn(Smap::parse(map(version, &nodes).as_bytes()).expect("a map"));
    }

    #[test]
    fn one_probe_opens_the_way_and_a_refusal_closes_it() {
        let now = Instant::now();
        let route = route(1, "");
        let probe = route.pick(OBJECT, now).expect("the probe");
        assert_eq!(probe.url, "http://t2:1");
        assert!(route.pick(OBJECT, now).is_none(), "only one");
        probe.ended(Direct::Served, now);
        assert!(route.is_open());
        let second = route.pick(OBJECT, now).expect("open");
        route.pick(OBJECT, now).expect("for all").ended(Direct::Failed, now);
        assert!(route.is_open(), "one failure is the map's, not the way's");
        route.pick(OBJECT, now).expect("for all").ended(Direct::Unreachable, now);
        assert!(route.pick(OBJECT, now).is_none() && route.pick("ais/@#/mybucket/obj0", now).is_some(), "t2 is left alone");
        assert!(route.pick(OBJECT, now + FAILED).is_some());
        second.ended(Direct::Refused, now);
        assert!(route.pick("ais/@#/mybucket/obj0", now).is_none() && route.pick(OBJECT, now + REFUSED).is_some());
    }

    #[test]
    fn a_probe_that_fails_waits_and_one_that_is_cancelled_does_not() {
        let now = Instant::now();
        let route = route(1, "");
        drop(route.pick(OBJECT, now).expect("the probe"));
        route.pick(OBJECT, now).expect("again").ended(Direct::Failed, now);
        assert!(route.pick(OBJECT, now).is_none() && route.pick(OBJECT, now + FAILED).is_some());
    }

    #[test]
    fn weights_signatures_and_settings_keep_it_closed_and_keys_do_not() {
        let now = Instant::now();
        assert!(Route::new(true).pick(OBJECT, now).is_none(), "no map");
        assert!(route(1, r#","placement":{"weight":"1"}"#).pick(OBJECT, now).is_none());
        assert!(route(1, r#","verifying_key":"k""#).pick(OBJECT, now).is_some(), "targets of 5.1 have keys, also where nothing is signed");
        let off = Route::new(false);
        learn(&off, 1, "");
        assert!(off.pick(OBJECT, now).is_none());
        let signed = route(1, "");
        signed.saw_redirect(OBJECT, &"http://t2:1/x?pid=p&utm=1&vpams=2&x=3&u=4".parse().expect("an address"));
        assert!(signed.pick(OBJECT, now).is_none());
    }

    #[test]
    fn the_map_is_asked_for_when_it_may_be_old_and_not_more_than_once_a_second() {
        let now = Instant::now();
        let route = route(5, "");
        let later = |millis| now + Duration::from_millis(millis);
        assert!(route.wants_map(now) && !route.wants_map(later(10)));
        route.saw_redirect(OBJECT, &"http://t2:1/x?utm=1".parse().expect("an address"));
        assert!(!route.wants_map(later(2_000)), "the same choice");
        route.saw_redirect(OBJECT, &"http://t3:1/x?utm=1".parse().expect("an address"));
        assert!(!route.wants_map(later(500)) && route.wants_map(later(2_000)), "another choice");
        assert!(!route.wants_map(later(4_000)));
        assert!(route.wants_map(later(40_000)), "by age");
        learn(&route, 4, r#","placement":{"weight":"1"}"#);
        assert!(route.pick(OBJECT, now).is_some(), "an older map changes nothing");
    }
}
