//! Documents of sinks: one document for each primary, in a store outside the storage accounts.
//!
//! A field contains the value of one property with its type, or a text that is rendered from
//! several properties. The field is null if the primary lacks one of its properties, so that every
//! document has all fields.

use std::collections::BTreeMap;

use serde_json::Value;

use super::DeriveError;
use super::derive::ViewContext;
use crate::catalog::Documents;
use crate::sink::{FieldError, field};
use crate::template::Template;
use crate::{EdmValue, SinkDocument};

pub(super) fn document(
    context: &ViewContext<'_>,
    documents: &Documents,
) -> Result<SinkDocument, Box<DeriveError>> {
    let fields = documents.fields.iter().map(|(name, template)| {
        let typed = documents.types.get(name);
        let encode =
            |value: &EdmValue| typed.map_or_else(|| field(value), |column| column.value(value));
        Ok((name.clone(), value(context, name, template, &encode)?))
    });
    Ok(SinkDocument(
        fields.collect::<Result<BTreeMap<String, Value>, Box<DeriveError>>>()?,
    ))
}

fn value(
    context: &ViewContext<'_>,
    name: &str,
    template: &Template,
    encode: &dyn Fn(&EdmValue) -> Result<Value, FieldError>,
) -> Result<Value, Box<DeriveError>> {
    let encoded = match template.bare_property() {
        Some(property) if !matches!(property, "PartitionKey" | "RowKey") => {
            context.entity.get(property).map(encode)
        }
        _ => template
            .render_text(context.entity)
            .map_err(|source| context.render_error("fields", source))?
            .map(|text| encode(&text.into())),
    };
    encoded.unwrap_or(Ok(Value::Null)).map_err(|source| {
        Box::new(DeriveError::Field {
            view: context.view.name.clone(),
            primary: context.primary.clone(),
            field: name.to_owned(),
            source,
        })
    })
}
