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

/// A primary that a pass has written on, or that an item of it is: it is brought in step before that pass closes.
pub(super) struct Follower {
    pub(super) primary: Primary,
    /// The item of the pass.
    pub(super) item: ItemAddress,
}

/// How the followers of a pass were brought in step.
pub(super) struct Followed {
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

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::{EntityKey, TableName};

    /// Why a pass was begun.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Role {
        /// For its own sake, or to follow what was written on its primary.
        Follows,
        /// To free a key that the pass below wants.
        Frees,
    }

    use Role::{Follows, Frees};

    fn primary(name: &str) -> Primary {
        Primary {
            table: TableName::new("Rows").unwrap(),
            key: EntityKey::new("p", name).unwrap(),
        }
    }

    /// Asks the innermost of these passes, of which a further one is about to be begun as `child`.
    fn inside<R>(
        stack: &[(Primary, Role)],
        child: Role,
        outer: Option<&Nesting<'_>>,
        ask: &dyn Fn(Option<&Nesting<'_>>) -> R,
    ) -> R {
        let [(primary, _), above @ ..] = stack else {
            return ask(outer);
        };
        let next = above.first().map_or(child, |(_, role)| *role);
        let nesting = Nesting::new(primary, outer);
        let nesting = if next == Frees {
            nesting.freeing()
        } else {
            nesting
        };
        inside(above, child, Some(&nesting), ask)
    }

    fn stack(passes: &[(&str, Role)]) -> Vec<(Primary, Role)> {
        passes
            .iter()
            .map(|(name, role)| (primary(name), *role))
            .collect()
    }

    /// Whether the pass on top may bring a holder in step.
    fn may_free(passes: &[(&str, Role)], holder: &str) -> bool {
        let passes = stack(passes);
        let (top, below) = passes.split_last().unwrap();
        inside(below, top.1, None, &|outer| {
            outer.is_none_or(|outer| outer.may_free(&primary(holder)))
        })
    }

    /// The ring that a further pass would close: its names, and whether its failure leaves nothing undone but the pass that was open.
    fn ring(passes: &[(&str, Role)], child: (&str, Role)) -> Option<(String, bool)> {
        inside(&stack(passes), child.1, None, &|outer| {
            let ring = outer.unwrap().ring(&primary(child.0))?;
            let names = ring.ring.iter().map(|primary| primary.key.rk.as_str());
            let names = names.collect::<Vec<_>>().join(" ");
            Some((
                names,
                Ring::is_all(&super::super::failure::permanent("", ring)),
            ))
        })
    }

    #[test]
    fn a_key_is_freed_by_passes_that_no_holder_is_among_and_of_holders_without_an_open_pass() {
        for (passes, holder, may) in [
            (&[("a", Follows)][..], "h", true),
            (&[("a", Follows), ("b", Follows)], "h", true),
            (&[("a", Follows), ("b", Follows)], "a", false),
            (
                &[("a", Follows), ("b", Follows), ("c", Follows)],
                "a",
                false,
            ),
            (
                &[("a", Follows), ("b", Follows), ("c", Follows)],
                "b",
                false,
            ),
            (&[("a", Follows), ("b", Follows), ("c", Follows)], "h", true),
            // No pass over a holder, nor any above.
            (&[("a", Follows), ("h", Frees)], "g", false),
            (&[("a", Follows), ("h", Frees), ("b", Follows)], "g", false),
            (
                &[("a", Follows), ("b", Follows), ("h", Frees), ("c", Follows)],
                "g",
                false,
            ),
        ] {
            assert_eq!(may_free(passes, holder), may, "{passes:?}, {holder}");
        }
    }

    #[test]
    fn a_ring_is_told_from_the_innermost_open_pass_over_its_primary_and_is_all_that_fails_unless_a_holder_is_in_it()
     {
        for (passes, child, found) in [
            (&[("a", Follows)][..], ("b", Follows), None),
            (&[("a", Follows)], ("a", Follows), Some(("a a", true))),
            (
                &[("a", Follows), ("b", Follows)],
                ("a", Follows),
                Some(("a b a", true)),
            ),
            (
                &[("a", Follows), ("b", Follows), ("c", Follows)],
                ("b", Follows),
                Some(("b c b", true)),
            ),
            // The holder is in the ring,
            (
                &[("a", Follows), ("h", Frees), ("c", Follows)],
                ("a", Follows),
                Some(("a h c a", false)),
            ),
            // is the one about to be brought in step,
            (
                &[("a", Follows), ("b", Follows)],
                ("a", Frees),
                Some(("a b a", false)),
            ),
            // or stands outside of it.
            (
                &[("a", Follows), ("h", Frees), ("c", Follows)],
                ("h", Follows),
                Some(("h c h", true)),
            ),
        ] {
            let found = found.map(|(names, is_all)| (names.to_owned(), is_all));
            assert_eq!(ring(passes, child), found, "{passes:?}, {child:?}");
        }
    }

    #[test]
    fn the_depth_of_a_pass_is_how_many_are_open_below() {
        let passes = stack(&[("a", Follows), ("h", Frees), ("c", Follows)]);
        let depth = inside(&passes, Follows, None, &|outer| outer.unwrap().depth());
        assert_eq!(depth, 3);
    }
}
