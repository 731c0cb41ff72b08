//! Documents: entities that many primaries have parts of, as values.
//!
//! A part (a member of a list or of a group, properties that a view keeps on somebody else's entity) has no ETag of its own. It carries a *token* in the document, new whenever the part
//! is written, and each change of a part names the token that it expects. The document itself is changed by
//! read-modify-write under its ETag, many changes in one.
//!
//! ```text
//!   entity ──▶ find(part)             nothing, this part at its token, or somebody else's row
//!   entity, changes ──▶ change        what the entity becomes, and how each change ended
//! ```
//!
//! A list that is too large for its row lies in a blob, and so does one whose view says so: [`blocks`] is such a list as a value,
//! and [`spilled`] the row that says where it lies.
//!
//! What cannot be read is [`Nonsense`], an error that says what is wrong: it is never guessed at and never
//! overwritten. Documents describe themselves, so that parts of a view that is gone can still be taken out.

pub mod blocks;
mod change;
mod claims;
mod list;
mod pieces;
mod properties;
pub mod spilled;

pub use change::{Becomes, Change, Ended, Write, change, find, restated};
pub use claims::{Received, claims, receive};
pub use list::{List, is_list_of, members};
pub use properties::{Owned, carried_over, owner_property, unclaimed};

use crate::model::job::Primary;
use crate::model::{ETag, Site};

/// A document that does not say what evenkeel wrote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{site} is not as evenkeel wrote it, or was edited by hand: {problem}. It is left as it is; {}, and send a thorough sync for each primary that belongs there (`evenkeel backfill` does)",
    remedy(.site)
)]
pub struct Nonsense {
    /// Where it lies.
    pub site: Site,
    /// What is wrong.
    pub problem: String,
}

const fn remedy(site: &Site) -> &'static str {
    match site {
        Site::Row { .. } => "delete the row, or take the property away that is wrong",
        Site::Blob { .. } => "delete the blob",
        Site::File { .. } => "delete the file",
        Site::Document { .. } => "delete the document",
    }
}

/// What lies where a part should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
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
