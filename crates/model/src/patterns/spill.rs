//! A series that outgrows its row: some of its properties go into one blob together.
//!
//! Half of those that can go go at once, so that the next hundred or so merges write the row alone. Which half, and
//! the remaining capacity of a row, are decided here; `reconcile` moves it.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::entity::RESERVED_PREFIX;
use crate::model::item::OWNER_PREFIX;
use crate::model::large::Pointer;
use crate::model::{EdmValue, Entity, limits};

/// Properties of evenkeel's own that a row has room for: the two that point to blobs, its job, and those of an archive.
const OWN: usize = 7;
/// Properties that a row of such a table takes, beside those.
pub const ROW_PROPERTIES: usize = limits::PROPERTIES - OWN;

/// Number of properties of an entity beyond the capacity of its row. Those that views keep on it count as the user's
/// own do.
pub fn excess(entity: &Entity) -> usize {
    let counts = |name: &&String| !name.starts_with(RESERVED_PREFIX) || name.starts_with(OWNER_PREFIX);
    entity.properties.keys().filter(counts).count().saturating_sub(ROW_PROPERTIES)
}

/// The properties that go out of a row to make room for `excess` more: half of those that can, those that are first by name. Views
/// need those in `kept`, and a value in a blob of its own stays a pointer. `None` where all that can go is not enough.
pub fn outgoing(row: &Entity, kept: &BTreeSet<String>, excess: usize) -> Option<BTreeMap<String, EdmValue>> {
    let can = |(name, value): &(&String, &EdmValue)| !kept.contains(*name) && Pointer::of(value).is_none();
    let able: Vec<(&String, &EdmValue)> = row.user_properties().filter(can).collect();
    let out = able.len().div_ceil(2).max(excess);
    (excess > 0 && out <= able.len()).then(|| able[..out].iter().map(|(name, value)| ((*name).clone(), (*value).clone())).collect())
}

/// The properties of a row that a blob has too, with the same values: they can leave it.
pub fn covered(row: &Entity, kept: &BTreeSet<String>, blob: &BTreeMap<String, EdmValue>) -> BTreeSet<String> {
    let same = |(name, value): &(&String, &EdmValue)| !kept.contains(*name) && blob.get(*name) == Some(*value);
    row.user_properties().filter(same).map(|(name, _)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::large::{SPILLED, SPILLING};
    use crate::model::{ContainerName, EntityKey, large};

    fn series(numbers: std::ops::Range<i32>) -> Entity {
        let entity = Entity::new(EntityKey::new("meter", "day").unwrap()).with("ek_job", "x");
        numbers.fold(entity, |entity, number| entity.with(format!("M{number:04}"), number))
    }

    #[test]
    fn a_row_keeps_room_for_what_evenkeel_says_of_it() {
        assert_eq!(excess(&series(0..245)), 0);
        assert_eq!(excess(&series(0..245).with(SPILLED, "x").with(SPILLING, "y")), 0);
        assert_eq!(excess(&series(0..246).with(SPILLED, "x").with("ek_owner_v", "{}")), 2);
    }

    #[test]
    fn half_of_what_can_go_goes_the_first_by_name() {
        let kept = BTreeSet::from(["M0000".to_owned()]);
        let pointer = {
            let folder = large::ValueFolder::beside(&crate::model::BlobName::new("a").unwrap());
            Pointer::to(&folder, &ContainerName::new("large").unwrap(), "M0001", 3, large::hash(b"abc")).unwrap()
        };
        let row = series(0..250).with("M0001", pointer.to_string());
        let out = outgoing(&row, &kept, 1).unwrap();
        assert_eq!((out.len(), out.keys().next().map(String::as_str)), (124, Some("M0002")));
        assert_eq!(outgoing(&row, &kept, 200).unwrap().len(), 200);
        assert_eq!(outgoing(&row, &kept, 249), None);
        assert_eq!(outgoing(&row, &kept, 0), None);
    }

    #[test]
    fn what_was_changed_since_stays_in_the_row() {
        let row = series(0..4).with("M0001", 7);
        let blob = series(0..3).properties;
        let kept = BTreeSet::from(["M0002".to_owned()]);
        assert_eq!(covered(&row, &kept, &blob), BTreeSet::from(["M0000".to_owned()]));
    }
}
