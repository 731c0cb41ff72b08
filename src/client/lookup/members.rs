//! The members of lists.

use crate::catalog::{BlobLists, IndexEntity, View};
use crate::client::{ClientError, lists};
use crate::model::template::Template;
use crate::model::{BlobName, EdmValue, Entity, EntityKey, Member, Row, Site, TableName};
use crate::ports::Account;

/// The members of these lists, in order, each as a row: its texts under the names of their templates. Such a row has the
/// primary's keys. Returns the requests that it took, too: a list may lie in a blob.
pub(super) async fn rows(
    found: Vec<Row>,
    account: &Account,
    table: &TableName,
    index: &IndexEntity,
) -> Result<(Vec<Row>, u64), ClientError> {
    let (mut rows, mut requests) = (Vec::new(), 0);
    for list in found {
        let site = Site::Row { table: table.clone(), key: list.entity.key.clone() };
        let (members, took) = lists::of_row(account, &site, &list.entity).await?;
        requests += took;
        for member in members.members.into_keys() {
            let entity = row(&member, Some(&list.entity.key), &index.member)
                .ok_or_else(|| broken(format!("{site} has the member {member}, which is none of this view")))?;
            rows.push(Row { entity, etag: list.etag.clone(), timestamp: list.timestamp });
        }
    }
    Ok((rows, requests))
}

/// The keys of the primaries that are in these groups, in order. The first two texts of a contribution are those keys.
pub(super) async fn keys(groups: &[Row], account: &Account, table: &TableName) -> Result<(Vec<EntityKey>, u64), ClientError> {
    let (mut keys, mut requests) = (Vec::new(), 0);
    for group in groups {
        let site = Site::Row { table: table.clone(), key: group.entity.key.clone() };
        let (members, took) = lists::of_row(account, &site, &group.entity).await?;
        requests += took;
        for member in members.members.into_keys() {
            let key = if let [pk, rk, ..] = member.0.as_slice() { EntityKey::new(pk.as_str(), rk.as_str()).ok() } else { None };
            keys.push(key.ok_or_else(|| broken(format!("{site} has the member {member}, which tells no primary")))?);
        }
    }
    Ok((keys, requests))
}

/// The members of a list in a blob, each as a row. Their versions are their tokens.
pub(super) async fn in_blob(view: &View, blobs: &BlobLists, name: &BlobName, account: &Account) -> Result<Vec<Row>, ClientError> {
    let Some((of, list)) = lists::in_blob(account, &blobs.container, name).await? else { return Ok(Vec::new()) };
    let site = format!("{}/{name}", blobs.container);
    if of != view.name {
        return Err(broken(format!("{site} is a list of the view {of}, and not of {}", view.name)));
    }
    let row = |(member, token)| match row(&member, None, &blobs.member) {
        Some(entity) => Ok(Row { entity, etag: token, timestamp: None }),
        None => Err(broken(format!("{site} has the member {member}, which is none of this view"))),
    };
    list.members.into_iter().map(row).collect()
}

fn broken(what: impl Into<String>) -> ClientError {
    ClientError::Broken(what.into())
}

/// A member as a row. A list in its primaries' own partition tells the PartitionKey by where it lies.
fn row(member: &Member, list: Option<&EntityKey>, templates: &[Template]) -> Option<Entity> {
    if member.0.len() != templates.len() {
        return None;
    }
    let (mut pk, mut rk) = (list.map(|list| list.pk.as_str()), None);
    let mut properties = std::collections::BTreeMap::new();
    for (template, text) in templates.iter().zip(&member.0) {
        match template.bare_property() {
            Some("PartitionKey") => pk = Some(text.as_str()),
            Some("RowKey") => rk = Some(text.as_str()),
            Some(property) => drop(properties.insert(property.to_owned(), EdmValue::from(text.as_str()))),
            None => drop(properties.insert(template.to_string(), EdmValue::from(text.as_str()))),
        }
    }
    Some(Entity { key: EntityKey::new(pk?, rk?).ok()?, properties })
}
