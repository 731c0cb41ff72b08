//! Turns the members of lists and groups into rows.

use std::collections::BTreeMap;

use crate::{ClientError, lists};
use evenkeel_model::catalog::{BlobLists, View};
use evenkeel_model::template::{Template, unescape};
use evenkeel_model::{BlobName, ETag, EdmValue, Entity, EntityKey, Member, Row, TableName};
use evenkeel_storage::Account;

/// Turns a member of a list into a row with the keys of the member's primary. Each other text of the member becomes a
/// property. If the template of the text is a single property, the name is that of this property; otherwise it is the
/// template itself.
pub(super) fn of_list(
    member: &Member,
    list: &Row,
    table: &TableName,
    templates: &[Template],
) -> Result<Row, ClientError> {
    let entity = row(member, Some(&list.entity.key), templates).ok_or_else(|| {
        broken(format!(
            "list {table}{} has an invalid member {member}",
            list.entity.key
        ))
    })?;
    Ok(Row {
        entity,
        etag: list.etag.clone(),
        timestamp: list.timestamp,
    })
}

/// Turns a member of a group into a row that has only the keys of the member's primary. These keys are the first two
/// texts of the member.
pub(super) fn of_group(
    member: &Member,
    group: &Row,
    table: &TableName,
) -> Result<Row, ClientError> {
    let key = if let [pk, rk, ..] = member.0.as_slice() {
        EntityKey::new(pk.as_str(), rk.as_str()).ok()
    } else {
        None
    };
    let key = key.ok_or_else(|| {
        broken(format!(
            "group {table}{} has an invalid member {member}",
            group.entity.key
        ))
    })?;
    Ok(Row {
        entity: Entity::new(key),
        etag: group.etag.clone(),
        timestamp: group.timestamp,
    })
}

/// Returns up to `top` members after `after`, in order, from the lists in some blobs. Each member becomes a row. Its
/// ETag is the one that the list stores for the member. If there are more members, also returns the last member of the
/// result, after which a later lookup continues.
pub(super) async fn in_blobs(
    view: &View,
    lists: &BlobLists,
    blobs: &[(&BlobName, &Account)],
    after: Option<&Member>,
    top: usize,
) -> Result<(Vec<Row>, Option<Member>), ClientError> {
    let container = &lists.container;
    let mut members = BTreeMap::new();
    for (name, account) in blobs {
        let Some(list) = lists::in_blob(account, container, name).await? else {
            continue;
        };
        if *list.view() != view.name {
            return Err(broken(format!(
                "{container}/{name} is a list of view {}, expected {}",
                list.view(),
                view.name
            )));
        }
        members.extend(list.to_list().members);
    }
    let row = |(member, token): (&Member, ETag)| match row(member, None, &lists.member) {
        Some(entity) => Ok(Row {
            entity,
            etag: token,
            timestamp: None,
        }),
        None => Err(broken(format!(
            "a list of view {} in {container} has an invalid member {member}",
            view.name
        ))),
    };
    let mut left = members
        .into_iter()
        .filter(|(member, _)| after.is_none_or(|after| member > after));
    let (mut rows, mut last) = (Vec::new(), None);
    for (member, token) in left.by_ref().take(top) {
        rows.push(row((&member, token))?);
        last = Some(member);
    }
    let more = left.next().is_some();
    Ok((rows, last.filter(|_| more)))
}

fn broken(what: impl Into<String>) -> ClientError {
    ClientError::Broken(what.into())
}

/// Makes an entity with the keys of a member's primary. If no text of the member is the PartitionKey, the list is in
/// the partition of its primaries. The PartitionKey is then that of the list, unescaped.
fn row(member: &Member, list: Option<&EntityKey>, templates: &[Template]) -> Option<Entity> {
    if member.0.len() != templates.len() {
        return None;
    }
    let (mut pk, mut rk) = (list.and_then(|list| unescape(list.pk.as_str())), None);
    let mut properties = BTreeMap::new();
    for (template, text) in templates.iter().zip(&member.0) {
        match template.bare_property() {
            Some("PartitionKey") => pk = Some(text.clone()),
            Some("RowKey") => rk = Some(text.as_str()),
            Some(property) => {
                drop(properties.insert(property.to_owned(), EdmValue::from(text.as_str())));
            }
            None => drop(properties.insert(template.to_string(), EdmValue::from(text.as_str()))),
        }
    }
    Some(Entity {
        key: EntityKey::new(pk?, rk?).ok()?,
        properties,
    })
}
