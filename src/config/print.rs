//! `--print-config`: every key with its value in force and its origin, as TOML that can be used as a file.

use std::fmt::Write;

use super::Settings;
use super::keys::Kind;
use super::resolve::{Effective, Origin};
use super::values;

/// The text.
#[must_use]
pub fn render(settings: &Settings) -> String {
    let mut out = format!("# {} on {}\n", settings.url, settings.mountpoint.display());
    for key in super::keys::KEYS {
        // Every key is asked for exactly once when settings are resolved; their order there follows the checks.
        if let Some(effective) = settings.effective.iter().find(|effective| effective.name == key.name) {
            let _ = writeln!(out, "{} = {}  # {}", effective.name, value(effective), origin(effective));
        }
    }
    out
}

fn origin(effective: &Effective) -> String {
    match &effective.origin {
        Origin::Default if effective.values.iter().all(String::is_empty) => "default: not set".to_owned(),
        other => other.to_string(),
    }
}

fn value(effective: &Effective) -> String {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let first = effective.values.first().map_or("", String::as_str);
    match effective.kind {
        Kind::Switch if let Ok(switch) = values::switch(first) => switch.to_string(),
        Kind::Number if let Ok(number) = first.parse::<u32>() => number.to_string(),
        Kind::List => {
            let items: Vec<String> = effective.values.iter().filter(|text| !text.is_empty()).map(|text| quoted(text)).collect();
            format!("[{}]", items.join(", "))
        }
        _ => quoted(first),
    }
}
