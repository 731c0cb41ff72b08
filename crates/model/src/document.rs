//! Documents: an entity as one JSON text, and its path in a container or a folder.
//!
//! A path is made of the primary's key alone and contains all of it. A document can thus be found by its key, and no two entities share a
//! path. Each segment between slashes is a key template. Every character of a value except letters, digits and `-_.!$&'()+,;=@~ ` is
//! written as `%XX` of its UTF-8 bytes, so that a path is the same on every file system and in a container.

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::item::Owner;
use super::job::Primary;
use super::odata::{self, ODataError};
use super::stored::{self, FORMAT_PROPERTY, FormatError};
use super::template::{RenderError, Template, TemplateError, TemplatePart, escape};
use super::{BlobName, EdmValue, Entity, EntityKey, Key, TableName, job, limits};

/// The path of documents if the catalog has none.
pub const DEFAULT_PATH: &str = "{PartitionKey}/{RowKey}.json";
/// A path that distinguishes keys even on case-insensitive file systems.
const DISTINCT_PATH: &str = "{PartitionKey}_{PartitionKey|hash:8}/{RowKey}_{RowKey|hash:8}.json";
/// Maximum length of a path segment in bytes. A file name may have 255 (ext4, NTFS, NFS), and a temporary file needs some of them.
const SEGMENT_BYTES: usize = 200;
/// Bytes kept from the start of a longer segment, enough for people to recognise it.
const KEPT_BYTES: usize = 96;

/// The path from which the document name of each entity is rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentPath {
    text: String,
    segments: Vec<Template>,
}

/// A text that is not a path of documents.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// A segment is not a valid template.
    #[error("{0}")]
    Template(#[from] TemplateError),
    /// A segment is empty, `.` or `..`.
    #[error("path {0:?} has a segment that is empty, \".\" or \"..\"")]
    Segment(String),
    /// The path uses a property other than the keys.
    #[error(
        "path {path:?} uses property {property:?}; only PartitionKey and RowKey are allowed, because a restore has only the key"
    )]
    Property {
        /// The path.
        path: String,
        /// The property.
        property: String,
    },
    /// Two entities could share a document.
    #[error(
        "path {path:?} does not contain the whole {missing}, so two entities could share a document; expected a path such as {DEFAULT_PATH:?}"
    )]
    Ambiguous {
        /// The path.
        path: String,
        /// The key property that the path does not fully contain.
        missing: &'static str,
    },
}

/// A path that cannot be rendered for a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// A filter refused a value.
    #[error("{0}")]
    Render(#[from] RenderError),
    /// The rendered name is too long or has too many segments.
    #[error("path {0:?} is longer than 1,024 characters or has too many segments")]
    Name(String),
}

impl DocumentPath {
    /// Parses a path.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let segments = segments(text)?;
        let named = segments.iter().flat_map(Template::properties);
        if let Some(property) = named
            .into_iter()
            .find(|name| !matches!(*name, "PartitionKey" | "RowKey"))
        {
            return Err(PathError::Property {
                path: text.to_owned(),
                property: property.to_owned(),
            });
        }
        for missing in ["PartitionKey", "RowKey"] {
            if !segments.iter().any(|segment| segment.covers(&[missing])) {
                return Err(PathError::Ambiguous {
                    path: text.to_owned(),
                    missing,
                });
            }
        }
        Ok(Self {
            text: text.to_owned(),
            segments,
        })
    }

    /// The text from the catalog.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the name of an entity's document.
    pub fn of(&self, key: &EntityKey) -> Result<BlobName, PlaceError> {
        let segments = self
            .segments
            .iter()
            .map(|segment| render(segment, key).map(|text| fitted(&text)));
        let name = segments.collect::<Result<Vec<_>, _>>()?.join("/");
        BlobName::new(name.clone()).map_err(|_| PlaceError::Name(name))
    }
}

/// Parses the templates between a path's slashes.
pub(super) fn segments(path: &str) -> Result<Vec<Template>, PathError> {
    let segment = |text| match text {
        "" | "." | ".." => Err(PathError::Segment(path.to_owned())),
        text => Ok(Template::parse(text)?),
    };
    path.split('/').map(segment).collect()
}

/// The text for an empty value in a path. An escaped value never equals this text, because two hex digits follow every `%` in escaped
/// values.
pub(super) const EMPTY: &str = "%empty";

/// Renders a segment for a key. Unlike in other templates, an empty key is a valid value.
fn render(template: &Template, key: &EntityKey) -> Result<String, RenderError> {
    let mut text = String::new();
    for part in template.parts() {
        match part {
            TemplatePart::Literal(literal) => text.push_str(&printable(&escape(literal))),
            TemplatePart::Field(field) => {
                let value = if field.property() == "PartitionKey" {
                    &key.pk
                } else {
                    &key.rk
                };
                match template.render_field(field, &EdmValue::from(value.as_str()))? {
                    Some(value) if !value.is_empty() => text.push_str(&printable(&value)),
                    _ => text.push_str(EMPTY),
                }
            }
        }
    }
    Ok(text)
}

/// Writes the remaining special characters of an escaped text as `%XX`.
pub(super) fn printable(escaped: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "%-_.!$&'()+,;=@~ ".contains(c);
    let mut text = String::with_capacity(escaped.len());
    for c in escaped.chars() {
        if plain(c) {
            text.push(c);
        } else {
            let mut buffer = [0; 4];
            for byte in c.encode_utf8(&mut buffer).bytes() {
                text.push('%');
                text.push_str(&hex::encode_upper([byte]));
            }
        }
    }
    text
}

/// Returns the path segment for a value of a key.
pub(super) fn segment(value: &str) -> String {
    if value.is_empty() {
        EMPTY.to_owned()
    } else {
        fitted(&printable(&escape(value)))
    }
}

/// Makes a segment valid on every file system: not too long, not `.` or `..`, and without a blank or a dot at either end.
pub(super) fn fitted(segment: &str) -> String {
    let mut text = segment.to_owned();
    // A leading dot is escaped, because it would hide the file, and because the names of evenkeel's temporary files begin with a dot.
    for (character, written) in [(' ', "%20"), ('.', "%2E")] {
        if let Some(rest) = text.strip_prefix(character) {
            text = format!("{written}{rest}");
        }
    }
    let end = match text.chars().last() {
        Some(' ') => Some("%20"),
        Some('.') => Some("%2E"),
        _ => None,
    };
    if let Some(end) = end {
        text.pop();
        text.push_str(end);
    }
    if text.len() <= SEGMENT_BYTES {
        return text;
    }
    let extension = text
        .rsplit_once('.')
        .map(|(_, extension)| extension)
        .filter(|extension| (1..=8).contains(&extension.len()));
    let extension = extension
        .map(|extension| format!(".{extension}"))
        .unwrap_or_default();
    // The text is ASCII here, so a cut cannot split a character.
    format!(
        "{}%~{}{extension}",
        &text[..KEPT_BYTES],
        hex::encode(Sha256::digest(&text))
    )
}

/// Format version of a document.
const VERSION: u32 = 1;

/// Encodes an entity as a document: OData JSON, as in messages, with the format version.
pub fn encode(entity: &Entity) -> Bytes {
    let mut json = odata::encode(entity);
    stored::tag(&mut json, VERSION);
    let mut text = serde_json::Value::Object(json).to_string();
    text.push('\n');
    text.into()
}

/// A document that cannot be read as the expected entity.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DocumentError {
    /// The content is not a JSON object.
    #[error("the document is not a JSON object: {0}")]
    Json(String),
    /// The format version is missing or unknown.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The JSON is not an entity.
    #[error("the document is not an entity")]
    Entity(#[from] ODataError),
    /// The document belongs to another entity.
    #[error("the document belongs to {0}")]
    Key(EntityKey),
    /// The document belongs to another entity, whose key differs only in case, and the file system ignores case.
    #[error(
        "the document belongs to {0}, whose key differs only in case, and this file system ignores case. Archive to a container, or use a path such as \"{DISTINCT_PATH}\""
    )]
    Case(EntityKey),
    /// The document belongs to an entity of another table with the same key and path.
    #[error(
        "the document belongs to {found}, but the source of this archive is {expected}. Give each archive its own container, folder or path"
    )]
    Table {
        /// The archived entity.
        found: Primary,
        /// The source of the archive.
        expected: TableName,
    },
}

/// Decodes the document of the entity with this key.
pub fn decode(content: &[u8], key: &EntityKey) -> Result<Entity, DocumentError> {
    let mut object = job::plain_object(content, limits::STAGED_KEYS)
        .map_err(|error| DocumentError::Json(error.to_string()))?;
    stored::check_tag(&object, VERSION, || format!("the document of {key}"))?;
    object.remove(FORMAT_PROPERTY);
    let entity = odata::decode_object(object)?;
    let alike = |one: &Key, other: &Key| one.as_str().eq_ignore_ascii_case(other.as_str());
    match &entity.key {
        own if own == key => Ok(entity),
        other if alike(&other.pk, &key.pk) && alike(&other.rk, &key.rk) => {
            Err(DocumentError::Case(entity.key))
        }
        _ => Err(DocumentError::Key(entity.key)),
    }
}

/// Refuses a document that another archive wrote at the same path. `table` is the source of this archive, and `others` are the sources of
/// the archives that write to the same place.
/// A document of a table that is the source of no archive is accepted, because the source of this archive may have been renamed.
pub fn refuse_anothers<'t>(
    entity: &Entity,
    table: &TableName,
    others: impl IntoIterator<Item = &'t TableName>,
) -> Result<(), DocumentError> {
    let is_anothers = |archived: &Primary| {
        archived.table != *table && others.into_iter().any(|other| *other == archived.table)
    };
    match Owner::source(entity).filter(is_anothers) {
        None => Ok(()),
        Some(found) => Err(DocumentError::Table {
            found,
            expected: table.clone(),
        }),
    }
}

/// Renders a metadata value of a blob, with `%XX` for `%` and for characters that a header cannot hold. Returns `None` if a property is
/// missing or empty.
pub fn metadata(template: &Template, entity: &Entity) -> Result<Option<String>, RenderError> {
    let Some(text) = template.render_text(entity)? else {
        return Ok(None);
    };
    let mut value = String::with_capacity(text.len());
    for c in text.trim().chars() {
        if (' '..='~').contains(&c) && c != '%' {
            value.push(c);
        } else {
            value.push_str(&printable(&escape(&c.to_string())));
        }
    }
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::item::SOURCE_PROPERTY;

    fn staff() -> TableName {
        TableName::new("Staff").unwrap()
    }

    #[test]
    fn a_document_of_another_table_is_refused_with_both_names() {
        let customers = TableName::new("Customers").unwrap();
        let archived = |source: &str| {
            Entity::new(EntityKey::new("Sales", "7").unwrap()).with(SOURCE_PROPERTY, source)
        };
        let theirs = archived(r#"["customers","Sales","7"]"#);
        let error = refuse_anothers(&theirs, &staff(), [&customers])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("customers(\"Sales\", \"7\")")
                && error.contains("source of this archive is Staff"),
            "{error}"
        );
        assert_eq!(
            refuse_anothers(&theirs, &staff(), []),
            Ok(()),
            "the source's former name"
        );
        for own in [r#"["staff","Sales","7"]"#, "edited by hand"] {
            assert_eq!(
                refuse_anothers(&archived(own), &staff(), [&customers, &staff()]),
                Ok(()),
                "{own}"
            );
        }
    }

    #[test]
    fn a_document_of_a_key_in_another_case_is_refused_with_a_remedy() {
        let ann = Entity::new(EntityKey::new("Sales", "Ann").unwrap());
        let error = decode(&encode(&ann), &EntityKey::new("sales", "ann").unwrap()).unwrap_err();
        assert_eq!(error, DocumentError::Case(ann.key.clone()));
        assert!(error.to_string().contains(DISTINCT_PATH), "{error}");
        assert_eq!(
            decode(&encode(&ann), &EntityKey::new("Sales", "Bob").unwrap()),
            Err(DocumentError::Key(ann.key))
        );
        let [one, other] = [("Sales", "Ann"), ("sales", "ann")]
            .map(|(pk, rk)| of(DISTINCT_PATH, pk, rk).to_ascii_lowercase());
        assert_ne!(one, other);
    }

    fn of(path: &str, pk: &str, rk: &str) -> String {
        DocumentPath::parse(path)
            .unwrap()
            .of(&EntityKey::new(pk, rk).unwrap())
            .unwrap()
            .to_string()
    }

    #[test]
    fn a_path_is_the_key_escaped() {
        assert_eq!(of(DEFAULT_PATH, "Sales", "000223"), "Sales/000223.json");
        assert_eq!(
            of(
                "former/{PartitionKey|lower}/{PartitionKey}/x_{RowKey|hash:64}",
                "A%",
                "b"
            ),
            format!("former/a%25/A%25/x_{}", hex::encode(Sha256::digest("b")))
        );
        assert_eq!(of(DEFAULT_PATH, "", "한 *"), "%empty/%ED%95%9C %2A.json");
        assert_eq!(of("{PartitionKey}/{RowKey}", "..", " x."), "%2E%2E/%20x%2E");
        let long = of(DEFAULT_PATH, "p", &"x".repeat(400));
        assert!(
            long.len() < 210 && long.split('.').next_back() == Some("json") && long.contains("%~"),
            "{long}"
        );
    }

    #[test]
    fn a_path_that_does_not_contain_the_whole_key_is_refused() {
        for (path, expected) in [
            ("{PartitionKey}.json", "RowKey"),
            ("{PartitionKey}{RowKey}", "PartitionKey"),
            ("{PartitionKey|lower}/{RowKey}", "PartitionKey"),
            ("{Email}/{PartitionKey}/{RowKey}", "Email"),
            ("/{PartitionKey}/{RowKey}", "a segment that is empty"),
            ("{PartitionKey}/../{RowKey}", "a segment that is empty"),
            ("{PartitionKey}/{RowKey|wat}", "wat"),
            // `before:-` and `after:-` would leave nothing of a key without a dash.
            (
                "{PartitionKey}/{RowKey|before:-}-{RowKey|after:-}.json",
                "RowKey",
            ),
        ] {
            let error = DocumentPath::parse(path).unwrap_err().to_string();
            assert!(error.contains(expected), "{path}: {error}");
        }
    }

    #[test]
    fn a_document_is_read_as_it_was_written_and_only_under_its_key() {
        let key = EntityKey::new("Sales", "한/".replace('/', "")).unwrap();
        let entity = Entity::new(key.clone())
            .with("Salary", 5_i64)
            .with("Name", "O'Brien");
        let written = r#"{"Name":"O'Brien","PartitionKey":"Sales","RowKey":"한","Salary":"5","Salary@odata.type":"Edm.Int64","ek_format":1}"#;
        assert_eq!(encode(&entity), format!("{written}\n"));
        assert_eq!(decode(&encode(&entity), &key), Ok(entity.clone()));
        let newer = decode(
            written
                .replace("\"ek_format\":1", "\"ek_format\":2")
                .as_bytes(),
            &key,
        );
        let newer = newer.unwrap_err().to_string();
        assert!(
            newer.starts_with("the document of ")
                && newer.contains("has format version 2")
                && newer.contains("Update this program"),
            "{newer}"
        );
        let theirs = decode(written.replace(",\"ek_format\":1", "").as_bytes(), &key);
        assert!(
            matches!(
                theirs,
                Err(DocumentError::Format(FormatError::Malformed { .. }))
            ),
            "{theirs:?}"
        );
        let other = EntityKey::new("Sales", "8").unwrap();
        assert_eq!(
            decode(&encode(&entity), &other),
            Err(DocumentError::Key(key.clone()))
        );
        let text = String::from_utf8(encode(&entity).to_vec()).unwrap();
        assert_eq!(
            decode(
                format!("\u{feff}{}\r\n", text.replace('\n', "\r\n")).as_bytes(),
                &key
            ),
            Ok(entity),
            "as an editor saves it"
        );
        assert!(matches!(decode(b"{", &key), Err(DocumentError::Json(_))));
        assert!(matches!(decode(b"[]", &key), Err(DocumentError::Json(_))));
    }

    #[test]
    fn metadata_has_only_characters_that_a_header_can_hold() {
        let entity =
            Entity::new(EntityKey::new("Sales", "7").unwrap()).with("Name", " 한 O'Brien/");
        let value =
            |template: &str| metadata(&Template::parse(template).unwrap(), &entity).unwrap();
        assert_eq!(value("{Name}").as_deref(), Some("%ED%95%9C O'Brien/"));
        assert_eq!(value("{Missing}"), None);
    }

    proptest! {
        #[test]
        fn two_keys_never_share_a_path(a in ("[a.%/ 한~]{0,6}", "[a.%/ 한~]{0,6}"), b in ("[a.%/ 한~]{0,6}", "[a.%/ 한~]{0,6}")) {
            let key = |(pk, rk): &(String, String)| EntityKey::new(pk.replace('/', ""), rk.replace('/', "")).unwrap();
            let path = DocumentPath::parse("{PartitionKey}/{RowKey}").unwrap();
            prop_assert_eq!(path.of(&key(&a)).unwrap() == path.of(&key(&b)).unwrap(), key(&a) == key(&b));
        }
    }
}
