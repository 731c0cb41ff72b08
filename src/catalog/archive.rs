//! Archives: where entities go when they leave their table, and come back from.

use super::TableRef;
use crate::model::ViewName;

/// A declared archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archive {
    /// Its name.
    pub name: ViewName,
    /// The table of the primaries.
    pub source: TableRef,
    /// Where they go.
    pub target: ArchiveTarget,
}

/// Where archived entities go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveTarget {
    /// Another table, under the same key.
    Table(TableRef),
}
