//! Reading lists, wherever they lie: in a row, in the blob that a row names, or in a blob of their own.

use super::ClientError;
use evenkeel_model::model::{BlobName, ContainerName, Entity, Site, ViewName};
use evenkeel_model::ports::Account;
use evenkeel_model::shared::List;
use evenkeel_model::shared::blocks::{BlockedList, OpenedList};
use evenkeel_model::shared::spilled::Elsewhere;

/// Times that a list may move while it is looked for.
const ROUNDS: u32 = 5;

/// The list of a row. Where the row says that it lies in a blob and it has moved since, the row is read again. Returns the requests
/// that it took, too.
pub async fn of_row(account: &Account, site: &Site, entity: &Entity) -> Result<(List, u64), ClientError> {
    let mut entity = entity.clone();
    let mut requests = 0;
    for _ in 0..ROUNDS {
        let Some(Elsewhere { container, name, .. }) = Elsewhere::of(site, &entity).map_err(|nonsense| broken(nonsense.to_string()))? else {
            return Ok((List::read(site, &entity).map_err(|nonsense| broken(nonsense.to_string()))?, requests));
        };
        requests += 1;
        if let Some(list) = read(account, &container, &name).await? {
            return Ok((list.to_list(), requests));
        }
        let Some((table, key)) = site.row() else { break };
        requests += 1;
        let row = account.tables.get(table, key, None).await.map_err(ClientError::store(format!("reading {site}")))?;
        match row {
            None => return Ok((List::default(), requests)),
            Some(row) if row.entity == entity => {
                return Err(broken(format!("{site} says that its list lies in {container}/{name}, which does not exist")));
            }
            Some(row) => entity = row.entity,
        }
    }
    Err(broken(format!("the list of {site} has moved each of {ROUNDS} times that it was looked for")))
}

/// The list in a blob and the view that it is of; nothing where there is no blob.
pub async fn in_blob(account: &Account, container: &ContainerName, name: &BlobName) -> Result<Option<(ViewName, List)>, ClientError> {
    Ok(read(account, container, name).await?.map(|list| (list.view().clone(), list.to_list())))
}

async fn read(account: &Account, container: &ContainerName, name: &BlobName) -> Result<Option<BlockedList>, ClientError> {
    let blob = account.blobs.get(container, name, None).await;
    let blob = blob.map_err(ClientError::store(format!("reading {container}/{name}")))?;
    let Some(blob) = blob else { return Ok(None) };
    match BlockedList::open(&blob.content, blob.content.len() as u64) {
        Ok(OpenedList::List(list)) => Ok(Some(list)),
        Ok(OpenedList::More(_)) => Err(broken(format!("{container}/{name} is no list: it has no head"))),
        Err(problem) => Err(broken(format!("{container}/{name} is not as evenkeel wrote it: {problem}"))),
    }
}

fn broken(what: impl Into<String>) -> ClientError {
    ClientError::Broken(what.into())
}
