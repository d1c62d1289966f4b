//! SHA-256 (FIPS 180-4) for comparing with recorded digests. Test-only: nothing here is secret and nothing hurries.

use std::sync::LazyLock;

/// Fractional parts of the cube roots of the first 64 primes.
static ROUND_CONSTANTS: LazyLock<[u32; 64]> = LazyLock::new(|| std::array::from_fn(|i| root_fraction(prime(i), 3)));

/// Fractional parts of the square roots of the first 8 primes.
static INITIAL_STATE: LazyLock<[u32; 8]> = LazyLock::new(|| std::array::from_fn(|i| root_fraction(prime(i), 2)));

fn prime(index: usize) -> u128 {
    (2u128..).filter(|n| (2..*n).all(|d| n % d != 0)).nth(index).expect("there is no last prime")
}

/// The first 32 bits of the fraction of `value`'s root of `degree`: floor(root · 2^32), low word.
fn root_fraction(value: u128, degree: u32) -> u32 {
    let scaled = value << (32 * degree);
    let (mut low, mut high) = (0u128, 1u128 << 38);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if middle.pow(degree) <= scaled { low = middle } else { high = middle }
    }
    low as u32
}

/// The digest, in lowercase hex.
pub(crate) fn sha256_hex(message: &[u8]) -> String {
    let mut state = *INITIAL_STATE;
    let mut padded = message.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend((message.len() as u64 * 8).to_be_bytes());
    for block in padded.chunks_exact(64) {
        compress(&mut state, block, &ROUND_CONSTANTS);
    }
    state.iter().map(|word| format!("{word:08x}")).collect()
}

fn compress(state: &mut [u32; 8], block: &[u8], constants: &[u32; 64]) {
    let mut w = [0u32; 64];
    for (word, bytes) in w.iter_mut().zip(block.chunks_exact(4)) {
        *word = u32::from_be_bytes(bytes.try_into().expect("chunks of four"));
    }
    for i in 16..64 {
        let s0 = w[i - 15].rotate_right(7) ^ w[i - 15].rotate_right(18) ^ (w[i - 15] >> 3);
        let s1 = w[i - 2].rotate_right(17) ^ w[i - 2].rotate_right(19) ^ (w[i - 2] >> 10);
        w[i] = w[i - 16].wrapping_add(s0).wrapping_add(w[i - 7]).wrapping_add(s1);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for i in 0..64 {
        let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let t1 = h.wrapping_add(s1).wrapping_add((e & f) ^ (!e & g)).wrapping_add(constants[i]).wrapping_add(w[i]);
        let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let t2 = s0.wrapping_add((a & b) ^ (a & c) ^ (b & c));
        (h, g, f, e, d, c, b, a) = (g, f, e, d.wrapping_add(t1), c, b, a, t1.wrapping_add(t2));
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *word = word.wrapping_add(add);
    }
}

#[test]
fn known_answers() {
    assert_eq!(sha256_hex(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_eq!(sha256_hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_eq!(sha256_hex(&[b'a'; 1000]), "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
}
