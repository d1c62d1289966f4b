//! Scripted faults: which requests are struck, and what happens to them. Pure: the same script and the same sequence of requests give
//! the same faults.

use std::time::Duration;

use bytes::Bytes;

use super::hash::mix;

/// The kind of a request, in the native API or the S3 dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    List,
    Head,
    Get,
    /// GetBatch.
    Batch,
    /// PUT or DELETE of an object.
    Write,
    Smap,
    Health,
    Job,
    Other,
}

/// Which nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Any,
    Proxies,
    Targets,
    /// The node of this id.
    Node(String),
}

/// How often a rule strikes, counted over the requests it matches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum When {
    Always,
    /// The first `n` times.
    First(u64),
    /// The `n`-th time only; the first is 1.
    Nth(u64),
    /// Each `n`-th time.
    Every(u64),
    /// With this probability (0..=1), drawn from this seed.
    Probability {
        p: f64,
        seed: u64,
    },
}

/// What happens to a request that is struck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    /// An error of AIStore with this status and type code.
    Status { status: u16, tcode: &'static str, retry_after: Option<u64> },
    /// The body breaks off after so many bytes, the connection with it (FIN).
    Cut { after: u64 },
    /// The same by a TCP reset (RST).
    Reset { after: u64 },
    /// The body stops after so many bytes; the connection stays.
    Stall { after: u64 },
    /// No answer at all; the connection stays.
    Hang,
    /// This much later than usual.
    Delay(Duration),
    /// The connection is closed without an answer.
    CloseBeforeAnswer,
    /// The byte at this position of the body (modulo its length) has its bits inverted; the checksum header stays.
    Corrupt { at: u64 },
    /// Answered from the object as it is; then it is overwritten with these bytes, before the answer is out.
    Overwrite(Bytes),
    /// A batch ends after so many entries: cleanly for HTTP, and for TAR where so said.
    EndBatch { after_entries: usize, end_of_archive: bool },
    /// A batch is cut (FIN) in the middle of this entry's bytes; the first is 0.
    CutEntry { entry: usize },
    /// A byte in the middle of this entry of a batch is inverted; the first is 0.
    CorruptEntry { entry: usize },
    /// Entry names in a batch are of no use to a client that matches by name.
    RenameEntries,
}

/// One rule of a script. The first rule that strikes wins.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// `None`: every operation.
    pub(crate) op: Option<Op>,
    pub(crate) at: At,
    /// The object's name (for lists: the prefix asked for; for batches: the first entry's) must start with this.
    pub(crate) key_prefix: String,
    pub(crate) when: When,
    pub(crate) does: Does,
}

impl Fault {
    /// Strikes this operation at proxies, on every name.
    pub(crate) fn at_proxies(op: Op, when: When, does: Does) -> Self {
        Self { op: Some(op), at: At::Proxies, key_prefix: String::new(), when, does }
    }

    /// Strikes this operation at targets, on every name.
    pub(crate) fn at_targets(op: Op, when: When, does: Does) -> Self {
        Self { op: Some(op), at: At::Targets, key_prefix: String::new(), when, does }
    }

    /// Only names that start with this.
    pub(crate) fn below(mut self, key_prefix: &str) -> Self {
        key_prefix.clone_into(&mut self.key_prefix);
        self
    }

    /// Only this node.
    pub(crate) fn node(mut self, id: &str) -> Self {
        self.at = At::Node(id.to_owned());
        self
    }
}

/// The rules, and how often each has matched.
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

    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub(super) fn strike(&mut self, op: Op, node: &str, is_target: bool, key: &str) -> Option<Does> {
        let mut struck = None;
        for (fault, matched) in &mut self.rules {
            let here = match &fault.at {
                At::Any => true,
                At::Proxies => !is_target,
                At::Targets => is_target,
                At::Node(id) => id == node,
            };
            if !here || fault.op.is_some_and(|wanted| wanted != op) || !key.starts_with(&fault.key_prefix) {
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
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit an f64 exactly")]
        When::Probability { p, seed } => ((mix(seed ^ mix(matched)) >> 11) as f64) < p * (1_u64 << 53) as f64,
    }
}
