//! What a pass has seen: footprint, looks and primary, read in this order.

use std::collections::BTreeMap;

use super::footprint::{Footprint, Settled};
use super::plan::Look;
use crate::model::item::Owner;
use crate::model::{ETag, EdmDateTime, ItemAddress, Row};

/// What a pass has seen.
pub(super) struct Observation {
    /// The footprint; empty where there is none.
    pub(super) footprint: Footprint,
    /// Its ETag; nothing where there is none.
    pub(super) etag: Option<ETag>,
    /// When it was last written, by the store's clock.
    pub(super) written: Option<EdmDateTime>,
    /// What the looks found.
    pub(super) looks: BTreeMap<ItemAddress, Look>,
    /// The primary.
    pub(super) row: Option<Row>,
    /// The row is no primary, but an item of this primary in the same table.
    pub(super) derived_from: Option<Owner>,
}

impl Observation {
    /// Nothing seen yet.
    pub(super) const fn blank() -> Self {
        Self {
            footprint: Footprint { settled: Settled::Never, items: BTreeMap::new(), tainted_until: None },
            etag: None,
            written: None,
            looks: BTreeMap::new(),
            row: None,
            derived_from: None,
        }
    }
}
