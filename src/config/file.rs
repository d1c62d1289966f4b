//! The settings file: TOML, one key per setting, unknown keys refused with the nearest known one. All its errors are reported together.
//!
//! Values become the texts a flag would have, so that one parser and one error text serve flag, environment and file. (A serde struct would
//! stop at the first unknown key and could not say which was meant.)

use toml::{Table, Value};

use super::keys::{self, Kind, Layer};

/// Reads the text of a file; `name` is for the errors.
///
/// # Errors
/// All of them, each a line.
pub fn parse(text: &str, name: &str) -> Result<Layer, Vec<String>> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| vec![syntax_error(text, name, &error)])?;
    let mut layer = Layer::new();
    let mut errors = Vec::new();
    for (written, value) in &table {
        let Some(key) = keys::find(written) else {
            let meant = keys::nearest(written)
                .map_or_else(|| "`belady mount --help` names them all".to_owned(), |key| format!("did you mean {key:?}?"));
            errors.push(format!("{name}: there is no key {written:?}; {meant}"));
            continue;
        };
        match texts(key.kind, written, value) {
            Ok(values) => drop(layer.insert(key.name, values)),
            Err(error) => errors.push(format!("{name}: {written}: {error}")),
        }
    }
    if errors.is_empty() { Ok(layer) } else { Err(errors) }
}

fn syntax_error(text: &str, name: &str, error: &toml::de::Error) -> String {
    let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    format!("{name}, line {line}: {}", error.message())
}

fn texts(kind: Kind, name: &str, value: &Value) -> Result<Vec<String>, String> {
    match (kind, value) {
        (Kind::List, Value::Array(items)) if name == "order" => items.iter().map(order).collect(),
        (Kind::List, Value::Array(items)) => items.iter().map(scalar).collect(),
        // `auto` is the default of some switches: it depends on another setting.
        (Kind::Switch, Value::String(text)) if text == "auto" => Ok(vec![text.clone()]),
        (Kind::Switch, Value::Boolean(_)) | (Kind::Text | Kind::Number | Kind::List, _) => Ok(vec![scalar(value)?]),
        (Kind::Switch, _) => Err("write true or false".to_owned()),
    }
}

fn scalar(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Boolean(switch) => Ok(switch.to_string()),
        other => Err(format!("a {} is not understood here: write a string", other.type_str())),
    }
}

/// One element of `order = ["kind:key=value"]` or one `[[order]]` table; the table becomes the same specification.
fn order(item: &Value) -> Result<String, String> {
    let Value::Table(table) = item else { return scalar(item) };
    let Some(Value::String(kind)) = table.get("kind") else {
        return Err("an [[order]] table needs kind = \"...\", e.g. kind = \"torch-distributed\"".to_owned());
    };
    let mut spec = kind.clone();
    for (key, value) in table.iter().filter(|(key, _)| *key != "kind") {
        let text = scalar(value).map_err(|error| format!("{key}: {error}"))?;
        // In the text, a part after a colon belongs to the value before it unless it looks like the next key.
        let like_a_key =
            |part: &str| part.split_once('=').is_some_and(|(word, _)| word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
        if text.split(':').skip(1).any(like_a_key) {
            return Err(format!("{key}: {text:?} contains `:word=`, which begins the next part of an order"));
        }
        spec += &format!(":{key}={text}");
    }
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_the_texts_of_flags() {
        let layer = parse(
            "memory = \"4GiB\"\nmax_requests = 8\nno_sign_request = true\ntier = [\"a:/a:1GiB\", \"b:/b:2GiB\"]\norder = \"auto\"\ndisk = 100",
            "x.toml",
        )
        .unwrap();
        let wanted = [
            ("memory", vec!["4GiB"]),
            ("max_requests", vec!["8"]),
            ("no_sign_request", vec!["true"]),
            ("tier", vec!["a:/a:1GiB", "b:/b:2GiB"]),
            ("order", vec!["auto"]),
            ("disk", vec!["100"]),
        ];
        assert_eq!(layer, wanted.into_iter().map(|(k, v)| (k, v.into_iter().map(str::to_owned).collect())).collect());
    }

    #[test]
    fn order_tables_are_specifications() {
        let text =
            "[[order]]\nkind = \"torch-distributed\"\nseed = 7\nrank = \"0-3\"\ndrop_last = false\n[[order]]\nkind = \"sequential\"\n";
        let orders = &parse(text, "x.toml").unwrap()["order"];
        assert!(orders[0].starts_with("torch-distributed:"), "{orders:?}");
        let mut parts: Vec<_> = orders[0].split(':').skip(1).collect();
        parts.sort_unstable();
        assert_eq!(parts, ["drop_last=false", "rank=0-3", "seed=7"]);
        assert_eq!(orders[1], "sequential");
        let list = parse("[[order]]\nkind = \"sequential\"\nfiles = \"list:/a:b\"\n", "x.toml").unwrap();
        assert_eq!(list["order"], ["sequential:files=list:/a:b"]);
        assert!(parse("[[order]]\nkind = \"list\"\nroot = \"a:seed=1\"\n", "x.toml").unwrap_err()[0].contains("next part"));
        assert!(parse("[[order]]\nseed = 1\n", "x.toml").unwrap_err()[0].contains("needs kind"));
    }

    #[test]
    fn all_errors_are_told_at_once_with_the_key_that_was_meant() {
        let errors = parse("memry = \"1GiB\"\nforeground = \"perhaps\"\nlisten = 1.5\n", "x.toml").unwrap_err();
        assert_eq!(errors.len(), 3, "{errors:?}");
        assert!(errors.iter().any(|e| e.contains("\"memry\"; did you mean \"memory\"?")), "{errors:?}");
    }

    #[test]
    fn syntax_errors_name_the_line() {
        let errors = parse("memory = \"1GiB\"\ndisk = = 3\n", "x.toml").unwrap_err();
        assert!(errors.len() == 1 && errors[0].starts_with("x.toml, line 2: "), "{errors:?}");
    }
}
