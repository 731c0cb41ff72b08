//! Blob paths of a view: one key template per segment between slashes.
//!
//! Every character of a value except letters, digits and `-_.!$&'()+,;=@~ ` is written as `%XX` of its UTF-8 bytes, and a segment that
//! would be too long ends in a hash, as in [`DocumentPath`](super::document::DocumentPath). Unlike a document path, a blob path may use any
//! property. Several primaries may share a blob, so the path need not identify one primary.

use super::document::{EMPTY, PathError, PlaceError, fitted, printable, segments};
use super::template::{Field, Template, TemplatePart, escape};
use super::{BlobName, Entity};

/// The path from which the blob name of each entity is rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobPath {
    text: String,
    segments: Vec<Template>,
}

impl BlobPath {
    /// Parses a path.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        Ok(Self {
            text: text.to_owned(),
            segments: segments(text)?,
        })
    }

    /// The text from the catalog.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The properties that the path uses, in order of first appearance.
    pub fn properties(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for name in self
            .segments
            .iter()
            .flat_map(Template::fields)
            .map(Field::property)
        {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Returns the name of an entity's blob, or `None` if a property is missing or empty.
    pub fn of(&self, entity: &Entity) -> Result<Option<BlobName>, PlaceError> {
        self.with(|template, field| {
            let Some(value) = entity.property_or_key(field.property()) else {
                return Ok(None);
            };
            Ok(template.render_field(field, &value)?)
        })
    }

    /// Returns the name of a blob. The caller renders and escapes each field.
    pub fn with<E: From<PlaceError>>(
        &self,
        mut render: impl FnMut(&Template, &Field) -> Result<Option<String>, E>,
    ) -> Result<Option<BlobName>, E> {
        let mut segments = Vec::with_capacity(self.segments.len());
        for template in &self.segments {
            let mut text = String::new();
            for part in template.parts() {
                match part {
                    TemplatePart::Literal(literal) => text.push_str(&printable(&escape(literal))),
                    TemplatePart::Field(field) => match render(template, field)? {
                        Some(value) if value.is_empty() => text.push_str(EMPTY),
                        Some(value) => text.push_str(&printable(&value)),
                        None => return Ok(None),
                    },
                }
            }
            segments.push(fitted(&text));
        }
        let name = segments.join("/");
        match BlobName::new(name.clone()) {
            Ok(name) => Ok(Some(name)),
            Err(_) => Err(PlaceError::Name(name).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EntityKey;

    fn of(path: &str, name: &str) -> Option<String> {
        let entity = Entity::new(EntityKey::new("Sales", "7").unwrap()).with("LastName", name);
        BlobPath::parse(path)
            .unwrap()
            .of(&entity)
            .unwrap()
            .map(|name| name.to_string())
    }

    #[test]
    fn a_name_is_made_of_properties() {
        assert_eq!(
            of("by_name/{LastName|lower}.jsonl", "O'Brien").as_deref(),
            Some("by_name/o'brien.jsonl")
        );
        assert_eq!(
            of("{PartitionKey}/{LastName}", "한/.").as_deref(),
            Some("Sales/%ED%95%9C%2F%2E")
        );
        assert_eq!(of("{LastName}", ""), None);
        assert_eq!(of("{Email}", "x"), None);
        assert_eq!(of("{LastName}", "..").as_deref(), Some("%2E%2E"));
        assert!(of("{LastName}.jsonl", &"x".repeat(400)).unwrap().len() < 210);
        assert_eq!(
            BlobPath::parse("a/{B}{A}/{B|lower}").unwrap().properties(),
            ["B", "A"]
        );
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for (path, expected) in [
            ("a//b", "a segment that is empty"),
            ("../{A}", "a segment that is empty"),
            ("{A|wat}", "wat"),
            ("/{A}", "a segment that is empty"),
        ] {
            let error = BlobPath::parse(path).unwrap_err().to_string();
            assert!(error.contains(expected), "{path}: {error}");
        }
    }
}
