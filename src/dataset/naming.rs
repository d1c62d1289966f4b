//! Which keys become which paths, and which cannot be shown.
//!
//! A key below the prefix is a file at the rest of it, byte for byte: no escaping, no case folding, no Unicode normalisation. A key
//! that ends in `/` is a directory (a marker, as consoles and Hadoop leave them). Keys that no path can show are hidden and counted,
//! never renamed: a training run that lists a directory sees names that exist.
//!
//! Where `a` and `a/b` both exist, the directory wins and the object `a` is hidden (mountpoint-s3 and s3fs choose so too).

/// Longest name that Linux takes (NAME_MAX).
pub const NAME_BYTES_MAX: usize = 255;

/// The directory of control files at the mount's root; objects there would be shadowed.
pub const CONTROL_DIRECTORY: &str = ".belady";

/// Why a key is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hidden {
    /// `a//b`, or a slash at the start: a component without a name.
    EmptyComponent,
    /// `.` or `..` as a component.
    DotComponent,
    /// A component longer than [`NAME_BYTES_MAX`].
    LongComponent,
    /// A NUL byte.
    Nul,
    /// Another key makes a directory of this name.
    ShadowedByDirectory,
    /// A directory marker that has content: the directory is shown, the bytes are not.
    MarkerWithContent,
    /// Below [`CONTROL_DIRECTORY`].
    Reserved,
}

impl Hidden {
    pub(crate) const ALL: [(&str, Self); 7] = [
        ("empty_component", Self::EmptyComponent),
        ("dot_component", Self::DotComponent),
        ("long_component", Self::LongComponent),
        ("nul", Self::Nul),
        ("shadowed_by_directory", Self::ShadowedByDirectory),
        ("marker_with_content", Self::MarkerWithContent),
        ("reserved", Self::Reserved),
    ];

    /// The word for it in logs, statistics and manifest files.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, reason)| *reason == self).map_or("", |(name, _)| name)
    }
}

/// What a key is in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement<'a> {
    /// A file at this path below the mount.
    File(&'a str),
    /// A directory at this path; empty: the mount itself.
    Directory(&'a str),
    /// It exists and cannot be shown.
    Hidden(Hidden),
    /// Not below the prefix.
    Outside,
}

/// The prefix as keys have it: empty, or with a slash at its end. One leading slash is left out, so `v1.0`, `v1.0/` and `/v1.0/` are
/// one prefix; any further slash is meant literally (`v1.0//` shows keys such as `v1.0//a`).
#[must_use]
pub fn normal_prefix(prefix: &str) -> String {
    let literal = prefix.strip_prefix('/').unwrap_or(prefix);
    if literal.is_empty() || literal.ends_with('/') { literal.to_owned() } else { format!("{literal}/") }
}

/// Where a key belongs; `prefix` is a [`normal_prefix`].
#[must_use]
pub fn place<'a>(key: &'a str, prefix: &str) -> Placement<'a> {
    let Some(path) = key.strip_prefix(prefix) else { return Placement::Outside };
    if path.is_empty() {
        return Placement::Directory("");
    }
    let (path, is_directory) = path.strip_suffix('/').map_or((path, false), |path| (path, true));
    if path.contains('\0') {
        return Placement::Hidden(Hidden::Nul);
    }
    for (place, component) in path.split('/').enumerate() {
        let reason = match component {
            "" => Hidden::EmptyComponent,
            "." | ".." => Hidden::DotComponent,
            CONTROL_DIRECTORY if place == 0 => Hidden::Reserved,
            _ if component.len() > NAME_BYTES_MAX => Hidden::LongComponent,
            _ => continue,
        };
        return Placement::Hidden(reason);
    }
    if is_directory { Placement::Directory(path) } else { Placement::File(path) }
}

/// Directory part of a path; empty at the top.
#[must_use]
pub(crate) fn parent_path(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Last component of a path.
#[must_use]
pub(crate) fn name_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Keys that are not shown: how many for each reason, and one to show the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HiddenKeys {
    by_reason: Vec<(Hidden, u64, String)>,
}

impl HiddenKeys {
    /// Counts one key. The first key of each reason is its example.
    pub(crate) fn count(&mut self, reason: Hidden, key: &str) {
        self.add(reason, 1, key);
    }

    pub(crate) fn add(&mut self, reason: Hidden, keys: u64, example: &str) {
        match self.by_reason.iter_mut().find(|(known, ..)| *known == reason) {
            Some((_, count, _)) => *count += keys,
            None => self.by_reason.push((reason, keys, example.to_owned())),
        }
    }

    /// (reason, keys, one of them) in the sequence in which the reasons appeared.
    pub fn iter(&self) -> impl Iterator<Item = (Hidden, u64, &str)> {
        self.by_reason.iter().map(|(reason, keys, example)| (*reason, *keys, example.as_str()))
    }

    /// All hidden keys.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.by_reason.iter().map(|(_, keys, _)| keys).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_the_same_however_it_is_written() {
        for (written, normal) in
            [("", ""), ("/", ""), ("v1.0", "v1.0/"), ("v1.0/", "v1.0/"), ("/v1.0/", "v1.0/"), ("/v1.0", "v1.0/"), ("v1.0//", "v1.0//")]
        {
            assert_eq!(normal_prefix(written), normal, "{written}");
        }
    }

    #[test]
    fn keys_become_paths_or_are_hidden() {
        let long = "x".repeat(256);
        let longest = format!("d/{}", "é".repeat(127));
        for (key, placement) in [
            ("a", Placement::File("a")),
            ("a/b", Placement::File("a/b")),
            ("a/", Placement::Directory("a")),
            ("a/b/", Placement::Directory("a/b")),
            ("", Placement::Directory("")),
            ("a//b", Placement::Hidden(Hidden::EmptyComponent)),
            ("/lead", Placement::Hidden(Hidden::EmptyComponent)),
            ("/", Placement::Hidden(Hidden::EmptyComponent)),
            ("a//", Placement::Hidden(Hidden::EmptyComponent)),
            ("a/./d", Placement::Hidden(Hidden::DotComponent)),
            ("a/../e", Placement::Hidden(Hidden::DotComponent)),
            ("..", Placement::Hidden(Hidden::DotComponent)),
            ("./", Placement::Hidden(Hidden::DotComponent)),
            (&long, Placement::Hidden(Hidden::LongComponent)),
            (&longest, Placement::File(&longest)),
            ("a\0b", Placement::Hidden(Hidden::Nul)),
            (".belady/stats", Placement::Hidden(Hidden::Reserved)),
            (".belady", Placement::Hidden(Hidden::Reserved)),
            ("a/.belady", Placement::File("a/.belady")),
            ("d/x\ny", Placement::File("d/x\ny")),
            ("d/\n", Placement::File("d/\n")),
            ("k +%20=a:b#c?d&e@f,g;h'i\"j(k)!~*$.bin", Placement::File("k +%20=a:b#c?d&e@f,g;h'i\"j(k)!~*$.bin")),
            ("a\\b", Placement::File("a\\b")),
            ("x. ", Placement::File("x. ")),
            ("...", Placement::File("...")),
        ] {
            assert_eq!(place(key, ""), placement, "{key:?}");
        }
        assert_eq!(place("v1.0/a", "v1.0/"), Placement::File("a"));
        assert_eq!(place("v1.0/", "v1.0/"), Placement::Directory(""));
        assert_eq!(place("v1.0//a", "v1.0//"), Placement::File("a"));
        assert_eq!(place("sessions.json", "sessions/"), Placement::Outside);
    }
}
