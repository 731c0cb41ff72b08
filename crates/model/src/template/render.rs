//! Rendering of templates.

use std::borrow::Cow;

use super::escape::Escaping;
use super::filter::Value;
use super::parse::{Field, Template, TemplatePart};
use crate::caret::Caret;
use crate::{EdmValue, Entity, Key};

/// A template that cannot be rendered for an entity. This is a permanent error of the job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RenderError {
    /// The problem, with the template and the property.
    pub message: String,
}

impl Template {
    /// Renders the key of an entity. Returns `None` if a property is missing or empty: a sparse view. An empty PartitionKey or RowKey is a
    /// value.
    pub fn render(&self, entity: &Entity) -> Result<Option<Key>, RenderError> {
        self.render_as(Escaping::Always, entity)
    }

    /// Renders a key like [`render`](Self::render), with another escaping.
    pub fn render_as(
        &self,
        escaping: Escaping,
        entity: &Entity,
    ) -> Result<Option<Key>, RenderError> {
        self.render_with(escaping, |property| value_of(entity, property))
    }

    /// Renders a key like [`render_as`](Self::render_as), with another value for a property.
    pub fn render_with_value(
        &self,
        escaping: Escaping,
        entity: &Entity,
        property: &str,
        value: &EdmValue,
    ) -> Result<Option<Key>, RenderError> {
        self.render_with(escaping, |name| {
            if name == property {
                Some(value.clone())
            } else {
                value_of(entity, name)
            }
        })
    }

    /// Renders a text without escaping and without the limits of keys. Returns `None` if a property is missing or empty.
    pub fn render_text(&self, entity: &Entity) -> Result<Option<String>, RenderError> {
        self.render_text_with(|property| value_of(entity, property))
    }

    /// Renders a text like [`render_text`](Self::render_text), with values from elsewhere.
    pub fn render_text_with(
        &self,
        value_of: impl Fn(&str) -> Option<EdmValue>,
    ) -> Result<Option<String>, RenderError> {
        self.joined(value_of, |text| text)
    }

    /// Renders a key like [`render_as`](Self::render_as), with values from elsewhere.
    pub fn render_with(
        &self,
        escaping: Escaping,
        value_of: impl Fn(&str) -> Option<EdmValue>,
    ) -> Result<Option<Key>, RenderError> {
        let Some(text) = self.joined(value_of, |text| escaping.written(text))? else {
            return Ok(None);
        };
        Key::new(text).map(Some).map_err(|error| RenderError {
            message: format!("cannot render template {:?}: {error}", self.text),
        })
    }

    fn joined(
        &self,
        value_of: impl Fn(&str) -> Option<EdmValue>,
        written: impl Fn(String) -> String,
    ) -> Result<Option<String>, RenderError> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                TemplatePart::Literal(literal) => text.push_str(literal),
                TemplatePart::Field(field) => {
                    let Some(value) = value_of(field.property()) else {
                        return Ok(None);
                    };
                    let Some(rendered) = self.rendered(field, &value)? else {
                        return Ok(None);
                    };
                    text.push_str(&written(rendered));
                }
            }
        }
        Ok(Some(text))
    }

    /// Renders one field of this template for a key, escaped. Returns `None` if the rendered field is empty.
    pub fn render_field(
        &self,
        field: &Field,
        value: &EdmValue,
    ) -> Result<Option<String>, RenderError> {
        self.render_field_as(Escaping::Always, field, value)
    }

    /// Renders a field like [`render_field`](Self::render_field), with another escaping.
    pub fn render_field_as(
        &self,
        escaping: Escaping,
        field: &Field,
        value: &EdmValue,
    ) -> Result<Option<String>, RenderError> {
        let rendered = self.rendered(field, value)?;
        Ok(rendered.map(|text| escaping.written(text)))
    }

    fn rendered(&self, field: &Field, value: &EdmValue) -> Result<Option<String>, RenderError> {
        field
            .rendered(value)
            .map_err(|problem| self.problem(field, &problem))
    }

    /// Returns the prefix of the field's text for all values that start with `value`, unescaped; `None` if a filter does not preserve
    /// prefixes.
    pub fn beginning(field: &Field, value: &str) -> Option<String> {
        field
            .filters
            .iter()
            .try_fold(value.to_owned(), |beginning, filter| {
                filter.apply_to_beginning(beginning)
            })
    }

    fn problem(&self, field: &Field, problem: &str) -> RenderError {
        RenderError {
            message: format!(
                "cannot render template {:?}: property {:?} {problem}\n{}",
                self.text,
                field.property,
                Caret::new(&self.text, &field.span)
            ),
        }
    }
}

fn value_of(entity: &Entity, property: &str) -> Option<EdmValue> {
    entity.property_or_key(property).map(Cow::into_owned)
}

impl Field {
    fn rendered(&self, value: &EdmValue) -> Result<Option<String>, String> {
        let mut value = Value::Typed(value);
        // The service accepts an empty key, but an empty value of any other property counts as missing.
        let may_be_empty = value.is_empty() && matches!(self.property(), "PartitionKey" | "RowKey");
        for filter in &self.filters {
            // An empty text has a hash too, so all primaries without a value would have the same key.
            if value.is_empty() && !may_be_empty {
                return Ok(None);
            }
            value = Value::Text(filter.apply(value)?);
        }
        let text = value.into_text()?;
        Ok((may_be_empty || !text.is_empty()).then_some(text))
    }
}
