//! What mount(8) passes → what `belady mount` takes. Pure.
//!
//! mount(8) calls `mount.belady SPEC DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`. Each option `key=value` becomes `--key=value` with
//! `_` as `-`, a bare word becomes `--word`; belady itself knows which there are. Words that are mount(8)'s own are dropped.

/// Words for mount(8), systemd or the kernel, in fstab(5), mount(8) and systemd.mount(5): nothing to do for us. (`ro`, `nosuid` and the like
/// hold for every belady mount anyway; `rw` is the kernel's name for «not ro» and comes from callers who did not ask for it.)
const NOT_OURS: [&str; 34] = [
    "auto",
    "noauto",
    "user",
    "users",
    "nouser",
    "owner",
    "group",
    "_netdev",
    "nofail",
    "defaults",
    "ro",
    "rw",
    "dev",
    "nodev",
    "suid",
    "nosuid",
    "exec",
    "noexec",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "sync",
    "async",
    "dirsync",
    "mand",
    "nomand",
    "silent",
];

/// Their forms with a value.
const NOT_OURS_PREFIXES: [&str; 6] = ["x-", "X-", "comment=", "uhelper=", "helper=", "user="];

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Run `belady` with these arguments.
    Run(Vec<String>),
    /// `-f`: say that it would have worked.
    Nothing,
}

/// Reads the arguments, without the program's name.
///
/// # Errors
/// One line for the user.
pub(crate) fn translate(args: impl IntoIterator<Item = String>) -> Result<Call, String> {
    let mut places = Vec::new();
    let mut options = Vec::new();
    let mut fake = false;
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        match arg.strip_prefix('-') {
            None | Some("") => places.push(arg),
            Some("-") => places.extend(args.by_ref()),
            Some(letters) => {
                let mut letters = letters.chars();
                while let Some(letter) = letters.next() {
                    match letter {
                        // Sloppy (unknown options are belady's to judge), no /etc/mtab, verbose, read-only, read-write.
                        's' | 'n' | 'v' | 'r' | 'w' => {}
                        'f' => fake = true,
                        'o' | 't' | 'N' => {
                            let attached: String = letters.by_ref().collect();
                            let value = if attached.is_empty() { args.next() } else { Some(attached) };
                            let value = value.ok_or_else(|| format!("-{letter} needs a value"))?;
                            if letter == 'o' {
                                options.extend(split(&value));
                            }
                        }
                        _ => return Err(format!("does not know -{letter}: it takes SPEC DIR [-sfnv] [-o OPTIONS], as mount(8) calls it")),
                    }
                }
            }
        }
    }
    let [spec, dir] = <[String; 2]>::try_from(places)
        .map_err(|_| "needs a bucket and a directory: mount.belady s3://bucket DIR [-o OPTIONS]".to_owned())?;
    if fake {
        return Ok(Call::Nothing);
    }
    if options.iter().any(|option| option == "remount") {
        return Err(format!("cannot change a mount: unmount {dir} and mount it again"));
    }
    let mut run = vec!["mount".to_owned()];
    run.extend(options.iter().filter(|option| is_ours(option)).map(|option| flag(option)));
    run.extend(["--".to_owned(), spec, dir]);
    Ok(Call::Run(run))
}

/// At commas, except within double quotes, which go away: mount(8)'s own rule since 2.39.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => parts.push(String::new()),
            _ => parts.last_mut().expect("it begins with one and never shrinks").push(c),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn is_ours(option: &str) -> bool {
    !NOT_OURS.contains(&option) && !NOT_OURS_PREFIXES.iter().any(|prefix| option.starts_with(prefix))
}

fn flag(option: &str) -> String {
    match option.split_once('=') {
        Some((key, value)) => format!("--{}={value}", key.replace('_', "-")),
        None => format!("--{}", option.replace('_', "-")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &[&str]) -> Result<Call, String> {
        translate(line.iter().map(|arg| (*arg).to_owned()))
    }

    fn check(line: &[&str], wanted: &[&str]) {
        assert_eq!(run(line), Ok(Call::Run(wanted.iter().map(|arg| (*arg).to_owned()).collect())), "{line:?}");
    }

    #[test]
    fn options_become_flags() {
        check(&["s3://b/p", "/data"], &["mount", "--", "s3://b/p", "/data"]);
        check(
            &["s3://b", "/data", "-o", "memory=32GiB,cache_dir=/nvme/belady,no_sign_request"],
            &["mount", "--memory=32GiB", "--cache-dir=/nvme/belady", "--no-sign-request", "--", "s3://b", "/data"],
        );
        check(
            &["b", "/d", "-o", "order=torch-distributed:seed=0:rank=0-7"],
            &["mount", "--order=torch-distributed:seed=0:rank=0-7", "--", "b", "/d"],
        );
        check(&["b", "/d", "-oallow_other", "-o", "uid=1"], &["mount", "--allow-other", "--uid=1", "--", "b", "/d"]);
    }

    #[test]
    fn the_words_of_fstab_are_dropped() {
        let line = "rw,ro,noauto,auto,_netdev,nofail,user,users,nouser,nodev,dev,nosuid,suid,exec,noexec,noatime,relatime,defaults,x-systemd.automount,X-mount.mkdir,comment=x,memory=1";
        check(&["b", "/d", "-sn", "-v", "-o", line, "-t", "belady"], &["mount", "--memory=1", "--", "b", "/d"]);
        check(&["-t", "belady", "-o", "ro", "b", "/d"], &["mount", "--", "b", "/d"]);
    }

    #[test]
    fn a_fake_mount_does_nothing() {
        assert_eq!(run(&["b", "/d", "-sfnv", "-o", "memory=1"]), Ok(Call::Nothing));
        assert_eq!(run(&["b", "/d", "-f"]), Ok(Call::Nothing));
    }

    #[test]
    fn odd_names_arrive_whole() {
        check(
            &["s3://b", "/a b", "-o", "cache_dir=\"/x, y\",tier=a:/x:1"],
            &["mount", "--cache-dir=/x, y", "--tier=a:/x:1", "--", "s3://b", "/a b"],
        );
        check(&["--", "-b", "-d"], &["mount", "--", "-b", "-d"]);
        check(&["b", "/d", "-o", ",,"], &["mount", "--", "b", "/d"]);
        check(&["b", "/d", "-o", "key=a=b"], &["mount", "--key=a=b", "--", "b", "/d"]);
    }

    #[test]
    fn a_remount_says_what_to_do_instead() {
        assert!(run(&["b", "/d", "-o", "remount,ro"]).unwrap_err().contains("unmount /d"));
    }

    #[test]
    fn wrong_calls_are_refused() {
        for line in [&["b"][..], &[], &["b", "/d", "/e"], &["b", "/d", "-o"], &["b", "/d", "-x"]] {
            assert!(run(line).is_err(), "{line:?}");
        }
    }

    /// No option of ours can be lost among the words dropped: whatever begins with a key of ours and `=` passes.
    #[test]
    fn what_has_a_value_and_is_not_a_comment_passes() {
        for key in ["endpoint_url", "uid", "gid", "memory", "listen", "order", "log_file"] {
            assert!(is_ours(&format!("{key}=1")), "{key}");
        }
    }
}
