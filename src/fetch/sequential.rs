//! Whether one handle reads a large object from front to back, and how far ahead that is worth fetching. Pure.
//!
//! Nothing is fetched ahead of the first reads: a program that looks at a header, an index at the end, or random records pays for what
//! it reads. A proven sequential reader gets a window that doubles up to [`WINDOW_MAX`]; short forward skips (tar readers that pass
//! over members) and reads that the kernel sends out of order keep it, a jump starts over.

use std::ops::Range;

/// First window, once two reads have followed each other.
const WINDOW_MIN: u64 = 1 << 20;
/// Largest window: 64 MiB covers 0.5 s at 1 Gb/s, beyond it more only takes room from others.
const WINDOW_MAX: u64 = 64 << 20;
/// A reader that follows within this distance, forward or backward, is still the same scan: the kernel sends 1 MiB readahead requests, several at once.
const SLACK: u64 = 4 << 20;
/// Bytes read in sequence before anything is fetched ahead: two kernel readahead requests.
const PROOF_BYTES: u64 = 256 << 10;

/// State of one handle.
#[derive(Debug, Default)]
pub struct Sequential {
    /// End of the farthest read of the scan.
    end: u64,
    /// Bytes the scan has come forward.
    run: u64,
    window: u64,
}

impl Sequential {
    /// A read of `len` bytes at `offset` of an object of `size` bytes: the range worth fetching ahead now (may be empty).
    pub fn read(&mut self, offset: u64, len: u64, size: u64) -> Range<u64> {
        let end = offset + len;
        let first = self.end == 0;
        let follows = if first { offset == 0 } else { offset <= self.end + SLACK && offset + SLACK >= self.end };
        if !follows {
            *self = Self { end, run: 0, window: 0 };
            return end..end;
        }
        self.run += end.saturating_sub(self.end.max(offset));
        self.end = self.end.max(end);
        if self.run <= PROOF_BYTES {
            return end..end;
        }
        self.window = if self.window == 0 { WINDOW_MIN } else { (self.window * 2).min(WINDOW_MAX) };
        self.end..(self.end + self.window).min(size).max(self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1 << 30;

    fn ahead(state: &mut Sequential, offset: u64, len: u64) -> u64 {
        let range = state.read(offset, len, SIZE);
        range.end - range.start
    }

    #[test]
    fn a_scan_gets_a_growing_window_that_ends_at_the_end() {
        let mut state = Sequential::default();
        let mut seen = Vec::new();
        for k in 0..12 {
            seen.push(ahead(&mut state, k * (128 << 10), 128 << 10) >> 20);
        }
        assert_eq!(seen, [0, 0, 1, 2, 4, 8, 16, 32, 64, 64, 64, 64]);
        let last = state.read(state.end, SIZE - state.end, SIZE);
        assert!(last.is_empty());
    }

    #[test]
    fn headers_tails_and_random_records_fetch_nothing_ahead() {
        let mut state = Sequential::default();
        assert_eq!(ahead(&mut state, 0, 64 << 10), 0);
        assert_eq!(ahead(&mut state, SIZE - (64 << 10), 64 << 10), 0);
        for k in [700u64, 3, 900, 12, 555] {
            assert_eq!(ahead(&mut state, k << 20, 4096), 0);
        }
    }

    #[test]
    fn short_skips_and_swapped_requests_keep_the_window() {
        let mut state = Sequential::default();
        for k in 0..8 {
            ahead(&mut state, k * (2 << 20), 1 << 20); // reads one MiB, skips one
        }
        assert_eq!(state.window, WINDOW_MAX);
        let at = state.end;
        ahead(&mut state, at + (1 << 20), 1 << 20);
        ahead(&mut state, at, 1 << 20);
        assert_eq!(state.window, WINDOW_MAX);
        ahead(&mut state, 0, 4096);
        assert_eq!(state.window, 0, "a jump back starts over");
    }
}
