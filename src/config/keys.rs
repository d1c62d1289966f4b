//! The names of all settings of a mount, once: flag `--cache-dir` = key `cache_dir` = environment `BELADY_CACHE_DIR` = fstab `cache_dir=`.

use std::collections::BTreeMap;

/// How a value is written in the TOML file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A string.
    Text,
    /// An integer.
    Number,
    /// `true` or `false`; as a flag the value may be left out.
    Switch,
    /// A list of strings: the flag is repeated, or its parts joined by `+`.
    List,
}

/// One setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub name: &'static str,
    pub kind: Kind,
}

const fn key(name: &'static str, kind: Kind) -> Key {
    Key { name, kind }
}

/// All of them, in the order of `configs/default.toml` and of `--print-config`.
pub const KEYS: [Key; 35] = [
    key("endpoint_url", Kind::Text),
    key("region", Kind::Text),
    key("profile", Kind::Text),
    key("credentials_file", Kind::Text),
    key("env_file", Kind::Text),
    key("no_sign_request", Kind::Switch),
    key("requester_pays", Kind::Switch),
    key("force_path_style", Kind::Switch),
    key("ca_bundle", Kind::Text),
    key("memory", Kind::Text),
    key("cache_dir", Kind::Text),
    key("disk", Kind::Text),
    key("tier", Kind::List),
    key("order", Kind::List),
    key("expect_manifest", Kind::Text),
    key("peek", Kind::Switch),
    key("search_threads", Kind::Text),
    key("search_exhaustive", Kind::Switch),
    key("record_opens", Kind::Text),
    key("on_change", Kind::Text),
    key("verify", Kind::Text),
    key("read_deadline", Kind::Text),
    key("max_bandwidth", Kind::Text),
    key("max_requests", Kind::Number),
    key("max_connections", Kind::Number),
    key("allow_other", Kind::Switch),
    key("uid", Kind::Number),
    key("gid", Kind::Number),
    key("file_mode", Kind::Text),
    key("dir_mode", Kind::Text),
    key("listen", Kind::Text),
    key("disable_kernel", Kind::List),
    key("foreground", Kind::Switch),
    key("log_level", Kind::Text),
    key("log_file", Kind::Text),
];

/// Values as texts, by key: what one place (flags, environment, file) says.
pub type Layer = BTreeMap<&'static str, Vec<String>>;

/// The key of this name.
#[must_use]
pub fn find(name: &str) -> Option<Key> {
    KEYS.into_iter().find(|key| key.name == name)
}

/// The known name that was meant, for «did you mean»; hyphens count as underscores. `None`: nothing is like it.
#[must_use]
pub fn nearest(name: &str) -> Option<&'static str> {
    crate::order::spec::nearest(&name.replace('-', "_"), KEYS.iter().map(|key| key.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_what_was_meant() {
        for (typed, meant) in
            [("cache-dir", "cache_dir"), ("cachdir", "cache_dir"), ("endpoint", "endpoint_url"), ("memry", "memory"), ("orders", "order")]
        {
            assert_eq!(nearest(typed), Some(meant));
        }
        for typed in ["mount", "config", "url", ""] {
            assert_eq!(nearest(typed), None, "{typed}");
        }
    }

    #[test]
    fn names_are_unique_and_fit_fstab() {
        for (at, key) in KEYS.iter().enumerate() {
            assert!(key.name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{}", key.name);
            assert!(KEYS[at + 1..].iter().all(|other| other.name != key.name), "{} twice", key.name);
        }
    }
}
