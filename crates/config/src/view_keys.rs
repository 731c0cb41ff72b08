//! Checks the key templates of one view. Can a row replace a primary? Can two primaries get the same key? Do all new rows go into one
//! partition? Can a lookup query a range?

use super::section::Section;
use super::views::{NamedTarget, ViewDraft, ViewTables};
use evenkeel_model::catalog::RowForm;
use evenkeel_model::patterns::lookup::{UnorderedKeyPart, unordered_key_part};
use evenkeel_model::template::{Crowding, Distinction, Template, TemplatePart, keys_determine};

pub(super) fn check<T: ViewTables>(view: &ViewDraft<'_, T>) {
    if let Some(rows) = view.rows() {
        check_own_key(view, &rows);
        warn_of_collisions(view, &rows);
        // The row of a list or group has members of several primaries. Buckets that depend on the RowKeys of primaries
        // would split the row.
        let has_members = view.form().has_shared_items();
        let bucket_property = if has_members {
            let first = rows.row_key.properties().into_iter().next();
            first.map(str::to_owned)
        } else {
            Some("RowKey".to_owned())
        };
        warn_of_crowding(
            &view.section,
            "partition_key",
            rows.partition_key,
            bucket_property.as_deref(),
        );
        for (key, template) in [
            ("partition_key", rows.partition_key),
            ("row_key", rows.row_key),
        ] {
            if let Some(UnorderedKeyPart { problem, .. }) = unordered_key_part(template) {
                view.section.warning(
                    key,
                    format!("lookups cannot query a range of this key: {problem}"),
                );
            }
        }
    }
}

/// A copy must not have the key of its primary.
fn check_own_key<T: ViewTables>(view: &ViewDraft<'_, T>, rows: &RowForm<'_, NamedTarget<T>>) {
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
        // The view sets properties and writes no rows.
    } else if !starts_literally(rows.partition_key) && !starts_literally(rows.row_key) {
        view.section.warning(
            "row_key",
            format!(
                "copies and their primaries share the table {}, so a copy may get the key of a primary. Begin with a literal, such as \"email_{{Email|lower}}\"",
                view.source
            ),
        );
    }
}

fn starts_literally(template: &Template) -> bool {
    matches!(template.parts().first(), Some(TemplatePart::Literal(_)))
}

/// Warns if two primaries can get the same key, unless the view declares how to decide the conflict (`on_conflict`).
fn warn_of_collisions<T: ViewTables>(view: &ViewDraft<'_, T>, rows: &RowForm<'_, NamedTarget<T>>) {
    // In the row of a list or group, several primaries are expected.
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
    let (undetermined, missing): (Vec<&str>, Vec<&str>) = ["PartitionKey", "RowKey"]
        .into_iter()
        .filter(|property| !covered(property))
        .partition(named);
    if undetermined.is_empty() && missing.is_empty() {
        return;
    }
    let why = if missing.is_empty() {
        describe_ambiguity(rows, &undetermined)
    } else {
        format!("it does not contain {}", missing.join(" or "))
    };
    let adds = (!missing.is_empty()).then(|| format!("add {} to a key", missing.join(" and ")));
    let whole = undetermined
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

fn describe_ambiguity<T: ViewTables>(
    rows: &RowForm<'_, NamedTarget<T>>,
    undetermined: &[&str],
) -> String {
    let key = [rows.row_key, rows.partition_key].into_iter().find(|key| {
        undetermined
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

/// Warns about a partition key that puts all new rows into one partition, which can take 2,000 entities a second (Azure
/// scalability targets). `bucket_property` is the property from which the advised buckets would be computed.
fn warn_of_crowding(
    section: &Section<'_>,
    key: &str,
    template: &Template,
    bucket_property: Option<&str>,
) {
    let buckets = bucket_property.map(|property| format!("{{{property}|bucket:16}}"));
    match template.crowding() {
        None => {}
        Some(Crowding::Constant) => section.warning(
            key,
            format!(
                "all rows have this partition key, and a partition takes 2,000 entities a second{}",
                buckets
                    .map(|buckets| format!(". If that is not enough, add a property or buckets, such as \"{buckets}\""))
                    .unwrap_or_default()
            ),
        ),
        Some(Crowding::Grows { property, rendered }) => section.warning(
            key,
            format!(
                "it begins with {rendered} ({property}), so all new rows are in one partition, which takes 2,000 entities a second{}",
                buckets.map(|buckets| format!(". Begin with a value that varies, such as \"{buckets}_…\"")).unwrap_or_default()
            ),
        ),
    }
}
