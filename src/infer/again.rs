//! The order of the pass before, read again: `set_epoch` forgotten, a generator seeded anew, a library nobody knows.

use std::collections::HashSet;
use std::sync::Arc;

use super::job::{Found, Search};
use super::proof;
use crate::dataset::maps::CandidateMap as Map;
use crate::order::spec::OrderKind;
use crate::plan::{EpochFiles, Seen};
use crate::types::{FileIndex, SampleRule};

/// How far opens may be spread over the front of an order: workers read a batch each, ahead of the first that is used. More workers are found when
/// more was opened.
const FRONT_PER_OPEN: usize = 4;
const FRONT_LEAST: usize = 64;
/// Files of a pass before that is worth comparing.
pub(super) const RECORDED_LEAST: usize = 256;

impl Search<'_> {
    /// The order in which files were read before.
    pub(super) fn recorded(&mut self, map: &Map) {
        let Some(recorded) = self.job.recorded.as_ref().filter(|recorded| recorded.len() >= RECORDED_LEAST) else { return };
        if !begins_again(recorded, self.job.opens()) {
            return;
        }
        let mut spec = Self::spec(map, OrderKind::List, 0);
        spec.files = SampleRule::list("recorded");
        let files = Arc::new(EpochFiles { files: recorded.to_vec(), stride: 1 });
        let evidence = proof::evidence(&files, self.job.opens(), &self.job.sizes);
        let samples: Arc<[FileIndex]> = recorded.iter().copied().collect();
        let Ok(sampler) = spec.sampler(u32::try_from(samples.len()).unwrap_or(0)) else { return };
        if evidence.proves(self.tried) {
            let (ln, why) = (evidence.ln - self.tried.ln(), "files come as they were read before".to_owned());
            self.best =
                Some((evidence.ln, Found { spec, epoch: self.job.pass, sampler, samples, files, epochs: None, ln, why, wider: None }));
        }
    }
}

/// Whether opens are at the front of the order read before. Its last files, read while the next pass had begun already, would prove it, too.
fn begins_again(recorded: &[FileIndex], opens: &[Seen]) -> bool {
    let front = (opens.len() * FRONT_PER_OPEN + FRONT_LEAST).min(recorded.len() / 2);
    let front: HashSet<FileIndex> = recorded[..front].iter().copied().collect();
    let inside = opens.iter().filter(|seen| front.contains(&seen.file)).count();
    inside * 10 >= opens.len() * 9
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::types::Outcome;

    #[test]
    fn the_end_of_a_pass_is_not_its_beginning_again() {
        let recorded: Vec<FileIndex> = (0..750).rev().map(FileIndex).collect();
        let seen = |&file: &FileIndex| Seen { now: Duration::ZERO, file, process: 1, outcome: Outcome::Miss };
        let opens = |from: usize| recorded[from..from + 32].iter().map(seen).collect::<Vec<_>>();
        assert!(begins_again(&recorded, &opens(0)) && begins_again(&recorded, &opens(100)));
        assert!(!begins_again(&recorded, &opens(718)) && !begins_again(&recorded, &opens(400)));
    }
}
