//! Search indexes: a document for each primary, in another store.
//!
//! A field has the value of a property, in its type, or a text made of several. A primary that lacks a property of a
//! field has null there, so that a document always has all fields.

use std::collections::BTreeMap;

use serde_json::Value;

use super::DeriveError;
use super::derive::Deriving;
use crate::catalog::SearchIndex;
use crate::model::SinkDocument;
use crate::model::sink::field;
use crate::model::template::Template;

/// The document of a primary.
pub(super) fn document(of: &Deriving<'_>, search: &SearchIndex) -> Result<SinkDocument, Box<DeriveError>> {
    let fields = search.fields.iter().map(|(name, template)| Ok((name.clone(), value(of, name, template)?)));
    Ok(SinkDocument(fields.collect::<Result<BTreeMap<String, Value>, Box<DeriveError>>>()?))
}

fn value(of: &Deriving<'_>, name: &str, template: &Template) -> Result<Value, Box<DeriveError>> {
    match template.bare_property() {
        Some(property) if !matches!(property, "PartitionKey" | "RowKey") => {
            of.entity.get(property).map_or(Ok(Value::Null), |value| field(value).map_err(|source| unsayable(of, name, source)))
        }
        _ => Ok(template.render_text(of.entity).map_err(|source| of.unrendered("fields", source))?.map_or(Value::Null, Value::from)),
    }
}

fn unsayable(of: &Deriving<'_>, name: &str, source: crate::model::sink::FieldError) -> Box<DeriveError> {
    Box::new(DeriveError::Field { view: of.view.name.clone(), primary: of.primary.clone(), field: name.to_owned(), source })
}
