//! Claims: each is a key range and the properties that one entity sets on every entity of that range.
//!
//! A claim is a member of a list. All claims of a view on one partition are in one row of the table [`CLAIMS`], so an entity of the
//! partition finds them by one point read. A claim holds its range and all its values, so the claim changes exactly when its range or a
//! value changes:
//!
//! ```text
//! {"v":1, "of":{"pk":…,"rk":…}, "range":{"account":…,"table":…,"pk":…,"from":…,"before":…}, "set":{PROPERTY:VALUE, …}}
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

/// The table of claims, in each account that has targets of range views.
pub const CLAIMS: &str = "EvenkeelClaims";
/// RowKey of the row with the claims on a partition.
const ROW: &str = "claims";

/// Entities of one partition: all of them, or those in a range of row keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reach {
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

/// A claim of one entity on the entities of a range.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// The entity, a primary of the view's source.
    pub one: EntityKey,
    /// The range.
    pub reach: Reach,
    /// The properties to set. At least one.
    pub values: BTreeMap<String, EdmValue>,
}

/// Format version of a stored claim.
const VERSION: u32 = 1;

/// A stored claim. Claims are compared as text, so the fields are always in this order and the properties are sorted.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireClaim {
    v: FormatVersion<VERSION>,
    of: EntityKey,
    range: Reach,
    set: BTreeMap<String, Value>,
}

/// The name of the table of claims.
pub fn table() -> TableName {
    #[expect(clippy::expect_used, reason = "a constant that a test checks")]
    TableName::new(CLAIMS).expect("a valid table name")
}

impl Reach {
    /// Whether an entity of the range's table is in the range.
    pub fn covers(&self, key: &EntityKey) -> bool {
        key.pk == self.pk
            && key.rk >= self.from
            && self.before.as_ref().is_none_or(|before| key.rk < *before)
    }

    /// Whether an entity may be in both ranges.
    pub fn meets(&self, other: &Self) -> bool {
        let ends = |one: &Self, other: &Self| {
            one.before
                .as_ref()
                .is_none_or(|before| other.from < *before)
        };
        (&self.account, &self.table, &self.pk) == (&other.account, &other.table, &other.pk)
            && ends(self, other)
            && ends(other, self)
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

/// Returns the key of the row with the claims of a view on a partition. A partition key that would be too long is hashed.
pub fn place(view: &ViewName, table: &TableName, pk: &Key) -> EntityKey {
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

impl Claim {
    /// Whether the claim applies to an entity. A claim never applies to its own entity, which is in the table `source`.
    pub fn is_about(&self, key: &EntityKey, source: &TableRef) -> bool {
        let itself = self.one == *key
            && self.reach.table == source.table
            && self.reach.account == source.account;
        self.reach.covers(key) && !itself
    }

    /// Returns the list member that stores the claim. Equal claims have equal texts.
    pub fn member(&self) -> Member {
        let wire = WireClaim {
            v: FormatVersion,
            of: self.one.clone(),
            range: self.reach.clone(),
            set: odata::encode_properties(&self.values).into_iter().collect(),
        };
        // Serialising texts and numbers cannot fail.
        Member(vec![serde_json::to_string(&wire).unwrap_or_default()])
    }

    /// Parses the claim in a list member.
    pub fn of(member: &Member) -> Result<Self, FormatError> {
        let thing = || format!("the claim {member}");
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
        let WireClaim { of, range, set, .. } = stored::read(text, VERSION, thing)?;
        let values = odata::decode_properties(set.into_iter().collect())
            .map_err(|error| malformed(error.to_string()))?;
        Ok(Self {
            one: of,
            reach: range,
            values,
        })
    }
}

impl fmt::Display for Reach {
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

    fn reach(pk: &str, from: &str, before: Option<&str>) -> Reach {
        Reach {
            account: AccountName::main(),
            table: TableName::new("Employees").unwrap(),
            pk: Key::new(pk).unwrap(),
            from: Key::new(from).unwrap(),
            before: before.map(|before| Key::new(before).unwrap()),
        }
    }

    #[test]
    fn a_range_has_its_first_key_and_not_its_last() {
        let range = reach("Sales", "b", Some("d"));
        let covered = |pk: &str, rk: &str| range.covers(&EntityKey::new(pk, rk).unwrap());
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
            range.filter().to_string(),
            "((PartitionKey eq 'Sales' and RowKey ge 'b') and RowKey lt 'd')"
        );
        assert!(reach("Sales", "", None).covers(&EntityKey::new("Sales", "").unwrap()));
        assert_eq!(
            reach("Sales", "", None).to_string(),
            "Employees(\"Sales\", every row)"
        );
    }

    #[test]
    fn ranges_overlap_if_an_entity_may_be_in_both() {
        let (first, second, all) = (
            reach("Sales", "a", Some("m")),
            reach("Sales", "m", Some("z")),
            reach("Sales", "", None),
        );
        let meet = |one: &Reach, other: &Reach| {
            assert_eq!(one.meets(other), other.meets(one));
            one.meets(other)
        };
        assert!(
            !meet(&first, &second)
                && meet(&first, &first)
                && meet(&first, &all)
                && meet(&second, &all)
        );
        assert!(meet(&first, &reach("Sales", "l", None)) && !meet(&all, &reach("Ops", "", None)));
    }

    #[test]
    fn claims_on_one_partition_share_a_row_for_any_length_of_its_key() {
        let (view, employees) = (
            ViewName::new("names").unwrap(),
            TableName::new("Employees").unwrap(),
        );
        let of = |pk: &str| place(&view, &employees, &Key::new(pk).unwrap());
        assert_eq!(of("Sales").pk.as_str(), "names~Employees~Sales");
        assert_eq!(
            of(&"x".repeat(512)).pk.as_str().len(),
            "names~Employees~".len() + 64
        );
        assert_eq!(table().as_str(), CLAIMS);
    }

    #[test]
    fn a_claim_is_one_text_with_a_version_and_a_newer_version_is_refused() {
        let values = [
            ("Floor", EdmValue::Int32(2)),
            ("Budget", EdmValue::Int64(7)),
        ];
        let mut claim = Claim {
            one: EntityKey::new("Sales", "department").unwrap(),
            reach: reach("Sales", "", None),
            values: values.map(|(name, value)| (name.to_owned(), value)).into(),
        };
        let written = r#"{"v":1,"of":{"pk":"Sales","rk":"department"},"range":{"account":"main","table":"Employees","pk":"Sales"},"set":{"Budget":"7","Budget@odata.type":"Edm.Int64","Floor":2}}"#;
        assert_eq!(claim.member(), Member(vec![written.to_owned()]));
        claim.reach = reach("Sales", "a", Some("c"));
        assert_eq!(
            claim.member().0[0],
            written.replacen(
                r#""pk":"Sales"},"set""#,
                r#""pk":"Sales","from":"a","before":"c"},"set""#,
                1
            )
        );
        let newer = Member(vec![written.replacen(r#""v":1"#, r#""v":2"#, 1)]);
        let error = Claim::of(&newer).unwrap_err().to_string();
        assert!(
            error.starts_with("the claim [")
                && error.contains("version 2")
                && error.contains("Update this program"),
            "{error}"
        );
        for broken in [
            vec![],
            vec![written.to_owned(), String::new()],
            vec![written.replace("\"of\"", "\"by\"")],
        ] {
            let error = Claim::of(&Member(broken)).unwrap_err();
            assert!(matches!(error, FormatError::Malformed { .. }), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_claim_survives_as_a_member(
            keys in proptest::array::uniform4("[^/\\\\#?\\x00-\\x1f\\x7f-\\x9f\u{fffe}\u{ffff}]{0,12}"), open: bool, number: i64, text in ".{0,12}",
        ) {
            let [pk, rk, from, before] = &keys;
            let before = (!open && !before.is_empty()).then_some(before.as_str());
            let values = BTreeMap::from([("A".to_owned(), EdmValue::Int64(number)), ("B".to_owned(), EdmValue::String(text))]);
            let claim = Claim { one: EntityKey::new(pk.as_str(), rk.as_str()).unwrap(), reach: reach(pk, from, before), values };
            prop_assert_eq!(Claim::of(&claim.member()), Ok(claim));
        }
    }
}
