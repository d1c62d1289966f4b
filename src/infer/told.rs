//! What readers' environments say of seed, world and ranks (`RANK`, `WORLD_SIZE`, `PL_GLOBAL_SEED`, ...). A hint and no more: the seed is one of
//! those that are tried; ranks count where opens show the same world, and none that is not among them.
//!
//! Not here: whose environment is looked at, and which names (`observe/hints`).

use std::collections::HashMap;

use crate::types::Rank;

/// Jobs that are remembered: more than a node's.
const JOBS_MAX: usize = 256;

/// What the environments of one job's processes say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    pub seed: Option<u32>,
    /// World size and the ranks of this node, rising.
    pub ranks: Option<(u32, Vec<Rank>)>,
}

impl Told {
    /// Another process of the job. Of worlds that differ the later one counts.
    fn join(&mut self, other: Self) {
        self.seed = other.seed.or(self.seed);
        match (&mut self.ranks, other.ranks) {
            (Some((world, ranks)), Some((of, more))) if *world == of => {
                ranks.extend(more);
                ranks.sort_unstable();
                ranks.dedup();
            }
            (ranks, Some(other)) => *ranks = Some(other),
            (_, None) => {}
        }
    }

    /// The ranks that read here: those that opens show, and those told of, where they agree.
    pub(super) fn ranks_with(&self, world: u32, shown: Vec<Rank>) -> Vec<Rank> {
        match &self.ranks {
            Some((of, ranks)) if *of == world && shown.iter().all(|rank| ranks.contains(rank)) => ranks.clone(),
            _ => shown,
        }
    }
}

/// By job.
#[derive(Debug, Default)]
pub(super) struct Jobs(HashMap<u64, Told>);

impl Jobs {
    pub(super) fn tell(&mut self, job: u64, told: Told) {
        if self.0.len() >= JOBS_MAX && !self.0.contains_key(&job) {
            self.0.clear();
        }
        self.0.entry(job).or_default().join(told);
    }

    /// What is told of readers that are these jobs.
    pub(super) fn of(&self, jobs: &[u64]) -> Told {
        let mut all = Told::default();
        jobs.iter().filter_map(|job| self.0.get(job)).for_each(|told| all.join(told.clone()));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(world: u32, ranks: &[Rank]) -> Told {
        Told { seed: None, ranks: Some((world, ranks.to_vec())) }
    }

    #[test]
    fn ranks_of_one_world_are_joined_and_those_of_another_replace_them() {
        let mut jobs = Jobs::default();
        jobs.tell(7, told(16, &[9]));
        jobs.tell(7, Told { seed: Some(5), ..told(16, &[8, 9]) });
        jobs.tell(8, told(16, &[10]));
        assert_eq!(jobs.of(&[7]), Told { seed: Some(5), ..told(16, &[8, 9]) });
        assert_eq!(jobs.of(&[7, 8, 3]).ranks, told(16, &[8, 9, 10]).ranks);
        jobs.tell(7, told(4, &[0]));
        assert_eq!(jobs.of(&[7]).ranks, told(4, &[0]).ranks);
    }

    #[test]
    fn they_count_where_opens_agree() {
        let told = told(16, &[8, 9, 10, 11]);
        assert_eq!(told.ranks_with(16, vec![9]), [8, 9, 10, 11]);
        assert_eq!(told.ranks_with(8, vec![1]), [1], "another world");
        assert_eq!(told.ranks_with(16, vec![3, 9]), [3, 9], "another rank reads, too");
    }
}
