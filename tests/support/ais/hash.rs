//! Which target has an object: XXH64 and the rendezvous hash (HRW) of AIStore, written a second time on purpose. The client has its own;
//! if both were one, an error in it would be on both sides and no test would see it.
//!
//! Sources: XXH64 is the algorithm's specification (xxHash, "XXH64 algorithm description"); seed, names and the mix are
//! AIStore's `core/meta/hrw.go`, `cmn/cos/uuid.go` and `cmn/xoshiro256`.

/// AIStore's seed for names and nodes (`MLCG32`).
pub(crate) const HRW_SEED: u64 = 1_103_515_245;

const P1: u64 = 0x9e37_79b1_85eb_ca87;
const P2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const P3: u64 = 0x1656_67b1_9e37_79f9;
const P4: u64 = 0x85eb_ca77_c2b2_ae63;
const P5: u64 = 0x27d4_eb2f_1656_67c5;

fn round(acc: u64, lane: u64) -> u64 {
    acc.wrapping_add(lane.wrapping_mul(P2)).rotate_left(31).wrapping_mul(P1)
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes were asked for"))
}

/// XXH64 of some pieces, as if they were one.
#[derive(Clone, Debug)]
pub(crate) struct Xxh64 {
    lanes: [u64; 4],
    seed: u64,
    total: u64,
    rest: Vec<u8>,
}

impl Xxh64 {
    pub(crate) fn new(seed: u64) -> Self {
        let lanes = [seed.wrapping_add(P1).wrapping_add(P2), seed.wrapping_add(P2), seed, seed.wrapping_sub(P1)];
        Self { lanes, seed, total: 0, rest: Vec::with_capacity(32) }
    }

    fn stripe(lanes: &mut [u64; 4], stripe: &[u8]) {
        lanes[0] = round(lanes[0], word(stripe));
        lanes[1] = round(lanes[1], word(&stripe[8..]));
        lanes[2] = round(lanes[2], word(&stripe[16..]));
        lanes[3] = round(lanes[3], word(&stripe[24..]));
    }

    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        self.total += bytes.len() as u64;
        if !self.rest.is_empty() {
            let take = bytes.len().min(32 - self.rest.len());
            self.rest.extend_from_slice(&bytes[..take]);
            bytes = &bytes[take..];
            if self.rest.len() < 32 {
                return;
            }
            Self::stripe(&mut self.lanes, &self.rest);
            self.rest.clear();
        }
        let mut stripes = bytes.chunks_exact(32);
        for stripe in &mut stripes {
            Self::stripe(&mut self.lanes, stripe);
        }
        self.rest.extend_from_slice(stripes.remainder());
    }

    pub(crate) fn finish(&self) -> u64 {
        let mut hash = if self.total >= 32 {
            let [a, b, c, d] = self.lanes;
            let sum = a.rotate_left(1).wrapping_add(b.rotate_left(7)).wrapping_add(c.rotate_left(12)).wrapping_add(d.rotate_left(18));
            self.lanes.iter().fold(sum, |hash, lane| (hash ^ round(0, *lane)).wrapping_mul(P1).wrapping_add(P4))
        } else {
            self.seed.wrapping_add(P5)
        };
        hash = hash.wrapping_add(self.total);
        let mut rest = &self.rest[..];
        while rest.len() >= 8 {
            hash = (hash ^ round(0, word(rest))).rotate_left(27).wrapping_mul(P1).wrapping_add(P4);
            rest = &rest[8..];
        }
        if rest.len() >= 4 {
            let half = u64::from(u32::from_le_bytes(rest[..4].try_into().expect("four bytes are left")));
            hash = (hash ^ half.wrapping_mul(P1)).rotate_left(23).wrapping_mul(P2).wrapping_add(P3);
            rest = &rest[4..];
        }
        for byte in rest {
            hash = (hash ^ u64::from(*byte).wrapping_mul(P5)).rotate_left(11).wrapping_mul(P1);
        }
        hash = (hash ^ (hash >> 33)).wrapping_mul(P2);
        hash = (hash ^ (hash >> 29)).wrapping_mul(P3);
        hash ^ (hash >> 32)
    }
}

/// XXH64 of one piece.
pub(crate) fn xxh64(bytes: &[u8], seed: u64) -> u64 {
    let mut hash = Xxh64::new(seed);
    hash.update(bytes);
    hash.finish()
}

/// The mix over which targets compete (`xoshiro256.Hash`): splitmix64 seeds one step of xoshiro256**.
pub(crate) fn mix(seed: u64) -> u64 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let step = |z: u64| {
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
    };
    let z = step(seed.wrapping_add(GOLDEN));
    let z = step((z ^ (z >> 31)).wrapping_add(GOLDEN));
    (z ^ (z >> 31)).wrapping_mul(5).rotate_left(7).wrapping_mul(9)
}

/// The digest of a node or of an object's unique name.
pub(crate) fn digest(name: &str) -> u64 {
    xxh64(name.as_bytes(), HRW_SEED)
}

/// Index of the target that has this name, among targets of these digests and weights; `None` without targets.
///
/// A weight is what 5.2 calls placement: where any target has one, the choice is a weighted rendezvous (its own formula is not public in what
/// was read; this one is the logarithmic method, Schindelhauer and Schomaker 2005). Without weights it is upstream's.
pub(crate) fn winner(uname: &str, targets: impl IntoIterator<Item = (u64, Option<f64>)>) -> Option<usize> {
    let name = digest(uname);
    let targets: Vec<_> = targets.into_iter().collect();
    let drawn = targets.iter().map(|(node, _)| mix(node ^ name));
    if targets.iter().all(|(_, weight)| weight.is_none()) {
        // the first of equals, as upstream's `>` has it
        return drawn
            .enumerate()
            .fold(None, |best: Option<(usize, u64)>, (at, draw)| match best {
                Some((_, most)) if most >= draw => best,
                _ => Some((at, draw)),
            })
            .map(|(at, _)| at);
    }
    #[expect(clippy::cast_precision_loss, reason = "53 bits are enough to choose by")]
    let score = |draw: u64, weight: Option<f64>| -weight.unwrap_or(1.0) / (((draw >> 11) as f64 + 0.5) / (1_u64 << 53) as f64).ln();
    let scores = drawn.zip(&targets).map(|(draw, (_, weight))| score(draw, *weight));
    scores.enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(at, _)| at)
}
