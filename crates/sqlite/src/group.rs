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
            "an entity group transaction needs at least one operation",
        ));
    }
    if operations.len() > limits::TRANSACTION_OPERATIONS {
        return Err(Fault::permanent(format!(
            "too many operations in an entity group transaction: {}, at most {}",
            operations.len(),
            limits::TRANSACTION_OPERATIONS
        )));
    }
    let mut seen = BTreeSet::new();
    for (index, operation) in operations.iter().enumerate() {
        let key = operation.key();
        if key.pk != *pk {
            return Err(Fault::permanent(format!(
                "{key} is not in the partition {pk:?} of its entity group transaction"
            ))
            .at(index));
        }
        if !seen.insert(&key.rk) {
            return Err(Fault::permanent(format!(
                "{key} occurs twice in one entity group transaction"
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
            "entity group transaction is too large: about {size} bytes, at most {} (4 MiB)",
            limits::TRANSACTION_BYTES
        )));
    }
    Ok(prepared)
}
