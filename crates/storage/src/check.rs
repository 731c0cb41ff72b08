//! Checks that every table store makes before a request is sent: an operation that breaks a limit is refused unsent.

use std::collections::BTreeSet;

use crate::error::Cause;
use crate::{ErrorClass, Query, TableOperation};
use evenkeel_model::entity::EntityError;
use evenkeel_model::{Filter, Key, limits};

/// Bytes around one operation in the body of a transaction: the part's own headers, the request line with the
/// endpoint, the headers of the request. Generous; the exact figure depends on the endpoint's name.
const PART_BYTES: usize = 640;
/// Most comparisons in one filter (Azure, "Querying tables and entities": 15 discrete comparisons).
const COMPARISONS: usize = 15;

/// Why a request is not sent.
#[derive(Debug)]
pub struct Objection {
    /// Class of the error.
    pub class: ErrorClass,
    /// The operation of the transaction that is at fault.
    pub index: Option<usize>,
    /// The problem.
    pub why: Cause,
}

/// Reasons that make a transaction impossible as a whole.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum TransactionError {
    #[error("an entity group transaction needs at least one operation")]
    Empty,
    #[error("the entity group transaction has {0} operations; Azure Table storage allows 100")]
    TooMany(usize),
    #[error(
        "the operation is on the partition {found:?}; the entity group transaction is on {expected:?}"
    )]
    Partition { expected: Key, found: Key },
    #[error("the row {0:?} stands twice in the entity group transaction")]
    Duplicate(Key),
    #[error(
        "the entity group transaction has about {0} bytes; Azure Table storage allows 4,194,304 (4 MiB)"
    )]
    TooLarge(usize),
}

/// Checks the entity that an operation carries. Returns its size in bytes.
pub fn operation(operation: &TableOperation) -> Result<usize, Objection> {
    match operation.entity().map(evenkeel_model::Entity::check) {
        None => Ok(0),
        Some(Ok(size)) => Ok(size),
        Some(Err(error)) => Err(Objection {
            class: class_of(&error),
            index: None,
            why: error.into(),
        }),
    }
}

/// The bytes that an operation takes in the body of a transaction, at most.
pub fn bytes_in_transaction(one: &TableOperation) -> Result<usize, Objection> {
    let key = one.key();
    // In a URL every byte of a key takes up to three.
    operation(one)
        .map(|size| size + PART_BYTES + 3 * (key.pk.as_str().len() + key.rk.as_str().len()))
}

const fn class_of(error: &EntityError) -> ErrorClass {
    match error {
        EntityError::ValueTooLarge { .. } | EntityError::TooLarge { .. } => ErrorClass::TooLarge,
        EntityError::PropertyName(_)
        | EntityError::Character { .. }
        | EntityError::TooManyProperties { .. } => ErrorClass::Permanent,
    }
}

/// Why a query is not asked.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// No rows, or more than a page holds.
    #[error("a page of {0} rows cannot be asked for; Azure Table storage answers 1 to 1,000")]
    Top(u32),
    /// Too long a filter.
    #[error("the filter has {0} comparisons; Azure Table storage allows 15")]
    Comparisons(usize),
}

/// Checks a query: page size and length of the filter.
pub fn query(query: &Query) -> Result<(), QueryError> {
    if let Some(top) = query
        .top
        .filter(|top| !(1..=limits::PAGE_ROWS).contains(top))
    {
        return Err(QueryError::Top(top));
    }
    match query.filter.as_ref().map_or(0, comparisons) {
        many if many > COMPARISONS => Err(QueryError::Comparisons(many)),
        _ => Ok(()),
    }
}

fn comparisons(filter: &Filter) -> usize {
    match filter {
        Filter::Compare { .. } => 1,
        Filter::And(left, right) | Filter::Or(left, right) => {
            comparisons(left) + comparisons(right)
        }
        Filter::Not(inner) => comparisons(inner),
    }
}

/// Checks an entity group transaction: count, partition, duplicates, every entity, size.
pub fn transaction(pk: &Key, operations: &[TableOperation]) -> Result<(), Objection> {
    let whole = |class, why: TransactionError| Objection {
        class,
        index: None,
        why: why.into(),
    };
    if operations.is_empty() {
        return Err(whole(ErrorClass::Permanent, TransactionError::Empty));
    }
    if operations.len() > limits::TRANSACTION_OPERATIONS {
        return Err(whole(
            ErrorClass::Permanent,
            TransactionError::TooMany(operations.len()),
        ));
    }
    let mut rows = BTreeSet::new();
    let mut bytes = PART_BYTES;
    for (index, one) in operations.iter().enumerate() {
        let at = |class, why: TransactionError| Objection {
            class,
            index: Some(index),
            why: why.into(),
        };
        let key = one.key();
        if key.pk != *pk {
            return Err(at(
                ErrorClass::Permanent,
                TransactionError::Partition {
                    expected: pk.clone(),
                    found: key.pk.clone(),
                },
            ));
        }
        if !rows.insert(&key.rk) {
            return Err(at(
                ErrorClass::Permanent,
                TransactionError::Duplicate(key.rk.clone()),
            ));
        }
        bytes += bytes_in_transaction(one).map_err(|objection| Objection {
            index: Some(index),
            ..objection
        })?;
    }
    if bytes > limits::TRANSACTION_BYTES {
        Err(whole(
            ErrorClass::TooLarge,
            TransactionError::TooLarge(bytes),
        ))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IfMatch;
    use evenkeel_model::{Entity, EntityKey};

    fn insert(pk: &str, rk: &str) -> TableOperation {
        TableOperation::Insert(Entity::new(EntityKey::new(pk, rk).unwrap()))
    }

    fn objection(operations: &[TableOperation]) -> (ErrorClass, Option<usize>) {
        let objection = transaction(&Key::new("p").unwrap(), operations).unwrap_err();
        (objection.class, objection.index)
    }

    #[test]
    fn what_the_service_would_refuse_is_named_with_its_index() {
        assert_eq!(objection(&[]), (ErrorClass::Permanent, None));
        let many: Vec<_> = (0..101).map(|i| insert("p", &i.to_string())).collect();
        assert_eq!(objection(&many), (ErrorClass::Permanent, None));
        assert!(transaction(&Key::new("p").unwrap(), &many[..100]).is_ok());
        assert_eq!(
            objection(&[insert("p", "1"), insert("q", "2")]),
            (ErrorClass::Permanent, Some(1))
        );
        let delete = TableOperation::Delete(EntityKey::new("p", "1").unwrap(), IfMatch::Any);
        assert_eq!(
            objection(&[insert("p", "1"), delete]),
            (ErrorClass::Permanent, Some(1))
        );
        let bad =
            TableOperation::Insert(Entity::new(EntityKey::new("p", "2").unwrap()).with("a-b", 1));
        assert_eq!(
            objection(&[insert("p", "1"), bad]),
            (ErrorClass::Permanent, Some(1))
        );
    }

    #[test]
    fn four_mebibytes_are_counted_together() {
        let large = |rk: usize| {
            let entity = (0..20).fold(
                Entity::new(EntityKey::new("p", rk.to_string()).unwrap()),
                |e, i| e.with(format!("P{i}"), "한".repeat(10_667)),
            );
            TableOperation::InsertOrReplace(entity)
        };
        let operations: Vec<_> = (0..7).map(large).collect();
        assert_eq!(objection(&operations), (ErrorClass::TooLarge, None));
        assert!(transaction(&Key::new("p").unwrap(), &operations[..6]).is_ok());
    }
}
