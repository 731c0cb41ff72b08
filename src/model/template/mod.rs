//! Key templates: literal text and `{Property|filter:arg|…}`.

use std::fmt;

use super::{Entity, Key};

/// A parsed key template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    text: String,
}

/// Why a text is not a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    /// What is wrong.
    pub message: String,
}

/// Why a template cannot be rendered for an entity: a permanent error of its job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RenderError {
    /// What is wrong, naming template and property.
    pub message: String,
}

impl Template {
    /// Parses a template.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        Err(TemplateError { message: format!("templates cannot be parsed yet: {text:?}") })
    }

    /// Renders the key for an entity. `None` where a property is missing or empty: a sparse view.
    pub fn render(&self, _entity: &Entity) -> Result<Option<Key>, RenderError> {
        Err(RenderError { message: "templates cannot be rendered yet".to_owned() })
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
