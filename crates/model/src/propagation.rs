//! A `propagate` job: applies the range overlays of a view to the entities of a range.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::claim::Reach;
use super::cursor::cursor;
use super::{EntityKey, TableName, ViewName};

/// A `propagate` job: brings the properties that a view sets on the entities of a range in step with the claims on these entities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Propagation {
    /// The view.
    pub view: ViewName,
    /// The entity whose claim has changed.
    pub one: EntityKey,
    /// The range of the claim, or the range that the claim had before.
    pub reach: Reach,
    /// The mark in the footprint of that entity. The job removes the mark when it is done.
    pub mark: Option<PropagationMark>,
    /// Progress of the job.
    pub cursor: PropagationCursor,
}

/// A mark in the footprint of the entity that queued a `propagate` job. The entity is in step once the job is done and has removed the mark.
/// A new mark is drawn whenever the entity's claim changes, so that the end of an older job does not remove the mark of a newer one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PropagationMark {
    /// The entity's table.
    #[schemars(with = "String")]
    pub table: TableName,
    /// The mark.
    pub mark: String,
}

cursor! {
    /// Progress of a `propagate` job, written by workers.
    pub struct PropagationCursor {
        /// Entities processed so far.
        pub done: u64,
        /// Entities that could not be written; a `sync` job was queued for each.
        pub failed: u64,
        /// Entities that another claim covers too and keeps.
        pub taken: u64,
        /// The entity of one such claim.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub taken_by: Option<EntityKey>,
    }
}

impl Propagation {
    /// Returns the message of a new job.
    pub fn message(
        view: &ViewName,
        one: &EntityKey,
        reach: &Reach,
        mark: Option<&PropagationMark>,
    ) -> Value {
        let mut message = json!({
            "op": "propagate", "view": view, "one": one, "account": reach.account, "table": reach.table, "pk": reach.pk, "from": reach.from,
        });
        if let Some(fields) = message.as_object_mut() {
            fields.extend(
                reach
                    .before
                    .iter()
                    .map(|before| ("before".to_owned(), json!(before))),
            );
            fields.extend(mark.iter().map(|mark| ("mark".to_owned(), json!(mark))));
        }
        message
    }
}
