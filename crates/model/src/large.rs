//! Large values: property values in blobs, and the pointers that replace them.
//!
//! The name of a value's blob contains its primary, its property and the hash of its content. So a name always stands for one content, and
//! primaries never share a blob:
//!
//! ```text
//! employees/Sales/000223/Photo-9f86d081884c7d65…      table, PartitionKey, RowKey, property, SHA-256
//! ```
//!
//! Keys are escaped as in the paths of documents, and shortened by a hash if they are long. The values of an entity that is stored as a
//! document are next to the document:
//!
//! ```text
//! former/Sales/000223.json%values/Photo-9f86d081884c7d65…     the document's name, property, SHA-256
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::document::segment;
use super::job::Primary;
use super::names::NameError;
use super::stored::{self, FormatError, FormatVersion};
use super::{BlobName, ContainerName, EdmValue, Entity};

/// The container for staged content that is too large for a message, in the account of the job's table.
pub const STAGING: &str = "evenkeel-staging";
/// Containers that evenkeel reserves: [`STAGING`], and the bodies of poison messages.
pub const OWN_CONTAINERS: [&str; 2] = [STAGING, "evenkeel-poison"];

/// Maximum bytes of a property in a file name. A file name may have 255, and the hash takes 65.
const FILE_PROPERTY_BYTES: usize = 128;

/// A pointer that replaces a value stored in a blob or a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pointer {
    /// The container of the blob; `None` for a file next to its entity's document, in the same shared folder.
    pub container: Option<ContainerName>,
    /// The name of the blob or file.
    pub name: BlobName,
    /// The length of the content in bytes.
    pub bytes: u64,
    /// The SHA-256 of the content, in lower-case hex digits.
    pub sha256: String,
    /// The content type of a file. Blobs store their content type themselves.
    pub content_type: Option<String>,
}

/// Format version of a pointer.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    v: FormatVersion<VERSION>,
    #[serde(rename = "$blob", default, skip_serializing_if = "Option::is_none")]
    blob: Option<String>,
    #[serde(rename = "$file", default, skip_serializing_if = "Option::is_none")]
    file: Option<BlobName>,
    bytes: u64,
    sha256: String,
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
}

/// The prefix of the names of one entity's values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueFolder(String);

impl ValueFolder {
    /// The folder of an entity in a table.
    pub fn of(primary: &Primary) -> Self {
        let Primary { table, key } = primary;
        Self(format!(
            "{}/{}/{}/",
            table.canonical(),
            segment(key.pk.as_str()),
            segment(key.rk.as_str())
        ))
    }

    /// The folder with the values of an entity that is stored as a document. No document can be in this folder, because no `%` in a
    /// document's name is followed by a `v`.
    pub fn beside(document: &BlobName) -> Self {
        Self(format!("{document}%values/"))
    }

    /// The prefix of the names of the entity's values.
    pub fn prefix(&self) -> &str {
        &self.0
    }

    /// Whether a name is that of one of this entity's values: a property and a hash, without subfolders.
    pub fn has(&self, name: &BlobName) -> bool {
        let value = name
            .as_str()
            .strip_prefix(self.0.as_str())
            .and_then(|rest| rest.rsplit_once('-'));
        value.is_some_and(|(property, hash)| {
            !property.is_empty() && !property.contains('/') && is_hash(hash)
        })
    }
}

fn is_hash(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl Pointer {
    /// Creates the pointer to a property's content in a blob.
    pub fn to(
        folder: &ValueFolder,
        container: &ContainerName,
        property: &str,
        bytes: u64,
        sha256: String,
    ) -> Result<Self, NameError> {
        // Blob names must be ASCII here, but property names can have any script.
        let property = if property.is_ascii() {
            property.to_owned()
        } else {
            hash(property.as_bytes())
        };
        let name = BlobName::new(format!("{}{property}-{sha256}", folder.0))?;
        Ok(Self {
            container: Some(container.clone()),
            name,
            bytes,
            sha256,
            content_type: None,
        })
    }

    /// Creates the pointer to a property's content in a file next to its entity's document. A property that is too long for a file name is
    /// hashed.
    pub fn to_file(
        folder: &ValueFolder,
        property: &str,
        bytes: u64,
        sha256: String,
    ) -> Result<Self, NameError> {
        let property = if property.len() <= FILE_PROPERTY_BYTES && property.is_ascii() {
            property.to_owned()
        } else {
            hash(property.as_bytes())
        };
        let name = BlobName::new(format!("{}{property}-{sha256}", folder.0))?;
        Ok(Self {
            container: None,
            name,
            bytes,
            sha256,
            content_type: None,
        })
    }

    /// The text of a value that may be a pointer.
    fn text(value: &EdmValue) -> Option<&str> {
        let named = |text: &&str| text.contains("\"$blob\"") || text.contains("\"$file\"");
        value
            .as_str()
            .filter(|text| text.starts_with('{'))
            .filter(named)
    }

    /// Parses a pointer. Returns `None` if the value is not a pointer.
    pub fn of(value: &EdmValue) -> Option<Self> {
        let wire: Wire = serde_json::from_str(Self::text(value)?).ok()?;
        let (container, name) = match (wire.blob, wire.file) {
            (Some(blob), None) => place(&blob).map(|(container, name)| (Some(container), name))?,
            (None, Some(name)) => (None, name),
            (Some(_), Some(_)) | (None, None) => return None,
        };
        let content_type = wire.content_type.filter(|_| container.is_none());
        is_hash(&wire.sha256).then_some(Self {
            container,
            name,
            bytes: wire.bytes,
            sha256: wire.sha256,
            content_type,
        })
    }

    /// Whether the blob belongs to this entity. A blob of the entity is deleted once the entity no longer points to the blob.
    pub fn is_of(&self, folder: &ValueFolder) -> bool {
        folder.has(&self.name) && self.name.as_str().ends_with(&self.sha256)
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, sha256, content_type) =
            (self.bytes, self.sha256.clone(), self.content_type.clone());
        let wire = match &self.container {
            Some(container) => Wire {
                v: FormatVersion,
                blob: Some(format!("{container}/{}", self.name)),
                file: None,
                bytes,
                sha256,
                content_type,
            },
            None => Wire {
                v: FormatVersion,
                blob: None,
                file: Some(self.name.clone()),
                bytes,
                sha256,
                content_type,
            },
        };
        // Serialising texts and numbers cannot fail.
        f.write_str(&serde_json::to_string(&wire).unwrap_or_default())
    }
}

/// Refuses an entity with a pointer of an unknown version. If such a pointer were treated as an ordinary value, its blob would be deleted.
pub fn known_pointers(entity: &Entity) -> Result<(), FormatError> {
    let unknown = |(name, value): (&String, &EdmValue)| {
        let read = stored::read::<Wire>(Pointer::text(value)?, VERSION, || {
            format!("the pointer in {name:?}")
        });
        read.err().filter(FormatError::is_of_version)
    };
    entity
        .user_properties()
        .find_map(unknown)
        .map_or(Ok(()), Err)
}

/// The pointers of an entity to its own blobs, by property.
pub fn pointers<'a>(
    folder: &'a ValueFolder,
    entity: &'a Entity,
) -> impl Iterator<Item = (&'a str, Pointer)> {
    let own = entity.user_properties();
    own.filter_map(|(name, value)| Some((name.as_str(), Pointer::of(value)?)))
        .filter(|(_, pointer)| pointer.is_of(folder))
}

/// Returns the hash of a content, in the form that pointers have.
pub fn hash(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}

/// Splits `container/name` into the two names.
pub fn place(text: &str) -> Option<(ContainerName, BlobName)> {
    let (container, name) = text.split_once('/')?;
    Some((
        ContainerName::new(container).ok()?,
        BlobName::new(name).ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EntityKey, TableName};
    use proptest::prelude::*;

    fn primary(pk: &str, rk: &str) -> Primary {
        Primary {
            table: TableName::new("Employees").unwrap(),
            key: EntityKey::new(pk, rk).unwrap(),
        }
    }

    fn pointer(primary: &Primary, property: &str) -> Pointer {
        Pointer::to(
            &ValueFolder::of(primary),
            &ContainerName::new("large").unwrap(),
            property,
            3,
            hash(b"abc"),
        )
        .unwrap()
    }

    #[test]
    fn a_pointer_is_written_as_the_contract_says() {
        let pointer = pointer(&primary("Sales", "한 7"), "Photo");
        let sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(
            pointer.to_string(),
            format!(
                r#"{{"v":1,"$blob":"large/employees/Sales/%ED%95%9C 7/Photo-{sha}","bytes":3,"sha256":"{sha}"}}"#
            )
        );
        assert_eq!(Pointer::of(&pointer.to_string().into()), Some(pointer));
    }

    #[test]
    fn a_pointer_to_a_file_is_below_the_folder_of_its_document() {
        let folder = ValueFolder::beside(&BlobName::new("Sales/7.json").unwrap());
        let pointer = Pointer::to_file(&folder, "Photo", 3, hash(b"abc")).unwrap();
        let sha = hash(b"abc");
        assert_eq!(
            pointer.to_string(),
            format!(
                r#"{{"v":1,"$file":"Sales/7.json%values/Photo-{sha}","bytes":3,"sha256":"{sha}"}}"#
            )
        );
        assert_eq!(
            Pointer::of(&pointer.to_string().into()),
            Some(pointer.clone())
        );
        assert!(pointer.is_of(&folder));
        let typed = Pointer {
            content_type: Some("image/png".to_owned()),
            ..pointer
        };
        assert_eq!(Pointer::of(&typed.to_string().into()), Some(typed));
        let long = Pointer::to_file(&folder, &"P".repeat(255), 3, hash(b"abc")).unwrap();
        assert!(
            long.is_of(&folder) && long.name.as_str().len() < 160,
            "{long}"
        );
    }

    #[test]
    fn a_property_of_any_script_has_a_blob() {
        let (sales, sha) = (primary("Sales", "7"), hash(b"abc"));
        let [one, other] = ["사진", "Foto_ß"].map(|property| pointer(&sales, property));
        assert!(
            one.is_of(&ValueFolder::of(&sales)) && one.name != other.name,
            "{one} {other}"
        );
        assert!(
            one.name
                .as_str()
                .ends_with(&format!("{}-{sha}", hash("사진".as_bytes()))),
            "{one}"
        );
        let beside = ValueFolder::beside(&BlobName::new("Sales/7.json").unwrap());
        assert!(
            Pointer::to_file(&beside, "사진", 3, sha)
                .unwrap()
                .is_of(&beside)
        );
    }

    #[test]
    fn a_value_that_is_not_a_pointer_stays_a_value() {
        let sha = hash(b"abc");
        for text in [
            "x".to_owned(),
            "{\"$blob\":1}".to_owned(),
            format!(r#"{{"$blob":"large/a","bytes":3,"sha256":"{sha}"}}"#),
            format!(r#"{{"v":1,"$blob":"large/a","bytes":3,"sha256":"{sha}","more":1}}"#),
            format!(r#"{{"v":1,"$blob":"large","bytes":3,"sha256":"{sha}"}}"#),
            format!(r#"{{"v":1,"$blob":"large/a","bytes":-3,"sha256":"{sha}"}}"#),
            r#"{"v":1,"$blob":"large/a","bytes":3,"sha256":"abc"}"#.to_owned(),
        ] {
            assert_eq!(Pointer::of(&text.as_str().into()), None, "{text}");
            let entity = Entity::new(EntityKey::new("p", "r").unwrap()).with("Photo", text);
            assert_eq!(known_pointers(&entity), Ok(()));
        }
    }

    #[test]
    fn a_pointer_of_a_newer_version_is_refused_and_is_no_value() {
        let pointer = pointer(&primary("Sales", "7"), "Photo").to_string();
        let with =
            |text: String| Entity::new(EntityKey::new("Sales", "7").unwrap()).with("Photo", text);
        assert_eq!(known_pointers(&with(pointer.clone())), Ok(()));
        let newer = pointer.replacen("\"v\":1", "\"v\":2,\"zone\":\"b\"", 1);
        assert_eq!(
            known_pointers(&with(newer)).unwrap_err().to_string(),
            "the pointer in \"Photo\" has format version 2, but this program reads version 1. Update this program, or use the one that wrote the data"
        );
    }

    #[test]
    fn blobs_belong_to_one_entity() {
        let sales = primary("Sales", "7");
        let archived = Primary {
            table: TableName::new("FormerEmployees").unwrap(),
            key: sales.key.clone(),
        };
        let document = |name: &str| ValueFolder::beside(&BlobName::new(name).unwrap());
        let own = pointer(&sales, "Photo");
        assert!(own.is_of(&ValueFolder::of(&sales)));
        for other in [
            ValueFolder::of(&primary("Sales", "77")),
            ValueFolder::of(&archived),
            document("employees/Sales/7"),
        ] {
            assert!(!own.is_of(&other), "{other:?}");
        }
        let filed = Pointer::to(
            &document("former/Sales/7.json"),
            own.container.as_ref().unwrap(),
            "Photo",
            3,
            own.sha256.clone(),
        )
        .unwrap();
        assert_eq!(
            filed.name.as_str(),
            format!("former/Sales/7.json%values/Photo-{}", own.sha256)
        );
        assert!(
            filed.is_of(&document("former/Sales/7.json"))
                && !filed.is_of(&document("former/Sales/7"))
        );
    }

    proptest! {
        #[test]
        fn every_key_has_a_folder_of_its_own(pks in proptest::array::uniform2("[^/\\\\#?\\x00-\\x1f\\x7f-\\x9f\u{fffe}\u{ffff}]{0,300}"), rk in "[^/\\\\#?\\x00-\\x1f\\x7f-\\x9f\u{fffe}\u{ffff}]{0,300}") {
            let keys: Vec<_> = pks.iter().filter_map(|pk| EntityKey::new(pk.as_str(), rk.as_str()).ok()).collect();
            prop_assume!(keys.len() == 2);
            let primaries: Vec<_> = keys.into_iter().map(|key| Primary { key, ..primary("p", "r") }).collect();
            let pointer = pointer(&primaries[0], &"P".repeat(255));
            prop_assert!(pointer.is_of(&ValueFolder::of(&primaries[0])));
            prop_assert_eq!(pointer.is_of(&ValueFolder::of(&primaries[1])), primaries[0] == primaries[1]);
        }
    }
}
