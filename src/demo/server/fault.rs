//! Scripted faults: which requests are struck, and what happens to them. Pure: the same script and the same sequence of requests
//! give the same faults, probabilities included (each rule has its own seed).

use std::time::Duration;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// ListObjectsV2.
    List,
    /// HEAD of an object.
    Head,
    /// GET of an object.
    Get,
    /// Anything else.
    Other,
}

/// How often a rule strikes, counted over the requests that its operation and prefix match.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// Each time.
    Always,
    /// The first `n` times.
    First(u64),
    /// The `n`-th time only; the first is 1.
    Nth(u64),
    /// Each `n`-th time.
    Every(u64),
    /// With this probability, drawn from this seed.
    Probability {
        /// 0..=1.
        p: f64,
        /// Two rules with one seed strike together.
        seed: u64,
    },
}

/// A field that a listing may leave out (some servers do).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListField {
    ETag,
    LastModified,
    StorageClass,
    KeyCount,
}

/// What happens to a request that is struck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Does {
    /// An S3 error with this status and code, and a Retry-After where given.
    Status { status: u16, code: &'static str, retry_after: Option<u64> },
    /// An S3 error document with the status of a success (200): some servers do so when they fail late.
    ErrorAsSuccess { code: &'static str },
    /// The body breaks off after so many bytes, the connection with it.
    Cut { after: u64 },
    /// The body stops after so many bytes; the connection stays.
    Stall { after: u64 },
    /// No answer at all; the connection stays.
    Hang,
    /// This much later than usual.
    Delay(Duration),
    /// The connection is closed without an answer.
    CloseBeforeAnswer,
    /// Answer as usual, then close the connection without having said so: the client finds out with its next request.
    CloseIdle,
    /// Headers, then a TCP reset.
    ResetBeforeBody,
    /// Another ETag than the object's, in headers only.
    WrongEtag,
    /// Range is ignored: 200 and the whole object.
    IgnoreRange,
    /// Content-Length and body are this much longer (then the body breaks off) or shorter than what was asked for.
    WrongContentLength { delta: i64 },
    /// No Content-Length: chunked.
    NoContentLength,
    /// 301 that names this region as the bucket's.
    Redirect { region: &'static str },
    /// 400 for a query parameter without a value, as some servers do.
    RefuseEmptyQuery,
    /// 400 for a GET or HEAD that carries Content-Length.
    RefuseContentLength,
    /// Listing entries without these fields.
    OmitListFields(Vec<ListField>),
    /// The continuation token is ignored: the first page for ever.
    RepeatPage,
    /// IsTruncated is true, the token is missing.
    MissingToken,
    /// A token, but no IsTruncated.
    MissingTruncated,
}

/// One rule of a script. The first rule that strikes wins.
#[derive(Clone, Debug)]
pub struct Fault {
    /// `None`: every operation.
    pub operation: Option<Operation>,
    /// Key (for listings: the prefix asked for) must start with this.
    pub key_prefix: String,
    pub when: When,
    pub does: Does,
}

impl Fault {
    /// Strikes this operation on every key.
    #[must_use]
    pub fn on(operation: Operation, when: When, does: Does) -> Self {
        Self { operation: Some(operation), key_prefix: String::new(), when, does }
    }

    /// The same for keys that start so.
    #[must_use]
    pub fn below(mut self, key_prefix: &str) -> Self {
        key_prefix.clone_into(&mut self.key_prefix);
        self
    }
}

/// The rules in force and how often each has matched.
#[derive(Debug, Default)]
pub(super) struct Script {
    rules: Vec<(Fault, u64)>,
}

impl Script {
    pub(super) fn add(&mut self, fault: Fault) {
        self.rules.push((fault, 0));
    }

    pub(super) fn clear(&mut self) {
        self.rules.clear();
    }

    /// What this request suffers, if anything. Every rule that matches counts it, whichever strikes.
    pub(super) fn strike(&mut self, operation: Operation, key: &str) -> Option<Does> {
        let mut struck = None;
        for (fault, matched) in &mut self.rules {
            if fault.operation.is_some_and(|wanted| wanted != operation) || !key.starts_with(&fault.key_prefix) {
                continue;
            }
            *matched += 1;
            if struck.is_none() && strikes(fault.when, *matched) {
                struck = Some(fault.does.clone());
            }
        }
        struck
    }
}

fn strikes(when: When, matched: u64) -> bool {
    match when {
        When::Always => true,
        When::First(n) => matched <= n,
        When::Nth(n) => matched == n,
        When::Every(n) => n > 0 && matched.is_multiple_of(n),
        When::Probability { p, seed } => unit(seed ^ matched.wrapping_mul(GOLDEN)) < p,
    }
}

/// 2^64 / φ: the increment of splitmix64, keeps consecutive inputs far apart.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// splitmix64 (Steele, Lea, Flood 2014): a well mixed number for each input.
pub(crate) fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(GOLDEN);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number in 0..1 for each input.
#[expect(clippy::cast_precision_loss, reason = "53 bits fit an f64 exactly")]
pub(crate) fn unit(seed: u64) -> f64 {
    (mix(seed) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn struck(when: When, requests: u64) -> Vec<u64> {
        let mut script = Script::default();
        script.add(Fault::on(Operation::Get, when, Does::Hang));
        (1..=requests).filter(|_| script.strike(Operation::Get, "k").is_some()).collect()
    }

    #[test]
    fn rules_strike_when_they_say() {
        assert_eq!(struck(When::Always, 3), [1, 2, 3]);
        assert_eq!(struck(When::First(2), 4), [1, 2]);
        assert_eq!(struck(When::Nth(3), 4), [3]);
        assert_eq!(struck(When::Every(2), 5), [2, 4]);
    }

    #[test]
    fn probability_is_seeded_and_holds() {
        let when = When::Probability { p: 0.3, seed: 7 };
        let first = struck(when, 10_000);
        assert_eq!(first, struck(when, 10_000));
        assert!((2_800..3_200).contains(&first.len()), "{}", first.len());
        assert_ne!(first, struck(When::Probability { p: 0.3, seed: 8 }, 10_000));
    }

    #[test]
    fn only_matching_requests_are_struck_and_the_first_rule_wins() {
        let mut script = Script::default();
        script.add(Fault::on(Operation::Get, When::Nth(2), Does::Hang).below("a/"));
        script.add(Fault::on(Operation::Get, When::Always, Does::WrongEtag).below("a/b"));
        assert_eq!(script.strike(Operation::Head, "a/b"), None);
        assert_eq!(script.strike(Operation::Get, "b"), None);
        assert_eq!(script.strike(Operation::Get, "a/b"), Some(Does::WrongEtag));
        assert_eq!(script.strike(Operation::Get, "a/b"), Some(Does::Hang));
        assert_eq!(script.strike(Operation::Get, "a/c"), None);
    }
}
