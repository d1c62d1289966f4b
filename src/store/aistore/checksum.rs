//! AIStore's checksums that we compute, and a body that ends in an error unless its bytes have the one they should have.
//!
//! `xxhash2` is XXH64 with seed 0, 16 hex digits, big end first (`cmn/cos/cksum.go`); `md5` 32; `crc32c` (Castagnoli) 8.

use std::fmt::Write;

use futures_util::StreamExt;
use md5::{Digest, Md5};
use xxhash_rust::xxh64::Xxh64;

use crate::store::{Body, StoreError};
use crate::types::ErrorKind;

/// A kind that we can compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Xxhash2,
    Md5,
    Crc32c,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Xxhash2, Self::Md5, Self::Crc32c];

    /// AIStore's name of it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Xxhash2 => "xxhash2",
            Self::Md5 => "md5",
            Self::Crc32c => "crc32c",
        }
    }

    /// Hex digits.
    pub(super) const fn length(self) -> usize {
        match self {
            Self::Xxhash2 => 16,
            Self::Md5 => 32,
            Self::Crc32c => 8,
        }
    }

    /// The kind whose values are so long.
    pub(super) fn of_length(length: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.length() == length)
    }
}

enum State {
    Xxhash2(Box<Xxh64>),
    Md5(Box<Md5>),
    Crc32c(Box<crc_fast::Digest>),
}

/// Takes bytes and says at the end whether they are the right ones.
pub(super) struct Verifier {
    state: State,
    /// Lower-case hex.
    wanted: String,
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

impl Verifier {
    pub(super) fn new(kind: Kind, wanted: &str) -> Self {
        let state = match kind {
            Kind::Xxhash2 => State::Xxhash2(Box::new(Xxh64::new(0))),
            Kind::Md5 => State::Md5(Box::new(Md5::new())),
            Kind::Crc32c => State::Crc32c(Box::new(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))),
        };
        Self { state, wanted: wanted.to_ascii_lowercase() }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            State::Xxhash2(hash) => hash.update(bytes),
            State::Md5(hash) => hash.update(bytes),
            State::Crc32c(crc) => crc.update(bytes),
        }
    }

    /// Whether these were the bytes; else what they have.
    pub(super) fn finish(self) -> Result<(), String> {
        let found = match self.state {
            State::Xxhash2(hash) => format!("{:016x}", hash.digest()),
            State::Md5(hash) => hash.finalize().iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            }),
            State::Crc32c(crc) => format!("{:08x}", crc.finalize()),
        };
        if found == self.wanted { Ok(()) } else { Err(format!("checksum {found}, not {}", self.wanted)) }
    }
}

/// `body`, of exactly `length` bytes (which it checks itself), whose last chunk is handed out only when all of it has the right checksum.
pub(super) fn verified(what: String, body: Body, length: u64, verifier: Verifier) -> Body {
    let state = Some((body, verifier, length));
    futures_util::stream::unfold((state, what), |(state, what)| async move {
        let (mut body, mut verifier, left) = state?;
        match body.next().await? {
            Err(error) => Some((Err(error), (None, what))),
            Ok(chunk) => {
                verifier.update(&chunk);
                let left = left.saturating_sub(chunk.len() as u64);
                if left > 0 {
                    return Some((Ok(chunk), (Some((body, verifier, left)), what)));
                }
                if let Err(reason) = verifier.finish() {
                    let text = format!("{what}: the bytes that came are not the object's: {reason}");
                    return Some((Err(StoreError::new(ErrorKind::Corrupt, text)), (None, what)));
                }
                // The body itself has still to show its end.
                match body.next().await {
                    None => Some((Ok(chunk), (None, what))),
                    Some(Err(error)) => Some((Err(error), (None, what))),
                    Some(Ok(_)) => {
                        let text = format!("{what}: more bytes came than the object has");
                        Some((Err(StoreError::new(ErrorKind::Corrupt, text)), (None, what)))
                    }
                }
            }
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::stream;

    use super::*;

    /// XXH64 of "" and "abc" from the algorithm's own test vectors; MD5 from RFC 1321; CRC-32C of "123456789" from RFC 3720's annex.
    #[test]
    fn known_values() {
        for (kind, bytes, wanted) in [
            (Kind::Xxhash2, "", "ef46db3751d8e999"),
            (Kind::Xxhash2, "abc", "44bc2cf5ad770999"),
            (Kind::Md5, "abc", "900150983CD24FB0D6963F7D28E17F72"),
            (Kind::Crc32c, "123456789", "e3069283"),
        ] {
            let mut verifier = Verifier::new(kind, wanted);
            bytes.as_bytes().chunks(2).for_each(|chunk| verifier.update(chunk));
            assert_eq!(verifier.finish(), Ok(()), "{kind:?} {bytes}");
            let mut other = Verifier::new(kind, wanted);
            other.update(b"x");
            assert!(other.finish().is_err());
        }
    }

    #[tokio::test]
    async fn a_flipped_bit_is_found_before_the_last_chunk_is_out() {
        for (text, ok) in [("abc", true), ("abd", false)] {
            let chunks: Vec<_> = text.bytes().map(|byte| Ok(Bytes::from(vec![byte]))).collect();
            let body = verified("k".into(), stream::iter(chunks).boxed(), 3, Verifier::new(Kind::Xxhash2, "44bc2cf5ad770999"));
            let got: Vec<_> = body.collect().await;
            assert_eq!(got.iter().filter(|chunk| chunk.is_ok()).count(), if ok { 3 } else { 2 });
            assert_eq!(got.last().is_some_and(Result::is_ok), ok);
        }
    }
}
