//! The two forms in which a specification is written: a text of parts joined by `:`, and an `[[order]]` table.
//!
//! Text: parts separated by `:`, the kind first. A part that is not `word=...` belongs to the value before it, so that
//! `files=list:/a/b` and roots with a colon need no quoting. No value may contain a comma: `mount -o` splits there; a table may.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use crate::order::spec::pairs::refuse;
use crate::order::spec::parse::checked;
use crate::order::spec::{OrderSpec, SpecError};

impl FromStr for OrderSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        if text.contains(',') {
            return refuse(format_args!(
                "no value may contain a comma (mount splits there) in {text:?}: join ranks with +, write paths in an [[order]] table"
            ));
        }
        let mut parts = text.split(':');
        let kind = parts.next().unwrap_or_default();
        let mut pairs: Vec<(String, String)> = Vec::new();
        let mut argument: Option<String> = None;
        for part in parts {
            match (part.split_once('='), pairs.last_mut()) {
                (Some((key, value)), _) if is_word(key) => pairs.push((key.to_owned(), value.to_owned())),
                (_, Some((_, value))) => value.extend([":", part]),
                (_, None) => match &mut argument {
                    Some(text) => text.extend([":", part]),
                    None => argument = Some(part.to_owned()),
                },
            }
        }
        checked(kind, argument.as_deref(), pairs)
    }
}

fn is_word(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// A value of a table as a text: one parser for both forms.
#[derive(Deserialize)]
#[serde(untagged, expecting = "order: a value is a text, a whole number, true or false")]
enum Scalar {
    Flag(bool),
    Number(i64),
    Text(String),
}

impl<'de> Deserialize<'de> for OrderSpec {
    /// An `[[order]]` table: `kind` and the keys of the text form. Unknown keys are refused.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut table = BTreeMap::<String, Scalar>::deserialize(deserializer)?.into_iter().map(|(key, value)| match value {
            Scalar::Flag(flag) => (key, flag.to_string()),
            Scalar::Number(number) => (key, number.to_string()),
            Scalar::Text(text) => (key, text),
        });
        let mut pairs: Vec<(String, String)> = table.by_ref().collect();
        let Some(place) = pairs.iter().position(|(key, _)| key == "kind") else {
            return Err(serde::de::Error::custom("order: a table needs a kind, e.g. kind = \"torch-distributed\""));
        };
        let (_, kind) = pairs.remove(place);
        let (kind, argument) = kind.split_once(':').map_or((kind.as_str(), None), |(kind, argument)| (kind, Some(argument)));
        checked(kind, argument, pairs).map_err(serde::de::Error::custom)
    }
}
