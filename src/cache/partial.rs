//! placeholder
#[derive(Debug)]
pub struct PartialFile {}
