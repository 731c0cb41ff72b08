//! Warns about names that are valid but probably misspelt, because they differ only slightly from another name.

use super::clauses::warning;
use super::section::Section;
use evenkeel_model::TableName;
use evenkeel_model::catalog::{Catalog, Declaration, PropertyRead};
use evenkeel_model::nearest::nearest;

pub(super) fn check(root: &Section<'_>, catalog: &Catalog) {
    for view in catalog.views.values() {
        properties(root, Declaration::View(&view.name), view.reads());
    }
    for view in catalog.dated_views.values() {
        properties(root, Declaration::View(&view.name), view.reads());
    }
    sources(root, catalog);
}

/// Warns about a property that differs from `PartitionKey` or `RowKey` only in case.
fn properties(root: &Section<'_>, by: Declaration<'_>, reads: Vec<PropertyRead<'_>>) {
    for PropertyRead { key, property, .. } in reads {
        for known in ["PartitionKey", "RowKey"] {
            if property != known && property.eq_ignore_ascii_case(known) {
                let message =
                    format!("{property:?} is a property, not a key; did you mean {known}?");
                warning(root, by, key, &message);
            }
        }
    }
}

/// Warns about a source that is probably misspelt: no other section names it, and its name is similar to that of another table. A source
/// needs no declaration, so a misspelt name is valid.
fn sources(root: &Section<'_>, catalog: &Catalog) {
    let views = catalog.views.values();
    let archives = catalog.archives.values();
    let of_views = views
        .clone()
        .map(|view| (Declaration::View(&view.name), &view.source.table));
    let of_archives = archives
        .clone()
        .map(|archive| (Declaration::Archive(&archive.name), &archive.source.table));
    let sources: Vec<(Declaration<'_>, &TableName)> = of_views.chain(of_archives).collect();
    let targets = views
        .filter_map(|view| Some(&view.form().target()?.table))
        .chain(archives.filter_map(|archive| Some(&archive.target.table()?.table)));
    let declared = catalog.declared.iter().map(|table| &table.table);
    let named: Vec<&TableName> = sources
        .iter()
        .map(|(_, source)| *source)
        .chain(targets)
        .chain(declared)
        .collect();
    let uses = |table: &TableName| named.iter().filter(|other| **other == table).count();
    for (by, source) in sources.iter().filter(|(_, source)| uses(source) == 1) {
        let others = catalog.tables.keys().filter(|other| uses(other) > 1);
        if let Some(known) = nearest(source.as_str(), others.map(TableName::as_str))
            .filter(|known| known.len().abs_diff(source.as_str().len()) <= 1)
        {
            let message =
                format!("no other section uses the table {source}; did you mean {known:?}?");
            warning(root, *by, "source", &message);
        }
    }
}
