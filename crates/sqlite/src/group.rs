//! Checks an entity group transaction before anything is written.

use std::collections::BTreeSet;

use evenkeel_model::{Key, limits};
use evenkeel_storage::TableOperation;

use super::entities::EncodedOperation;
use super::fault::Fault;

/// Bytes around one operation in a request to the service: boundaries, request line and headers.
/// The number is generous, so that a transaction accepted here is accepted there.
const PART_BYTES: usize = 640;

/// Checks partition, number, uniqueness, limits and size, then encodes the operations.
pub(super) fn prepare(
    pk: &Key,
    operations: &[TableOperation],
) -> Result<Vec<EncodedOperation>, Fault> {
    if operations.is_empty() {
        return Err(Fault::permanent(
            "an entity group transaction must have at least one operation",
        ));
    }
    if operations.len() > limits::TRANSACTION_OPERATIONS {
        return Err(Fault::permanent(format!(
            "the entity group transaction has {} operations; at most {} are allowed",
            operations.len(),
            limits::TRANSACTION_OPERATIONS
        )));
    }
    let mut seen = BTreeSet::new();
    for (index, operation) in operations.iter().enumerate() {
        let key = operation.key();
        if key.pk != *pk {
            return Err(Fault::permanent(format!(
                "the operation is in partition {:?}, but the entity group transaction is in {pk:?}",
                key.pk
            ))
            .at(index));
        }
        if !seen.insert(&key.rk) {
            return Err(Fault::permanent(format!(
                "the entity group transaction contains row {:?} twice",
                key.rk
            ))
            .at(index));
        }
    }
    let mut size = PART_BYTES;
    let mut prepared = Vec::with_capacity(operations.len());
    for (index, operation) in operations.iter().enumerate() {
        let entity = operation.entity().map_or(Ok(0), |entity| {
            entity.check().map_err(|error| Fault::from(error).at(index))
        })?;
        // A byte of a key may take three in a URL.
        size += entity + PART_BYTES + 3 * (pk.as_str().len() + operation.key().rk.as_str().len());
        prepared.push(EncodedOperation::encode(operation));
    }
    if size > limits::TRANSACTION_BYTES {
        return Err(Fault::too_large(format!(
            "the entity group transaction has about {size} bytes; at most {} (4 MiB) are allowed",
            limits::TRANSACTION_BYTES
        )));
    }
    Ok(prepared)
}
