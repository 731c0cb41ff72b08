//! Nesting: before a pass closes, those that it has changed are brought in step, by passes nested in it.
//!
//! ```text
//!   pass over A: announce, write, sets properties on B
//!     pass over B: announce, write, sets properties on A ──▶ A is noted as changed, and left to the pass that is open
//!                  close
//!   another round of A, under its own announcement, then close
//! ```

use std::sync::atomic::{AtomicBool, Ordering};

use crate::model::job::Primary;

/// A pass that others are nested in.
pub(super) struct Nesting<'a> {
    primary: &'a Primary,
    outer: Option<&'a Nesting<'a>>,
    /// A pass nested in it has changed its primary.
    changed: AtomicBool,
}

impl<'a> Nesting<'a> {
    /// The pass over a primary, which is nested in `outer` itself.
    pub(super) const fn new(primary: &'a Primary, outer: Option<&'a Nesting<'a>>) -> Self {
        Self { primary, outer, changed: AtomicBool::new(false) }
    }

    /// How many passes a pass in it is nested in.
    pub(super) fn depth(&self) -> u8 {
        self.outer.map_or(0, Self::depth).saturating_add(1)
    }

    /// Leaves a primary to its own pass, where that is one of these; whether it is.
    pub(super) fn leaves_to_its_own(&self, primary: &Primary) -> bool {
        if self.primary == primary {
            self.changed.store(true, Ordering::Relaxed);
            return true;
        }
        self.outer.is_some_and(|outer| outer.leaves_to_its_own(primary))
    }

    /// Whether a pass nested in it has changed its primary.
    pub(super) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Relaxed)
    }
}
