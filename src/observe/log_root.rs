//! Which part of a traced program's opens are samples: below one directory, where most files of one kind are. Pure.
//!
//! A trace has all that a program opens, libraries and its own code among them. A dataset is what it opens most different files of, once those
//! of the system and of Python are left out; files of one kind, because caches and outputs lie about with other endings.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::log::LoggedOpen;

/// Where programs and the system have their own files.
const SYSTEM: [&str; 12] = ["bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "usr"];
/// Directories of Python's packages, wherever they are.
const PACKAGES: [&str; 4] = ["site-packages", "dist-packages", "__pycache__", "lib-dynload"];
/// Endings of code.
const CODE: [&str; 6] = ["py", "pyc", "pyi", "so", "pth", "mo"];
/// So few files of the kind are no part of the dataset: fewer are never enough for an order.
const PART_LEAST: usize = 8;

/// The directory, without a slash at its end; empty: all of them. `None`: no file that could be a sample was opened.
#[must_use]
pub fn root_of(opens: &[LoggedOpen]) -> Option<String> {
    let files: HashSet<&str> = opens.iter().map(|open| open.path.as_str()).filter(|path| is_data(path)).collect();
    let mut kinds: HashMap<&str, usize> = HashMap::new();
    for file in &files {
        *kinds.entry(ending(file)).or_default() += 1;
    }
    let (&kind, _) = kinds.iter().max_by_key(|&(ending, count)| (*count, *ending))?;
    let mut inside: Vec<&str> = files.into_iter().filter(|file| ending(file) == kind).collect();
    let mut root = 0;
    loop {
        let mut below: BTreeMap<&str, usize> = BTreeMap::new();
        for path in &inside {
            // a file of the directory itself is below nothing
            let next = path[root..].match_indices('/').map(|(at, _)| at).find(|&at| at > 0).map_or("", |at| &path[root..root + at]);
            *below.entry(next).or_default() += 1;
        }
        let (&next, &count) = below.iter().max_by_key(|&(_, &count)| count)?;
        if next.is_empty() || inside.len() - count >= PART_LEAST.min(inside.len()) {
            return inside.first().map(|path| path[..root].to_owned());
        }
        // The classes of a part are no parts: their parent is the root.
        let next = next.to_owned();
        inside.retain(|path| path[root..].strip_prefix(next.as_str()).is_some_and(|rest| rest.starts_with('/')));
        root += next.len();
    }
}

/// Whether a path is below a directory.
#[must_use]
pub fn is_below(path: &str, root: &str) -> bool {
    let root = root.trim_end_matches('/');
    root.is_empty() || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'))
}

fn is_data(path: &str) -> bool {
    let mut parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    let first = parts.clone().next().unwrap_or("");
    let is_system = path.starts_with('/') && SYSTEM.contains(&first);
    let is_package = parts.any(|part| PACKAGES.contains(&part));
    !(is_system || is_package || CODE.contains(&ending(path)) || path.contains(".so."))
}

/// Without its dot; empty where there is none.
fn ending(path: &str) -> &str {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).map_or("", |(_, ending)| ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(paths: impl IntoIterator<Item = String>) -> Option<String> {
        let open = |path| LoggedOpen { seconds: 0.0, thread: 1, path };
        root_of(&paths.into_iter().map(open).collect::<Vec<_>>())
    }

    fn noise() -> impl Iterator<Item = String> {
        let libraries = (0..3_000).map(|k| format!("/usr/lib/python3/dist-packages/torch/{k}.pyc"));
        let own = (0..40).map(|k| format!("/home/me/venv/lib/python3.11/site-packages/x/{k}.json"));
        let caches = (0..5).map(|k| format!("/home/me/.cache/{k}.jpg"));
        libraries.chain(own).chain(caches).chain(["/home/me/train.py".to_owned(), "/tmp/lock".to_owned()])
    }

    #[test]
    fn the_dataset_is_found_among_libraries_and_caches() {
        let samples = |part: &'static str, n: u32| (0..n).map(move |k| format!("/data/set/{part}/c{}/{k}.jpg", k % 10));
        assert_eq!(root(noise().chain(samples("train", 900)).chain(samples("val", 20))).as_deref(), Some("/data/set"));
        assert_eq!(root(noise().chain(samples("train", 900)).chain(samples("val", 3))).as_deref(), Some("/data/set/train"));
        // labels beside them, and relative paths
        let pairs = (0..100).flat_map(|k| [format!("data/{k}.png"), format!("data/{k}.json")]);
        assert_eq!(root(pairs).as_deref(), Some("data"));
        assert_eq!(root((0..100).map(|k| format!("/{k}"))).as_deref(), Some(""));
    }

    #[test]
    fn nothing_but_libraries_is_no_dataset() {
        assert_eq!(root((0..50).map(|k| format!("/usr/lib/{k}.so.1"))), None);
        assert_eq!(root([]), None);
    }

    #[test]
    fn below_is_by_whole_names() {
        assert!(is_below("/data/a.jpg", "/data") && is_below("/data/a.jpg", "/data/") && is_below("x", "") && is_below("/x", "/"));
        assert!(!is_below("/data2/a.jpg", "/data") && !is_below("/data", "/data"));
    }
}
