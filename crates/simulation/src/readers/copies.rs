//! What one reader has seen of copies: never a state that the primary did not have, and never an older one than before.
//! Pure.

use std::collections::BTreeMap;

use evenkeel_model::EntityKey;

/// A copy, and the primary that it names as its own.
pub(super) type SeenCopy = (&'static str, EntityKey, EntityKey);

/// For each copy, the earliest state of its primary that it may still have, and the tick of the last read.
#[derive(Debug, Default)]
pub(super) struct SeenCopies(BTreeMap<SeenCopy, (usize, u64)>);

impl SeenCopies {
    pub(super) fn since(&self, copy: &SeenCopy) -> Option<u64> {
        self.0.get(copy).map(|(_, asked)| *asked)
    }

    pub(super) fn forget(&mut self, copy: &SeenCopy) {
        self.0.remove(copy);
    }

    /// Records a copy that was read from a tick on. `shown`: for each state of its primary, the oldest first, whether
    /// the copy has it. The error describes a violation.
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
            None if shown.contains(&true) => Err("an older state of its primary than before"),
            None => Err("content that its primary never had"),
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
    fn a_copy_shows_the_states_of_its_primary_in_order() {
        let mut seen = SeenCopies::default();
        // Two equal states: the copy may have the first of them until it was seen with a later one.
        assert_eq!(seen.see(copy("1"), 1, &[true, false, true]), Ok(()));
        assert_eq!(seen.see(copy("1"), 2, &[false, true, false]), Ok(()));
        assert_eq!(
            seen.see(copy("1"), 3, &[true, false, true]),
            Ok(()),
            "the later one of them"
        );
        assert_eq!(
            seen.see(copy("1"), 4, &[false, true, false]),
            Err("an older state of its primary than before")
        );
        assert_eq!(
            seen.see(copy("1"), 4, &[false, false, false, false]),
            Err("content that its primary never had")
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
