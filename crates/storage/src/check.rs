//! Checks of requests before they are sent. An operation that exceeds a limit of the service is refused.

pub mod blobs;
pub mod queues;

use std::collections::BTreeSet;

use crate::{ErrorClass, Query, TableOperation, range};
use evenkeel_model::entity::EntityError;
use evenkeel_model::{EntityKey, Key, limits};

/// Upper bound of the bytes around one operation in the body of a transaction: headers of the part, the request line with the endpoint, and
/// headers of the request. The exact number depends on the name of the endpoint.
const PART_BYTES: usize = 640;
/// Maximum comparisons in one filter (Azure, "Querying tables and entities").
const COMPARISONS: usize = 15;

/// The reason why a request is not sent.
#[derive(Debug)]
pub struct Objection {
    pub class: ErrorClass,
    /// Index of the faulty operation in its transaction.
    pub index: Option<usize>,
    pub message: String,
}

impl Objection {
    fn permanent(message: impl Into<String>) -> Self {
        Self {
            class: ErrorClass::Permanent,
            index: None,
            message: message.into(),
        }
    }

    fn too_large(message: impl Into<String>) -> Self {
        Self {
            class: ErrorClass::TooLarge,
            ..Self::permanent(message)
        }
    }

    fn at(self, index: usize) -> Self {
        Self {
            index: Some(index),
            ..self
        }
    }
}

impl From<EntityError> for Objection {
    fn from(error: EntityError) -> Self {
        match error {
            EntityError::ValueTooLarge { .. } | EntityError::TooLarge { .. } => {
                Self::too_large(error.to_string())
            }
            EntityError::PropertyName(_)
            | EntityError::Character { .. }
            | EntityError::TooManyProperties { .. } => Self::permanent(error.to_string()),
        }
    }
}

/// Checks the entity of an operation, and returns its size in bytes.
pub fn operation(operation: &TableOperation) -> Result<usize, Objection> {
    Ok(operation
        .entity()
        .map_or(Ok(0), evenkeel_model::Entity::check)?)
}

/// Upper bound of the bytes that an operation takes in a transaction.
pub fn bytes_in_transaction(one: &TableOperation) -> Result<usize, Objection> {
    let key = one.key();
    // Each byte of a key takes up to three in a URL.
    operation(one)
        .map(|size| size + PART_BYTES + 3 * (key.pk.as_str().len() + key.rk.as_str().len()))
}

/// Checks the page size and the number of comparisons.
pub fn query(query: &Query) -> Result<(), Objection> {
    if let Some(top) = query
        .top
        .filter(|top| !(1..=limits::PAGE_ROWS).contains(top))
    {
        return Err(Objection::permanent(format!(
            "a page of {top} rows was requested; 1 to 1,000 are allowed"
        )));
    }
    match query.filter.as_ref().map_or(0, range::comparisons) {
        many if many > COMPARISONS => Err(Objection::permanent(format!(
            "the filter has {many} comparisons; at most 15 are allowed"
        ))),
        _ => Ok(()),
    }
}

/// Checks the number of operations, their partition, duplicates, each entity, and the total size.
pub fn transaction(pk: &Key, operations: &[TableOperation]) -> Result<(), Objection> {
    if operations.is_empty() {
        return Err(Objection::permanent(
            "an entity group transaction must have at least one operation",
        ));
    }
    if operations.len() > limits::TRANSACTION_OPERATIONS {
        return Err(Objection::permanent(format!(
            "the entity group transaction has {} operations; at most 100 are allowed",
            operations.len()
        )));
    }
    let mut rows = BTreeSet::new();
    let mut bytes = PART_BYTES;
    for (index, one) in operations.iter().enumerate() {
        let EntityKey { pk: found, rk } = one.key();
        if found != pk {
            let message = format!(
                "the operation is in partition {found:?}, but the entity group transaction is in {pk:?}"
            );
            return Err(Objection::permanent(message).at(index));
        }
        if !rows.insert(rk) {
            let message = format!("the entity group transaction contains row {rk:?} twice");
            return Err(Objection::permanent(message).at(index));
        }
        bytes += bytes_in_transaction(one).map_err(|objection| objection.at(index))?;
    }
    if bytes > limits::TRANSACTION_BYTES {
        return Err(Objection::too_large(format!(
            "the entity group transaction has about {bytes} bytes; at most 4,194,304 (4 MiB) are allowed"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IfMatch;
    use evenkeel_model::Entity;

    fn insert(pk: &str, rk: &str) -> TableOperation {
        TableOperation::Insert(Entity::new(EntityKey::new(pk, rk).unwrap()))
    }

    fn objection(operations: &[TableOperation]) -> (ErrorClass, Option<usize>) {
        let objection = transaction(&Key::new("p").unwrap(), operations).unwrap_err();
        (objection.class, objection.index)
    }

    #[test]
    fn an_operation_that_the_service_would_refuse_is_named_with_its_index() {
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
    fn the_bytes_of_all_operations_are_added_up() {
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
