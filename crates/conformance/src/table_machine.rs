//! Compares random operations on one partition with a simple model.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_model::{ETag, Entity, Key, TableName};
use evenkeel_storage::{ErrorClass, IfMatch, Query, TableOperation};
use proptest::prelude::*;

use super::machine::check;
use super::{NO_ITEM, World, entity, key};

const CASES: u32 = 8;

#[derive(Debug, Clone)]
enum Step {
    Single(Op),
    Transaction(Vec<Op>),
}

#[derive(Debug, Clone)]
struct Op {
    verb: Verb,
    row: u8,
    property: u8,
    value: i32,
    version: Version,
}

#[derive(Debug, Clone, Copy)]
enum Verb {
    Insert,
    InsertOrReplace,
    InsertOrMerge,
    Replace,
    Merge,
    Delete,
}

#[derive(Debug, Clone, Copy)]
enum Version {
    Any,
    Current,
    Old,
}

fn ops() -> impl Strategy<Value = Op> {
    let verb = prop_oneof![
        Just(Verb::Insert),
        Just(Verb::InsertOrReplace),
        Just(Verb::InsertOrMerge),
        Just(Verb::Replace),
        Just(Verb::Merge),
        Just(Verb::Delete),
    ];
    let version =
        prop_oneof![2 => Just(Version::Any), 4 => Just(Version::Current), 1 => Just(Version::Old)];
    (verb, 0..4_u8, 0..3_u8, 0..3_i32, version).prop_map(|(verb, row, property, value, version)| {
        Op {
            verb,
            row,
            property,
            value,
            version,
        }
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![3 => ops().prop_map(Step::Single), 1 => prop::collection::vec(ops(), 1..5).prop_map(Step::Transaction)];
    prop::collection::vec(step, 1..40)
}

/// The expected rows of a table, and every ETag that was replaced.
#[derive(Clone, Default)]
struct Model {
    rows: BTreeMap<Key, (Entity, ETag)>,
    /// ETags are kept with their row, because rows that one transaction writes may share an ETag.
    old: Vec<(Key, ETag)>,
}

impl Model {
    fn retired(&self) -> Option<ETag> {
        self.old.last().map(|(_, etag)| etag.clone())
    }

    fn operation(&self, op: &Op) -> TableOperation {
        let address = key("p", &op.row.to_string());
        let entity = Entity::new(address.clone()).with(format!("P{}", op.property), op.value);
        let current = self.rows.get(&address.rk).map(|(_, etag)| etag.clone());
        let etag = match op.version {
            Version::Any => None,
            Version::Current => current.or_else(|| self.retired()),
            Version::Old => self.retired(),
        };
        let condition = etag.map_or(IfMatch::Any, IfMatch::Matches);
        match op.verb {
            Verb::Insert => TableOperation::Insert(entity),
            Verb::InsertOrReplace => TableOperation::InsertOrReplace(entity),
            Verb::InsertOrMerge => TableOperation::InsertOrMerge(entity),
            Verb::Replace => TableOperation::Replace(entity, condition),
            Verb::Merge => TableOperation::Merge(entity, condition),
            Verb::Delete => TableOperation::Delete(address, condition),
        }
    }

    /// The expected row after the operation, or the expected error.
    fn predict(&self, operation: &TableOperation) -> Result<Option<Entity>, ErrorClass> {
        let found = self.rows.get(&operation.key().rk);
        let required = |condition: &IfMatch| match (found, condition) {
            (None, _) => Err(NO_ITEM),
            (Some((_, etag)), IfMatch::Matches(wanted)) if etag != wanted => {
                Err(ErrorClass::Precondition)
            }
            (Some((entity, _)), _) => Ok(entity.clone()),
        };
        Ok(match operation {
            TableOperation::Insert(_) if found.is_some() => return Err(ErrorClass::Conflict),
            TableOperation::Insert(entity) | TableOperation::InsertOrReplace(entity) => {
                Some(entity.clone())
            }
            TableOperation::InsertOrMerge(entity) => Some(found.map_or_else(
                || entity.clone(),
                |(stored, _)| stored.clone().merged(entity),
            )),
            TableOperation::Replace(entity, condition) => {
                required(condition)?;
                Some(entity.clone())
            }
            TableOperation::Merge(entity, condition) => Some(required(condition)?.merged(entity)),
            TableOperation::Delete(_, condition) => {
                required(condition)?;
                None
            }
        })
    }

    /// Applies an operation that succeeded.
    fn accept(
        &mut self,
        operation: &TableOperation,
        outcome: Option<Entity>,
        etag: Option<ETag>,
    ) -> Result<(), String> {
        let rk = operation.key().rk.clone();
        if let Some((_, retired)) = self.rows.remove(&rk) {
            self.old.push((rk.clone(), retired));
        }
        match (outcome, etag) {
            (None, None) => Ok(()),
            (Some(_), Some(etag))
                if self
                    .old
                    .iter()
                    .any(|old| *old == (rk.clone(), etag.clone())) =>
            {
                Err(format!("row {rk} got the ETag {etag} twice"))
            }
            (Some(entity), Some(etag)) => {
                self.rows.insert(rk, (entity, etag));
                Ok(())
            }
            (outcome, etag) => Err(format!(
                "{} returned the ETag {etag:?} for the row {outcome:?}; expected both or neither",
                operation.name()
            )),
        }
    }
}

async fn step(
    world: &World,
    table: &TableName,
    model: &mut Model,
    step: &Step,
) -> Result<(), String> {
    let (is_single, ops) = match step {
        Step::Single(op) => (true, std::slice::from_ref(op)),
        Step::Transaction(ops) => (false, ops.as_slice()),
    };
    let operations = ops.iter().map(|op| model.operation(op)).collect::<Vec<_>>();
    let result = if is_single {
        world
            .account
            .tables
            .apply(table, &operations[0])
            .await
            .map(|etag| vec![etag])
            .map_err(|error| (error.class, 0))
    } else {
        let result = world
            .account
            .tables
            .transact(table, &Key::new("p").unwrap(), &operations)
            .await;
        result.map_err(|error| (error.class, error.index.unwrap_or(usize::MAX)))
    };
    let mut seen = BTreeSet::new();
    let twice = operations
        .iter()
        .position(|operation| !seen.insert(operation.key().clone()))
        .map(|at| Err((ErrorClass::Permanent, at)));
    let predicted = twice.unwrap_or_else(|| {
        operations
            .iter()
            .enumerate()
            .map(|(at, operation)| model.predict(operation).map_err(|class| (class, at)))
            .collect::<Result<Vec<_>, _>>()
    });
    match (result, predicted) {
        (Ok(etags), Ok(outcomes)) => {
            for ((operation, outcome), etag) in operations.iter().zip(outcomes).zip(etags) {
                model.accept(operation, outcome, etag)?;
            }
            Ok(())
        }
        (Err(found), Err(expected)) if found == expected => Ok(()),
        (found, expected) => Err(format!(
            "{operations:?}: expected {expected:?}, found {found:?}"
        )),
    }
}

pub async fn random_table_operations_agree_with_the_model(world: &World) {
    check(CASES, steps(), async |steps| {
        let table = world.table().await;
        let mut model = Model::default();
        for one in steps {
            step(world, &table, &mut model, one).await?;
            let stored = world.all(&table, &Query::default()).await;
            let expected = model.rows.values();
            if !stored
                .iter()
                .map(|row| (&row.entity, &row.etag))
                .eq(expected.clone().map(|(entity, etag)| (entity, etag)))
            {
                return Err(format!(
                    "after {one:?} the table holds {stored:#?}, expected {:#?}",
                    expected.collect::<Vec<_>>()
                ));
            }
        }
        // A point read agrees with the query.
        for rk in 0..4 {
            let address = entity("p", &rk.to_string()).key;
            let found = world
                .find(&table, &address)
                .await
                .map(|row| (row.entity, row.etag));
            if found.as_ref() != model.rows.get(&address.rk) {
                return Err(format!(
                    "read {found:?} at {address}, expected {:?}",
                    model.rows.get(&address.rk)
                ));
            }
        }
        Ok(())
    })
    .await;
}
