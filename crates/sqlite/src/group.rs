//! Entity group transactions: checks made before anything is written.

use std::collections::BTreeSet;

use evenkeel_model::{Key, limits};
use evenkeel_storage::TableOperation;

use super::entities::Encoded;
use super::fault::Fault;

/// Bytes around one operation in the service's request: boundaries, request line and headers. Rather more than
/// they are, so that a transaction that passes here passes there.
const PART_BYTES: usize = 640;

/// Checks partition, number, uniqueness, limits and size of a transaction, and encodes its operations.
pub(super) fn prepare(pk: &Key, operations: &[TableOperation]) -> Result<Vec<Encoded>, Fault> {
    if operations.is_empty() {
        return Err(Fault::permanent(
            "an entity group transaction without operations",
        ));
    }
    if operations.len() > limits::TRANSACTION_OPERATIONS {
        return Err(Fault::permanent(format!(
            "an entity group transaction of {} operations; Azure Table storage allows {}",
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
                "{key} is twice in one entity group transaction"
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
        // A byte of a key takes three in a URL.
        size += entity + PART_BYTES + 3 * (pk.as_str().len() + operation.key().rk.as_str().len());
        prepared.push(Encoded::encode(operation));
    }
    if size > limits::TRANSACTION_BYTES {
        return Err(Fault::too_large(format!(
            "an entity group transaction of about {size} bytes; Azure Table storage allows {} (4 MiB)",
            limits::TRANSACTION_BYTES
        )));
    }
    Ok(prepared)
}
