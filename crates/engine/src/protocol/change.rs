//! The intended change of a primary, and the outcome of writing it.

use std::collections::BTreeMap;

use crate::execute::Failure;
use evenkeel_model::{ETag, Entity, EntityKey};
use evenkeel_storage::{IfMatch, TableOperation};

#[derive(Debug, Clone)]
pub(crate) enum Change {
    Insert(Entity),
    Replace(Entity, ETag),
    Merge {
        /// The properties that are sent to the store.
        changes: Entity,
        merged: Entity,
        etag: ETag,
    },
    Delete(EntityKey, ETag),
}

pub(crate) enum RoundOutcome {
    Ended(Commit),
    /// The change needs keys that have other holders. The primary was not written.
    Refused(Failure),
    /// Nothing was written, because an old item of this primary holds a key that the change needs. A pass over the
    /// present state drops that item.
    Obstructed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Commit {
    /// The primary is written if it changes, and every item is in step.
    Closed,
    /// The primary is written, but work is left, for example because a later write lost a race. The primary must be
    /// reconciled.
    Committed,
    /// The primary was not written. The pass must observe again.
    Lost,
    /// The write of the primary got no answer. The pass must observe again.
    Unanswered,
}

impl Change {
    pub(crate) const fn result(&self) -> Option<&Entity> {
        match self {
            Self::Insert(entity)
            | Self::Replace(entity, _)
            | Self::Merge { merged: entity, .. } => Some(entity),
            Self::Delete(..) => None,
        }
    }

    pub(crate) const fn sent(&self) -> Option<&Entity> {
        match self {
            Self::Insert(entity)
            | Self::Replace(entity, _)
            | Self::Merge {
                changes: entity, ..
            } => Some(entity),
            Self::Delete(..) => None,
        }
    }

    #[must_use]
    pub(crate) fn with_texts(self, texts: &BTreeMap<String, String>) -> Self {
        let set = |mut entity: Entity| {
            entity.properties.extend(
                texts
                    .iter()
                    .map(|(name, text)| (name.clone(), text.as_str().into())),
            );
            entity
        };
        match self {
            Self::Insert(entity) => Self::Insert(set(entity)),
            Self::Replace(entity, etag) => Self::Replace(set(entity), etag),
            Self::Merge {
                changes,
                merged,
                etag,
            } => Self::Merge {
                changes: set(changes),
                merged: set(merged),
                etag,
            },
            delete @ Self::Delete(..) => delete,
        }
    }

    #[must_use]
    pub(crate) fn without(mut self, property: &str) -> Self {
        match &mut self {
            Self::Insert(entity) | Self::Replace(entity, _) => {
                drop(entity.properties.remove(property));
            }
            Self::Merge {
                changes, merged, ..
            } => {
                changes.properties.remove(property);
                merged.properties.remove(property);
            }
            Self::Delete(..) => {}
        }
        self
    }

    pub(crate) fn operation(&self) -> TableOperation {
        match self.clone() {
            Self::Insert(entity) => TableOperation::Insert(entity),
            Self::Replace(entity, etag) => TableOperation::Replace(entity, IfMatch::Matches(etag)),
            Self::Merge { changes, etag, .. } => {
                TableOperation::Merge(changes, IfMatch::Matches(etag))
            }
            Self::Delete(key, etag) => TableOperation::Delete(key, IfMatch::Matches(etag)),
        }
    }
}
