use std::ops::{Bound, Range};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use proptest::prelude::*;

use super::*;
use crate::store::Body;
use crate::types::ObjectId;

/// A sorted set of keys that pages like S3, counts its pages, and can misbehave.
#[derive(Debug, Default)]
struct Keys {
    keys: BTreeSet<String>,
    page: usize,
    lists: Mutex<u64>,
    misbehaviour: Option<Misbehaviour>,
}

#[derive(Clone, Copy, Debug)]
enum Misbehaviour {
    /// The first page, again and again, as a store does that does not know the token.
    RepeatsFirstPage,
    /// Every second call is throttled.
    ThrottlesEverySecond,
    /// From the third call on, this.
    FailsFromThird(ErrorKind),
    /// Largest first.
    Unsorted,
    /// Pages without keys, with a new token each.
    NeverEnds,
}

#[async_trait]
impl Store for Keys {
    async fn list(&self, prefix: &str, start_after: Option<&str>, after: Option<&str>) -> Result<Page, StoreError> {
        let n = {
            let mut lists = self.lists.lock().expect("not poisoned");
            *lists += 1;
            *lists
        };
        // Pages of several ranges come in an order that differs from the one they were asked in.
        tokio::time::sleep(Duration::from_millis(n * 7919 % 50)).await;
        let mut from = after.or(start_after);
        match self.misbehaviour {
            Some(Misbehaviour::RepeatsFirstPage) => from = None,
            Some(Misbehaviour::ThrottlesEverySecond) if n.is_multiple_of(2) => return Err(StoreError::new(ErrorKind::Throttled, "slower")),
            Some(Misbehaviour::FailsFromThird(kind)) if n >= 3 => return Err(StoreError::new(kind, "broken")),
            _ => {}
        }
        let from = from.filter(|from| *from >= prefix).map_or(Bound::Included(prefix), Bound::Excluded);
        let matching = self.keys.range::<str, _>((from, Bound::Unbounded)).take_while(|key| key.starts_with(prefix));
        let mut objects: Vec<ObjectMeta> = matching
            .take(self.page + 1)
            .map(|key| ObjectMeta { key: Arc::from(key.as_str()), size: 1, etag: Arc::from("e"), mtime_seconds: 0 })
            .collect();
        let more = objects.len() > self.page;
        objects.truncate(self.page);
        let next = more.then(|| objects.last().map(|object| object.key.to_string())).flatten();
        if matches!(self.misbehaviour, Some(Misbehaviour::NeverEnds)) {
            return Ok(Page { objects: Vec::new(), next: Some(n.to_string()) });
        }
        if matches!(self.misbehaviour, Some(Misbehaviour::Unsorted)) {
            objects.reverse();
        }
        Ok(Page { objects, next })
    }
    async fn head(&self, _key: &str) -> Result<ObjectMeta, StoreError> {
        Err(StoreError::new(ErrorKind::Invalid, "not used"))
    }
    async fn read(&self, _id: &ObjectId, _range: Range<u64>) -> Result<Body, StoreError> {
        Err(StoreError::new(ErrorKind::Invalid, "not used"))
    }
}

/// Lists; what came, and how many pages it took.
async fn listed(keys: Keys, prefix: &str) -> (Result<Vec<String>, StoreError>, u64) {
    let keys = Arc::new(keys);
    let store: Arc<dyn Store> = Arc::<Keys>::clone(&keys);
    let found = list_all(&store, prefix, &|_| {}).await;
    let lists = *keys.lists.lock().expect("not poisoned");
    (found.map(|all| all.iter().map(|object| object.key.to_string()).collect()), lists)
}

fn imagenet(classes: u64, per_class: u64) -> BTreeSet<String> {
    let class = |c: u64| 1_440_764 + c * 13_634;
    (0..classes * per_class)
        .map(|n| format!("train/n{:08}/n{:08}_{}.JPEG", class(n / per_class), class(n / per_class), n * 7919 % 99_991))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_keys_take_ten_pages() {
    for (count, pages) in [(0, 1), (1, 1), (999, 1), (1000, 1), (1001, 2), (2000, 2), (10_000, 10), (10_001, 11)] {
        let keys: BTreeSet<String> = (0..count).map(|n| format!("d{}/{n:06}", n % 3)).collect();
        let (found, lists) = listed(Keys { keys: keys.clone(), page: 1000, ..Keys::default() }, "").await;
        assert_eq!(found.expect("complete"), keys.into_iter().collect::<Vec<_>>(), "{count}");
        assert_eq!(lists, pages, "{count}");
    }
}

#[tokio::test(start_paused = true)]
async fn long_listings_go_in_parallel_and_are_complete() {
    let keys = imagenet(200, 500);
    let began = Instant::now();
    let (found, lists) = listed(Keys { keys: keys.clone(), page: 100, ..Keys::default() }, "train/").await;
    let took = began.elapsed();
    let full_pages = keys.len() as u64 / 100;
    assert_eq!(found.expect("complete"), keys.into_iter().collect::<Vec<_>>());
    assert!(lists <= full_pages * 5 / 4, "{lists} pages where {full_pages} are full");
    let one_by_one = Duration::from_millis(25) * u32::try_from(full_pages).expect("small");
    assert!(took * 4 < one_by_one, "{took:?} of virtual time, page by page {one_by_one:?}");
}

#[tokio::test(start_paused = true)]
async fn a_listing_is_complete_or_an_error() {
    let keys = || imagenet(10, 100);
    for (misbehaviour, kind) in [
        (Misbehaviour::RepeatsFirstPage, ErrorKind::Corrupt),
        (Misbehaviour::Unsorted, ErrorKind::Corrupt),
        (Misbehaviour::FailsFromThird(ErrorKind::Denied), ErrorKind::Denied),
        (Misbehaviour::FailsFromThird(ErrorKind::Server), ErrorKind::Server),
    ] {
        let (found, lists) = listed(Keys { keys: keys(), page: 100, misbehaviour: Some(misbehaviour), ..Keys::default() }, "").await;
        assert_eq!(found.expect_err("no listing").kind, kind, "{misbehaviour:?}");
        let bound = if kind == ErrorKind::Server { 2 + u64::from(ATTEMPTS) } else { 3 };
        assert!(lists <= bound, "{misbehaviour:?}: {lists} pages");
    }
    let (found, lists) = listed(Keys { page: 100, misbehaviour: Some(Misbehaviour::NeverEnds), ..Keys::default() }, "").await;
    assert_eq!((found.expect_err("no end").kind, lists), (ErrorKind::Corrupt, EMPTY_PAGES_MAX + 1));
    let (found, _) =
        listed(Keys { keys: keys(), page: 100, misbehaviour: Some(Misbehaviour::ThrottlesEverySecond), ..Keys::default() }, "").await;
    assert_eq!(found.expect("asked again").len(), 1000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the keys look like, ranges cover them: nothing is left out, nothing comes twice.
    #[test]
    fn any_set_of_keys_is_listed_whole(keys in proptest::collection::btree_set("[a-c/é\u{1}~]{1,6}", 0..400), page in 1..9_usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        let (found, _) = runtime.block_on(listed(Keys { keys: keys.clone(), page, ..Keys::default() }, ""));
        prop_assert_eq!(found.expect("complete"), keys.into_iter().collect::<Vec<_>>());
    }

    /// A middle is between, or there is none.
    #[test]
    fn a_middle_is_between(last in "[a-z0-9é]{1,8}", to in proptest::option::of("[a-z0-9é]{1,8}")) {
        let alphabet = (b'a'..=b'z').chain(b'0'..=b'9').collect();
        if let Some(middle) = middle("", &last, to.as_deref(), &alphabet) {
            prop_assert!(middle > last && to.is_none_or(|to| middle < to));
        }
    }
}
