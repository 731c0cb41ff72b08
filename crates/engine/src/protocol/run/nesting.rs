//! Nesting: a pass waits for passes over other primaries. Before its announcement it waits for passes over the holders
//! of keys that it wants. Before its close it waits for passes over its followers, the primaries that it has changed:
//!
//! ```text
//!   pass over A: announce, write, sets properties on B
//!     pass over B: announce, write, sets properties on C
//!       pass over C: announce, write, close
//!     close
//!   close
//! ```
//!
//! No pass is nested in another pass over the same primary, because the inner pass would take the open announcement of
//! the outer pass for another worker's. So a job fails if entities set properties on each other in a ring. In the
//! example, that happens if C sets properties on A.

use crate::env::{LONGEST_CHAIN, Unknown};
use crate::execute::Failure;
use crate::failure::permanent;
use evenkeel_model::job::Primary;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The pass brings the run's own primary in step, or a primary that the pass below has changed.
    Follows,
    Frees,
}

/// The stack of open passes. Each pass is nested in the pass below, and only the top pass works.
pub(crate) struct Nesting(Vec<(Primary, Role)>);

/// A ring of entities: each sets properties on the next one, and the last one on the first.
#[derive(Debug, thiserror::Error)]
#[error(
    "views form a cycle of entities, {}, so the last change of the first did not reach the others. Break the cycle with a condition (`when`), or with targets = \"range\"",
    .ring.iter().map(ToString::to_string).collect::<Vec<_>>().join(" -> ")
)]
pub(crate) struct Ring {
    ring: Vec<Primary>,
    /// Whether a pass of the ring is over the holder of a wanted key. That pass fails only because of the ring, and may
    /// leave work undone.
    has_holder: bool,
}

impl Ring {
    /// Returns `true` if the failure is a [`Ring`] in which no pass after the first is over a holder. In such a ring,
    /// only the first entity may be out of step: the pass over it was already open when the last entity changed it.
    pub(crate) fn leaves_nothing_undone(failure: &Failure) -> bool {
        failure
            .cause
            .downcast_ref::<Self>()
            .is_some_and(|ring| !ring.has_holder)
    }
}

impl Nesting {
    pub(crate) fn of(primary: Primary) -> Self {
        Self(vec![(primary, Role::Follows)])
    }

    /// Opens a pass on top of the stack. Fails if a pass over the same primary is open, or if too many passes are open.
    pub(crate) fn open(&mut self, primary: &Primary, role: Role) -> Result<(), Failure> {
        if let Some(ring) = self.ring(primary, role) {
            return Err(permanent(format!("reconciling {primary}"), ring));
        }
        if self.0.len() > LONGEST_CHAIN {
            let chain = Unknown::Chain(primary.clone());
            return Err(permanent("reconciling a chain of views", chain));
        }
        self.0.push((primary.clone(), role));
        Ok(())
    }

    pub(crate) fn close(&mut self) {
        self.0.pop();
    }

    /// Whether the top pass may bring the holder of a key in step. It may not if the stack already has a pass over a
    /// holder, because one holder could lead to the next for ever. Nor may it if a lower pass is over the same holder.
    pub(crate) fn may_free(&self, holder: &Primary) -> bool {
        let below = self.0.len().saturating_sub(1);
        self.0.iter().all(|(_, role)| *role != Role::Frees)
            && self.0.iter().take(below).all(|(open, _)| open != holder)
    }

    /// The ring that a new pass over this primary would complete. It begins with the open pass over the same primary,
    /// goes up to the top of the stack, and ends with this primary again. `None` if no pass over this primary is open.
    fn ring(&self, primary: &Primary, role: Role) -> Option<Ring> {
        let first = self.0.iter().rposition(|(open, _)| open == primary)?;
        let path = || self.0.iter().skip(first);
        Some(Ring {
            ring: path()
                .map(|(open, _)| open)
                .chain([primary])
                .cloned()
                .collect(),
            has_holder: role == Role::Frees || path().skip(1).any(|(_, role)| *role == Role::Frees),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::{EntityKey, TableName};

    use Role::{Follows, Frees};

    fn primary(name: &str) -> Primary {
        Primary {
            table: TableName::new("Rows").unwrap(),
            key: EntityKey::new("p", name).unwrap(),
        }
    }

    fn stack(passes: &[(&str, Role)]) -> Nesting {
        let open = passes.iter().map(|(name, role)| (primary(name), *role));
        Nesting(open.collect())
    }

    fn may_free(passes: &[(&str, Role)], holder: &str) -> bool {
        stack(passes).may_free(&primary(holder))
    }

    fn ring(passes: &[(&str, Role)], child: (&str, Role)) -> Option<(String, bool)> {
        let ring = stack(passes).ring(&primary(child.0), child.1)?;
        let names = ring.ring.iter().map(|primary| primary.key.rk.as_str());
        let names = names.collect::<Vec<_>>().join(" ");
        Some((names, Ring::leaves_nothing_undone(&permanent("", ring))))
    }

    #[test]
    fn a_pass_frees_keys_unless_the_stack_has_a_holder_or_a_pass_over_this_one() {
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
            // Neither a pass over a holder nor a pass above it frees keys.
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
    fn a_ring_begins_at_the_innermost_pass_over_its_primary_and_leaves_work_undone_only_if_it_has_a_holder()
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
            // A pass in the middle of the ring is over a holder.
            (
                &[("a", Follows), ("h", Frees), ("c", Follows)],
                ("a", Follows),
                Some(("a h c a", false)),
            ),
            // The new pass is over a holder.
            (
                &[("a", Follows), ("b", Follows)],
                ("a", Frees),
                Some(("a b a", false)),
            ),
            // The holder is the first entity of the ring, so no later pass of the ring is over a holder.
            (
                &[("a", Follows), ("h", Frees), ("c", Follows)],
                ("h", Follows),
                Some(("h c h", true)),
            ),
        ] {
            let found = found
                .map(|(names, leaves_nothing_undone)| (names.to_owned(), leaves_nothing_undone));
            assert_eq!(ring(passes, child), found, "{passes:?}, {child:?}");
        }
    }

    #[test]
    fn nine_passes_may_be_open() {
        let mut nesting = Nesting::of(primary("0"));
        for open in 1..=9 {
            let opened = nesting.open(&primary(&open.to_string()), Follows);
            assert_eq!(opened.is_ok(), open < 9, "{open}");
        }
        nesting.close();
        assert!(nesting.open(&primary("another"), Frees).is_ok());
    }
}
