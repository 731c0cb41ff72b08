//! Checks an entity group transaction before anything is written.

use evenkeel_model::Key;
use evenkeel_storage::{TableOperation, check};

use super::entities::EncodedOperation;
use super::fault::Fault;

/// Checks what the service would refuse, then encodes the operations.
pub(super) fn prepare(
    pk: &Key,
    operations: &[TableOperation],
) -> Result<Vec<EncodedOperation>, Fault> {
    check::transaction(pk, operations)?;
    Ok(operations.iter().map(EncodedOperation::encode).collect())
}
