//! `kind = "search_index"`: the service, the index, and the fields of its documents

use std::collections::BTreeMap;

use super::view_section::select;
use super::{DeclaredKind, ViewSection};
use crate::section::Section;
use crate::sinks::{field_name, named};
use crate::views::ViewTables;
use evenkeel_model::catalog::{Documents, SearchIndex, ViewKind};
use evenkeel_model::model::CollectionName;
use evenkeel_model::model::template::Template;
use evenkeel_model::settings::SinkKind;

pub(super) fn read<T: ViewTables>(view: &ViewSection<'_, '_, T>) -> Option<DeclaredKind<T>> {
    view.of_one_table("kind", "no search_index view")?;
    view.refuse(&["on_conflict"], "documents are named by their primaries, so there are no conflicts");
    let keys = ["table", "partition_key", "row_key", "key"];
    view.refuse(&keys, "a document is found by its index and a key that is made of its primary's");
    let section = view.section;
    let wanted = ("a search service", "kind = \"search\", its endpoint and its key");
    let sink = named(section, view.sinks, wanted, |kind| if let SinkKind::Search(search) = kind { Some(search) } else { None });
    let index = section.required("index", "the name of an index of the search service", str::parse::<CollectionName>);
    let key_field = sink.as_ref().and_then(|(_, search)| search.as_ref()).map(|search| search.key_field.as_str());
    let fields = fields(section, key_field);
    let documents = Documents { sink: sink?.0.clone(), collection: index?, fields: fields?, types: BTreeMap::new() };
    Some(DeclaredKind::new(ViewKind::SearchIndex(SearchIndex(documents))))
}

/// The fields of the documents: selected properties under their own names, and fields of templates.
pub(super) fn fields(section: &Section<'_>, key_field: Option<&str>) -> Option<BTreeMap<String, Template>> {
    let mut fields = BTreeMap::new();
    let mut wrong = false;
    let mut add = |section: &Section<'_>, key: &str, name: &str, template: Result<Template, String>| {
        let named = field_name(name).and_then(|name| match key_field {
            Some(key_field) if key_field == name => Err(format!("{name} is the field of the key, which is made of the primary's keys")),
            _ if fields.contains_key(&name) => Err(format!("{name} is selected too; expected it once")),
            _ => Ok(name),
        });
        match named.and_then(|name| Ok((name, template?))) {
            Ok((name, template)) => drop(fields.insert(name, template)),
            Err(problem) => {
                wrong = true;
                section.error(key, problem);
            }
        }
    };
    if section.has("select") {
        for name in select(section)? {
            add(section, "select", &name, Template::parse_text(&format!("{{{name}}}")).map_err(|error| error.to_string()));
        }
    }
    if section.has("fields") {
        let (inner, texts) = section.texts_by_name("fields")?;
        for (name, text) in texts {
            add(&inner, name, name, Template::parse_text(text).map_err(|error| error.to_string()));
        }
    }
    if wrong {
        return None;
    }
    if fields.is_empty() {
        section.error("fields", "missing; expected select = [\"Email\"], fields = { name = \"{FirstName} {LastName}\" }, or both");
        return None;
    }
    Some(fields)
}
