//! What a user says of an order: `kind[:key=value]...`, e.g. `torch-distributed:seed=0:world=8:rank=0-7:root=train:files=imagefolder`.

use std::str::FromStr;

use crate::order::SharedSampler;

/// A parsed and checked order specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderSpec {
    pub id: String,
    pub kind: String,
    pub root: String,
    pub files: String,
    pub seed: u64,
    pub world: u32,
    pub ranks: Vec<u32>,
    pub start: u64,
    pub epoch: u64,
}

/// Why a specification is refused: names the part and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(pub String);

impl FromStr for OrderSpec {
    type Err = SpecError;
    fn from_str(_text: &str) -> Result<Self, SpecError> {
        Err(SpecError("skeleton".to_owned()))
    }
}

impl OrderSpec {
    /// The sampler for a dataset of `n` samples.
    ///
    /// # Errors
    /// When `n` does not fit the specification.
    pub fn sampler(&self, _n: u32) -> Result<SharedSampler, SpecError> {
        Err(SpecError("skeleton".to_owned()))
    }
}
