//! The token for clusters with authentication: AIS_AUTHN_TOKEN, or a file (AIS_AUTHN_TOKEN_FILE) that is read again when the cluster answers 401.
//!
//! It goes to proxies only, and into no log, text or `Debug`. The `ais` command's own token file is not looked for: a token turns the direct way to the
//! targets off, and nobody should lose that for a file they have forgotten.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use http::HeaderValue;
use serde::Deserialize;

use crate::store::StoreError;
use crate::types::ErrorKind;

/// Where the token comes from.
#[derive(Clone)]
pub enum TokenSource {
    /// The bare token.
    Value(String),
    /// A file with the bare token, or with `{"token":"…"}` as AIStore's command writes it.
    File(PathBuf),
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(_) => f.write_str("Value(..)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// A token and how to get a newer one.
pub(super) struct Token {
    source: TokenSource,
    held: Mutex<HeaderValue>,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Token {
    /// Reads it for the first time.
    pub(super) fn new(source: TokenSource) -> Result<Self, StoreError> {
        let held = Mutex::new(read(&source)?);
        Ok(Self { source, held })
    }

    /// As the user would find it again.
    pub(super) fn place(&self) -> String {
        match &self.source {
            TokenSource::Value(_) => "AIS_AUTHN_TOKEN".to_owned(),
            TokenSource::File(path) => format!("AIS_AUTHN_TOKEN_FILE {}", path.display()),
        }
    }

    /// The `Authorization` header.
    pub(super) fn header(&self) -> HeaderValue {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// After `used` was refused: another one, if the file holds another by now or somebody else has read it meanwhile.
    pub(super) fn renewed(&self, used: &HeaderValue) -> Option<HeaderValue> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if *held == *used
            && let TokenSource::File(_) = &self.source
        {
            match read(&self.source) {
                Ok(token) => *held = token,
                Err(error) => tracing::warn!("the token is not renewed: {error}"),
            }
        }
        (*held != *used).then(|| held.clone())
    }
}

#[derive(Deserialize)]
struct Wire {
    token: String,
}

fn read(source: &TokenSource) -> Result<HeaderValue, StoreError> {
    let (text, place) = match source {
        TokenSource::Value(token) => (token.clone(), "AIS_AUTHN_TOKEN".to_owned()),
        TokenSource::File(path) => (read_file(path)?, format!("AIS_AUTHN_TOKEN_FILE {}", path.display())),
    };
    let token = serde_json::from_str(&text).map_or_else(|_| text.trim().to_owned(), |wire: Wire| wire.token);
    let header =
        HeaderValue::from_str(&format!("Bearer {token}")).ok().filter(|_| !token.is_empty() && !token.contains(char::is_whitespace));
    let mut header = header.ok_or_else(|| StoreError::new(ErrorKind::Denied, format!("{place}: there is no token in it")))?;
    header.set_sensitive(true);
    Ok(header)
}

fn read_file(path: &Path) -> Result<String, StoreError> {
    std::fs::read_to_string(path)
        .map_err(|error| StoreError::new(ErrorKind::Denied, format!("AIS_AUTHN_TOKEN_FILE {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotated_file_is_read_again_only_when_its_token_was_refused() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), "{\"token\":\"one\"}").expect("writes");
        let token = Token::new(TokenSource::File(file.path().into())).expect("a token");
        let one = token.header();
        assert_eq!(one, "Bearer one");
        assert_eq!(token.renewed(&one), None, "the same: the cluster's word is final");
        std::fs::write(file.path(), "two\n").expect("writes");
        assert_eq!(token.header(), "Bearer one");
        assert_eq!(token.renewed(&one).expect("a new one"), "Bearer two");
        assert_eq!(token.renewed(&one).expect("read by somebody else"), "Bearer two");
        std::fs::remove_file(file.path()).expect("removes");
        assert_eq!(token.renewed(&token.header()), None);
    }

    #[test]
    fn no_token_is_said_without_its_text() {
        assert_eq!(Token::new(TokenSource::Value("t".into())).expect("a token").renewed(&HeaderValue::from_static("Bearer t")), None);
        for text in ["", " ", "a b", "{\"token\":\"\"}", "\u{1}secret"] {
            let error = Token::new(TokenSource::Value(text.into())).expect_err("none").to_string();
            assert!(error.contains("AIS_AUTHN_TOKEN") && !error.contains("secret"), "{error}");
        }
        assert!(Token::new(TokenSource::File("/nowhere/t".into())).expect_err("missing").to_string().contains("/nowhere/t"));
        let shown = format!("{:?}", Token::new(TokenSource::Value("secret".into())).expect("a token"));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
