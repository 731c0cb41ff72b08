//! `[rules.NAME]`: entities that are archived or deleted when they satisfy a condition.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::section::Section;
use evenkeel_model::catalog::{Catalog, Rule, TableRef};
use evenkeel_model::condition::TimedCondition;
use evenkeel_model::nearest::{listed, nearest};
use evenkeel_model::sweep::{PER_SECOND, Sweep, SweepAction};
use evenkeel_model::{TableName, ViewName};

/// How often a rule is applied where nothing is said.
const EVERY: Duration = Duration::from_hours(24);
/// How often it may be: workers look at the rules about once an hour.
const TIMES: RangeInclusive<Duration> = Duration::from_hours(1)..=Duration::from_hours(24 * 366);

/// Reads the rules, which name archives and tables of the catalog.
pub(super) fn rules(root: &Section<'_>, catalog: &Catalog) -> BTreeMap<ViewName, Arc<Rule>> {
    let rules = root
        .named("rules")
        .into_iter()
        .filter_map(|(name, section)| rule(name, &section, catalog));
    rules
        .map(|rule| (rule.name.clone(), Arc::new(rule)))
        .collect()
}

fn rule(name: &str, section: &Section<'_>, catalog: &Catalog) -> Option<Rule> {
    let name = ViewName::new(name)
        .map_err(|error| section.error("", error))
        .ok();
    let action = match (section.has("archive"), section.has("delete")) {
        (true, false) => section.parsed("archive", |text| archive(text, catalog)),
        (false, true) => section.parsed("delete", |text| table(text, catalog)),
        (both, _) => {
            let found = if both { "both" } else { "neither" };
            section.error("", format!("expected one of archive = \"an archive\" and delete = \"a table\", found {found}"));
            None
        }
    };
    let when = section.required(
        "when",
        "a condition such as \"At < now - 90d\"",
        TimedCondition::parse,
    );
    if let (Some((_, source)), Some(when)) = (&action, &when) {
        compares(section, source, when, catalog);
    }
    let every = if section.has("every") {
        section.duration("every", TIMES)
    } else {
        Some(EVERY)
    };
    section.finish();
    let sweep = Sweep::new(action?.0, None, Some(when?), false, PER_SECOND)
        .map_err(|problem| section.error("", problem))
        .ok()?;
    Some(Rule {
        name: name?,
        sweep,
        every: every?,
    })
}

/// The archive that a rule moves entities into, and the table that it takes them from.
fn archive(text: &str, catalog: &Catalog) -> Result<(SweepAction, TableRef), String> {
    let found = catalog
        .archives
        .iter()
        .find(|(name, _)| name.as_str() == text);
    let (name, archive) = found.ok_or_else(|| {
        unknown(
            "archive",
            text,
            catalog.archives.keys().map(ViewName::as_str),
        )
    })?;
    Ok((SweepAction::Archive(name.clone()), archive.source.clone()))
}

/// The table that a rule deletes entities of.
fn table(text: &str, catalog: &Catalog) -> Result<(SweepAction, TableRef), String> {
    let name: TableName = text.parse().map_err(|error| format!("{error}"))?;
    let table = catalog
        .tables
        .get(&name)
        .ok_or_else(|| unknown("table", text, catalog.tables.keys().map(TableName::as_str)))?;
    catalog
        .refuse_view_table(table)
        .map_err(|error| error.to_string())?;
    Ok((SweepAction::Delete(table.table.clone()), table.clone()))
}

fn unknown<'k>(what: &str, text: &str, known: impl Iterator<Item = &'k str> + Clone) -> String {
    match nearest(text, known.clone()) {
        Some(near) => format!("unknown {what} {text:?}; did you mean {near:?}?"),
        None => format!(
            "unknown {what} {text:?}; known are {}",
            listed(&known.collect::<Vec<_>>())
        ),
    }
}

/// Refuses a condition on an encrypted property, or on one that goes into blobs.
fn compares(section: &Section<'_>, source: &TableRef, when: &TimedCondition, catalog: &Catalog) {
    if let Some((view, large)) = catalog.large_values_of(source)
        && let Some(name) = when
            .compared()
            .into_iter()
            .find(|name| large.properties.contains(name))
    {
        section.error(
            "when",
            format!("{name} of {source} goes into blobs (view {view}), and a pointer compares with nothing; expected another property, or exists({name})"),
        );
    }
    let Some(sealed) = catalog.encrypted.get(source) else {
        return;
    };
    if let Some(name) = when
        .properties()
        .into_iter()
        .find(|name| sealed.contains(name))
    {
        section.error("when", format!("{name} of {source} is encrypted: its values compare with nothing; expected another property"));
    }
}
