//! The members of lists.

use crate::catalog::IndexEntity;
use crate::client::ClientError;
use crate::model::{EdmValue, Entity, EntityKey, Member, Row, Site, TableName};
use crate::shared::List;

/// The members of these lists, in order, each as a row: its texts under the names of their templates. Such a row has the
/// primary's keys.
pub(super) fn rows(lists: Vec<Row>, table: &TableName, index: &IndexEntity) -> Result<Vec<Row>, ClientError> {
    let mut rows = Vec::new();
    for list in lists {
        let site = Site::Row { table: table.clone(), key: list.entity.key.clone() };
        for member in List::read(&site, &list.entity).map_err(|nonsense| broken(nonsense.to_string()))?.members.into_keys() {
            let entity = of(&member, &list.entity.key, index)
                .ok_or_else(|| broken(format!("{site} has the member {member}, which is none of this view")))?;
            rows.push(Row { entity, etag: list.etag.clone(), timestamp: list.timestamp });
        }
    }
    Ok(rows)
}

/// The keys of the primaries that are in these groups, in order. The first two texts of a contribution are those keys.
pub(super) fn keys(groups: &[Row], table: &TableName) -> Result<Vec<EntityKey>, ClientError> {
    let mut keys = Vec::new();
    for group in groups {
        let site = Site::Row { table: table.clone(), key: group.entity.key.clone() };
        for member in List::read(&site, &group.entity).map_err(|nonsense| broken(nonsense.to_string()))?.members.into_keys() {
            let key = if let [pk, rk, ..] = member.0.as_slice() { EntityKey::new(pk.as_str(), rk.as_str()).ok() } else { None };
            keys.push(key.ok_or_else(|| broken(format!("{site} has the member {member}, which tells no primary")))?);
        }
    }
    Ok(keys)
}

fn broken(what: impl Into<String>) -> ClientError {
    ClientError::Broken(what.into())
}

/// A list in its primaries' own partition tells the PartitionKey by where it lies.
fn of(member: &Member, list: &EntityKey, index: &IndexEntity) -> Option<Entity> {
    if member.0.len() != index.member.len() {
        return None;
    }
    let (mut pk, mut rk) = (list.pk.as_str(), None);
    let mut properties = std::collections::BTreeMap::new();
    for (template, text) in index.member.iter().zip(&member.0) {
        match template.bare_property() {
            Some("PartitionKey") => pk = text.as_str(),
            Some("RowKey") => rk = Some(text.as_str()),
            Some(property) => drop(properties.insert(property.to_owned(), EdmValue::from(text.as_str()))),
            None => drop(properties.insert(template.to_string(), EdmValue::from(text.as_str()))),
        }
    }
    Some(Entity { key: EntityKey::new(pk, rk?).ok()?, properties })
}
