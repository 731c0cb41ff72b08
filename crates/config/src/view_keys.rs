//! The keys of one view, by themselves: whether its rows are its primaries, crowd one partition, or can be asked for by a range.

use super::section::Section;
use super::views::{Named, ViewDraft, ViewTables};
use evenkeel_model::catalog::RowForm;
use evenkeel_model::patterns::lookup::{UnorderedKeyPart, unordered_key_part};
use evenkeel_model::template::{Crowding, Distinction, Template, TemplatePart, keys_determine};

/// Checks the keys of a view.
pub(super) fn check<T: ViewTables>(view: &ViewDraft<'_, T>) {
    if let Some(rows) = view.rows() {
        own_row(view, &rows);
        collisions(view, &rows);
        // What tells the members of a row apart would take it to pieces.
        let has_members = view.form().has_shared_items();
        let apart = if has_members {
            let of_lists = rows.row_key.properties().into_iter().next();
            of_lists.map(str::to_owned)
        } else {
            Some("RowKey".to_owned())
        };
        crowding(
            &view.section,
            "partition_key",
            rows.partition_key,
            apart.as_deref(),
        );
        for (key, template) in [
            ("partition_key", rows.partition_key),
            ("row_key", rows.row_key),
        ] {
            if let Some(UnorderedKeyPart { problem, .. }) = unordered_key_part(template) {
                view.section.warning(
                    key,
                    format!("no lookup can ask for a range here: {problem}"),
                );
            }
        }
    }
}

/// A copy must not be its own primary.
fn own_row<T: ViewTables>(view: &ViewDraft<'_, T>, rows: &RowForm<'_, Named<T>>) {
    if view.source != rows.target.tables {
        return;
    }
    if rows.partition_key.bare_property() == Some("PartitionKey")
        && rows.row_key.bare_property() == Some("RowKey")
    {
        view.section.error(
            "row_key",
            "this is the key of the primary itself; expected another table, or another key such as \"email_{Email|lower}\"",
        );
    } else if view.set_properties().is_some() {
        // It makes no rows.
    } else if !starts_literally(rows.partition_key) && !starts_literally(rows.row_key) {
        view.section.warning(
            "row_key",
            format!(
                "copies lie in the table of their primaries, {}, and nothing keeps their keys apart; better begin with a literal, such as \"email_{{Email|lower}}\"",
                view.source
            ),
        );
    }
}

fn starts_literally(template: &Template) -> bool {
    matches!(template.parts().first(), Some(TemplatePart::Literal(_)))
}

/// Reports where two primaries can want one key, unless the catalog decides the conflict.
fn collisions<T: ViewTables>(view: &ViewDraft<'_, T>, rows: &RowForm<'_, Named<T>>) {
    // Lists and groups take members of every primary.
    if view.declared.on_conflict.is_some() || view.form().has_shared_items() {
        return;
    }
    let covered = |property: &str| {
        keys_determine(
            &[rows.partition_key, rows.row_key],
            property,
            Distinction::Texts,
            None,
        )
    };
    let named = |property: &&str| {
        rows.partition_key.properties().contains(property)
            || rows.row_key.properties().contains(property)
    };
    let (blurred, missing): (Vec<&str>, Vec<&str>) = ["PartitionKey", "RowKey"]
        .into_iter()
        .filter(|property| !covered(property))
        .partition(named);
    if blurred.is_empty() && missing.is_empty() {
        return;
    }
    let why = if missing.is_empty() {
        ambiguous(rows, &blurred)
    } else {
        format!("it lacks their {}", missing.join(" and "))
    };
    let adds = (!missing.is_empty()).then(|| format!("add {} to a key", missing.join(" and ")));
    let whole = blurred
        .first()
        .map(|property| format!("write {{{property}|hash:64}}"));
    let remedy = adds
        .into_iter()
        .chain(whole)
        .collect::<Vec<_>>()
        .join(", and ");
    view.section.warning(
        "row_key",
        format!("two entities can get the same key: {why}. Set on_conflict, or {remedy}"),
    );
}

/// Says which key has properties that its reader cannot tell from what is beside them.
fn ambiguous<T: ViewTables>(rows: &RowForm<'_, Named<T>>, blurred: &[&str]) -> String {
    let key = [rows.row_key, rows.partition_key].into_iter().find(|key| {
        blurred
            .iter()
            .any(|property| key.properties().contains(property))
    });
    let key = key.unwrap_or(rows.row_key);
    let example = match key.parts() {
        [
            TemplatePart::Field(one),
            TemplatePart::Literal(between),
            TemplatePart::Field(other),
        ] if [one, other].iter().all(|field| field.filters().is_empty()) => {
            format!(" (`a{between}b`+`c`, `a`+`b{between}c`)")
        }
        _ => String::new(),
    };
    format!("`{key}` is ambiguous{example}")
}

/// Says where a partition key sends every new row to one partition, which takes 2,000 entities a second (Azure scalability targets).
/// `apart` tells its rows apart.
fn crowding(section: &Section<'_>, key: &str, template: &Template, apart: Option<&str>) {
    let buckets = apart.map(|property| format!("{{{property}|bucket:16}}"));
    match template.crowding() {
        None => {}
        Some(Crowding::Constant) => section.warning(
            key,
            format!(
                "every row has this one partition key, and a partition takes 2,000 entities a second{}",
                buckets
                    .map(|buckets| format!("; where that is not enough, add a property or spread one over buckets, such as \"{buckets}\""))
                    .unwrap_or_default()
            ),
        ),
        Some(Crowding::Grows { property, rendered }) => section.warning(
            key,
            format!(
                "it leads with {rendered} ({property}), so that all new rows lie in one partition, which takes 2,000 entities a second{}",
                buckets.map(|buckets| format!("; better lead with what varies, such as \"{buckets}_…\"")).unwrap_or_default()
            ),
        ),
    }
}
