//! `put`: writes a primary.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::staged::{StagedBlob, StagedFields, staged_blob};
use super::{Effect, Job, JobFields, JobSubject, Operation, etag, key, table};
use crate::entity::{RESERVED_PREFIX, valid_property_name};
use crate::job::{JobError, Listing};
use crate::quoted::Quoted;
use crate::{ETag, Entity, TableName, odata};

/// A `put` job.
#[derive(Debug, Clone, PartialEq)]
pub struct Put {
    /// The table of the primary.
    pub table: TableName,
    /// The entity to write.
    pub entity: Entity,
    /// Whether the write replaces or merges.
    pub mode: PutMode,
    /// The condition of the write.
    pub condition: PutCondition,
    /// The blob with the entity's properties, if the message does not contain them. In that case `entity` has only its key.
    pub staged_entity: Option<StagedBlob>,
    /// The blobs with the values of further properties, by property.
    pub staged_values: BTreeMap<String, StagedBlob>,
}

/// How a `put` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PutMode {
    /// Insert-Or-Replace.
    #[default]
    Replace,
    /// Insert-Or-Merge: properties that are not named keep their values. The last delivered job wins.
    Merge,
}

/// The condition of a `put`. If the condition is not met, the job is skipped, not poisoned.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PutCondition {
    /// The ETag that the stored entity must have.
    pub if_match: Option<ETag>,
    /// Whether the job is skipped if an entity is stored.
    pub if_absent: bool,
    /// The property whose value in the job must be greater than the stored value.
    pub newer_by: Option<String>,
}

/// Fields of a `put` job.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "put")]
pub(super) struct PutFields {
    /// The primary's table.
    table: String,
    /// The entity in OData JSON: PartitionKey, RowKey and properties, with "X@odata.type" for Int64, Double, DateTime, Guid and Binary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    entity: Option<Map<String, Value>>,
    /// Instead of "entity": a staged blob with the entity as JSON, at most 16 MiB. Requires "pk" and "rk".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    entity_ref: Option<StagedFields>,
    /// The primary's PartitionKey, with "entity_ref".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pk: Option<String>,
    /// The primary's RowKey, with "entity_ref".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rk: Option<String>,
    /// Staged blobs with large values, by property.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    blobs: BTreeMap<String, StagedFields>,
    /// Whether properties that the entity does not name are removed ("replace") or kept ("merge").
    #[serde(default)]
    mode: PutMode,
    /// Apply only if the stored entity has this ETag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    if_match: Option<String>,
    /// Apply only if no entity is stored.
    #[serde(default)]
    if_absent: bool,
    /// Apply only if this property's value is greater than the stored one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    newer_by: Option<String>,
}

impl Job {
    /// Returns the blobs that the sender has staged for the job.
    pub fn staged(&self) -> Vec<&StagedBlob> {
        match self {
            Self::Put(put) => put
                .staged_entity
                .iter()
                .chain(put.staged_values.values())
                .collect(),
            _ => Vec::new(),
        }
    }
}

impl JobFields for PutFields {
    const OP: &'static str = "put";
    const EFFECT: Effect = Effect::Writes;
    const LISTING: Option<Listing> = Some(Listing::Entities);
    type Job = Put;

    fn job(self) -> Result<Self::Job, JobError> {
        let wrong = |problem: String| JobError::field(Self::OP, problem);
        let condition = PutCondition {
            if_match: etag(Self::OP, self.if_match)?,
            if_absent: self.if_absent,
            newer_by: self.newer_by,
        };
        if condition.if_absent && (condition.if_match.is_some() || condition.newer_by.is_some()) {
            return Err(wrong(
                "\"if_absent\" cannot be combined with \"if_match\" or \"newer_by\"".to_owned(),
            ));
        }
        let staged_entity = self
            .entity_ref
            .map(|staged| staged_blob(Self::OP, "entity_ref", staged))
            .transpose()?;
        let entity = match (self.entity, &staged_entity, self.pk, self.rk) {
            (Some(entity), None, ..) => put_entity(entity, &condition)?,
            (None, Some(_), Some(pk), Some(rk)) => Entity::new(key(Self::OP, pk, rk)?),
            (None, Some(_), ..) => {
                return Err(wrong(
                    "\"entity_ref\" requires \"pk\" and \"rk\"".to_owned(),
                ));
            }
            _ => {
                return Err(wrong(
                    "exactly one of \"entity\" and \"entity_ref\" is required".to_owned(),
                ));
            }
        };
        let mut staged_values = BTreeMap::new();
        for (property, staged) in self.blobs {
            if !valid_property_name(&property) || property.starts_with(RESERVED_PREFIX) {
                return Err(wrong(format!(
                    "\"blobs\" names {}, which is not a valid property name",
                    Quoted(&property)
                )));
            }
            if entity.properties.contains_key(&property) {
                return Err(wrong(format!(
                    "{} is both in \"entity\" and in \"blobs\"",
                    Quoted(&property)
                )));
            }
            staged_values.insert(property, staged_blob(Self::OP, "blobs", staged)?);
        }
        Ok(Put {
            table: table(Self::OP, self.table)?,
            entity,
            mode: self.mode,
            condition,
            staged_entity,
            staged_values,
        })
    }

    /// `pk` and `rk` are ineffective with `entity`, because the entity has its own keys.
    fn is_ineffective(name: &str, object: &Map<String, Value>) -> bool {
        matches!(name, "pk" | "rk") && !object.contains_key("entity_ref")
    }
}

/// Decodes the entity of a `put` from the JSON of its message or of a staged blob.
pub fn put_entity(json: Map<String, Value>, condition: &PutCondition) -> Result<Entity, JobError> {
    let op = PutFields::OP;
    let entity = odata::decode_object(json).map_err(JobError::Entity)?;
    if let Some(reserved) = entity
        .properties
        .keys()
        .find(|name| name.starts_with(RESERVED_PREFIX))
    {
        let problem = format!(
            "property {} of \"entity\" starts with the reserved prefix \"ek_\"",
            Quoted(reserved)
        );
        return Err(JobError::field(op, problem));
    }
    if let Some(property) = &condition.newer_by
        && !entity.properties.contains_key(property)
    {
        return Err(JobError::field(
            op,
            format_args!(
                "\"newer_by\" names {}, which \"entity\" does not have",
                Quoted(property)
            ),
        ));
    }
    Ok(entity)
}

impl Operation for Put {
    fn subject(&self) -> JobSubject<'_> {
        JobSubject::Primary(&self.table, &self.entity.key)
    }

    fn holds_entity(&self) -> bool {
        true
    }
}
