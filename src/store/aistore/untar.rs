//! A TAR stream cut into entries as it comes: no entry is ever held as a whole. Pure.
//!
//! Entries are told by their place, not by their name: extension headers (PAX `x` and `g`, GNU `L` and `K`) are passed over. Anything that is no regular
//! file, a header with a wrong checksum, or bytes where a header should be: the stream makes no sense from there on.

use bytes::{Buf, Bytes};
use tar::{EntryType, Header};

const BLOCK: usize = 512;
/// An extension header with a name of a few KiB is usual; this is none any more.
const EXTENSION_MAX_BYTES: u64 = 1 << 20;

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// An entry begins: its name as far as the header holds it, its bytes.
    Entry { name: Vec<u8>, size: u64 },
    /// Bytes of it.
    Data(Bytes),
    /// All its bytes came.
    EntryEnd,
    /// The end of the archive.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Header,
    Data {
        left: u64,
        padding: u64,
    },
    /// Of an extension header and its padding.
    Skip(u64),
    /// After an entry's bytes: its end has not been told, and then comes padding.
    Ended {
        padding: u64,
    },
    Done,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Untar {
    state: State,
    block: Vec<u8>,
    /// Blocks of zeros in a row: two end the archive.
    zeros: u32,
}

impl Untar {
    pub(super) const fn new() -> Self {
        Self { state: State::Header, block: Vec::new(), zeros: 0 }
    }

    /// The next event, as far as `input` goes; `None`: more bytes are needed.
    ///
    /// # Errors
    /// This is no TAR stream, or not one of ours.
    pub(super) fn next(&mut self, input: &mut Bytes) -> Result<Option<Event>, String> {
        loop {
            match self.state {
                State::Done => return Ok(None),
                State::Ended { padding } => {
                    self.state = State::Skip(padding);
                    return Ok(Some(Event::EntryEnd));
                }
                State::Data { left: 0, padding } => self.state = State::Ended { padding },
                State::Skip(0) => self.state = State::Header,
                _ if input.is_empty() => return Ok(None),
                State::Data { left, padding } => {
                    let take = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    self.state = State::Data { left: left - take as u64, padding };
                    return Ok(Some(Event::Data(input.split_to(take))));
                }
                State::Skip(left) => {
                    let take = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    input.advance(take);
                    self.state = State::Skip(left - take as u64);
                }
                State::Header => {
                    let take = (BLOCK - self.block.len()).min(input.len());
                    self.block.extend_from_slice(&input.split_to(take));
                    if self.block.len() == BLOCK {
                        let event = self.header()?;
                        self.block.clear();
                        if event.is_some() {
                            return Ok(event);
                        }
                    }
                }
            }
        }
    }

    /// Whether the archive has shown its end.
    #[cfg(test)]
    fn is_done(&self) -> bool {
        self.state == State::Done
    }

    fn header(&mut self) -> Result<Option<Event>, String> {
        if self.block.iter().all(|byte| *byte == 0) {
            self.zeros += 1;
            if self.zeros == 2 {
                self.state = State::Done;
                return Ok(Some(Event::End));
            }
            return Ok(None);
        }
        if self.zeros > 0 {
            return Err("something follows the end of the archive".to_owned());
        }
        let header = Header::from_byte_slice(&self.block);
        let sum: u32 = self.block.iter().enumerate().map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) }).sum();
        if header.cksum().ok() != Some(sum) {
            return Err("a header of the archive has a wrong checksum".to_owned());
        }
        let size = header.entry_size().map_err(|error| format!("a header of the archive has no size: {error}"))?;
        let padding = size.next_multiple_of(BLOCK as u64) - size;
        match header.entry_type() {
            EntryType::Regular | EntryType::Continuous => {
                self.state = State::Data { left: size, padding };
                Ok(Some(Event::Entry { name: header.path_bytes().into_owned(), size }))
            }
            EntryType::XHeader | EntryType::XGlobalHeader | EntryType::GNULongName | EntryType::GNULongLink
                if size <= EXTENSION_MAX_BYTES =>
            {
                self.state = State::Skip(size + padding);
                Ok(None)
            }
            other => Err(format!("an entry of the archive is no file ({other:?})")),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A header and its body, padded.
    pub(in crate::store::aistore) fn entry(name: &str, kind: EntryType, body: &[u8]) -> Vec<u8> {
        let mut header = Header::new_gnu();
        header.set_size(body.len() as u64);
        header.set_entry_type(kind);
        header.set_mode(0o644);
        let bytes = name.as_bytes();
        header.as_mut_bytes()[..bytes.len().min(100)].copy_from_slice(&bytes[..bytes.len().min(100)]);
        header.set_cksum();
        let mut all = header.as_bytes().to_vec();
        all.extend_from_slice(body);
        all.resize(all.len().next_multiple_of(BLOCK), 0);
        all
    }

    pub(in crate::store::aistore) fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut all: Vec<u8> = entries.iter().flat_map(|(name, body)| entry(name, EntryType::Regular, body)).collect();
        all.resize(all.len() + 2 * BLOCK, 0);
        all
    }

    type Entries = Vec<(String, Vec<u8>)>;

    /// Entries with their bytes; whether the end was shown.
    fn read(bytes: &[u8], step: usize) -> Result<(Entries, bool), String> {
        let mut untar = Untar::new();
        let mut entries = Entries::new();
        let mut ends = 0;
        for chunk in bytes.chunks(step) {
            let mut chunk = Bytes::copy_from_slice(chunk);
            while let Some(event) = untar.next(&mut chunk)? {
                match event {
                    Event::Entry { name, .. } => entries.push((String::from_utf8_lossy(&name).into_owned(), Vec::new())),
                    Event::Data(data) => entries.last_mut().expect("an entry").1.extend_from_slice(&data),
                    Event::EntryEnd => ends += 1,
                    Event::End => assert!(untar.is_done()),
                }
            }
        }
        assert!(ends == entries.len() || !untar.is_done());
        Ok((entries, untar.is_done()))
    }

    #[test]
    fn entries_come_in_order_however_the_stream_is_cut() {
        let big = vec![7; 3000];
        let mut bytes = entry("././@PaxHeader", EntryType::XHeader, b"30 mtime=1350244992.023960108\n");
        bytes.extend(entry("././@LongLink", EntryType::GNULongName, &[b'n'; 700]));
        bytes.extend(archive(&[("a", b"abc"), ("empty", b""), ("a", &big), ("block", &[1; 512])]));
        bytes.extend([0; 9 * BLOCK]);
        for step in [1, 7, 511, 512, 513, 4096, usize::MAX >> 1] {
            let (entries, done) = read(&bytes, step).expect("an archive");
            assert!(done);
            let sizes: Vec<_> = entries.iter().map(|(name, body)| (name.as_str(), body.len())).collect();
            assert_eq!(sizes, [("a", 3), ("empty", 0), ("a", 3000), ("block", 512)]);
            assert_eq!(entries[2].1, big);
        }
        assert_eq!(read(&archive(&[]), 512), Ok((vec![], true)), "an archive of nothing");
    }

    #[test]
    fn cuts_are_seen_and_garbage_is_refused() {
        let bytes = archive(&[("a", b"abc"), ("b", b"d")]);
        for length in [0, 100, 512, 514, 1024, 1100, 2048, 2560] {
            assert!(!read(&bytes[..length], 64).expect("so far it makes sense").1, "{length}");
        }
        let mut flipped = bytes.clone();
        flipped[3] ^= 1;
        assert!(read(&flipped, 512).is_err());
        assert!(read(&[b'x'; 512], 512).is_err());
        assert!(read(b"HTTP/1.1 500 \r\n".repeat(50).as_slice(), 99).is_err());
        for kind in [EntryType::Symlink, EntryType::Directory, EntryType::GNUSparse, EntryType::Char] {
            assert!(read(&entry("a", kind, b""), 512).is_err(), "{kind:?}");
        }
        let mut after = vec![0; BLOCK];
        after.extend(entry("a", EntryType::Regular, b"x"));
        assert!(read(&after, 512).is_err());
    }

    #[test]
    fn our_reader_agrees_with_the_crate_that_others_use() {
        let mut builder = tar::Builder::new(Vec::new());
        let long = format!("{}/x.jpg", "d".repeat(150));
        for (name, body) in [("s.jpg", b"1".as_slice()), (long.as_str(), b"22"), ("e", b"")] {
            let mut header = Header::new_ustar();
            header.set_size(body.len() as u64);
            header.set_mode(0o600);
            header.set_cksum();
            builder.append_data(&mut header, name, body).expect("appends");
        }
        let (entries, done) = read(&builder.into_inner().expect("an archive"), 100).expect("ours reads it");
        assert!(done);
        assert_eq!(entries.iter().map(|(_, body)| body.as_slice()).collect::<Vec<_>>(), [b"1".as_slice(), b"22", b""]);
    }

    proptest::proptest! {
        /// Whatever a server sends, it is entries or an error.
        #[test]
        fn no_stream_panics(bytes in proptest::collection::vec(0_u8.., 0..2000), at in 0..1536_usize, step in 1..600_usize) {
            let mut stream = archive(&[("a", b"abc")]);
            let at = at.min(stream.len());
            stream.splice(at..at, bytes);
            let _ = read(&stream, step);
        }
    }
}
