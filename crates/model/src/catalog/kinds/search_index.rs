//! `kind = "search_index"`: a document in a search service for each primary.

use std::collections::BTreeMap;

use super::Kind;
use super::section::{DeclaredKind, ViewSection};
use crate::catalog::definition::Definition;
use crate::catalog::form::{Documents, Form};
use crate::catalog::view::OnConflict;
use crate::settings::SinkKind;
use crate::template::Template;
use crate::{CollectionName, limits};

/// `kind = "search_index"`: a document in a search service for each primary. A template that
/// consists of one property keeps the type of that property; any other template is rendered as
/// text.
#[derive(Debug, Clone)]
pub struct SearchIndex(pub Documents);

impl<P> Kind<P> for SearchIndex {
    fn form(&self) -> Form<'_, P> {
        Form::Documents(&self.0)
    }

    fn define(&self, keys: Definition, _: OnConflict) -> Definition {
        keys.with("index", &self.0.collection)
            .with_map("fields", &self.0.fields)
    }

    fn target_key(&self) -> &'static str {
        "index"
    }
}

/// The name of the key field of every index.
pub const KEY_FIELD: &str = "id";

pub(super) fn read<S: ViewSection>(view: &S) -> Option<DeclaredKind<S::Target>> {
    view.reject_dated_source("kind", "no search_index view")?;
    view.reject_keys(
        &["on_conflict"],
        "document keys are made of primary keys, so there are no conflicts",
    );
    let keys = ["table", "partition_key", "row_key", "key"];
    view.reject_keys(
        &keys,
        "a document has an index, and a key made of its primary's keys",
    );
    let wanted = (
        "a search service",
        "kind = \"search\", its endpoint and its key",
    );
    let sink = view.sink(wanted, |kind| {
        matches!(kind, SinkKind::Search(_)).then_some(())
    });
    let index = view.required(
        "index",
        "the name of an index of the search service",
        str::parse::<CollectionName>,
    );
    let fields = fields(view, Some(KEY_FIELD));
    let documents = Documents {
        sink: sink?.0,
        collection: index?,
        fields: fields?,
        types: BTreeMap::new(),
    };
    Some(DeclaredKind::new(SearchIndex(documents)))
}

/// The fields of the documents: selected properties under their own names, and templates by name.
pub(super) fn fields(
    view: &impl ViewSection,
    key_field: Option<&str>,
) -> Option<BTreeMap<String, Template>> {
    let mut fields = BTreeMap::new();
    let mut add = |name: &str, text: &str| {
        let name = field_name(name)?;
        if key_field == Some(name.as_str()) {
            return Err(format!(
                "{name} is the key field, which evenkeel fills from the primary's keys"
            ));
        }
        if fields.contains_key(&name) {
            return Err(format!(
                "{name} is in both select and fields; expected it once"
            ));
        }
        fields.insert(
            name,
            Template::parse_text(text).map_err(|error| error.to_string())?,
        );
        Ok(())
    };
    let mut wrong = false;
    if view.has("select") {
        for name in view.select()? {
            wrong |= add(&name, &format!("{{{name}}}"))
                .map_err(|problem| view.error("select", problem))
                .is_err();
        }
    }
    if view.has("fields") {
        for (name, text) in view.texts_by_name("fields")? {
            wrong |= add(name, text)
                .map_err(|problem| view.error_in("fields", name, problem))
                .is_err();
        }
    }
    if wrong {
        return None;
    }
    if fields.is_empty() {
        view.error("fields", "missing; expected select = [\"Email\"], fields = { name = \"{FirstName} {LastName}\" }, or both");
        return None;
    }
    Some(fields)
}

/// Checks the name of a field (Azure AI Search, naming rules).
fn field_name(name: &str) -> Result<String, String> {
    let valid = (1..=limits::FIELD_NAME_CHARS).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && name.as_bytes()[0].is_ascii_alphabetic()
        && !name.to_ascii_lowercase().starts_with("azuresearch");
    if valid {
        return Ok(name.to_owned());
    }
    Err(format!(
        "{name:?} is not a field name: expected 1 to 128 letters, digits and underscores, starting with a letter, and not with azureSearch"
    ))
}
