//! Archives: the locations to which entities of a table are moved.

use std::collections::BTreeMap;

use super::TableRef;
use super::clause::{Clause, Clauses, Declaration, FOLLOWS, Fact, PropertyRead, Statement, Tables};
use super::place::Place as _;
use crate::document::DocumentPath;
use crate::log::LogPath;
use crate::template::Template;
use crate::{AccountName, ContainerName, EntityKey, ViewName};

/// A declared archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archive {
    /// The name of the archive.
    pub name: ViewName,
    /// The table of the primaries.
    pub source: TableRef,
    /// The location to which entities are moved.
    pub target: ArchiveTarget,
}

/// The location of archived entities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveTarget {
    /// Another table. An archived entity keeps its key.
    Table(TableRef),
    /// A container with one JSON document for each entity.
    Blob(BlobTarget),
    /// A folder that all workers share, with one JSON document for each entity.
    File(FileTarget),
    /// Append blobs for each hour, with one line for each version of an entity. Entities cannot be
    /// restored from a log.
    Log(LogTarget),
}

/// A container of documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobTarget {
    /// The account.
    pub account: AccountName,
    /// The container.
    pub container: ContainerName,
    /// The path of each document in the container.
    pub path: DocumentPath,
    /// The metadata of each document.
    pub metadata: BTreeMap<String, Template>,
}

/// A folder of documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileTarget {
    /// The folder.
    pub dir: String,
    /// The path of each document below the folder.
    pub path: DocumentPath,
}

/// A container of logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogTarget {
    /// The account.
    pub account: AccountName,
    /// The container.
    pub container: ContainerName,
    /// The path of the folder of each hour.
    pub path: LogPath,
    /// The property whose value decides the hour of an entity. If the entity lacks the property,
    /// the time of its last write decides.
    pub time: Option<String>,
    /// How many blobs of the same hour are written to concurrently; at least 1.
    pub spread: u32,
    /// Size limit of a blob in bytes. Only a single long line may exceed the limit.
    pub roll_at: u64,
}

impl LogTarget {
    /// Default size limit of a blob in bytes. It is low enough for a blob to be read quickly in one
    /// piece.
    pub const ROLL_AT: u64 = 64 << 20;
}

impl Archive {
    pub(super) fn clauses(&self) -> Vec<Clause<'_>> {
        let mut clauses = Clauses::of(Declaration::Archive(&self.name));
        let (archive, source) = (clauses.by, self.source.tables());
        let message = format!("{archive} already has this name; expected another one");
        let name = clauses.owns("", format!("the name {}", self.name), message);
        name.is_warning = true;
        clauses.bars("source", &source, Fact::Follows, FOLLOWS);
        let why = "; the source of an archive must be in one account";
        clauses.bars("source", &source, Fact::Spread, why);
        clauses.reads(&source, self.target.reads());
        let (key, place, account) = match &self.target {
            ArchiveTarget::Table(table) => {
                into_table(&source, &table.tables(), &mut clauses);
                ("to.table", table.table.to_string(), &table.account)
            }
            ArchiveTarget::Blob(blob) => {
                let place = format!("{}/{}", blob.container, blob.path.as_str());
                ("to.container", place, &blob.account)
            }
            // One folder can be configured in two ways: completely in `dir`, or with its last part
            // at the start of `path`.
            ArchiveTarget::File(file) => {
                let place = format!("{}/{}", file.dir, file.path.as_str());
                ("to.dir", place, &AccountName::main())
            }
            ArchiveTarget::Log(log) => {
                let why =
                    ", and a log cannot hold large values; expected a table, container or folder";
                clauses.bars("to.kind", &source, Fact::Large, why);
                let place = format!("{}/{}", log.container, log.path.as_str());
                ("to.container", place, &log.account)
            }
        };
        let message = format!("{place} is already the target of {archive}; expected another one");
        clauses.owns(key, format!("{key} {account}/{place}"), message);
        clauses.all
    }
}

fn into_table(source: &Tables, target: &Tables, clauses: &mut Clauses<'_>) {
    const KEY: &str = "to.table";
    clauses.names(KEY, target);
    let why = "; the target of an archive must be in one account";
    clauses.bars(KEY, target, Fact::Spread, why);
    clauses.is(target, Fact::Archive);
    clauses.copies_encrypted(KEY, source, target);
    let wide = format!("; expected wide = true in [tables.{target}] too");
    let large = format!("; expected a large_entity view with source = \"{target}\" too");
    for (fact, why) in [(Fact::Wide, wide), (Fact::Large, large)] {
        let needs = Statement::Needs(target.clone(), fact.clone(), why);
        clauses.add(KEY, needs).condition = Some((source.clone(), fact));
    }
}

impl ArchiveTarget {
    /// The properties of an entity from which its location or metadata in the archive is computed.
    pub(super) fn reads(&self) -> Vec<PropertyRead<'_>> {
        match self {
            Self::Table(_) | Self::File(_) => Vec::new(),
            Self::Blob(target) => {
                let metadata = target.metadata.values().flat_map(Template::properties);
                PropertyRead::computed("to.metadata", metadata)
            }
            Self::Log(target) => {
                PropertyRead::computed("to.time", target.time.iter().map(String::as_str))
            }
        }
    }

    /// Whether this archive and another archive may store the document with this key at the same
    /// location. Accounts and folders are not compared, because an account or folder may have
    /// several names.
    pub fn may_share_place(&self, other: &Self, key: &EntityKey) -> bool {
        match (self, other) {
            (Self::Blob(one), Self::Blob(other)) => {
                one.container == other.container
                    && matches!((one.path.of(key), other.path.of(key)), (Ok(one), Ok(other)) if one == other)
            }
            // A part of the path that one archive has in `dir` may be in `path` in the other
            // archive.
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

    /// The target table; `None` if the target is not a table.
    pub const fn table(&self) -> Option<&TableRef> {
        match self {
            Self::Table(table) => Some(table),
            Self::Blob(_) | Self::File(_) | Self::Log(_) => None,
        }
    }
}
