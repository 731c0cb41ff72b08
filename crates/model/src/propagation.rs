//! A `propagate` job: applies the range overlays of a view to the entities of a range.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::cursor::cursor;
use super::range_overlay::TargetRange;
use super::{EntityKey, TableName, ViewName};

/// A `propagate` job: sets the properties of a view on the entities of a range, according to the range overlays on these entities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Propagation {
    /// The view.
    pub view: ViewName,
    /// The entity whose range overlay has changed.
    pub owner: EntityKey,
    /// The range of the overlay, or the range that the overlay had before.
    pub range: TargetRange,
    /// The mark in the owner's footprint. The job removes the mark when it is done.
    pub mark: Option<PropagationMark>,
    /// Progress of the job.
    pub cursor: PropagationCursor,
}

/// A mark in the footprint of the entity that queued a `propagate` job. The entity is in step once the job is done and has removed the
/// mark. Each change of the entity's range overlay draws a new mark, so that an older job does not remove the mark of a newer one.
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
        /// Entities that keep the properties of another owner's range overlay.
        pub taken: u64,
        /// The owner of one such range overlay.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub taken_by: Option<EntityKey>,
    }
}

impl Propagation {
    /// Returns the message of a new job.
    pub fn message(
        view: &ViewName,
        owner: &EntityKey,
        range: &TargetRange,
        mark: Option<&PropagationMark>,
    ) -> Value {
        let mut message = json!({
            "op": "propagate", "view": view, "owner": owner, "account": range.account, "table": range.table, "pk": range.pk, "from": range.from,
        });
        if let Some(fields) = message.as_object_mut() {
            fields.extend(
                range
                    .before
                    .iter()
                    .map(|before| ("before".to_owned(), json!(before))),
            );
            fields.extend(mark.iter().map(|mark| ("mark".to_owned(), json!(mark))));
        }
        message
    }
}
