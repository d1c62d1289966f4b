//! Parsers of single values: text in, value or a reason out. The reason is a half sentence that follows the option's name.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::{KernelFeature, OnChange, StoreFeature, Verify};
use crate::types::ByteSize;

/// The longest time anybody may mean; more is a slip of the unit.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) fn size(text: &str) -> Result<ByteSize, String> {
    text.parse().map_err(|error: crate::types::ByteSizeError| error.to_string())
}

pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

/// `300`, `300s`, `5m`, `1h`, `500ms`; not zero.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let refuse = || format!("{text:?} is not a time: write seconds, or a number with ms, s, m or h, e.g. 300s");
    let trimmed = text.trim();
    let (number, unit) = trimmed.split_at(trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len()));
    let number: u64 = number.parse().map_err(|_| refuse())?;
    let millis = match unit.trim() {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => return Err(refuse()),
    };
    let value = number.checked_mul(millis).map(Duration::from_millis).ok_or_else(refuse)?;
    if value.is_zero() || value > LONGEST { Err(format!("{text:?} must be more than 0 and at most 24h")) } else { Ok(value) }
}

/// A number of requests or connections.
pub(super) fn count(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(n @ 1..=65_536) => Ok(n),
        _ => Err(format!("{text:?} is not a number from 1 to 65536")),
    }
}

/// A user or group. The largest number means «nobody asked» to chown(2) and is no owner.
pub(super) fn id(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(id) if id != u32::MAX => Ok(id),
        _ => Err(format!("{text:?} is not a number of a user or group: write the numeric id (`id -u`, `id -g`)")),
    }
}

/// Permission bits.
pub(super) fn mode(text: &str) -> Result<u16, String> {
    match u16::from_str_radix(text.strip_prefix("0o").unwrap_or(text), 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err(format!("{text:?} is not an octal mode from 0000 to 0777, e.g. 0444")),
    }
}

pub(super) fn on_change(text: &str) -> Result<OnChange, String> {
    match text {
        "serve-new" => Ok(OnChange::ServeNew),
        "fail" => Ok(OnChange::Fail),
        "pin" => Err("pin is not in this version: write serve-new or fail".to_owned()),
        _ => Err(format!("{text:?} is neither serve-new nor fail")),
    }
}

pub(super) fn verify(text: &str) -> Result<Verify, String> {
    match text {
        "once" => Ok(Verify::Once),
        "always" => Ok(Verify::Always),
        _ => Err(format!("{text:?} is neither once nor always")),
    }
}

/// `ADDR:PORT`, `[V6]:PORT`, `localhost:PORT`; a bare port is on loopback, because figures name buckets and paths.
pub(super) fn listen(text: &str) -> Result<Option<SocketAddr>, String> {
    if matches!(text, "0" | "off") {
        return Ok(None);
    }
    let port = text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':')).unwrap_or(text);
    if let Ok(port) = port.parse() {
        return Ok(Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)));
    }
    text.parse().map(Some).map_err(|_| format!("{text:?} is not an address: write ADDR:PORT with a numeric address, e.g. 127.0.0.1:9100"))
}

pub(super) fn kernel_feature(text: &str) -> Result<KernelFeature, String> {
    let word = text.replace('_', "-");
    let words = || KernelFeature::ALL.map(|(word, _)| word).join(", ");
    KernelFeature::ALL.iter().find(|(known, _)| *known == word).map(|(_, f)| *f).ok_or_else(|| format!("{text:?} is none of {}", words()))
}

pub(super) fn store_feature(text: &str) -> Result<StoreFeature, String> {
    let words = || StoreFeature::ALL.map(|(word, _)| word).join(", ");
    StoreFeature::ALL.iter().find(|(known, _)| *known == text).map(|(_, f)| *f).ok_or_else(|| format!("{text:?} is none of {}", words()))
}

/// `info`, or parts `target=level` joined by `+`; the result is in tracing's syntax.
pub(super) fn log_level(text: &str) -> Result<String, String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    for part in text.split('+') {
        let level = part.rsplit('=').next().unwrap_or(part);
        if !LEVELS.contains(&level) || part.contains(',') {
            return Err(format!("{part:?} is not a level: write error, warn, info, debug or trace; or target=level parts joined by +"));
        }
    }
    Ok(text.replace('+', ","))
}

/// `http://host[:port][/path]` or https.
pub(super) fn endpoint_url(text: &str) -> Result<String, String> {
    let Some(rest) = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")) else {
        return Err(format!("{text:?} is not an address: write http://host[:port] or https://host[:port]"));
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or("");
    if host.contains('@') {
        // Not repeated in the text: what is before the @ may be a secret.
        return Err(
            "must not contain a user or password: credentials come from the environment, --profile or --credentials-file".to_owned()
        );
    }
    if host.is_empty() || host.starts_with(':') || text.contains(char::is_whitespace) || text.contains(['?', '#']) {
        return Err(format!("{text:?} is not an address: write http://host[:port] or https://host[:port]"));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// A manifest's id, as the stats show it.
pub(super) fn manifest_id(text: &str) -> Result<String, String> {
    if text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(format!("{text:?} is not a manifest id: copy the 32 hex digits of manifest_id from `belady stats --json`"))
    }
}

/// Absolute, so that a daemon's working directory (`/`) does not matter.
pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    std::path::absolute(text).map_err(|error| format!("{text:?}: {error}"))
}

/// `NAME:PATH:SIZE`: the first and the last colon count, so that a path may contain one.
pub(super) fn tier(text: &str) -> Result<(String, PathBuf, ByteSize), String> {
    let parts = text.split_once(':').and_then(|(name, rest)| rest.rsplit_once(':').map(|(path, size)| (name, path, size)));
    let Some((name, path_text, size_text)) = parts else {
        return Err(format!("{text:?} is not a tier: write NAME:PATH:SIZE, e.g. nvme:/nvme/belady:800GiB"));
    };
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_') {
        return Err(format!("{name:?} is not a tier's name: small letters, digits, - and _"));
    }
    if path_text.is_empty() {
        return Err(format!("{text:?} names no directory: write NAME:PATH:SIZE, e.g. nvme:/nvme/belady:800GiB"));
    }
    Ok((name.to_owned(), path(path_text)?, size(size_text)?))
}

/// The parts of a list value: joined by `+`, or repeated. A `+` may also stand within a part (a path, `rank=0+2`): the shortest parts are
/// taken that leave a rest of parts. A comma is refused where it is clearly meant as a separator, because mount(8) would split there.
pub(super) fn list<T>(values: &[String], parse: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, Vec<String>> {
    let (mut parsed, mut errors) = (Vec::new(), Vec::new());
    for value in values.iter().filter(|value| !value.is_empty()) {
        match parts(value, &parse) {
            Some(parts) => parsed.extend(parts),
            None => errors.extend(reasons(value, &parse)),
        }
    }
    if errors.is_empty() { Ok(parsed) } else { Err(errors) }
}

/// Where a part may end: before each `+`, and at the end.
fn ends(text: &str) -> impl Iterator<Item = usize> + '_ {
    text.match_indices('+').map(|(at, _)| at).chain([text.len()])
}

/// `text` as a whole number of parts, the first as short as that allows. From the back, so that each cut is tried once.
fn parts<T>(text: &str, parse: &impl Fn(&str) -> Result<T, String>) -> Option<Vec<T>> {
    let starts: Vec<usize> = [0].into_iter().chain(text.match_indices('+').map(|(at, _)| at + 1)).collect();
    // For each start from which the rest is made of parts: where its first part ends.
    let mut first_end = vec![None; text.len() + 1];
    for &start in starts.iter().rev() {
        let goes_on = |end: &usize| *end == text.len() || end + 1 == text.len() || first_end[end + 1].is_some();
        let end = ends(&text[start..]).map(|end| start + end).find(|end| goes_on(end) && parse(&text[start..*end]).is_ok());
        first_end[start] = end;
    }
    let (mut parts, mut start) = (Vec::new(), 0);
    while start < text.len() {
        let end = first_end[start]?;
        parts.push(parse(&text[start..end]).ok()?);
        start = end + 1;
    }
    Some(parts)
}

/// What is wrong with a text that is no list: one reason for each part that no reading makes good.
fn reasons<T>(text: &str, parse: &impl Fn(&str) -> Result<T, String>) -> Vec<String> {
    let (mut reasons, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let good = ends(rest).find(|end| parse(&rest[..*end]).is_ok());
        let end = good.unwrap_or_else(|| {
            // The text of the first part: the longer ones only repeat it. What begins with a digit goes on with numbers (rank=0+2, split=0.8+0.2).
            let goes_on = |end: usize| rest.as_bytes().get(end + 1).is_some_and(u8::is_ascii_digit);
            let end = ends(rest).find(|&end| !goes_on(end)).unwrap_or(rest.len());
            let reason = parse(&rest[..end]).err().or_else(|| parse(rest).err()).unwrap_or_default();
            let hint = if rest[..end].contains(',') { " (several are joined by +, or the option is repeated)" } else { "" };
            reasons.push(reason + hint);
            end
        });
        rest = rest[end..].strip_prefix('+').unwrap_or("");
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fmt::Debug;

    /// Each text parses to its value; each of `bad` is refused with a reason that quotes it.
    fn check<T: PartialEq + Debug>(parse: impl Fn(&str) -> Result<T, String>, good: &[(&str, T)], bad: &[&str]) {
        for (text, value) in good {
            assert_eq!(parse(text).as_ref(), Ok(value), "{text:?}");
        }
        for text in bad {
            let reason = parse(text).expect_err(text);
            assert!(reason.contains(text), "{reason:?} does not quote {text:?}");
        }
    }

    #[test]
    fn single_values() {
        let s = Duration::from_secs;
        check(
            duration,
            &[("300", s(300)), ("300s", s(300)), ("5m", s(300)), ("1h", s(3600)), ("500ms", Duration::from_millis(500))],
            &["", "0", "x", "5d", "-1", "25h", "99999999999999999999"],
        );
        check(switch, &[("true", true), ("yes", true), ("False", false), ("0", false)], &["", "maybe"]);
        check(count, &[("1", 1), ("65536", 65_536)], &["0", "65537", "-1", "many"]);
        check(mode, &[("0444", 0o444), ("755", 0o755), ("0", 0)], &["888", "1777", "rw"]);
        check(on_change, &[("serve-new", OnChange::ServeNew), ("fail", OnChange::Fail)], &["pin", "x"]);
        check(log_level, &[("info", "info".to_owned()), ("warn+belady=debug", "warn,belady=debug".to_owned())], &["loud", "info,debug"]);
        let local = |port| Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
        check(
            listen,
            &[("9100", local(9100)), (":9100", local(9100)), ("localhost:1", local(1)), ("127.0.0.1:0", local(0)), ("off", None)],
            &["host:1", "1.2.3.4", "99999"],
        );
        check(
            endpoint_url,
            &[("http://h:9000/", "http://h:9000".to_owned()), ("https://h/s3", "https://h/s3".to_owned())],
            &["h:9000", "ftp://h", "http://", "http://a b", "http://:80"],
        );
        check(manifest_id, &[("00FF00ff00ff00ff00ff00ff00ff00ff", "00ff00ff00ff00ff00ff00ff00ff00ff".to_owned())], &["", "12", "zz"]);
    }

    #[test]
    fn a_password_in_an_endpoint_is_not_repeated() {
        let reason = endpoint_url("http://me:secret@h").unwrap_err();
        assert!(!reason.contains("secret"), "{reason}");
    }

    #[test]
    fn tiers_may_have_colons_spaces_commas_and_pluses_in_their_path() {
        let one = |path: &str| Ok(vec![("a".to_owned(), PathBuf::from(path), ByteSize(1 << 30))]);
        for path in ["/x", "/x:y", "/x y", "/x,y", "/x+y", "/x+b:/y"] {
            assert_eq!(list(&[format!("a:{path}:1GiB")], tier), one(path), "{path}");
        }
        let two = list(&["a:/x:1GiB+b:/y:2GiB".to_owned()], tier).unwrap();
        assert_eq!(two.len(), 2);
        assert_eq!(two[1], ("b".to_owned(), PathBuf::from("/y"), ByteSize(2 << 30)));
        for bad in ["a", "a:/x", "A:/x:1", ":/x:1", "a::1", "a:/x:big"] {
            assert!(list(&[bad.to_owned()], tier).is_err(), "{bad}");
        }
    }

    /// `rank=0` is an order by itself, but then `2` would have to be one.
    #[test]
    fn a_plus_within_an_order_does_not_end_it() {
        let order = |text: &str| text.parse::<crate::order::spec::OrderSpec>().map_err(|error| error.to_string());
        let ranks = |text: &str| {
            let orders = list(&[text.to_owned()], order).unwrap_or_else(|errors| panic!("{text}: {errors:?}"));
            orders.iter().map(|order| format!("{}:{}", order.kind, order.ranks_text())).collect::<Vec<_>>()
        };
        assert_eq!(ranks("torch-distributed:world=8:rank=0+2+5"), ["torch-distributed:0+2+5".to_owned()]);
        assert_eq!(
            ranks("torch-distributed:world=8:rank=0+2+sequential+torch-distributed:world=2:rank=1+"),
            ["torch-distributed:0+2", "sequential:0", "torch-distributed:1"]
        );
        // numbers that are joined belong to their key: the reason is that of the whole
        let split = "torch-random:seed=1:split=0.8+0.2:part=5:split_seed=1";
        let errors = list(&[split.to_owned()], order).unwrap_err();
        assert_eq!(errors, [order(split).unwrap_err()], "one reason");
        assert!(errors[0].contains("part"), "{errors:?}");
        let errors = list(&["torch-distributed:world=8:rank=0+wrong+sequential".to_owned()], order).unwrap_err();
        assert!(errors.len() == 1 && errors[0].contains("\"wrong\""), "{errors:?}");
    }

    #[test]
    fn the_number_that_is_no_user_is_refused() {
        check(id, &[("0", 0), ("65534", 65_534)], &["4294967295", "-1", "root", ""]);
    }

    #[test]
    fn a_comma_in_a_list_of_words_names_the_plus() {
        let errors = list(&["passthrough,readdirplus".to_owned()], kernel_feature).unwrap_err();
        assert!(errors.len() == 1 && errors[0].contains("joined by +"), "{errors:?}");
        assert_eq!(
            list(&["passthrough+keep_cache".to_owned()], kernel_feature),
            Ok(vec![KernelFeature::Passthrough, KernelFeature::KeepCache])
        );
    }

    proptest! {
        #[test]
        fn joined_or_repeated_is_the_same(picks in prop::collection::vec(0usize..6, 0..6)) {
            let words: Vec<String> = picks.iter().map(|&at| KernelFeature::ALL[at].0.to_owned()).collect();
            prop_assert_eq!(list(&words, kernel_feature), list(&[words.join("+")], kernel_feature));
        }

        #[test]
        fn no_text_breaks_a_parser(text in ".{0,40}") {
            let _ = (size(&text), switch(&text), duration(&text), count(&text), mode(&text), listen(&text), log_level(&text));
            let _ = (endpoint_url(&text), manifest_id(&text), list(&[text], tier));
        }
    }
}
