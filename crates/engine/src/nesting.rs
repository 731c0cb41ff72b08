//! Nesting: before a pass closes, those that it has changed are brought in step, by passes nested in it.
//!
//! ```text
//!   pass over A: announce, write, sets properties on B
//!     pass over B: announce, write, sets properties on C
//!       pass over C: announce, write, close
//!     close
//!   close
//! ```
//!
//! No pass is nested in another one over its primary: it would take the announcement of that one, which waits for it, for a stranger's.
//! So entities that set properties on each other end their job: C sets some on A, whose pass is open.

use std::iter::successors;

use super::execute::Failure;
use evenkeel_model::ItemAddress;
use evenkeel_model::job::Primary;

/// A pass that others are nested in.
pub(super) struct Nesting<'a> {
    primary: &'a Primary,
    outer: Option<&'a Nesting<'a>>,
    /// It is nested there to free a key that another primary wants.
    frees: bool,
}

/// How the primaries that a pass has changed were brought in step.
pub(super) struct SyncedOn {
    /// Those that failed for good, as items of the pass.
    pub(super) failed: Vec<ItemAddress>,
    /// Why.
    pub(super) failure: Option<Failure>,
}

/// Entities each of which has written on the next, the last one on the first.
#[derive(Debug, thiserror::Error)]
#[error(
    "views write round a ring of entities, {}, and nothing follows any more from what was written on the first: expected a condition (`when`) that leaves one of them out, or that one says it to all (targets = \"range\")",
    .ring.iter().map(ToString::to_string).collect::<Vec<_>>().join(" -> ")
)]
pub(super) struct Ring {
    ring: Vec<Primary>,
    /// One of them was written by the holder of a key that another of them wants, which fails for that alone.
    through_a_holder: bool,
}

impl Ring {
    /// Whether a failure is that, and leaves nothing undone but the pass that was open.
    pub(super) fn is_all(failure: &Failure) -> bool {
        failure
            .cause
            .downcast_ref::<Self>()
            .is_some_and(|ring| !ring.through_a_holder)
    }
}

impl<'a> Nesting<'a> {
    /// The pass over a primary, which is nested in `outer` itself.
    pub(super) const fn new(primary: &'a Primary, outer: Option<&'a Nesting<'a>>) -> Self {
        Self {
            primary,
            outer,
            frees: false,
        }
    }

    /// The same, around a pass over the holder of a key.
    pub(super) const fn freeing(self) -> Self {
        Self {
            frees: true,
            ..self
        }
    }

    /// This one, the one that it is nested in, and so on.
    fn outwards(&self) -> impl Iterator<Item = &Nesting<'a>> {
        successors(Some(self), |nesting| nesting.outer)
    }

    /// Whether a pass in it may bring the holder of a key in step: no pass over a holder does, nor is one begun over a primary with an
    /// open one.
    pub(super) fn may_free(&self, holder: &Primary) -> bool {
        self.outwards()
            .all(|nesting| !nesting.frees && nesting.primary != holder)
    }

    /// How many passes a pass in it is nested in.
    pub(super) fn depth(&self) -> usize {
        self.outwards().count()
    }

    /// The way from an open pass over a primary back to it, where there is one.
    pub(super) fn ring(&self, primary: &Primary) -> Option<Ring> {
        let open = self
            .outwards()
            .position(|nesting| nesting.primary == primary)?;
        let way = || self.outwards().take(open + 1);
        let ring = way()
            .map(|nesting| nesting.primary)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .chain([primary])
            .cloned()
            .collect();
        Some(Ring {
            ring,
            through_a_holder: way().any(|nesting| nesting.frees),
        })
    }
}
