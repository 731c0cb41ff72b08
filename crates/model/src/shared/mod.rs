//! Documents: entities that many primaries have parts of, as values.
//!
//! A part (a member of a list or of a group, properties that a view keeps on another owner's entity) has no ETag of its
//! own. It carries a *token* in the document, new with every write of the part, and each change of a part names the
//! token that it expects. That of properties tells their values too. The document itself is changed by read-modify-write under its ETag, many changes in one.
//!
//! ```text
//!   entity ──▶ find(part)             nothing, this part at its token, or another owner's row
//!   entity, changes ──▶ change        the changed entity, and the result of each change
//! ```
//!
//! A list lies in a row, or in a blob of its own ([`BlobList`]) if its view says `store = "blob"`. A member for which there is no room is
//! refused ([`ListFull`]).
//!
//! An unreadable document is [`Nonsense`], an error that names the problem: it is never guessed at and never
//! overwritten. Documents describe themselves, so that parts of a view that is gone can still be taken out.

mod blob_list;
mod change;
mod claims;
mod list;
mod pieces;
mod properties;

pub use blob_list::BlobList;
pub use change::{Becomes, ChangeEnd, Edit, PartChange, Said, change, find, is_behind};
pub use claims::{Received, claims, receive};
pub use list::{List, is_list_of, list_view, members};
pub use properties::{Owned, carried_over, disowned, own, owner_property};

use crate::catalog::{Catalog, Form};
use crate::job::Primary;
use crate::stored::FormatError;
use crate::{ETag, Site, ViewName};

/// A document that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Nonsense {
    /// It differs from evenkeel's own writes.
    #[error(
        "{site} is not as evenkeel wrote it, or was edited by hand: {problem}. It is left as it is; {}, and send a thorough sync for each primary that belongs there (`evenkeel backfill` does)",
        remedy(.site)
    )]
    Edited {
        /// Where it lies.
        site: Site,
        /// The problem.
        problem: String,
    },
    /// A part has another version of its format.
    #[error(
        "{site} was written by another version of this program: {problem}. It is left as it is"
    )]
    Version {
        /// Where it lies.
        site: Site,
        /// What has which version, and what to do.
        problem: String,
    },
}

impl Nonsense {
    /// Of a part that cannot be read.
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
        Site::Row { .. } => "delete the row, or take the property away that is wrong",
        Site::Blob { .. } => "delete the blob",
        Site::File { .. } => "delete the file",
        Site::Document { .. } => "delete the document",
    }
}

/// A list that would be larger than its row or blob may be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the list is full: {problem}. {advice}")]
pub struct ListFull {
    /// The limit, and what would exceed it.
    pub problem: String,
    advice: &'static str,
}

impl ListFull {
    /// A list of this view that is full.
    pub fn of(catalog: &Catalog, view: &ViewName, problem: String) -> Self {
        let is_range = catalog
            .views
            .get(view)
            .is_some_and(|view| matches!(view.form(), Form::Claims(_)));
        let advice = if is_range {
            "Set properties on fewer ranges of this partition"
        } else {
            "Spread it over several lists with the filter |bucket:N in its key"
        };
        Self { problem, advice }
    }
}

/// Content at a part's site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AtSite {
    /// Nothing.
    Absent,
    /// The part, at this token.
    Part(ETag),
    /// The properties of this view, at this token: this primary's, or another's.
    Owned(Primary, ETag),
    /// No entity on which properties could be kept.
    Homeless,
    /// Another view's row, or one that evenkeel did not write.
    Foreign,
}
