//! Items: the derived rows, blobs, documents and parts that a primary owns.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use super::job::Primary;
use super::{
    AccountName, BlobName, CollectionName, ContainerName, DocumentKey, Entity, EntityKey,
    TableName, ViewName,
};

/// Property of a derived row, or metadata of a derived blob: its owner, as a JSON array of table, partition key and row key.
pub const SOURCE_PROPERTY: &str = "ek_source";
/// Property of a derived row, or metadata of a derived blob: its view.
pub const VIEW_PROPERTY: &str = "ek_view";
/// Property of a copied entity: the ETag of the source that was copied. In a restored entity, the ETag of the archived row.
pub const SOURCE_ETAG: &str = "ek_source_etag";
/// Property of a copied entity: the job that had written the source, if any. In a restored entity, the job that had archived it.
pub const SOURCE_JOB: &str = "ek_source_job";
/// Property of a restored entity: the ETag that the source had when the archived row was copied from it. Later writes to the archived row
/// change the ETag of that row, but not this one.
pub const SOURCE_COPIED: &str = "ek_source_copied";
/// Property of a copied entity: set if a run of the job continued with a copy that another run had written.
pub const SOURCE_SHARED: &str = "ek_source_shared";

/// Prefix of the property that names the owner of denormalized properties.
pub const OWNER_PREFIX: &str = "ek_owner_";

/// The address of an item, with its view.
///
/// An item is everything at its site, or the part of one primary in a document that several primaries share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ItemAddress {
    /// The view.
    pub view: ViewName,
    /// The account of the site, or the sink of a document.
    pub account: AccountName,
    /// The site of the item.
    #[serde(flatten)]
    pub site: Site,
    /// The part of the entity or blob at this site; `None` if the item is all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
}

/// The location of something that is written as a whole. A write in an account has a condition; a write in a sink has none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Site {
    /// A row of a table.
    Row {
        /// The table.
        table: TableName,
        /// The row.
        #[serde(flatten)]
        key: EntityKey,
    },
    /// A blob.
    Blob {
        /// The container of the blob.
        container: ContainerName,
        /// The name of the blob.
        #[serde(rename = "blob")]
        name: BlobName,
    },
    /// A file in a folder that every worker shares.
    File {
        /// The folder.
        dir: String,
        /// The path of the file below the folder.
        #[serde(rename = "file")]
        name: BlobName,
    },
    /// A document of a sink.
    Document {
        /// The collection of the document.
        #[serde(rename = "index")]
        collection: CollectionName,
        /// The key of the document.
        #[serde(rename = "document")]
        key: DocumentKey,
    },
}

/// A part of a document that several primaries share. A part has no ETag of its own. The document has a token for the part instead, which
/// is new at every write of the part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// A member of a list. A member has no content beyond itself.
    Member(Member),
    /// The properties that the item's view sets on an entity. The entity itself has another owner.
    Properties,
}

/// A member of a list. It consists of several texts, and the list is sorted by them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Member(pub Vec<String>);

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Serialising texts cannot fail.
        f.write_str(&serde_json::to_string(&self.0).unwrap_or_default())
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(member) => fmt::Display::fmt(member, f),
            Self::Properties => f.write_str("properties"),
        }
    }
}

impl Site {
    /// The table and key of a row.
    pub const fn row(&self) -> Option<(&TableName, &EntityKey)> {
        match self {
            Self::Row { table, key } => Some((table, key)),
            Self::Blob { .. } | Self::File { .. } | Self::Document { .. } => None,
        }
    }

    /// The container and name of a blob.
    pub const fn blob(&self) -> Option<(&ContainerName, &BlobName)> {
        match self {
            Self::Blob { container, name } => Some((container, name)),
            Self::Row { .. } | Self::File { .. } | Self::Document { .. } => None,
        }
    }

    /// The kind of site, in a word.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Row { .. } => "row",
            Self::Blob { .. } => "blob",
            Self::File { .. } => "file",
            Self::Document { .. } => "document",
        }
    }

    /// Whether writes at this site can be conditional. Sinks have no versions.
    pub const fn is_conditional(&self) -> bool {
        match self {
            Self::Row { .. } | Self::Blob { .. } | Self::File { .. } => true,
            Self::Document { .. } => false,
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row { table, key } => write!(f, "{table}{key}"),
            Self::Blob { container, name } => write!(f, "{container}/{name}"),
            Self::File { dir, name } => write!(f, "{dir}/{name}"),
            Self::Document { collection, key } => write!(f, "document {key} in index {collection}"),
        }
    }
}

impl ItemAddress {
    /// The address of a whole row.
    pub const fn row(
        view: ViewName,
        account: AccountName,
        table: TableName,
        key: EntityKey,
    ) -> Self {
        Self::whole(view, account, Site::Row { table, key })
    }

    /// The address of everything at a site.
    pub const fn whole(view: ViewName, account: AccountName, site: Site) -> Self {
        Self {
            view,
            account,
            site,
            part: None,
        }
    }

    /// Whether an item of another view can be replaced in place: only whole rows can.
    pub const fn is_replaceable(&self) -> bool {
        self.part.is_none() && self.site.row().is_some()
    }

    /// Whether the item is a member of a list in a row. The list may move to a blob.
    pub const fn is_member_in_row(&self) -> bool {
        matches!(self.part, Some(Part::Member(_))) && self.site.row().is_some()
    }

    /// The member of a list.
    pub const fn member(&self) -> Option<&Member> {
        match &self.part {
            Some(Part::Member(member)) => Some(member),
            Some(Part::Properties) | None => None,
        }
    }

    /// Whether the item is a large value, which is a whole blob or file. Only a job that has the content of the value can write the value
    /// again.
    pub const fn is_value(&self) -> bool {
        self.part.is_none() && matches!(self.site, Site::Blob { .. } | Site::File { .. })
    }

    /// Returns the address of another view's item that is in the way of this item at the same site.
    #[must_use]
    pub fn obstacle(&self, view: &ViewName) -> Self {
        let part = match &self.part {
            Some(Part::Properties) => Some(Part::Properties),
            // Another member cannot be in the way, because a list accepts members of every owner. Only a whole row can be.
            Some(Part::Member(_)) | None => None,
        };
        Self {
            view: view.clone(),
            account: self.account.clone(),
            site: self.site.clone(),
            part,
        }
    }
}

impl fmt::Display for ItemAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.part {
            None => write!(f, "{} of view {}", self.site, self.view),
            Some(part) => write!(f, "{part} in {} of view {}", self.site, self.view),
        }
    }
}

/// The owner named in a derived row: its primary and its view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The primary.
    pub primary: Primary,
    /// The view.
    pub view: ViewName,
}

impl Owner {
    /// Reads the owner of a row; `None` if the row is not derived.
    pub fn of(entity: &Entity) -> Option<Self> {
        Self::parse(entity.text(VIEW_PROPERTY)?, entity.text(SOURCE_PROPERTY)?)
    }

    /// Reads the owner of a blob; `None` if the blob is not derived.
    pub fn of_blob(metadata: &BTreeMap<String, String>) -> Option<Self> {
        Self::parse(metadata.get(VIEW_PROPERTY)?, metadata.get(SOURCE_PROPERTY)?)
    }

    /// Reads the primary that a derived, archived or moved row names.
    pub fn source(entity: &Entity) -> Option<Primary> {
        Self::primary(entity.text(SOURCE_PROPERTY)?)
    }

    fn parse(view: &str, source: &str) -> Option<Self> {
        Some(Self {
            primary: Self::primary(source)?,
            view: ViewName::new(view).ok()?,
        })
    }

    fn primary(source: &str) -> Option<Primary> {
        let (table, pk, rk): (TableName, String, String) = serde_json::from_str(source).ok()?;
        Some(Primary {
            table,
            key: EntityKey::new(pk, rk).ok()?,
        })
    }

    /// Writes the owner to a row.
    #[must_use]
    pub fn on(&self, entity: Entity) -> Entity {
        entity
            .with(SOURCE_PROPERTY, source_text(&self.primary))
            .with(VIEW_PROPERTY, self.view.as_str())
    }
}

/// Returns the metadata that names the source and view of a blob. `source` is the text of the blob's primary, or the text of the table if
/// several primaries share the blob. Metadata is ASCII, so other characters are written as `\\uXXXX` as in JSON. With the longest keys the
/// metadata stays below 8 KiB.
pub fn metadata(source: &str, view: &ViewName) -> BTreeMap<String, String> {
    let mut ascii = String::with_capacity(source.len());
    for c in source.chars() {
        if c.is_ascii() {
            ascii.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                // Writing to a String cannot fail.
                let _ = write!(ascii, "\\u{unit:04x}");
            }
        }
    }
    BTreeMap::from([
        (SOURCE_PROPERTY.to_owned(), ascii),
        (VIEW_PROPERTY.to_owned(), view.to_string()),
    ])
}

/// Returns the text of `ek_source` for an item of one primary.
pub fn source_text(primary: &Primary) -> String {
    serde_json::json!([primary.table, primary.key.pk, primary.key.rk]).to_string()
}

/// Returns the text of `ek_source` on a document that several primaries of a table share.
pub fn shared_source_text(table: &TableName) -> String {
    serde_json::json!([table]).to_string()
}

/// Whether a row was derived from primaries of its own table. Such a row is never a primary itself.
pub fn is_derived_within(table: &TableName, entity: &Entity) -> bool {
    if entity.get(VIEW_PROPERTY).is_none() {
        return false;
    }
    // `ek_source` has three texts (table, PartitionKey, RowKey) on an item of one primary, and one text (table) on a shared item.
    let source: Option<Vec<String>> = entity
        .text(SOURCE_PROPERTY)
        .and_then(|source| serde_json::from_str(source).ok());
    source.is_some_and(|source| {
        matches!(source.len(), 1 | 3)
            && source
                .first()
                .is_some_and(|name| TableName::new(name.as_str()).is_ok_and(|name| name == *table))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_survives_on_its_row() {
        let owner = Owner {
            primary: Primary {
                table: TableName::new("Employees").unwrap(),
                key: EntityKey::new("Sa\"les", "한,7").unwrap(),
            },
            view: ViewName::new("by_email").unwrap(),
        };
        let row = owner.on(Entity::new(EntityKey::new("p", "r").unwrap()));
        assert_eq!(
            row.text("ek_source"),
            Some(r#"["Employees","Sa\"les","한,7"]"#)
        );
        assert_eq!(Owner::of(&row), Some(owner));
        assert!(is_derived_within(
            &TableName::new("employees").unwrap(),
            &row
        ));
        assert!(!is_derived_within(&TableName::new("Other").unwrap(), &row));
    }

    #[test]
    fn an_owner_survives_in_the_metadata_of_its_blob() {
        let long = "한".repeat(256) + &"😀".repeat(64);
        let primary = Primary {
            table: TableName::new("Employees").unwrap(),
            key: EntityKey::new("Sa\"les,7", long).unwrap(),
        };
        let owner = Owner {
            primary,
            view: ViewName::new("photos").unwrap(),
        };
        let metadata = metadata(&source_text(&owner.primary), &owner.view);
        assert_eq!(Owner::of_blob(&metadata), Some(owner));
        assert!(
            metadata
                .values()
                .all(|value| value.bytes().all(|byte| (b' '..=b'~').contains(&byte))),
            "{metadata:?}"
        );
        assert!(
            metadata
                .iter()
                .map(|(name, value)| name.len() + value.len())
                .sum::<usize>()
                < 8_192
        );
        assert_eq!(Owner::of_blob(&BTreeMap::new()), None);
    }

    #[test]
    fn a_row_that_primaries_share_is_not_a_primary() {
        let table = TableName::new("Employees").unwrap();
        let row = Entity::new(EntityKey::new("p", "r").unwrap())
            .with(SOURCE_PROPERTY, shared_source_text(&table));
        assert!(
            !is_derived_within(&table, &row),
            "a row that names no view is not derived"
        );
        let row = row.with(VIEW_PROPERTY, "by_last_name");
        assert!(is_derived_within(
            &TableName::new("employees").unwrap(),
            &row
        ));
        assert_eq!(Owner::of(&row), None);
    }

    #[test]
    fn an_address_reads_as_it_was_written() {
        let row = ItemAddress::row(
            ViewName::new("by_email").unwrap(),
            AccountName::main(),
            TableName::new("ByEmail").unwrap(),
            EntityKey::new("p", "한 r").unwrap(),
        );
        let written =
            r#"{"view":"by_email","account":"main","table":"ByEmail","pk":"p","rk":"한 r"}"#;
        assert_eq!(serde_json::from_str::<ItemAddress>(written).unwrap(), row);
        assert_eq!(serde_json::to_string(&row).unwrap(), written);
        let member = ItemAddress {
            part: Some(Part::Member(Member(vec![
                "Sales".to_owned(),
                "a\",b".to_owned(),
            ]))),
            ..row
        };
        let text = serde_json::to_string(&member).unwrap();
        assert_eq!(
            serde_json::from_str::<ItemAddress>(&text).unwrap(),
            member,
            "{text}"
        );
        assert_eq!(
            member.to_string(),
            r#"["Sales","a\",b"] in ByEmail("p", "한 r") of view by_email"#
        );
        let site = Site::Blob {
            container: ContainerName::new("lists").unwrap(),
            name: BlobName::new("a/b c.json").unwrap(),
        };
        let blob = ItemAddress { site, ..member };
        let text = serde_json::to_string(&blob).unwrap();
        assert!(
            text.contains(r#""container":"lists","blob":"a/b c.json""#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<ItemAddress>(&text).unwrap(), blob);
        assert_eq!(
            blob.to_string(),
            r#"["Sales","a\",b"] in lists/a/b c.json of view by_email"#
        );
        let site = Site::Document {
            collection: CollectionName::new("people").unwrap(),
            key: DocumentKey::new("Wy-_").unwrap(),
        };
        let document = ItemAddress {
            site,
            part: None,
            ..blob
        };
        let text = serde_json::to_string(&document).unwrap();
        assert!(
            text.contains(r#""index":"people","document":"Wy-_""#),
            "{text}"
        );
        assert_eq!(
            serde_json::from_str::<ItemAddress>(&text).unwrap(),
            document
        );
    }
}
