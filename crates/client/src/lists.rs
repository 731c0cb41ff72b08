//! Reading lists: in a row, or in a blob of their own.

use super::ClientError;
use evenkeel_model::shared::{BlobList, List};
use evenkeel_model::{BlobName, ContainerName, Entity, Site};
use evenkeel_storage::Account;

/// The list in a row.
pub fn of_row(site: &Site, entity: &Entity) -> Result<List, ClientError> {
    List::read(site, entity).map_err(|nonsense| ClientError::Broken(nonsense.to_string()))
}

/// The list in a blob; `None` if there is no such blob.
pub async fn in_blob(
    account: &Account,
    container: &ContainerName,
    name: &BlobName,
) -> Result<Option<BlobList>, ClientError> {
    let blob = account.blobs.get(container, name, None).await;
    let Some(blob) = blob.map_err(ClientError::store(format!("reading {container}/{name}")))?
    else {
        return Ok(None);
    };
    let broken = |problem| {
        ClientError::Broken(format!(
            "{container}/{name} is not as evenkeel wrote it: {problem}"
        ))
    };
    BlobList::parse(&blob.content).map(Some).map_err(broken)
}
