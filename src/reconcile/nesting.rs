//! Nesting: before a pass closes, those that it has changed are brought in step, by passes nested in it.
//!
//! ```text
//!   pass over A: announce, write, sets properties on B
//!     pass over B: announce, write, sets properties on A ──▶ A is noted as changed, and left to the pass that is open
//!                  close
//!   another round of A, under its own announcement, then close
//! ```

use std::sync::atomic::{AtomicBool, Ordering};

use super::execute::Failure;
use crate::model::ItemAddress;
use crate::model::job::Primary;

/// A pass that others are nested in.
pub(super) struct Nesting<'a> {
    primary: &'a Primary,
    outer: Option<&'a Nesting<'a>>,
    /// It is nested there to free a key that another primary wants.
    frees: bool,
    /// A pass nested in it has changed its primary.
    changed: AtomicBool,
}

/// How the primaries that a pass has changed were brought in step.
pub(super) struct SyncedOn {
    /// That has changed the pass's own.
    pub(super) overtaken: bool,
    /// Those that failed for good, as items of the pass.
    pub(super) failed: Vec<ItemAddress>,
    /// Why.
    pub(super) failure: Option<Failure>,
}

impl<'a> Nesting<'a> {
    /// The pass over a primary, which is nested in `outer` itself.
    pub(super) const fn new(primary: &'a Primary, outer: Option<&'a Nesting<'a>>) -> Self {
        Self { primary, outer, frees: false, changed: AtomicBool::new(false) }
    }

    /// The same, around a pass over the holder of a key.
    pub(super) const fn freeing(self) -> Self {
        Self { frees: true, ..self }
    }

    /// Whether a pass in it may bring the holder of a key in step: no pass over a holder does, nor is one begun over a primary with an
    /// open one.
    pub(super) fn may_free(&self, holder: &Primary) -> bool {
        !self.frees && self.primary != holder && self.outer.is_none_or(|outer| outer.may_free(holder))
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
