//! The states of copies that a reader has seen. A copy must never show a state that its primary did not have, or an
//! older state than the reader saw before. This module does no I/O.

use std::collections::BTreeMap;

use evenkeel_model::EntityKey;

/// The view and key of a copy, and the primary that the copy names.
pub(super) type SeenCopy = (&'static str, EntityKey, EntityKey);

/// For each copy, the index of the earliest state of the primary that the copy may still show, and the tick of the last
/// read.
#[derive(Debug, Default)]
pub(super) struct SeenCopies(BTreeMap<SeenCopy, (usize, u64)>);

impl SeenCopies {
    pub(super) fn since(&self, copy: &SeenCopy) -> Option<u64> {
        self.0.get(copy).map(|(_, asked)| *asked)
    }

    pub(super) fn forget(&mut self, copy: &SeenCopy) {
        self.0.remove(copy);
    }

    /// Records a copy that was read after the tick `asked`. `shown` has one flag for each state of the primary, oldest
    /// first. The flag is true if the copy equals that state. An error describes a violation.
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
        // The first and the third state of the primary are equal. The copy may show either of these, until the reader
        // has seen a later state.
        assert_eq!(seen.see(copy("1"), 1, &[true, false, true]), Ok(()));
        assert_eq!(seen.see(copy("1"), 2, &[false, true, false]), Ok(()));
        assert_eq!(
            seen.see(copy("1"), 3, &[true, false, true]),
            Ok(()),
            "the third state, because the second was seen"
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
            "the row at the same key, now a copy of another primary"
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
            "after `forget`, any state is possible"
        );
    }
}
