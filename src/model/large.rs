//! Large values: properties that lie in blobs, and the pointers that stand in their place.
//!
//! A value's blob is named by its primary, its property and the hash of its content, so that one name never means two
//! contents, and no primary's blob is another's:
//!
//! ```text
//! employees/Sales/000223/Photo-9f86d081884c7d65…      table, PartitionKey, RowKey, property, SHA-256
//! ```
//!
//! Keys are escaped as in paths of documents, and end in a hash where they are long. The values of an entity that is kept as a
//! document lie beside it:
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
use super::{BlobName, ContainerName, EdmValue, Entity};

/// The container in which senders stage what is too large for a message, in the account of the job's table.
pub const STAGING: &str = "evenkeel-staging";

/// What stands in an entity for a value in a blob.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pointer {
    /// Its container.
    pub container: ContainerName,
    /// Its name.
    pub name: BlobName,
    /// Its length in bytes.
    pub bytes: u64,
    /// The SHA-256 of its content, in lower-case hex digits.
    pub sha256: String,
}

/// A pointer as JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(rename = "$blob")]
    blob: String,
    bytes: u64,
    sha256: String,
}

/// Where the values of one entity lie: what the names of its blobs begin with, and no other's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder(String);

impl Folder {
    /// Of an entity in a table.
    pub fn of(primary: &Primary) -> Self {
        let Primary { table, key } = primary;
        Self(format!("{}/{}/{}/", table.canonical(), segment(key.pk.as_str()), segment(key.rk.as_str())))
    }

    /// Of an entity that is kept as a document. No document's name has such a segment: where a value is escaped, two digits follow
    /// the `%`.
    pub fn beside(document: &BlobName) -> Self {
        Self(format!("{document}%values/"))
    }
}

impl Pointer {
    /// The pointer that stands for a property's content in the blob that its entity has for it.
    pub fn to(folder: &Folder, container: &ContainerName, property: &str, bytes: u64, sha256: String) -> Result<Self, NameError> {
        let name = BlobName::new(format!("{}{property}-{sha256}", folder.0))?;
        Ok(Self { container: container.clone(), name, bytes, sha256 })
    }

    /// The pointer that a value is; nothing where it is a value of its own.
    pub fn of(value: &EdmValue) -> Option<Self> {
        let text = value.as_str().filter(|text| text.starts_with('{') && text.contains("\"$blob\""))?;
        let wire: Wire = serde_json::from_str(text).ok()?;
        let (container, name) = place(&wire.blob)?;
        let hex = wire.sha256.len() == 64 && wire.sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        hex.then_some(Self { container, name, bytes: wire.bytes, sha256: wire.sha256 })
    }

    /// Whether the blob is this entity's own: one that goes when nothing of it points there any more.
    pub fn is_of(&self, folder: &Folder) -> bool {
        let property = self.name.as_str().strip_prefix(folder.0.as_str()).and_then(|rest| rest.strip_suffix(&self.sha256));
        property.and_then(|property| property.strip_suffix('-')).is_some_and(|property| !property.contains('/'))
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wire = Wire { blob: format!("{}/{}", self.container, self.name), bytes: self.bytes, sha256: self.sha256.clone() };
        // Texts and numbers always serialise.
        f.write_str(&serde_json::to_string(&wire).unwrap_or_default())
    }
}

/// The pointers of an entity to blobs of its own, by property.
pub fn pointers<'a>(folder: &'a Folder, entity: &'a Entity) -> impl Iterator<Item = (&'a str, Pointer)> {
    let own = entity.user_properties().filter_map(|(name, value)| Some((name.as_str(), Pointer::of(value)?)));
    own.filter(|(_, pointer)| pointer.is_of(folder))
}

/// The hash of a content, as pointers carry it.
pub fn hash(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}

/// `container/name`, taken apart.
pub fn place(text: &str) -> Option<(ContainerName, BlobName)> {
    let (container, name) = text.split_once('/')?;
    Some((ContainerName::new(container).ok()?, BlobName::new(name).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{EntityKey, TableName};
    use proptest::prelude::*;

    fn primary(pk: &str, rk: &str) -> Primary {
        Primary { table: TableName::new("Employees").unwrap(), key: EntityKey::new(pk, rk).unwrap() }
    }

    fn pointer(primary: &Primary, property: &str) -> Pointer {
        Pointer::to(&Folder::of(primary), &ContainerName::new("large").unwrap(), property, 3, hash(b"abc")).unwrap()
    }

    #[test]
    fn a_pointer_is_written_as_the_contract_says() {
        let pointer = pointer(&primary("Sales", "한 7"), "Photo");
        let sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(
            pointer.to_string(),
            format!(r#"{{"$blob":"large/employees/Sales/%ED%95%9C 7/Photo-{sha}","bytes":3,"sha256":"{sha}"}}"#)
        );
        assert_eq!(Pointer::of(&pointer.to_string().into()), Some(pointer));
    }

    #[test]
    fn what_is_no_pointer_is_a_value() {
        let sha = hash(b"abc");
        for text in [
            "x".to_owned(),
            "{\"$blob\":1}".to_owned(),
            format!(r#"{{"$blob":"large/a","bytes":3,"sha256":"{sha}","more":1}}"#),
            format!(r#"{{"$blob":"large","bytes":3,"sha256":"{sha}"}}"#),
            format!(r#"{{"$blob":"large/a","bytes":-3,"sha256":"{sha}"}}"#),
            r#"{"$blob":"large/a","bytes":3,"sha256":"abc"}"#.to_owned(),
        ] {
            assert_eq!(Pointer::of(&text.as_str().into()), None, "{text}");
        }
    }

    #[test]
    fn blobs_belong_to_one_entity() {
        let sales = primary("Sales", "7");
        let archived = Primary { table: TableName::new("FormerEmployees").unwrap(), key: sales.key.clone() };
        let document = |name: &str| Folder::beside(&BlobName::new(name).unwrap());
        let own = pointer(&sales, "Photo");
        assert!(own.is_of(&Folder::of(&sales)));
        for other in [Folder::of(&primary("Sales", "77")), Folder::of(&archived), document("employees/Sales/7")] {
            assert!(!own.is_of(&other), "{other:?}");
        }
        let filed = Pointer::to(&document("former/Sales/7.json"), &own.container, "Photo", 3, own.sha256.clone()).unwrap();
        assert_eq!(filed.name.as_str(), format!("former/Sales/7.json%values/Photo-{}", own.sha256));
        assert!(filed.is_of(&document("former/Sales/7.json")) && !filed.is_of(&document("former/Sales/7")));
    }

    proptest! {
        #[test]
        fn every_key_has_a_folder_of_its_own(pks in proptest::array::uniform2("[^/\\\\#?\\x00-\\x1f\\x7f-\\x9f\u{fffe}\u{ffff}]{0,300}"), rk in "[^/\\\\#?\\x00-\\x1f\\x7f-\\x9f\u{fffe}\u{ffff}]{0,300}") {
            let keys: Vec<_> = pks.iter().filter_map(|pk| EntityKey::new(pk.as_str(), rk.as_str()).ok()).collect();
            prop_assume!(keys.len() == 2);
            let primaries: Vec<_> = keys.into_iter().map(|key| Primary { key, ..primary("p", "r") }).collect();
            let pointer = pointer(&primaries[0], &"P".repeat(255));
            prop_assert!(pointer.is_of(&Folder::of(&primaries[0])));
            prop_assert_eq!(pointer.is_of(&Folder::of(&primaries[1])), primaries[0] == primaries[1]);
        }
    }
}
