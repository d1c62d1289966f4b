//! Mount points, looked at without touching what is mounted there: a path that ends in a hung mount would hang the caller.
//!
//! Parents are resolved by the file system; the last component only when the table of mounts says that nothing is mounted on it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One line of the table of mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    pub path: PathBuf,
    /// `fuse.belady` for ours.
    pub kind: String,
    /// What is mounted, e.g. the bucket.
    pub source: String,
}

impl Mounted {
    /// Whether belady made it.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.kind == "fuse.belady"
    }
}

/// What is mounted in this process's view, oldest first.
#[must_use]
pub fn table() -> Vec<Mounted> {
    fs::read("/proc/self/mountinfo").map(|text| parse(&text)).unwrap_or_default()
}

/// The uppermost mount on exactly this path.
#[must_use]
pub fn mounted_on(path: &Path) -> Option<Mounted> {
    table().into_iter().rev().find(|mounted| mounted.path == path)
}

/// Lines of mountinfo: `id parent dev root path options [tags] - kind source super-options`; spaces and the like as `\040`. See proc(5).
fn parse(text: &[u8]) -> Vec<Mounted> {
    let line = |line: &[u8]| {
        let mut fields = line.split(|b| *b == b' ');
        let path = unescaped(fields.nth(4)?);
        let mut after = fields.skip_while(|field| *field != b"-").skip(1);
        let word = |field: &[u8]| String::from_utf8_lossy(&unescaped(field)).into_owned();
        Some(Mounted { path: PathBuf::from(OsString::from_vec(path)), kind: word(after.next()?), source: word(after.next()?) })
    };
    text.split(|b| *b == b'\n').filter_map(line).collect()
}

fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|digits| first == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match octal {
            Some(digits) => {
                out.push(digits.iter().fold(0u8, |n, d| n.wrapping_mul(8).wrapping_add(d - b'0')));
                rest = &tail[3..];
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    out
}

/// The absolute path of a mount point, free of symbolic links, without asking what is mounted there.
///
/// # Errors
/// The parent directory does not exist.
pub fn real(dir: &Path) -> Result<PathBuf, String> {
    let name = |error: &std::io::Error| format!("mount point {}: {error}", dir.display());
    let absolute = std::path::absolute(dir).map_err(|error| name(&error))?;
    let path = match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(last)) => {
            let parent = parent.canonicalize().map_err(|error| format!("{}: create it with mkdir", name(&error)))?;
            parent.join(last)
        }
        // `/`, or a path that ends in `..`: no mount of ours can be its own parent.
        _ => return absolute.canonicalize().map_err(|error| name(&error)),
    };
    if mounted_on(&path).is_some() {
        return Ok(path);
    }
    Ok(path.canonicalize().unwrap_or(path))
}

/// Whether `path` is `folder` or lies in it, symbolic links resolved as far as the path exists.
#[must_use]
pub fn within(path: &Path, folder: &Path) -> bool {
    // First as written: then a mount that hangs is not asked.
    path.starts_with(folder) || resolved(path).starts_with(resolved(folder))
}

fn resolved(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if mounted_on(ancestor).is_some_and(|mounted| mounted.kind.starts_with("fuse")) {
            break;
        }
        if let Ok(real) = ancestor.canonicalize() {
            return path.strip_prefix(ancestor).map_or_else(|_| real.clone(), |rest| real.join(rest));
        }
    }
    path.to_owned()
}

/// Whether something may be mounted here: a directory, empty, with nothing mounted on it. A dead mount of ours is in the way, too: the
/// caller takes it away first (see `commands`).
///
/// # Errors
/// One line with cause and remedy.
pub fn check_free(path: &Path) -> Result<(), String> {
    let shown = path.display();
    if path == Path::new("/") {
        return Err("mount point /: cannot be mounted over: choose an empty directory".into());
    }
    if let Some(mounted) = mounted_on(path) {
        let remedy =
            if mounted.is_ours() { format!("unmount it first: belady umount {shown}") } else { "choose another directory".to_owned() };
        return Err(format!("mount point {shown}: {} is mounted there already; {remedy}", mounted.source));
    }
    let metadata = fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("mount point {shown}: does not exist: create it with mkdir"),
        _ => format!("mount point {shown}: {error}"),
    })?;
    if !metadata.is_dir() {
        return Err(format!("mount point {shown}: is not a directory"));
    }
    let mut entries = fs::read_dir(path).map_err(|error| format!("mount point {shown}: {error}"))?;
    if entries.next().is_some() {
        return Err(format!("mount point {shown}: is not empty, and a mount would hide what is in it: choose an empty directory"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_table_of_mounts_is_read() {
        let text = b"22 1 0:21 / /proc rw,nosuid shared:5 - proc proc rw\n36 35 0:45 / /a\\040b/c\\134d ro master:1 - fuse.belady s3://b/p ro,user_id=0\nbroken\n";
        let table = parse(text);
        assert_eq!(table.len(), 2);
        assert_eq!((table[0].kind.as_str(), table[0].is_ours()), ("proc", false));
        assert_eq!(table[1], Mounted { path: "/a b/c\\d".into(), kind: "fuse.belady".into(), source: "s3://b/p".into() });
        assert!(table[1].is_ours());
        assert!(mounted_on(Path::new("/proc")).is_some_and(|m| m.kind == "proc"), "and this machine's");
    }

    #[test]
    fn one_mount_point_has_one_path() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        fs::create_dir(base.join("m")).unwrap();
        symlink(&base, base.join("up")).unwrap();
        symlink(base.join("m"), base.join("l")).unwrap();
        for way in ["m", "m/", "./m", "up/m", "up/up/m", "l", "up/l"] {
            assert_eq!(real(&base.join(way)), Ok(base.join("m")), "{way}");
        }
        assert_eq!(real(&base.join("new")), Ok(base.join("new")), "it need not exist");
        assert!(real(&base.join("no/such")).unwrap_err().contains("mkdir"));
    }

    #[test]
    fn within_sees_through_links() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        fs::create_dir(base.join("m")).unwrap();
        symlink(base.join("m"), base.join("l")).unwrap();
        assert!(within(&base.join("m/cache"), &base.join("m")));
        assert!(within(&base.join("l/cache"), &base.join("m")), "through a link");
        assert!(within(&base.join("m"), &base.join("m")));
        assert!(!within(&base.join("mm"), &base.join("m")), "a name that begins alike");
        assert!(!within(&base.join("m"), &base.join("m/cache")));
    }

    #[test]
    fn what_is_in_the_way_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let check = |path: &Path, cause: &str| {
            let error = check_free(path).unwrap_err();
            assert!(error.contains(cause), "{error}");
        };
        assert_eq!(check_free(dir.path()), Ok(()));
        fs::write(dir.path().join("file"), "").unwrap();
        check(dir.path(), "is not empty");
        check(&dir.path().join("file"), "is not a directory");
        check(&dir.path().join("none"), "does not exist");
        check(Path::new("/"), "cannot be mounted over");
        check(Path::new("/proc"), "is mounted there already");
    }
}
