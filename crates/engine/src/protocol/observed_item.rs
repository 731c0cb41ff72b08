//! What a pass found at the address of an item, and whether it belongs to the primary.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::protocol::footprint::{Entry, Footprint};
use evenkeel_model::item::Owner;
use evenkeel_model::job::Primary;
use evenkeel_model::shared::{self, SiteContent};
use evenkeel_model::{ETag, ItemAddress, Part, Row, SinkDocument, ViewName};
use evenkeel_storage::BlobProperties;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ObservedItem {
    Absent,
    /// This primary's item, at this ETag or token.
    Owned(ETag),
    /// The entity that should have the properties does not exist.
    NoParent,
    Foreign {
        /// ETag or token of the content; `None` if the content cannot be overwritten.
        etag: Option<ETag>,
        /// Owner of the content; `None` if evenkeel did not write it, or if it is a list, which has many owners.
        owner: Option<Owner>,
        list: Option<ViewName>,
    },
    /// A document of a sink for which some pass has announced a write. An old request may still change the document, so
    /// its present content proves nothing.
    Indeterminate,
    Content(SinkDocument),
}

impl ObservedItem {
    pub(crate) fn is_of(&self, another: &Primary) -> bool {
        matches!(self, Self::Foreign { owner: Some(owner), .. } if owner.primary == *another)
    }

    /// Whether the item belongs to another owner, and is at the version that this primary's footprint lists. No worker
    /// lists such an item.
    pub(crate) fn is_borrowed(&self, listed: &Entry, primary: &Primary) -> bool {
        let Self::Foreign { etag, owner, .. } = self else {
            return false;
        };
        let is_anothers = |owner: &Owner| owner.primary != *primary;
        listed.etag.is_some() && listed.etag == *etag && owner.as_ref().is_none_or(is_anothers)
    }
}

/// Whether a pending takeover can be removed from the footprint. One of two reasons is enough. The taint has ended, so
/// no late request can complete the takeover. Or the former holder has lost the key; the close then queues a sync of
/// the former holder.
pub(crate) fn has_forgettable(
    footprint: &Footprint,
    observed: &BTreeMap<ItemAddress, ObservedItem>,
    now: Timestamp,
) -> bool {
    let is_lost = |item, from| {
        observed
            .get(item)
            .is_some_and(|look: &ObservedItem| !look.is_of(from))
    };
    footprint
        .pending_takeovers()
        .any(|(item, from)| !footprint.is_tainted(now) || is_lost(item, from))
}

pub(crate) fn of_row(address: &ItemAddress, primary: &Primary, row: Option<Row>) -> ObservedItem {
    let Some(row) = row else {
        return ObservedItem::Absent;
    };
    match Owner::of(&row.entity) {
        Some(owner) if owner.primary == *primary && owner.view == address.view => {
            ObservedItem::Owned(row.etag)
        }
        owner => ObservedItem::Foreign {
            etag: Some(row.etag),
            owner,
            list: shared::list_view(&row.entity),
        },
    }
}

pub(crate) fn of_blob(primary: &Primary, blob: Option<BlobProperties>) -> ObservedItem {
    let Some(blob) = blob else {
        return ObservedItem::Absent;
    };
    match Owner::of_blob(&blob.metadata) {
        // The view is not compared, so that a renamed view finds its values again. The primary is enough, because all
        // values of a primary have different blob names.
        Some(owner) if owner.primary == *primary => ObservedItem::Owned(blob.etag),
        owner => ObservedItem::Foreign {
            etag: Some(blob.etag),
            owner,
            list: None,
        },
    }
}

/// How a part of a document relates to the primary. Members and properties name the primary to which they belong.
/// `owner` is the owner of the whole document, if it has one. `list` is the view of the document, if it is a list.
pub(crate) fn of_part(
    address: &ItemAddress,
    primary: &Primary,
    found: SiteContent,
    owner: Option<&Owner>,
    list: Option<&ViewName>,
) -> ObservedItem {
    match found {
        // The entity is a copy. The view of the copy writes it as a whole, which would remove the properties.
        SiteContent::Absent if address.part == Some(Part::Properties) && owner.is_some() => {
            ObservedItem::Foreign {
                etag: None,
                owner: None,
                list: None,
            }
        }
        SiteContent::Absent => ObservedItem::Absent,
        SiteContent::Part(token) => ObservedItem::Owned(token),
        SiteContent::Owned(owner, token) if owner == *primary => ObservedItem::Owned(token),
        SiteContent::Owned(owner, token) => {
            let owner = Owner {
                primary: owner,
                view: address.view.clone(),
            };
            ObservedItem::Foreign {
                etag: Some(token),
                owner: Some(owner),
                list: None,
            }
        }
        SiteContent::NoEntity => ObservedItem::NoParent,
        SiteContent::Foreign => ObservedItem::Foreign {
            etag: None,
            owner: owner.cloned(),
            list: list.cloned(),
        },
    }
}
