//! Range overlays: each is a key range and the properties that one entity, the owner, sets on every entity of that range.
//!
//! A range overlay is a member of a list. All range overlays of a view on one partition are in one row of the table [`RANGE_OVERLAYS`], so
//! a pass over an entity of the partition finds them by one point read. A member contains the range and all values. It therefore changes
//! exactly when the range or a value changes:
//!
//! ```text
//! {"v":1, "owner":{"pk":…,"rk":…}, "range":{"account":…,"table":…,"pk":…,"from":…,"before":…}, "set":{PROPERTY:VALUE, …}}
//! ```

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::stored::{self, FormatError, FormatVersion};
use super::{
    AccountName, Comparison, EdmValue, EntityKey, Filter, Key, Member, TableName, ViewName, odata,
};
use crate::catalog::TableRef;

/// The table of range overlays, in each account that has targets of range views.
pub const RANGE_OVERLAYS: &str = "EvenkeelRangeOverlays";
/// RowKey of the row with the range overlays on a partition.
const ROW: &str = "overlays";

/// Entities of one partition: all of them, or those in a range of row keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetRange {
    /// The account of the entities.
    pub account: AccountName,
    /// The table of the entities.
    pub table: TableName,
    /// The partition of the entities.
    pub pk: Key,
    /// First row key of the range; empty for the first of the partition.
    #[serde(default, skip_serializing_if = "Key::is_empty")]
    pub from: Key,
    /// End of the range, exclusive; absent if it reaches to the end of the partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Key>,
}

/// The properties that one entity sets on all entities of a range.
#[derive(Debug, Clone, PartialEq)]
pub struct RangeOverlay {
    /// The entity that sets the properties, a primary of the view's source.
    pub owner: EntityKey,
    /// The range.
    pub range: TargetRange,
    /// The properties to set. At least one.
    pub values: BTreeMap<String, EdmValue>,
}

/// Format version of a stored range overlay.
const VERSION: u32 = 1;

/// A stored range overlay. Members of a list are compared as text, so the fields are always in this order and the properties are sorted.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireRangeOverlay {
    v: FormatVersion<VERSION>,
    owner: EntityKey,
    range: TargetRange,
    set: BTreeMap<String, Value>,
}

/// The name of the table of range overlays.
pub fn table() -> TableName {
    #[expect(clippy::expect_used, reason = "a constant that a test checks")]
    TableName::new(RANGE_OVERLAYS).expect("a valid table name")
}

impl TargetRange {
    /// Whether an entity of the range's table is in the range.
    pub fn covers(&self, key: &EntityKey) -> bool {
        key.pk == self.pk
            && key.rk >= self.from
            && self.before.as_ref().is_none_or(|before| key.rk < *before)
    }

    /// Whether an entity can be in both ranges.
    pub fn overlaps(&self, other: &Self) -> bool {
        let ends_after_start_of = |range: &Self, other: &Self| {
            range
                .before
                .as_ref()
                .is_none_or(|before| other.from < *before)
        };
        (&self.account, &self.table, &self.pk) == (&other.account, &other.table, &other.pk)
            && ends_after_start_of(self, other)
            && ends_after_start_of(other, self)
    }

    /// Returns the filter that queries the entities of the range.
    pub fn filter(&self) -> Filter {
        let rows = |op, key: &Key| Filter::compare("RowKey", op, key.as_str());
        let mut filter = Filter::partition(&self.pk);
        if !self.from.as_str().is_empty() {
            filter = filter.and(rows(Comparison::GreaterOrEqual, &self.from));
        }
        match &self.before {
            Some(before) => filter.and(rows(Comparison::Less, before)),
            None => filter,
        }
    }
}

/// Returns the key of the row with a view's range overlays on a partition. If the row's partition key would be too long, it contains a
/// hash.
pub fn entity_key(view: &ViewName, table: &TableName, pk: &Key) -> EntityKey {
    let plain = format!("{view}~{table}~{pk}");
    let key = |pk: String| EntityKey::new(pk, ROW);
    key(plain).unwrap_or_else(|_| {
        let hash = hex::encode(Sha256::digest(pk.as_str()));
        #[expect(
            clippy::expect_used,
            reason = "a view name, a table name and 64 digits fit into a key"
        )]
        key(format!("{view}~{table}~{hash}")).expect("a short key")
    })
}

impl RangeOverlay {
    /// Whether the range contains the entity and the entity is not the owner itself. The owner is in the table `source`.
    pub fn applies_to(&self, key: &EntityKey, source: &TableRef) -> bool {
        let is_owner = self.owner == *key
            && self.range.table == source.table
            && self.range.account == source.account;
        self.range.covers(key) && !is_owner
    }

    /// Returns the list member that stores the range overlay. Equal range overlays have equal texts.
    pub fn member(&self) -> Member {
        let wire = WireRangeOverlay {
            v: FormatVersion,
            owner: self.owner.clone(),
            range: self.range.clone(),
            set: odata::encode_properties(&self.values).into_iter().collect(),
        };
        // Serialising fails only for maps whose keys are not strings.
        Member(vec![serde_json::to_string(&wire).unwrap_or_default()])
    }

    /// Parses the range overlay in a list member.
    pub fn from_member(member: &Member) -> Result<Self, FormatError> {
        let thing = || format!("the range overlay {member}");
        let malformed = |problem: String| FormatError::Malformed {
            thing: thing(),
            problem,
        };
        let [text] = member.0.as_slice() else {
            return Err(malformed(format!(
                "expected one text, found {}",
                member.0.len()
            )));
        };
        let WireRangeOverlay {
            owner, range, set, ..
        } = stored::read(text, VERSION, thing)?;
        let values = odata::decode_properties(set.into_iter().collect())
            .map_err(|error| malformed(error.to_string()))?;
        Ok(Self {
            owner,
            range,
            values,
        })
    }
}

impl fmt::Display for TargetRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({:?}", self.table, self.pk.as_str())?;
        match (self.from.as_str(), &self.before) {
            ("", None) => f.write_str(", every row)"),
            (from, None) => write!(f, ", rows from {from:?})"),
            (from, Some(before)) => write!(f, ", rows from {from:?} before {:?})", before.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(pk: &str, from: &str, before: Option<&str>) -> TargetRange {
        TargetRange {
            account: AccountName::main(),
            table: TableName::new("Employees").unwrap(),
            pk: Key::new(pk).unwrap(),
            from: Key::new(from).unwrap(),
            before: before.map(|before| Key::new(before).unwrap()),
        }
    }

    #[test]
    fn a_range_has_its_first_key_and_not_its_last() {
        let part = range("Sales", "b", Some("d"));
        let covered = |pk: &str, rk: &str| part.covers(&EntityKey::new(pk, rk).unwrap());
        assert_eq!(
            [
                covered("Sales", "a"),
                covered("Sales", "b"),
                covered("Sales", "c한"),
                covered("Sales", "d"),
                covered("Ops", "c")
            ],
            [false, true, true, false, false]
        );
        assert_eq!(
            part.filter().to_string(),
            "((PartitionKey eq 'Sales' and RowKey ge 'b') and RowKey lt 'd')"
        );
        assert!(range("Sales", "", None).covers(&EntityKey::new("Sales", "").unwrap()));
        assert_eq!(
            range("Sales", "", None).to_string(),
            "Employees(\"Sales\", every row)"
        );
    }

    #[test]
    fn ranges_overlap_if_an_entity_may_be_in_both() {
        let (first, second, all) = (
            range("Sales", "a", Some("m")),
            range("Sales", "m", Some("z")),
            range("Sales", "", None),
        );
        let overlap = |range: &TargetRange, other: &TargetRange| {
            assert_eq!(range.overlaps(other), other.overlaps(range));
            range.overlaps(other)
        };
        assert!(
            !overlap(&first, &second)
                && overlap(&first, &first)
                && overlap(&first, &all)
                && overlap(&second, &all)
        );
        assert!(
            overlap(&first, &range("Sales", "l", None)) && !overlap(&all, &range("Ops", "", None))
        );
    }

    #[test]
    fn overlays_on_one_partition_share_a_row_for_any_length_of_its_key() {
        let (view, employees) = (
            ViewName::new("names").unwrap(),
            TableName::new("Employees").unwrap(),
        );
        let of = |pk: &str| entity_key(&view, &employees, &Key::new(pk).unwrap());
        assert_eq!(of("Sales").pk.as_str(), "names~Employees~Sales");
        assert_eq!(
            of(&"x".repeat(512)).pk.as_str().len(),
            "names~Employees~".len() + 64
        );
        assert_eq!(table().as_str(), RANGE_OVERLAYS);
    }

    #[test]
    fn a_range_overlay_is_one_text_with_a_version_and_a_newer_version_is_refused() {
        let values = [
            ("Floor", EdmValue::Int32(2)),
            ("Budget", EdmValue::Int64(7)),
        ];
        let mut overlay = RangeOverlay {
            owner: EntityKey::new("Sales", "department").unwrap(),
            range: range("Sales", "", None),
            values: values.map(|(name, value)| (name.to_owned(), value)).into(),
        };
        let written = r#"{"v":1,"owner":{"pk":"Sales","rk":"department"},"range":{"account":"main","table":"Employees","pk":"Sales"},"set":{"Budget":"7","Budget@odata.type":"Edm.Int64","Floor":2}}"#;
        assert_eq!(overlay.member(), Member(vec![written.to_owned()]));
        overlay.range = range("Sales", "a", Some("c"));
        assert_eq!(
            overlay.member().0[0],
            written.replacen(
                r#""pk":"Sales"},"set""#,
                r#""pk":"Sales","from":"a","before":"c"},"set""#,
                1
            )
        );
        let newer = Member(vec![written.replacen(r#""v":1"#, r#""v":2"#, 1)]);
        let error = RangeOverlay::from_member(&newer).unwrap_err().to_string();
        assert!(
            error.starts_with("the range overlay [")
                && error.contains("version 2")
                && error.contains("Update this program"),
            "{error}"
        );
        for broken in [
            vec![],
            vec![written.to_owned(), String::new()],
            vec![written.replace("\"owner\"", "\"by\"")],
        ] {
            let error = RangeOverlay::from_member(&Member(broken)).unwrap_err();
            assert!(matches!(error, FormatError::Malformed { .. }), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_range_overlay_survives_as_a_member(
            keys in proptest::array::uniform4("[^/\\\\#?\\x00-\\x1f\\x7f-\\x9f\u{fffe}\u{ffff}]{0,12}"), open: bool, number: i64, text in ".{0,12}",
        ) {
            let [pk, rk, from, before] = &keys;
            let before = (!open && !before.is_empty()).then_some(before.as_str());
            let values = BTreeMap::from([("A".to_owned(), EdmValue::Int64(number)), ("B".to_owned(), EdmValue::String(text))]);
            let overlay = RangeOverlay { owner: EntityKey::new(pk.as_str(), rk.as_str()).unwrap(), range: range(pk, from, before), values };
            prop_assert_eq!(RangeOverlay::from_member(&overlay.member()), Ok(overlay));
        }
    }
}
