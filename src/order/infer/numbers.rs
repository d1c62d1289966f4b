//! Numbers that people write as seeds: those of up to five digits, dates, and well-known larger ones.
//!
//! Not here: the few that are tried first and at length (`dictionary`).

use std::ops::RangeInclusive;

/// All below are tried: five digits are what people think up.
pub const SHORT: u32 = 100_000;
/// Years of dates (20231107): of births and of experiments.
const YEARS: RangeInclusive<u32> = 1990..=2035;
/// Longer ones seen in scripts: digits in a row or repeated, constants, primes, memes, `-1`.
const LONGER: [u32; 45] = [
    111_111,
    114_514,
    123_123,
    123_321,
    123_456,
    141_421,
    142_857,
    161_803,
    222_222,
    271_828,
    314_159,
    333_333,
    424_242,
    444_444,
    524_287,
    555_555,
    654_321,
    666_666,
    777_777,
    888_888,
    999_999,
    1_000_000,
    1_048_576,
    1_234_567,
    3_141_592,
    3_141_593,
    7_654_321,
    8_675_309,
    12_345_678,
    19_260_817,
    27_182_818,
    31_415_926,
    31_415_927,
    42_424_242,
    87_654_321,
    123_456_789,
    314_159_265,
    987_654_321,
    998_244_353,
    1_000_000_007,
    1_234_567_890,
    2_147_483_647,
    0xcafe_babe,
    0xdead_beef,
    0xffff_ffff,
];

/// All of them: 117,000.
#[must_use]
pub fn numbers() -> Vec<u32> {
    let dates =
        YEARS.flat_map(|year| (1..=12).flat_map(move |month| (1..=days(year, month)).map(move |day| year * 10_000 + month * 100 + day)));
    (0..SHORT).chain(dates).chain(LONGER).collect()
}

/// The Gregorian calendar, in years that 100 does not divide or 400 does.
const fn days(year: u32, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) => 29,
        2 => 28,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_digits_and_dates_are_among_them_once() {
        let mut all = numbers();
        for seed in [0, 42, 4_096, 31_337, 65_535, 99_999, 19_900_101, 20_000_229, 20_231_107, 20_351_231, u32::MAX] {
            assert!(all.contains(&seed), "{seed}");
        }
        assert!(!all.contains(&20_230_229) && !all.contains(&20_231_131));
        let many = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!((all.len(), many), (many, 100_000 + 46 * 365 + 11 + LONGER.len()));
    }
}
