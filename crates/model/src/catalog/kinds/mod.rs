//! The kinds of views. One file per kind, and one line in the list of `kinds!`.
//!
//! A kind declares: the configuration name, the properties it reads, the form of its items ([`Form`]), and its part of the canonical
//! encoding. Everything else in the program asks for the form, which says where items are stored and how, and never for the kind.

mod aggregate;
mod blob_lists;
mod denormalize;
mod denormalize_range;
mod index_entity;
mod large_entity;
mod search_index;
mod secondary_index;
mod sql_table;
mod webhook;

pub use aggregate::Aggregate;
pub use blob_lists::BlobLists;
pub use denormalize::Denormalize;
pub use denormalize_range::{DenormalizeRange, RangeRows};
pub use index_entity::IndexEntity;
pub use large_entity::LargeEntity;
pub use search_index::SearchIndex;
pub use secondary_index::SecondaryIndex;
pub use sql_table::SqlTable;
pub use webhook::WebhookEvents;

use std::collections::BTreeSet;

use super::form::Form;
use super::place::TargetRef;
use super::view::OnConflict;

/// A kind of view, as the rest of the program sees it. `P` is the table of a target: [`TargetRef`], or
/// [`DatedRef`](super::DatedRef) for views of tables by date.
pub trait Kind<P> {
    /// The value of `kind` in the configuration.
    fn name(&self) -> &'static str;
    /// Where the items are stored, and how.
    fn form(&self) -> Form<'_, P>;
    /// Properties of the primary that the kind reads beside those of its key templates. May repeat those.
    fn properties(&self) -> BTreeSet<&str>;
    /// The kind's own part of the canonical encoding. Hashed into migration records and footprints: the text of an existing definition
    /// never changes.
    fn canonical(&self, on_conflict: OnConflict) -> String;
}

/// The kinds, and the methods of any of them, from one list. A kind with a target of its own has its place as a parameter.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $(<$place:ident>)?,)*) => {
        /// The registry of kinds.
        #[derive(Debug, Clone)]
        pub enum ViewKind<P = TargetRef> {
            $($(#[$doc])* $kind($kind $(<$place>)?),)*
        }

        impl<P> ViewKind<P> {
            /// The kind behind its trait.
            pub fn kind(&self) -> &dyn Kind<P> {
                match self {
                    $(Self::$kind(kind) => kind,)*
                }
            }

            /// The same kind with its target elsewhere.
            pub fn map<Q>(&self, place: &dyn Fn(&P) -> Q) -> ViewKind<Q> {
                match self {
                    $(Self::$kind(kind) => ViewKind::$kind(kinds!(@map kind, place $(, $place)?)),)*
                }
            }
        }
    };
    (@map $kind:ident, $to:ident, P) => { $kind.map($to) };
    (@map $kind:ident, $to:ident) => { $kind.clone() };
}

kinds! {
    /// Copies under another key.
    SecondaryIndex<P>,
    /// Lists of the primaries that share a value, in rows.
    IndexEntity<P>,
    /// Lists of the primaries that share a value, in blobs.
    BlobLists,
    /// Large values in blobs.
    LargeEntity,
    /// Properties on another entity.
    Denormalize<P>,
    /// Properties on all entities of a range.
    DenormalizeRange<P>,
    /// Figures of groups.
    Aggregate<P>,
    /// Documents of a search service.
    SearchIndex,
    /// Rows of a table in a database.
    SqlTable,
    /// Events to a receiver.
    WebhookEvents,
}
