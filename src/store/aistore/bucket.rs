//! Which bucket: provider, namespace, name; how it is written in a URL, in a query and in the names that placement hashes.
//!
//! Pure. Source: NVIDIA/aistore `cmn/bck.go` (uname, namespaces), `api/apc/provider.go` (aliases), `cmn/cos/err.go` (names that are refused).

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What a query value may hold as it is; all else is escaped.
const QUERY_ESCAPED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The cluster's own storage, and the clouds it stands in front of; AIStore's aliases with the names they mean.
const PROVIDERS: [(&str, &str); 11] = [
    ("ais", "ais"),
    ("aws", "aws"),
    ("s3", "aws"),
    ("gcp", "gcp"),
    ("gs", "gcp"),
    ("azure", "azure"),
    ("az", "azure"),
    ("oci", "oci"),
    ("oc", "oci"),
    ("ht", "ht"),
    ("http", "ht"),
];

/// One bucket of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// One of AIStore's names: ais, aws, gcp, azure, oci, ht.
    pub provider: &'static str,
    /// `@uuid` names another cluster attached to this one, `#name` a namespace; both empty: the global namespace.
    pub namespace: Namespace,
    pub name: String,
}

/// `@uuid#name`, each part may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    pub uuid: String,
    pub name: String,
}

impl Namespace {
    /// Reads `@uuid#name`, `@uuid`, `#name` or `name`.
    ///
    /// # Errors
    /// A character that no namespace has.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (uuid, name) = match text.strip_prefix('@') {
            Some(rest) => rest.split_once('#').unwrap_or((rest, "")),
            None => ("", text.strip_prefix('#').unwrap_or(text)),
        };
        match [uuid, name].iter().flat_map(|part| part.chars()).find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_')) {
            Some(odd) => Err(format!("{odd:?} cannot be in a namespace: write @uuid#name, @uuid or #name")),
            None => Ok(Self { uuid: uuid.to_owned(), name: name.to_owned() }),
        }
    }

    /// Whether it is the one that needs no name.
    #[must_use]
    pub const fn is_global(&self) -> bool {
        self.uuid.is_empty() && self.name.is_empty()
    }
}

/// As in unames and queries: the global one is `@#`.
impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}#{}", self.uuid, self.name)
    }
}

/// The provider of this name or alias.
#[must_use]
pub fn provider(text: &str) -> Option<&'static str> {
    PROVIDERS.iter().find(|(alias, _)| *alias == text).map(|(_, name)| *name)
}

impl Bucket {
    /// A bucket of the cluster itself, in the global namespace.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { provider: "ais", namespace: Namespace::default(), name: name.into() }
    }

    /// Whether the cluster itself is the origin: nothing behind it is asked, and lists begin where one wants.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.provider == "ais" && self.namespace.uuid.is_empty()
    }

    /// The name by which placement knows an object (`cmn/bck.go` MakeUname).
    #[must_use]
    pub fn uname(&self, key: &str) -> String {
        format!("{}/{}/{}/{key}", self.provider, self.namespace, self.name)
    }

    /// `provider=..[&namespace=..]`.
    #[must_use]
    pub fn query(&self) -> String {
        let mut query = format!("provider={}", self.provider);
        if !self.namespace.is_global() {
            query += &format!("&namespace={}", query_value(&self.namespace.to_string()));
        }
        query
    }
}

/// A value as it may stand in a query.
pub(super) fn query_value(text: &str) -> String {
    utf8_percent_encode(text, &QUERY_ESCAPED).to_string()
}

/// Whether AIStore can have an object of this name: it refuses empty names, a `/` at the end, `~/` at the start and components `.` and `..`
/// (ValidateOname). Empty components (`a//b`, `/a`) and control characters are refused here: a path with them may be changed on its way and would name
/// another object.
///
/// # Errors
/// The reason, as half a sentence.
pub fn check_name(key: &str) -> Result<(), &'static str> {
    if key.is_empty() || key.ends_with('/') {
        return Err("no object's name is empty or ends in '/'");
    }
    if key.starts_with("~/") {
        return Err("no object's name begins with '~/'");
    }
    if key.contains(char::is_control) {
        // Seen: a line break becomes a blank, and that is the name of another object.
        return Err("a name with a control character does not survive AIStore's redirects");
    }
    match key.split('/').find(|part| matches!(*part, "" | "." | "..")) {
        Some("") => Err("a name with an empty part ('//', or '/' at its start) cannot be asked for"),
        Some(_) => Err("no object's name has a part '.' or '..'"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unames_and_queries_are_aistores() {
        let mut bucket = Bucket::new("mybucket");
        assert_eq!(bucket.uname("obj1"), "ais/@#/mybucket/obj1");
        assert_eq!(bucket.query(), "provider=ais");
        bucket.namespace = Namespace::parse("@uuid#ns").expect("a namespace");
        assert_eq!((bucket.uname("x").as_str(), bucket.is_local()), ("ais/@uuid#ns/mybucket/x", false));
        assert_eq!(bucket.query(), "provider=ais&namespace=%40uuid%23ns");
        assert_eq!(Namespace::parse("ns").expect("a name alone").to_string(), "@#ns");
        assert_eq!((provider("s3"), provider("aws"), provider("x")), (Some("aws"), Some("aws"), None));
        assert!(Namespace::parse("@a b").is_err());
    }

    #[test]
    fn names_that_aistore_refuses_are_not_asked_for() {
        for name in ["", "a/", "~/a", ".", "..", "a/./b", "a/..", "../a", "a//b", "/a", "//"] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        for name in ["a", "a/b", "~a", "a/.b", "...", "a b#c?d%e+f", "é/x"] {
            assert!(check_name(name).is_ok(), "{name:?}");
        }
    }
}
