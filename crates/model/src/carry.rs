//! A `carry` job: the range of entities to carry properties to, and the progress so far.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::claim::Reach;
use super::cursor::cursor;
use super::{EntityKey, TableName, ViewName};

/// A `carry` job: the properties that a view keeps on the entities of a range are brought in step with the claims on
/// them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carry {
    /// The view.
    pub view: ViewName,
    /// The entity that has changed its claim.
    pub one: EntityKey,
    /// The range that it tells, or has told until now.
    pub reach: Reach,
    /// What its entity's footprint waits for.
    pub mark: Option<CarryMark>,
    /// How far the job has come.
    pub cursor: CarryCursor,
}

/// A mark in the footprint of the entity that has queued a carry: the entity is in step once the carry is done and has taken it out. Drawn
/// anew whenever the entity says something else, so that the end of an older carry is not taken for that of a newer one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CarryMark {
    /// The entity's table.
    #[schemars(with = "String")]
    pub table: TableName,
    /// The mark.
    pub mark: String,
}

cursor! {
    /// How far a `carry` has come. Written by workers.
    pub struct CarryCursor {
        /// Entities seen to so far.
        pub done: u64,
        /// Entities that could not be written; a `sync` job of each was queued instead.
        pub failed: u64,
        /// Entities that belong to another one as well, which keeps them.
        pub taken: u64,
        /// One that does.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub taken_by: Option<EntityKey>,
    }
}

impl Carry {
    /// A job that has done nothing yet, as a message carries it.
    pub fn message(
        view: &ViewName,
        one: &EntityKey,
        reach: &Reach,
        mark: Option<&CarryMark>,
    ) -> Value {
        let mut message = json!({
            "op": "carry", "view": view, "one": one, "account": reach.account, "table": reach.table, "pk": reach.pk, "from": reach.from,
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
