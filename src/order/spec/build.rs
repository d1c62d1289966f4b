//! From a specification to its sampler, for a dataset whose size is known.

use std::sync::Arc;

use crate::order::again::Shuffled;
use crate::order::dali::FileReader;
use crate::order::dlio::{Dlio, Loader};
use crate::order::grain::IndexShuffle;
use crate::order::numpy::Legacy;
use crate::order::pcg64::Pcg64;
use crate::order::plain::Sequential;
use crate::order::python::Seed;
use crate::order::repeat_aug::RepeatAug;
use crate::order::shard::{Block, Shard, Tail};
use crate::order::spec::{AccelerateSampler, OrderKind, OrderSpec, SpecError};
use crate::order::torch::{Random, RandomSource};
use crate::order::{Dealt, SharedSampler, Shuffle, mosaic, python, webdataset, wids};

impl OrderSpec {
    /// The sampler for a dataset of `n` samples.
    ///
    /// # Errors
    /// When `n` does not fit the specification, or it declares no order.
    pub fn sampler(&self, n: u32) -> Result<SharedSampler, SpecError> {
        if !self.kind.is_declared() {
            return Err(SpecError(format!("order {} declares no order: name a sampler, e.g. torch-distributed:seed=0", self.kind)));
        }
        let sampler = self.unchecked_sampler(n)?;
        if sampler.is_empty() {
            let remedy = if n == 0 { "check root= and files=" } else { "check world=, batch= and drop_last=" };
            return self.refuse(format_args!("no sample of {n} is left for this node to read: {remedy}"));
        }
        if self.start > sampler.len() {
            return self.refuse(format_args!(
                "start={} is beyond the {} samples that this node reads in an epoch: give epoch= for whole epochs",
                self.start,
                sampler.len()
            ));
        }
        Ok(sampler)
    }

    fn refuse<T>(&self, why: impl std::fmt::Display) -> Result<T, SpecError> {
        Err(SpecError(format!("order {}: {why}", self.id)))
    }

    fn unchecked_sampler(&self, n: u32) -> Result<SharedSampler, SpecError> {
        let subset = match &self.subset {
            Some(subset) => match subset.indices(n, self.seed) {
                Ok(indices) => Some(indices),
                Err(why) => return self.refuse(why),
            },
            None => None,
        };
        let len = subset.as_ref().map_or(n, |indices| u32::try_from(indices.len()).expect("not above n, a u32"));
        let (world, ranks) = (self.world, self.ranks.clone());
        match self.kind {
            OrderKind::Dali { .. } | OrderKind::Webdataset { .. } if subset.is_some() => {
                self.refuse(format_args!("{} reads all files: leave split and indices out", self.kind))
            }
            OrderKind::Dali { files, stick_to_shard } => Ok(Arc::new(FileReader::new(n, files, stick_to_shard, world, ranks))),
            OrderKind::Webdataset { buffer, deterministic } => {
                let workers = self.workers.unwrap_or(1).max(1);
                Ok(Arc::new(webdataset::Shards { n, seed: self.python_seed(), buffer, det: deterministic, world, ranks, workers }))
            }
            _ => {
                let before = self.subset.as_ref().map_or(0, |subset| subset.outputs(n));
                let shuffle = self.shuffle(len, before)?;
                Ok(Arc::new(Dealt { shuffle, subset: subset.map(Into::into), shard: self.shard() }))
            }
        }
    }

    /// The whole order over `n` samples, where torch's default generator had given `before` outputs to the split.
    fn shuffle(&self, n: u32, before: u64) -> Result<Arc<dyn Shuffle>, SpecError> {
        let (seed, world) = (self.seed, self.world);
        let random = |source: RandomSource| Random::whole(n, seed, source.after(before));
        Ok(match self.kind {
            OrderKind::TorchRandom { source, count } => Arc::new(Random { count, ..random(source) }),
            OrderKind::TorchSubset { offset, between } => Arc::new(random(RandomSource::Stream { offset, between })),
            OrderKind::Torchdata { offset } => {
                // With workers every other permutation is drawn by the main process and not used.
                let (first, step) = if self.workers.unwrap_or(0) == 0 { (0, 1) } else { (1, 2) };
                Arc::new(random(RandomSource::Built { offset, first, step }))
            }
            OrderKind::Accelerate { sampler, .. } => Arc::new(random(match sampler {
                AccelerateSampler::Seedable => RandomSource::Reseeded,
                // A generator that runs on also draws the unused permutation at the end of an epoch.
                AccelerateSampler::Default { offset } => RandomSource::Built { offset, first: 0, step: 2 },
                AccelerateSampler::Generator => RandomSource::Sampler,
            })),
            // Its UnrepeatedDistributedSampler seeds with the epoch alone.
            OrderKind::Lightning if self.tail == Tail::Uneven => Arc::new(Random::whole(n, 0, RandomSource::Reseeded)),
            OrderKind::TorchDistributed | OrderKind::TorchRandperm | OrderKind::Lightning | OrderKind::HfTrainer { .. } => {
                Arc::new(random(RandomSource::Reseeded))
            }
            OrderKind::TimmRepeatAug { repeats } => Arc::new(RepeatAug { n, world, repeats, seed: 0, timm: true }),
            OrderKind::TorchvisionRepeatAug { repeats } => Arc::new(RepeatAug { n, world, repeats, seed, timm: false }),
            OrderKind::NumpyLegacy { again } => Arc::new(Shuffled::<Legacy>::new(n, seed, again)),
            OrderKind::NumpyGenerator { again } => Arc::new(Shuffled::<Pcg64>::new(n, seed, again)),
            OrderKind::PythonShuffle { again } => match self.python_seed() {
                Seed::Number(seed) => Arc::new(Shuffled::<python::Random>::new(n, seed, again)),
                text @ Seed::Text(_) => Arc::new(Shuffled::of(n, python::Random::of(&text), again)),
            },
            OrderKind::PythonSample { k, .. } if k.is_some_and(|k| k > n) => {
                return self.refuse(format_args!("k={} is more than the {n} samples", k.unwrap_or(0)));
            }
            OrderKind::PythonSample { k, again } => Arc::new(python::Sample { n, k: k.unwrap_or(n), seed: self.python_seed(), again }),
            OrderKind::Mosaic { samples, .. } if n.checked_mul(samples).is_none() => {
                return self.refuse(format_args!("{n} shards of {samples} samples are more than 2^32 samples: correct shard_samples="));
            }
            OrderKind::Mosaic { algorithm, nodes, block, samples } => {
                Arc::new(mosaic::Shards { n, samples, config: mosaic::Config { algorithm, nodes, seed, block } })
            }
            OrderKind::Wids { chunk, shuffle, shuffle_first } => {
                Arc::new(wids::Chunked { n, seed, chunk, parts: world, shuffle_first, shuffle })
            }
            OrderKind::Dlio { loader: Loader::Files, .. } if !n.is_multiple_of(world) => {
                return self
                    .refuse(format_args!("{n} files do not go evenly into world={world}, and DLIO then reads some twice: not known"));
            }
            OrderKind::Dlio { loader, change } => Arc::new(Dlio { n, seed, loader, change, world }),
            OrderKind::Grain => Arc::new(IndexShuffle { n, seed: u32::try_from(seed).expect("the parser takes seeds below 2^32") }),
            OrderKind::Dali { .. } | OrderKind::Webdataset { .. } | OrderKind::Auto | OrderKind::None => {
                return self.refuse(format_args!("{} deals its samples itself", self.kind));
            }
            OrderKind::Sequential | OrderKind::List => Arc::new(Sequential { n }),
        })
    }

    fn python_seed(&self) -> Seed {
        self.seed_text.clone().map_or(Seed::Number(self.seed), Seed::Text)
    }

    /// How the order is dealt to ranks.
    #[must_use]
    pub fn shard(&self) -> Shard {
        let block = match self.kind {
            OrderKind::Accelerate { .. } | OrderKind::HfTrainer { .. } if self.world > 1 => {
                Block::Places(self.batch_of_rank().expect("the parser wants a batch where there are several processes"))
            }
            OrderKind::Wids { .. } | OrderKind::Dlio { .. } => Block::Parts,
            _ => Block::Places(1),
        };
        let batch = self.batch_of_rank().filter(|_| self.drop_last_batch);
        Shard { world: self.world, ranks: self.ranks.clone(), tail: self.tail, block, batch }
    }
}
