//! Lists of objects: one page from the bucket's keys, in JSON or msgpack.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::objects::{Bck, Bucket, Object};

/// Flags of a request (`api/apc/lsmsg.go`).
mod ask {
    pub(super) const CACHED: u64 = 1;
    pub(super) const ARCHIVES: u64 = 8;
    pub(super) const NAME_ONLY: u64 = 16;
    pub(super) const NAME_SIZE: u64 = 32;
    pub(super) const NO_RECURSION: u64 = 2048;
    pub(super) const NO_DIRS: u64 = 8192;
}

/// Flags of an entry (`cmn/objlist_utils.go`).
mod entry {
    pub(super) const CACHED: u64 = 64;
    pub(super) const IN_ARCHIVE: u64 = 128;
    pub(super) const DIRECTORY: u64 = 256;
    pub(super) const ARCHIVE: u64 = 512;
}

/// What is asked for (`LsoMsg`).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Ask {
    pub(super) uuid: String,
    props: String,
    prefix: String,
    start_after: String,
    pub(super) continuation_token: String,
    /// A number in a string.
    flags: String,
    pagesize: i64,
}

/// An entry, with its names in msgpack.
#[derive(Clone, Debug, Default, Serialize)]
struct Entry {
    n: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    cs: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    a: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    v: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    m: String,
    #[serde(skip_serializing_if = "zero")]
    s: u64,
    #[serde(skip_serializing_if = "zero")]
    c: u64,
    #[serde(skip_serializing_if = "zero")]
    f: u64,
}

fn zero(number: &u64) -> bool {
    *number == 0
}

/// A page.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Page {
    #[serde(rename = "UUID")]
    uuid: String,
    #[serde(rename = "ContinuationToken")]
    token: String,
    #[serde(rename = "Entries")]
    entries: Vec<Entry>,
    #[serde(rename = "Flags")]
    flags: u32,
}

/// The most entries a page has when the cluster does not say less.
fn page_limit(bck: &Bck) -> usize {
    match bck.provider.as_str() {
        "ais" => 10_000,
        "azure" => 5_000,
        _ => 1_000,
    }
}

impl Ask {
    /// Its `value` in the body of a list request.
    pub(super) fn flags(&self) -> Result<u64, String> {
        if self.flags.is_empty() { Ok(0) } else { self.flags.parse().map_err(|_| format!("flags {:?} are no number", self.flags)) }
    }

    /// One page. `page_max`: the cluster's own limit. `hidden`: keys that are not listed (see [`Self::directories`]).
    pub(super) fn page(
        &self,
        bck: &Bck,
        bucket: &Bucket,
        uuid: String,
        page_max: Option<usize>,
        hidden: &dyn Fn(&str) -> bool,
    ) -> Result<Page, String> {
        let flags = self.flags()?;
        if !self.start_after.is_empty() && bck.is_remote() {
            return Err("start_after is not supported for remote buckets".to_owned());
        }
        let asked = usize::try_from(self.pagesize).map_err(|_| "invalid page size".to_owned())?;
        let mut limit = page_limit(bck).min(page_max.unwrap_or(usize::MAX));
        if asked > 0 {
            limit = limit.min(asked);
        }
        let mut after = if self.continuation_token.is_empty() { self.start_after.clone() } else { self.continuation_token.clone() };
        let mut page = Page { uuid, token: String::new(), entries: Vec::new(), flags: 0 };
        // the keys of a virtual directory are passed over, on its page and on the next
        let mut below = after.ends_with('/').then(|| after.clone());
        if after < self.prefix {
            after = String::new();
        }
        let from = if after.is_empty() { Bound::Included(self.prefix.as_str()) } else { Bound::Excluded(after.as_str()) };
        for (key, object) in bucket.objects.range::<str, _>((from, Bound::Unbounded)) {
            if !key.starts_with(&self.prefix) {
                break;
            }
            if below.as_ref().is_some_and(|below| key.starts_with(below.as_str())) && flags & ask::NO_RECURSION != 0 {
                continue;
            }
            if hidden(key) {
                continue;
            }
            let present = !bck.is_remote() || object.is_present(None);
            if flags & ask::CACHED != 0 && !present {
                continue;
            }
            if page.entries.len() >= limit {
                page.token = page.entries.last().map(|last| last.n.clone()).unwrap_or_default();
                break;
            }
            if flags & ask::NO_RECURSION != 0
                && let Some(at) = key[self.prefix.len()..].find('/')
            {
                let directory = key[..=self.prefix.len() + at].to_owned();
                if flags & ask::NO_DIRS == 0 {
                    page.entries.push(Entry { n: directory.clone(), f: entry::DIRECTORY, ..Entry::default() });
                }
                below = Some(directory);
                continue;
            }
            page.entries.push(self.entry(key, object, present, flags));
            if flags & ask::ARCHIVES != 0 && std::path::Path::new(key).extension().is_some_and(|ext| ext == "tar") {
                page.entries.last_mut().expect("pushed a line ago").f |= entry::ARCHIVE;
                for name in object.members() {
                    let size = object.member(&name).map_or(0, |bytes| bytes.len() as u64);
                    page.entries.push(Entry {
                        n: format!("{key}/{name}"),
                        s: size,
                        f: entry::IN_ARCHIVE | entry::CACHED,
                        ..Entry::default()
                    });
                }
            }
        }
        Ok(page)
    }

    /// Where a prefix without a slash at its end is a directory on a target, that target walks this directory alone, and says nothing of `prefix1`
    /// (`fs/walk.go`, feature Dont-Optimize-Listing-Virtual-Dirs off): the targets on which it is one. Of ais:// buckets: others are listed by
    /// their clouds.
    pub(super) fn directories<'a>(&self, bck: &Bck, bucket: &Bucket, target_of: impl Fn(&str) -> Option<&'a str>) -> HashSet<&'a str> {
        if bck.is_remote() || self.prefix.is_empty() || self.prefix.ends_with('/') {
            return HashSet::new();
        }
        let below = format!("{}/", self.prefix);
        let keys = bucket.objects.range::<str, _>((Bound::Included(below.as_str()), Bound::Unbounded));
        keys.map(|(key, _)| key).take_while(|key| key.starts_with(&below)).filter_map(|key| target_of(key)).collect()
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    fn entry(&self, key: &str, object: &Object, present: bool, flags: u64) -> Entry {
        let mut made = Entry { n: key.to_owned(), f: if present { entry::CACHED } else { 0 }, ..Entry::default() };
        if flags & ask::NAME_ONLY != 0 {
            return made;
        }
        made.s = object.size();
        if flags & ask::NAME_SIZE != 0 {
            return made;
        }
        for prop in self.props.split(',').map(str::trim) {
            match prop {
                // a remote object's checksum is known when it is in the cluster
                "checksum" if present => object.checksum_value().clone_into(&mut made.cs),
                "version" => made.v = object.version.to_string(),
                "atime" if present => "01 Jan 26 00:00 UTC".clone_into(&mut made.a),
                "copies" if present => made.c = 1,
                "custom" if !object.custom.is_empty() => {
                    let pairs: Vec<String> = object.custom.iter().map(|(name, value)| format!("{name}={value}")).collect();
                    made.m = format!("[{}]", pairs.join(", "));
                }
                _ => {}
            }
        }
        made
    }
}

impl Page {
    /// Empty: the last.
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    pub(super) fn msgpack(&self) -> Vec<u8> {
        rmp_serde::to_vec_named(self).expect("strings and numbers can be written")
    }

    pub(super) fn json(&self) -> String {
        let entries: Vec<_> = self
            .entries
            .iter()
            .map(|entry| {
                let mut fields: BTreeMap<&str, serde_json::Value> = BTreeMap::from([("name", json!(entry.n))]);
                let texts = [("checksum", &entry.cs), ("atime", &entry.a), ("version", &entry.v), ("custom-md", &entry.m)];
                fields.extend(texts.into_iter().filter(|(_, text)| !text.is_empty()).map(|(name, text)| (name, json!(text))));
                if entry.s > 0 {
                    fields.insert("size", json!(entry.s.to_string()));
                }
                let numbers = [("copies", entry.c), ("flags", entry.f)];
                fields.extend(numbers.into_iter().filter(|(_, number)| *number > 0).map(|(name, number)| (name, json!(number))));
                fields
            })
            .collect();
        json!({ "uuid": self.uuid, "continuation_token": self.token, "entries": entries, "flags": self.flags }).to_string()
    }

    /// Of the keys of a page that are objects or virtual directories: name, whether a directory, size. For the S3 dialect.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&str, bool, u64)> {
        self.entries.iter().map(|entry| (entry.n.as_str(), entry.f & entry::DIRECTORY != 0, entry.s))
    }
}
