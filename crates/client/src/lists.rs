//! Reads lists from rows and blobs.

use super::ClientError;
use evenkeel_model::shared::{BlobList, List};
use evenkeel_model::{BlobName, ContainerName, Entity, Site};
use evenkeel_storage::Account;

/// Reads the list in a row.
pub fn of_row(site: &Site, entity: &Entity) -> Result<List, ClientError> {
    List::read(site, entity).map_err(|nonsense| ClientError::Broken(nonsense.to_string()))
}

/// Reads the list in a blob; `None` if the blob does not exist.
pub async fn in_blob(
    account: &Account,
    container: &ContainerName,
    name: &BlobName,
) -> Result<Option<BlobList>, ClientError> {
    let blob = account.blobs.get(container, name, None).await;
    let Some(blob) = blob.map_err(ClientError::store(format!(
        "could not read {container}/{name}"
    )))?
    else {
        return Ok(None);
    };
    let broken =
        |problem| ClientError::Broken(format!("{container}/{name} is not a valid list: {problem}"));
    BlobList::parse(&blob.content).map(Some).map_err(broken)
}
