//! The intended change of a primary, and how writing it ended.

use std::collections::BTreeMap;

use crate::execute::Failure;
use evenkeel_model::{ETag, Entity, EntityKey};
use evenkeel_storage::{IfMatch, TableOperation};

/// The intended change of the primary.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// It is absent, and is inserted.
    Insert(Entity),
    /// It is replaced at its ETag.
    Replace(Entity, ETag),
    /// Some of its properties are set at its ETag.
    Merge {
        /// The properties sent.
        changes: Entity,
        /// The resulting entity.
        merged: Entity,
        etag: ETag,
    },
    /// It is deleted at its ETag.
    Delete(EntityKey, ETag),
}

/// How a pass ended.
pub(crate) enum Advance {
    /// It came to this end.
    Ended(Commit),
    /// Nothing was written of a change that wants keys of other holders: only its announcement.
    Refused(Failure),
    /// Nothing was written: the change wants a key of an old item of this primary, which a pass over the present state drops.
    Obstructed,
}

/// How a commit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Commit {
    /// The primary is written, and every item is in step.
    Closed,
    /// The primary is written; the rest lost a race and is to be reconciled.
    Committed,
    /// The primary was not written: look again.
    Lost,
    /// Unknown outcome: look again.
    Unanswered,
}

impl Change {
    /// The resulting primary.
    pub(crate) const fn result(&self) -> Option<&Entity> {
        match self {
            Self::Insert(entity)
            | Self::Replace(entity, _)
            | Self::Merge { merged: entity, .. } => Some(entity),
            Self::Delete(..) => None,
        }
    }

    /// The properties that are sent; none where it is deleted.
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

    /// With these texts for these properties.
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

    /// Removes a property from what is written.
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
