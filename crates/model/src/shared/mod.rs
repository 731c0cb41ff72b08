//! Shared documents: entities made of parts of many primaries, as values.
//!
//! A part (a member of a list or of a group, or properties that a view sets on another owner's entity) has no ETag of its own. A part
//! carries a *token* in the document instead. Each write of the part creates a new token, and each change of a part names the token that it
//! expects. The token of properties also contains a digest of their values. The document itself is changed by read-modify-write under its
//! ETag, with many changes in one write.
//!
//! ```text
//!   entity ──▶ find(part)             nothing, this part at its token, or another owner's row
//!   entity, changes ──▶ change        the changed entity, and the result of each change
//! ```
//!
//! A list is in a row, or in a blob of its own ([`BlobList`]) if its view has `store = "blob"`. A member that does not fit is refused
//! ([`ListFull`]).
//!
//! For an unreadable document, functions return the error [`UnreadableDocument`], which names the problem. The content of such a document
//! is never guessed, and the document is never overwritten. Documents describe themselves, so that parts of a removed view can still be
//! dropped.

mod blob_list;
mod change;
mod list;
mod pieces;
mod properties;
mod range_overlays;

pub use blob_list::BlobList;
pub use change::{
    ChangeOutcome, DocumentUpdate, Edit, PartChange, PropertyChange, change, find, is_outdated_list,
};
pub use list::{List, is_list_of, list_view, members};
pub use properties::{
    OwnedProperties, keep_view_properties, own, owner_property, without_view_properties,
};
pub use range_overlays::{OverlaidEntity, apply_range_overlays, parse_range_overlays};

use crate::catalog::{Catalog, Form};
use crate::job::Primary;
use crate::stored::FormatError;
use crate::{ETag, Site, ViewName};

/// A document that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableDocument {
    /// The document differs from what evenkeel writes.
    #[error(
        "{site} is not as evenkeel writes it: {problem}. It stays unchanged; {}, then run `evenkeel backfill`",
        remedy(.site)
    )]
    Edited {
        /// The site of the document.
        site: Site,
        /// The problem.
        problem: String,
    },
    /// A part has an unknown format version.
    #[error("{site} has another format version: {problem}. It stays unchanged")]
    Version {
        /// The site of the document.
        site: Site,
        /// The part, its version and the remedy.
        problem: String,
    },
}

impl UnreadableDocument {
    /// The error for a part that cannot be read.
    fn of(site: Site, error: &FormatError) -> Self {
        let problem = error.to_string();
        match error {
            FormatError::Version { .. } => Self::Version { site, problem },
            FormatError::Malformed { .. } => Self::Edited { site, problem },
        }
    }
}

const fn remedy(site: &Site) -> &'static str {
    match site {
        Site::Row { .. } => "delete the row, or the wrong property",
        Site::Blob { .. } => "delete the blob",
        Site::File { .. } => "delete the file",
        Site::Document { .. } => "delete the document",
    }
}

/// A list that would exceed the size of a row or blob.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the list is full: {problem}. {advice}")]
pub struct ListFull {
    /// The limit, and what exceeds it.
    pub problem: String,
    advice: &'static str,
}

impl ListFull {
    /// The error for a list of this view.
    pub fn of(catalog: &Catalog, view: &ViewName, problem: String) -> Self {
        let is_range = catalog
            .views
            .get(view)
            .is_some_and(|view| matches!(view.form(), Form::RangeOverlays(_)));
        let advice = if is_range {
            "Set properties on fewer ranges of this partition"
        } else {
            "Spread it over several lists with the filter |bucket:N in its key"
        };
        Self { problem, advice }
    }
}

/// The content at a part's site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SiteContent {
    /// The part does not exist.
    Absent,
    /// The member, with this token.
    Part(ETag),
    /// The properties of this view, with the owner and the token of the properties.
    Owned(Primary, ETag),
    /// There is no entity on which properties could be set.
    NoEntity,
    /// The row belongs to another view, or evenkeel did not write it.
    Foreign,
}
