//! Keys and values of a specification: known, given once, taken by the kind; and read as numbers, words and flags.

use std::fmt::Display;
use std::ops::RangeInclusive;

use crate::order::spec::{SpecError, kind, nearest};

pub(super) const U32: RangeInclusive<i128> = 0..=u32::MAX as i128;
/// Epochs: more would be computed for hours where each comes of the one before, and a million of a minute each are two years.
pub(super) const EPOCHS: RangeInclusive<i128> = 0..=1_000_000;
/// Outputs of a generator that may be passed over: some seconds.
pub(super) const OUTPUTS: RangeInclusive<i128> = 0..=10_000_000_000;
pub(super) const U64: RangeInclusive<i128> = 0..=u64::MAX as i128;

pub(super) fn refuse<T>(why: impl Display) -> Result<T, SpecError> {
    Err(SpecError(format!("order: {why}")))
}

/// Key-value pairs that are known, given once and taken by the kind.
pub(super) struct Pairs(Vec<(String, String)>);

impl Pairs {
    pub(super) fn check(name: &str, keys: &[&str], pairs: Vec<(String, String)>) -> Result<Self, SpecError> {
        for (place, (key, value)) in pairs.iter().enumerate() {
            let all = kind::all_keys();
            if !all.contains(&key.as_str()) {
                let meant = kind::meant_by(name, key).map_or_else(
                    || {
                        nearest(key, all.iter().copied())
                            .map_or_else(|| format!("the keys are {}", all.join(", ")), |k| format!("did you mean {k}?"))
                    },
                    ToOwned::to_owned,
                );
                return refuse(format_args!("unknown key {key:?}: {meant}"));
            }
            if value.chars().any(char::is_control) {
                return refuse(format_args!("{key}={value:?} has a control character: no value may (a specification is one line)"));
            }
            if pairs[..place].iter().any(|(earlier, _)| earlier == key) {
                return refuse(format_args!("{key} is given twice: give it once"));
            }
            let common = !keys.is_empty() && kind::COMMON.contains(&key.as_str());
            if !common && !keys.contains(&key.as_str()) {
                return refuse(format_args!("{key}: {name} {}", kind::objection(name, key)));
            }
        }
        Ok(Self(pairs))
    }

    #[cfg(test)]
    pub(super) const fn unchecked(pairs: Vec<(String, String)>) -> Self {
        Self(pairs)
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    pub(super) fn number<T: TryFrom<i128>>(&self, key: &str, range: RangeInclusive<i128>) -> Result<Option<T>, SpecError> {
        let Some(text) = self.get(key) else { return Ok(None) };
        let value = text.parse::<i128>().ok().filter(|value| range.contains(value)).and_then(|value| T::try_from(value).ok());
        match value {
            Some(value) => Ok(Some(value)),
            None => refuse(format_args!("{key}={text} is not a whole number from {} to {}", range.start(), range.end())),
        }
    }

    pub(super) fn flag(&self, key: &str) -> Result<bool, SpecError> {
        self.flag_or(key, false)
    }

    pub(super) fn flag_or(&self, key: &str, default: bool) -> Result<bool, SpecError> {
        match self.get(key) {
            None => Ok(default),
            Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(text) => refuse(format_args!("{key}={text} is neither true nor false: write {key}=true or {key}=false")),
        }
    }

    /// One of the words of a table.
    pub(super) fn word<T: Copy>(&self, key: &str, known: &[(&str, T)]) -> Result<Option<T>, SpecError> {
        let Some(text) = self.get(key) else { return Ok(None) };
        match known.iter().find(|(word, _)| *word == text) {
            Some((_, value)) => Ok(Some(*value)),
            None => {
                let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
                refuse(format_args!("{key}={text} is unknown: use {}", words.join(", ")))
            }
        }
    }
}
