//! Large values of archives that store documents. Each archived entity counts as a primary of a
//! virtual table.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::{Archive, ArchiveTarget, TableRef, View};
use crate::large::{Pointer, ValueFolder};
use crate::names::NameError;
use crate::{AccountName, ContainerName, Site, TableName, ViewName};

/// Prefix of the names of virtual tables. Virtual tables do not exist, but their names are used in
/// footprints and in the owner marks of values.
pub const ARCHIVE_TABLE_PREFIX: &str = "EvenkeelArchive";
/// Maximum number of characters of the archive's name in the name of its virtual table.
const NAME_CHARS: usize = 32;

/// The large values of an archive that stores documents.
#[derive(Debug, Clone)]
pub struct ArchivedValues {
    /// The archive.
    pub archive: ViewName,
    /// The virtual table of the archived entities, in the account of the archive's source.
    pub table: TableRef,
    /// The `large_entity` view of the archive's source. The values are items of this view.
    pub view: ViewName,
    /// Where the values are stored, next to the documents.
    pub location: ValueLocation,
}

/// Where large values of a table or of an archive are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueLocation {
    /// In a container.
    Blobs {
        /// The account.
        account: AccountName,
        /// The container.
        container: ContainerName,
    },
    /// In a folder that all workers share.
    Files {
        /// The account of the primaries.
        account: AccountName,
        /// The folder.
        dir: String,
    },
}

impl ValueLocation {
    /// The account that the item addresses of the values contain.
    pub const fn account(&self) -> &AccountName {
        match self {
            Self::Blobs { account, .. } | Self::Files { account, .. } => account,
        }
    }

    /// The pointer to a value that is stored here.
    pub fn pointer(
        &self,
        folder: &ValueFolder,
        property: &str,
        bytes: u64,
        sha256: String,
    ) -> Result<Pointer, NameError> {
        match self {
            Self::Blobs { container, .. } => {
                Pointer::to(folder, container, property, bytes, sha256)
            }
            Self::Files { .. } => Pointer::to_file(folder, property, bytes, sha256),
        }
    }

    /// The site to which a pointer refers; `None` if the pointer refers to another kind of storage.
    pub fn site(&self, pointer: &Pointer) -> Option<Site> {
        let name = pointer.name.clone();
        match (self, &pointer.container) {
            (Self::Blobs { .. }, Some(container)) => Some(Site::Blob {
                container: container.clone(),
                name,
            }),
            (Self::Files { dir, .. }, None) => Some(Site::File {
                dir: dir.clone(),
                name,
            }),
            (Self::Blobs { .. }, None) | (Self::Files { .. }, Some(_)) => None,
        }
    }
}

impl ArchivedValues {
    pub(super) fn all<'a>(
        archives: impl Iterator<Item = &'a Arc<Archive>>,
        views: &BTreeMap<ViewName, Arc<View>>,
    ) -> BTreeMap<TableName, Self> {
        let archived_values = archives.filter_map(|archive| Self::of(archive, views.values()));
        archived_values
            .map(|archived| (archived.table.table.clone(), archived))
            .collect()
    }

    fn of<'a>(archive: &Archive, mut views: impl Iterator<Item = &'a Arc<View>>) -> Option<Self> {
        let location = match &archive.target {
            ArchiveTarget::Blob(target) => ValueLocation::Blobs {
                account: target.account.clone(),
                container: target.container.clone(),
            },
            ArchiveTarget::File(target) => ValueLocation::Files {
                account: archive.source.account.clone(),
                dir: target.dir.clone(),
            },
            ArchiveTarget::Table(_) | ArchiveTarget::Log(_) => return None,
        };
        let large = |view: &&Arc<View>| view.source == archive.source && view.large().is_some();
        let view = views.find(large)?.name.clone();
        let table = TableRef {
            account: archive.source.account.clone(),
            table: table(&archive.name)?,
        };
        Some(Self {
            archive: archive.name.clone(),
            table,
            view,
            location,
        })
    }
}

/// The name of an archive's virtual table: a readable name, and a hash so that no two archives have
/// the same virtual table.
fn table(archive: &ViewName) -> Option<TableName> {
    let words = archive.as_str().split(|c: char| !c.is_ascii_alphanumeric());
    let capital = |word: &str| {
        word.chars()
            .enumerate()
            .map(|(at, c)| if at == 0 { c.to_ascii_uppercase() } else { c })
            .collect::<String>()
    };
    let name: String = words
        .map(capital)
        .collect::<String>()
        .chars()
        .take(NAME_CHARS)
        .collect();
    let hash = hex::encode(&Sha256::digest(archive.as_str())[..4]);
    TableName::new(format!("{ARCHIVE_TABLE_PREFIX}{name}{hash}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_archive_has_a_valid_virtual_table() {
        let name = |text: &str| table(&ViewName::new(text).unwrap()).unwrap().to_string();
        assert!(name("former_employees").starts_with("EvenkeelArchiveFormerEmployees"));
        assert_ne!(name("former_employees"), name("formeremployees"));
        assert!(name(&"a".repeat(60)).len() <= 63);
    }
}
