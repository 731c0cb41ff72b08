//! Archives: where entities go when they leave their table, and come back from.

use std::collections::{BTreeMap, BTreeSet};

use super::TableRef;
use crate::document::DocumentPath;
use crate::log::LogPath;
use crate::template::Template;
use crate::{AccountName, ContainerName, EntityKey, ViewName};

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
    /// A container: one JSON document per entity.
    Blob(BlobTarget),
    /// A folder that every worker shares: one JSON document per entity.
    File(FileTarget),
    /// Append blobs, by hour: a line per version of an entity, which do not come back.
    Log(LogTarget),
}

/// A container of documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobTarget {
    /// The account.
    pub account: AccountName,
    /// The container.
    pub container: ContainerName,
    /// Where in it each document lies.
    pub path: DocumentPath,
    /// The metadata of each document.
    pub metadata: BTreeMap<String, Template>,
}

/// A folder of documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileTarget {
    /// The folder.
    pub dir: String,
    /// Where below it each document lies.
    pub path: DocumentPath,
}

/// A container of logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogTarget {
    /// The account.
    pub account: AccountName,
    /// The container.
    pub container: ContainerName,
    /// The folder of each hour.
    pub path: LogPath,
    /// The property that says when an entity happened; when it was last written where absent.
    pub time: Option<String>,
    /// How many blobs of an hour are written to at once; at least 1.
    pub spread: u32,
    /// Bytes beyond which no blob grows, unless by a single line.
    pub roll_at: u64,
}

impl LogTarget {
    /// How large a blob grows: a read in one piece stays quick.
    pub const ROLL_AT: u64 = 64 << 20;
}

impl ArchiveTarget {
    /// The properties of an entity that say what becomes of it there.
    pub fn properties(&self) -> BTreeSet<&str> {
        match self {
            Self::Table(_) | Self::File(_) => BTreeSet::new(),
            Self::Blob(target) => target
                .metadata
                .values()
                .flat_map(Template::properties)
                .collect(),
            Self::Log(target) => target.time.iter().map(String::as_str).collect(),
        }
    }

    /// Whether the document of an entity with this key may lie in one place here and there. Accounts and folders may have several names
    /// each, which nothing compares.
    pub fn may_meet(&self, other: &Self, key: &EntityKey) -> bool {
        match (self, other) {
            (Self::Blob(one), Self::Blob(other)) => {
                one.container == other.container
                    && matches!((one.path.of(key), other.path.of(key)), (Ok(one), Ok(other)) if one == other)
            }
            // One may name in its folder what the other has in its path.
            (Self::File(one), Self::File(other)) => match (one.path.of(key), other.path.of(key)) {
                (Ok(one), Ok(other)) => {
                    let ends = |whole: &str, end: &str| {
                        whole
                            .strip_suffix(end)
                            .is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
                    };
                    ends(one.as_str(), other.as_str()) || ends(other.as_str(), one.as_str())
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// The table, where it is one.
    pub const fn table(&self) -> Option<&TableRef> {
        match self {
            Self::Table(table) => Some(table),
            Self::Blob(_) | Self::File(_) | Self::Log(_) => None,
        }
    }
}
