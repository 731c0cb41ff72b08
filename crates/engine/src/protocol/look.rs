//! How the content at an item's address relates to the primary.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::protocol::footprint::{Entry, Footprint};
use evenkeel_model::item::Owner;
use evenkeel_model::job::Primary;
use evenkeel_model::shared::{self, SiteContent};
use evenkeel_model::{ETag, ItemAddress, Part, Row, SinkDocument, ViewName};
use evenkeel_storage::BlobProperties;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Look {
    Absent,
    /// This primary's item, at this ETag or token.
    Ours(ETag),
    /// The entity that should have the properties does not exist.
    Homeless,
    Taken {
        /// Its ETag or token; `None` if it cannot be overwritten.
        etag: Option<ETag>,
        /// Its owner; `None` if evenkeel did not write it, or if it is a list, which has many owners.
        owner: Option<Owner>,
        list: Option<ViewName>,
    },
    /// A document of a sink that some pass announced to write. An old request may still change it, so its content
    /// proves nothing now.
    Unsure,
    Says(SinkDocument),
}

impl Look {
    pub(crate) fn is_of(&self, another: &Primary) -> bool {
        matches!(self, Self::Taken { owner: Some(owner), .. } if owner.primary == *another)
    }

    /// Whether it is another owner's item at the version that this primary's footprint lists. No worker lists such an
    /// item.
    pub(crate) fn is_borrowed(&self, listed: &Entry, primary: &Primary) -> bool {
        let Self::Taken { etag, owner, .. } = self else {
            return false;
        };
        let is_anothers = |owner: &Owner| owner.primary != *primary;
        listed.etag.is_some() && listed.etag == *etag && owner.as_ref().is_none_or(is_anothers)
    }
}

/// Whether a pending takeover can be forgotten: no late request can bring it any more, or its former holder has lost it and
/// gets a sync.
pub(crate) fn has_forgettable(
    footprint: &Footprint,
    looks: &BTreeMap<ItemAddress, Look>,
    now: Timestamp,
) -> bool {
    let is_lost = |item, from| looks.get(item).is_some_and(|look: &Look| !look.is_of(from));
    footprint
        .pending_takeovers()
        .any(|(item, from)| !footprint.is_tainted(now) || is_lost(item, from))
}

pub(crate) fn look(address: &ItemAddress, primary: &Primary, row: Option<Row>) -> Look {
    let Some(row) = row else { return Look::Absent };
    match Owner::of(&row.entity) {
        Some(owner) if owner.primary == *primary && owner.view == address.view => {
            Look::Ours(row.etag)
        }
        owner => Look::Taken {
            etag: Some(row.etag),
            owner,
            list: shared::list_view(&row.entity),
        },
    }
}

pub(crate) fn look_at_blob(primary: &Primary, blob: Option<BlobProperties>) -> Look {
    let Some(blob) = blob else {
        return Look::Absent;
    };
    match Owner::of_blob(&blob.metadata) {
        // The blob's name determines the rest, so a renamed view finds its values again.
        Some(owner) if owner.primary == *primary => Look::Ours(blob.etag),
        owner => Look::Taken {
            etag: Some(blob.etag),
            owner,
            list: None,
        },
    }
}

/// Members and properties belong to the primary that they name. `owner` and `list` are those of the document, if it has
/// them.
pub(crate) fn look_into(
    address: &ItemAddress,
    primary: &Primary,
    found: SiteContent,
    owner: Option<&Owner>,
    list: Option<&ViewName>,
) -> Look {
    match found {
        // A copy is written as a whole, which would remove the properties.
        SiteContent::Absent if address.part == Some(Part::Properties) && owner.is_some() => {
            Look::Taken {
                etag: None,
                owner: None,
                list: None,
            }
        }
        SiteContent::Absent => Look::Absent,
        SiteContent::Part(token) => Look::Ours(token),
        SiteContent::Owned(owner, token) if owner == *primary => Look::Ours(token),
        SiteContent::Owned(owner, token) => {
            let owner = Owner {
                primary: owner,
                view: address.view.clone(),
            };
            Look::Taken {
                etag: Some(token),
                owner: Some(owner),
                list: None,
            }
        }
        SiteContent::NoEntity => Look::Homeless,
        SiteContent::Foreign => Look::Taken {
            etag: None,
            owner: owner.cloned(),
            list: list.cloned(),
        },
    }
}
