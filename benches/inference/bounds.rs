//! What was wanted beside what was found: counted, and the misses named.

use std::fmt;

/// All bounds of a scene.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    asked: usize,
    missed: Vec<String>,
}

impl Bounds {
    /// One bound: whether it is kept, and what to say when it is not.
    pub(crate) fn check(&mut self, kept: bool, missed: impl FnOnce() -> String) {
        self.asked += 1;
        if !kept {
            self.missed.push(missed());
        }
    }

    pub(crate) fn are_kept(&self) -> bool {
        self.asked > 0 && self.missed.is_empty()
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} of {} bounds kept.", self.asked - self.missed.len(), self.asked)?;
        for missed in &self.missed {
            writeln!(f, "- **missed**: {missed}")?;
        }
        Ok(())
    }
}
