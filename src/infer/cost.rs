//! What searches may cost, and what they will: pure arithmetic, so that the same opens lead to the same searches.
//!
//! What is likely and cheap is tried at once. The rest is paid for as the run goes: all searches of a group together may take [`SHARE`] of one
//! core, over the time since its first open and what its pass will still take at the pace so far. Searches through all seeds have a bound of
//! their own: they begin where the pass goes on for longer than they take.
//!
//! Not here: which step comes next (`rungs`), threads and their priority (`prefetch/searching`).

use super::job::Rung;
use crate::order::infer::lanes::CodePath;
use crate::order::infer::target::WORLD_MAX;

/// A program that reads small files takes 0.3 to 0.5 ms a file at least, 0.12 ms of it the mount's CPU (`benches/README.md`): one 1,000th of a core
/// is then under half a percent of what the mount takes by itself, and leaves room for what is free and for watching the opens.
pub(super) const SHARE: f64 = 0.001;

/// Core-seconds a seed for one target, as measured (`benches/README.md`), a tenth more for what else goes on.
const SEED_SECONDS: f64 = 8e-9;

/// How much slower than AVX-512 this processor's path is.
fn slowness() -> f64 {
    match CodePath::best() {
        CodePath::Avx512 => 1.0,
        CodePath::Avx2 => 3.4,
        CodePath::Portable => 8.7,
    }
}

/// Each further target of a search (a first place, an offset).
const TARGET: f64 = 0.05;
/// A seed that passed the gates is looked at whole.
const WHOLE_SECONDS: f64 = 1e-6;
/// A draw of a shuffle that is played one by one.
const DRAW_SECONDS: f64 = 4e-9;
/// A sample of a whole order, which is then compared: a place of a large array that is in no cache.
const SAMPLE_SECONDS: f64 = 12e-9;
/// A file in all further maps together: its name is sorted a few times.
const MAP_SECONDS: f64 = 1.3e-6;
/// A pair of the meeting in the middle.
const PAIR_SECONDS: f64 = 6e-9;

/// Seeds tried in vector code, against so many targets.
pub(super) fn seeds(seeds: f64, targets: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "some dozens")]
    let more = targets.saturating_sub(1) as f64 * TARGET;
    seeds * SEED_SECONDS * slowness() * (1.0 + more)
}

/// Those of them that pass the only gate of a first place, one in n for each of so many files, and are then played up to the next open.
pub(super) fn passing(seeds: f64, places: u32, firsts: usize, n: u32, opens: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "opens")]
    let (firsts, opens) = (firsts as f64, opens.max(1) as f64);
    let whole = WHOLE_SECONDS + samples((f64::from(n) / opens).min(f64::from(2 * WORLD_MAX)));
    seeds * f64::from(places) * firsts / f64::from(n.max(1)) * whole
}

pub(super) fn draws(draws: f64) -> f64 {
    draws * DRAW_SECONDS
}

pub(super) fn samples(samples: f64) -> f64 {
    samples * SAMPLE_SECONDS
}

pub(super) fn maps(files: u32) -> f64 {
    f64::from(files) * MAP_SECONDS
}

/// So many triples of the meeting in the middle.
pub(super) fn triples(triples: usize, n: u32) -> f64 {
    let values = 2f64.powi(32) / f64::from(n.max(1));
    #[expect(clippy::cast_precision_loss, reason = "some hundred")]
    let triples = triples as f64;
    // AVX2 takes twice as long
    triples * values * values * PAIR_SECONDS * slowness().min(2.0)
}

/// What a group has spent, and may.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    spent: f64,
}

impl Account {
    pub(super) fn spend(&mut self, seconds: f64) {
        self.spent += seconds;
    }

    /// Core-seconds left, when the group has read for `elapsed` seconds and its pass takes `rest` more.
    pub(super) fn left(&self, elapsed: f64, rest: f64) -> f64 {
        SHARE * (elapsed + rest) - self.spent
    }
}

/// What all searches of one rung over a log may take where the answer is wanted at once ([`super::InferConfig::is_quick`]), in core-seconds: four
/// such parts are some five seconds, of which two or three are mostly needed.
const QUICK_SECONDS: f64 = 1.25;
/// What one try may take of what is left: the opens that come later are searched, too.
const QUICK_SHARE: f64 = 0.5;
/// What any search takes at least, as measured: its targets and their lists of seeds.
const SEARCH_SECONDS: f64 = 2e-3;
/// Of so few files a search takes twice what it is reckoned to, of fewer in proportion more: as measured, seeds pass by chance.
const FEW_FILES: f64 = 160.0;

/// What was spent on a log whose answer is wanted at once, by rung, and on steps that are free elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quick {
    spent: [f64; Rung::ALL.len()],
    free: f64,
}

impl Quick {
    /// Takes a search among so many files down: what it was reckoned to cost, and how much of that was for steps that are free elsewhere.
    pub(super) fn spend(&mut self, rung: Rung, files: u32, seconds: f64, free: f64) {
        self.spent[rung as usize] += (seconds - free) * few(files);
        // what is known is always looked for
        self.free += if rung == Rung::Known { 0.0 } else { (free * few(files)).max(SEARCH_SECONDS) };
    }

    /// Core-seconds, as searches are reckoned, that one try of a rung may take among so many files.
    pub(super) fn left(&self, rung: Rung, files: u32) -> f64 {
        (QUICK_SECONDS - self.spent[rung as usize]) * QUICK_SHARE / few(files)
    }

    /// Whether what most scripts do is looked for still.
    pub(super) fn is_free(&self) -> bool {
        self.free < QUICK_SECONDS
    }
}

/// How many times what it is reckoned to a search takes among so many files.
fn few(files: u32) -> f64 {
    1.0 + FEW_FILES / f64::from(files.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_spent_grows_with_the_run_and_shrinks_with_what_was() {
        let mut account = Account::default();
        let small = account.left(0.1, 3.9);
        assert!((0.0035..0.0045).contains(&small), "a pass over some thousand files: {small}");
        account.spend(0.003);
        assert!(account.left(0.1, 3.9) < 0.0015);
        assert!(account.left(0.1, 1_000.0) > 0.9, "a long one");
        account.spend(1e9);
        assert!(account.left(1e6, 1e6) < 0.0);
    }

    #[test]
    fn a_quick_answer_has_a_bound_and_leaves_something_for_later_opens() {
        let mut quick = Quick::default();
        let mut all = 0.0;
        for _ in 0..1_000 {
            for rung in [Rung::Likely, Rung::Others, Rung::Meet] {
                let takes = quick.left(rung, 40) * 0.99;
                assert!(takes > 0.0);
                quick.spend(rung, 40, takes, 0.0);
                all += takes * few(40);
            }
            if quick.is_free() {
                quick.spend(Rung::Likely, 40, 0.1, 0.1);
                all += 0.1 * few(40);
            }
        }
        assert!((4.0..6.0).contains(&all) && !quick.is_free(), "{all}");
    }

    #[test]
    fn the_meeting_in_the_middle_is_cheaper_than_all_seeds_where_n_is_large() {
        let all = seeds(2f64.powi(32), 10);
        assert!(triples(5, 1_281_167) < all / 50.0 && triples(5, 60_000) > all);
    }
}
