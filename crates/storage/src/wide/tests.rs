use std::cell::Cell;
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::layout::lay;
use super::row_key::{number, range};
use super::*;
use crate::{IfMatch, TableOperation};
use evenkeel_model::{ETag, EdmValue, Entity, EntityKey, Key, Row, limits, odata};

fn key() -> EntityKey {
    EntityKey::new("p", "r").unwrap()
}

/// An entity with that many small properties.
fn survey(properties: std::ops::Range<i32>) -> Entity {
    properties.fold(Entity::new(key()), |entity, n| {
        entity.with(format!("Q{n:04}"), n)
    })
}

/// A partition that applies operations as a store does: all or none.
#[derive(Default)]
struct Partition {
    rows: BTreeMap<String, Row>,
    written: u32,
}

impl Partition {
    fn transact(&mut self, operations: &[TableOperation]) {
        assert!(operations.len() <= limits::TRANSACTION_OPERATIONS);
        let bytes: usize = operations
            .iter()
            .filter_map(TableOperation::entity)
            .map(|entity| odata::encoded_len(entity) + 700)
            .sum();
        assert!(bytes <= limits::TRANSACTION_BYTES);
        for operation in operations {
            let rk = operation.key().rk.as_str().to_owned();
            let met = self.rows.get(&rk);
            let matches = |condition: &IfMatch| {
                *condition == IfMatch::Matches(met.expect("a row").etag.clone())
            };
            let entity = match operation {
                TableOperation::Insert(entity) => {
                    assert!(met.is_none(), "{rk} exists");
                    entity.clone()
                }
                TableOperation::Replace(entity, condition) => {
                    assert!(matches(condition));
                    entity.clone()
                }
                TableOperation::Merge(entity, condition) => {
                    assert!(matches(condition));
                    met.unwrap().entity.clone().merged(entity)
                }
                TableOperation::Delete(_, condition) => {
                    assert!(matches(condition));
                    self.rows.remove(&rk);
                    continue;
                }
                other => panic!("not conditional: {other:?}"),
            };
            entity.check().unwrap();
            self.written += 1;
            self.rows.insert(
                rk,
                Row {
                    entity,
                    etag: ETag::new(format!("e{}", self.written)).unwrap(),
                    timestamp: None,
                },
            );
        }
    }

    fn read(&self) -> Rows {
        let further = self
            .rows
            .values()
            .filter_map(|row| Some((number(&key().rk, &row.entity.key.rk)?, row.clone())))
            .collect();
        Rows {
            first: self.rows.get("r").cloned(),
            further,
            requests: 1,
        }
    }

    fn put(&mut self, entity: &Entity) -> Vec<TableOperation> {
        let rows = self.read();
        let plain = match rows.joined() {
            None => TableOperation::Insert(entity.clone()),
            Some(row) => TableOperation::Replace(entity.clone(), IfMatch::Matches(row.etag)),
        };
        let drawn = Cell::new(u64::from(self.written) << 8);
        let token = || {
            drawn.set(drawn.get() + 1);
            ETag::token(drawn.get())
        };
        let operations = rows.operations(&plain, entity, token).unwrap();
        self.transact(&operations);
        operations
    }

    fn homes(&self) -> BTreeMap<String, String> {
        let homes = self.rows.iter().flat_map(|(rk, row)| {
            row.entity
                .properties
                .keys()
                .map(move |name| (name.clone(), rk.clone()))
        });
        homes.filter(|(name, _)| !name.starts_with("ek_")).collect()
    }
}

#[test]
fn an_entity_that_fits_into_one_row_is_a_plain_row() {
    let mut partition = Partition::default();
    partition.put(&survey(0..252));
    assert_eq!(partition.rows.keys().collect::<Vec<_>>(), ["r"]);
    assert_eq!(partition.rows["r"].entity, survey(0..252));
}

#[test]
fn a_change_of_one_property_touches_its_row_and_the_first() {
    let mut partition = Partition::default();
    partition.put(&survey(0..600));
    assert_eq!(
        partition.rows.keys().collect::<Vec<_>>(),
        ["r", "r~1", "r~2"]
    );
    let operations = partition.put(&survey(0..600).with("Q0599", "another"));
    let touched: Vec<&str> = operations
        .iter()
        .map(|operation| operation.key().rk.as_str())
        .collect();
    assert_eq!(touched, ["r", "r~2"]);
    assert!(
        operations
            .iter()
            .all(|operation| operation.entity().unwrap().properties.len() <= 2),
        "{operations:?}"
    );
    assert_eq!(
        partition.read().joined().unwrap().entity,
        survey(0..600).with("Q0599", "another")
    );
}

#[test]
fn an_entity_that_shrinks_to_half_a_row_returns_to_one() {
    let mut partition = Partition::default();
    partition.put(&survey(0..600));
    partition.put(&survey(0..130));
    assert_eq!(
        partition.rows.keys().collect::<Vec<_>>(),
        ["r"],
        "the rows behind are empty"
    );
    partition.put(&survey(0..600));
    partition.put(&survey(500..600));
    assert_eq!(partition.rows["r"].entity, survey(500..600));
    assert_eq!(partition.rows.len(), 1);
}

#[test]
fn sizes_count_as_azure_counts_them() {
    // 20 × 32,000 characters are 640 KB as JSON, and 1.28 MB in the service.
    let long = (0..20).fold(Entity::new(key()), |entity, n| {
        entity.with(format!("P{n}"), "x".repeat(32_000))
    });
    let rows = lay(&long, &[]).unwrap();
    assert_eq!(rows.iter().map(BTreeMap::len).collect::<Vec<_>>(), [16, 4]);
    let over = (0..140).fold(Entity::new(key()), |entity, n| {
        entity.with(format!("P{n}"), "x".repeat(32_000))
    });
    assert!(lay(&over, &[]).unwrap_err().to_string().contains("4 MiB"));
    assert!(lay(&Entity::new(key()).with("a-b", 1), &[]).is_err());
}

#[test]
fn leftover_rows_are_reused_or_deleted_and_other_rows_are_left_alone() {
    let mut partition = Partition::default();
    partition.put(&survey(0..1_000));
    partition.rows.remove("r");
    partition.put(&survey(0..300));
    assert_eq!(partition.rows.keys().collect::<Vec<_>>(), ["r", "r~1"]);
    assert_eq!(partition.read().joined().unwrap().entity, survey(0..300));

    let mut partition = Partition::default();
    let stranger = Entity::new(EntityKey::new("p", "r~1").unwrap()).with("Mine", true);
    partition.transact(&[TableOperation::Insert(stranger)]);
    let wide = survey(0..300);
    let error = partition
        .read()
        .operations(&TableOperation::Insert(wide.clone()), &wide, || {
            ETag::token(1)
        })
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("row \"r~1\" does not belong to this entity"),
        "{error}"
    );
    partition.put(&survey(0..3));
    assert_eq!(
        partition.rows.len(),
        2,
        "an entity with one row is not affected"
    );
}

#[test]
fn tokens_prove_whether_rows_are_of_one_version() {
    let mut partition = Partition::default();
    partition.put(&survey(0..600));
    let old = partition.read();
    partition.put(&survey(0..600).with("Q0599", "another"));
    let new = partition.read();
    assert!(old.agree() && new.agree());
    let torn = Rows {
        first: old.first.clone(),
        ..new.clone()
    };
    assert!(!torn.agree());
    let cut = Rows {
        first: new.first,
        ..Rows::default()
    };
    assert!(!cut.agree());
}

#[test]
fn row_keys_of_further_rows_are_recognised() {
    let key = |text: &str| Key::new(text).unwrap();
    for further in ["r~1", "r~99", "~1", "a~b~7", "r~0", "r~007"] {
        assert!(is_continuation(&key(further)), "{further}");
        assert!(
            check_first(&key(further))
                .unwrap_err()
                .to_string()
                .contains("wide = true")
        );
    }
    for first in ["r", "r~", "r~a", "~", "1", "r~1a"] {
        assert!(check_first(&key(first)).is_ok(), "{first}");
    }
    let numbers = ["r~1", "r~99", "r~100", "r~0", "r~01", "rr~1", "r~1~1"]
        .map(|rk| number(&key("r"), &key(rk)));
    assert_eq!(numbers, [Some(1), Some(99), None, None, None, None, None]);
    let in_range = |rk: &str| {
        let entity = Entity::new(EntityKey::new("p", rk).unwrap());
        range(&self::key()).matches(&Row {
            entity,
            etag: ETag::new("e").unwrap(),
            timestamp: None,
        })
    };
    assert!(["r~1", "r~10", "r~99"].into_iter().all(in_range));
    assert!(
        !["r", "r1", "ra", "r~", "r~a", "s"]
            .into_iter()
            .any(in_range)
    );
}

#[test]
fn a_table_that_was_read_whole_is_joined() {
    let mut partition = Partition::default();
    partition.put(&survey(0..600));
    let other = Entity::new(EntityKey::new("p", "s").unwrap()).with("A", 1);
    partition.transact(&[TableOperation::Insert(other.clone())]);
    let whole = whole(partition.rows.into_values());
    assert_eq!(
        whole.into_iter().map(|row| row.entity).collect::<Vec<_>>(),
        [survey(0..600), other]
    );
}

/// A value: mostly small, sometimes as long as possible.
fn value() -> impl Strategy<Value = EdmValue> {
    prop_oneof![
        6 => any::<i32>().prop_map(EdmValue::from),
        2 => (0..32_768_usize).prop_map(|length| EdmValue::from("é".repeat(length))),
        1 => (0..65_536_usize).prop_map(|length| EdmValue::Binary(vec![7; length])),
        1 => any::<u128>().prop_map(|id| EdmValue::Guid(uuid::Uuid::from_u128(id))),
    ]
}

/// A change of an entity: properties to set, and whether all others are removed.
fn step() -> impl Strategy<Value = (BTreeMap<u16, EdmValue>, bool)> {
    (
        prop::collection::btree_map(0..700_u16, value(), 0..60),
        prop::bool::weighted(0.1),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_put_is_read_back_and_untouched_rows_stay(many in 0..700_i32, steps in prop::collection::vec(step(), 1..8)) {
        let mut partition = Partition::default();
        let mut entity = survey(0..many).with("ek_job", "m 2026-11-20T15:00:00Z");
        partition.put(&entity);
        for (set, anew) in steps {
            let before = (partition.homes(), partition.rows.len());
            let mut next = if anew { Entity::new(key()) } else { entity.clone() };
            for (name, value) in set {
                next = next.with(format!("Q{name:04}"), value);
            }
            if lay(&next, &[]).is_err() {
                continue;
            }
            let operations = partition.put(&next);
            prop_assert_eq!(operations[0].key(), &key());
            let read = partition.read();
            prop_assert!(read.agree());
            prop_assert_eq!(&read.joined().unwrap().entity, &next);
            // Near the limit of a transaction, the entity may be laid out anew, and all properties
            // may move.
            let roomy = odata::encoded_len(&next) < limits::TRANSACTION_BYTES / 2;
            if before.1 > 1 && partition.rows.len() > 1 && roomy {
                let homes = partition.homes();
                let unchanged = entity.properties.iter().filter(|(name, value)| next.get(name) == Some(*value));
                for (name, _) in unchanged.filter(|(name, _)| homes.contains_key(*name)) {
                    prop_assert_eq!(&homes[name], &before.0[name], "{} has moved", name);
                }
            }
            entity = next;
        }
    }
}
