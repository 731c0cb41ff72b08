//! What one reader has seen of copies: never a state that their primary did not have, and none that is older than one seen before.
//! Pure.

use std::collections::BTreeMap;

use evenkeel_model::EntityKey;

/// A copy, and the primary that it says it is of.
pub(super) type SeenCopy = (&'static str, EntityKey, EntityKey);

/// Of each copy the earliest state of its primary that it may show by now, and when it was looked for last.
#[derive(Debug, Default)]
pub(super) struct SeenCopies(BTreeMap<SeenCopy, (usize, u64)>);

impl SeenCopies {
    /// When a copy was looked for last.
    pub(super) fn since(&self, copy: &SeenCopy) -> Option<u64> {
        self.0.get(copy).map(|(_, asked)| *asked)
    }

    /// Forgets what was seen of a copy: it was created anew.
    pub(super) fn forget(&mut self, copy: &SeenCopy) {
        self.0.remove(copy);
    }

    /// Takes in a copy that was looked for from a tick on. `shown`: of each state that its primary has had, the oldest first, whether
    /// the copy shows it. What is wrong, in words.
    pub(super) fn see(
        &mut self,
        copy: SeenCopy,
        asked: u64,
        shown: &[bool],
    ) -> Result<(), &'static str> {
        let earliest = self.0.get(&copy).map_or(0, |(earliest, _)| *earliest);
        match shown.iter().skip(earliest).position(|shown| *shown) {
            Some(later) => {
                self.0.insert(copy, (earliest + later, asked));
                Ok(())
            }
            None if shown.contains(&true) => {
                Err("an older state of its primary than it showed before")
            }
            None => Err("what its primary never said"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(rk: &str) -> SeenCopy {
        (
            "by_email",
            EntityKey::new("email_Sales", "ada").unwrap(),
            EntityKey::new("Sales", rk).unwrap(),
        )
    }

    #[test]
    fn a_copy_goes_through_the_states_of_its_primary_in_their_order() {
        let mut seen = SeenCopies::default();
        // Two states that look alike: it may be the first of them as long as nothing later was seen.
        assert_eq!(seen.see(copy("1"), 1, &[true, false, true]), Ok(()));
        assert_eq!(seen.see(copy("1"), 2, &[false, true, false]), Ok(()));
        assert_eq!(
            seen.see(copy("1"), 3, &[true, false, true]),
            Ok(()),
            "the later one of them"
        );
        assert_eq!(
            seen.see(copy("1"), 4, &[false, true, false]),
            Err("an older state of its primary than it showed before")
        );
        assert_eq!(
            seen.see(copy("1"), 4, &[false, false, false, false]),
            Err("what its primary never said")
        );
        assert_eq!(
            seen.see(copy("2"), 5, &[true]),
            Ok(()),
            "another owner of the same row"
        );
        assert_eq!(
            (
                seen.since(&copy("1")),
                seen.since(&copy("2")),
                seen.since(&copy("3"))
            ),
            (Some(3), Some(5), None)
        );
        seen.forget(&copy("1"));
        assert_eq!(
            seen.see(copy("1"), 6, &[true, false]),
            Ok(()),
            "created anew"
        );
    }
}
