//! `[rules.NAME]`: archives or deletes entities that satisfy a condition.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::section::Section;
use evenkeel_model::catalog::{Catalog, Rule};
use evenkeel_model::condition::TimedCondition;
use evenkeel_model::nearest::meant_or_known;
use evenkeel_model::sweep::{PER_SECOND, Sweep, SweepAction};
use evenkeel_model::{TableName, ViewName};

const DEFAULT_INTERVAL: Duration = Duration::from_hours(24);
/// Bounds of the interval. Workers check the rules about once an hour.
const INTERVALS: RangeInclusive<Duration> =
    Duration::from_hours(1)..=Duration::from_hours(24 * 366);

pub(super) fn rules(root: &Section<'_>, catalog: &Catalog) -> BTreeMap<ViewName, Arc<Rule>> {
    let rules = root
        .subsections("rules")
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
            section.error(
                "",
                format!(
                    "expected either archive = \"ARCHIVE\" or delete = \"TABLE\", found {found}"
                ),
            );
            None
        }
    };
    let when = section.required(
        "when",
        "a condition such as \"At < now - 90d\"",
        TimedCondition::parse,
    );
    let every = section.with_default("every", DEFAULT_INTERVAL, |key| {
        section.duration(key, INTERVALS)
    });
    section.finish();
    let sweep = Sweep::new(action?, None, Some(when?), false, PER_SECOND)
        .map_err(|problem| section.error("", problem))
        .ok()?;
    Some(Rule {
        name: name?,
        sweep,
        every: every?,
    })
}

fn archive(text: &str, catalog: &Catalog) -> Result<SweepAction, String> {
    let mut known = catalog.archives.keys();
    match known.find(|name| name.as_str() == text) {
        Some(name) => Ok(SweepAction::Archive(name.clone())),
        None => Err(unknown(
            "archive",
            text,
            catalog.archives.keys().map(ViewName::as_str),
        )),
    }
}

fn table(text: &str, catalog: &Catalog) -> Result<SweepAction, String> {
    let name: TableName = text.parse().map_err(|error| format!("{error}"))?;
    let table = catalog
        .tables
        .get(&name)
        .ok_or_else(|| unknown("table", text, catalog.tables.keys().map(TableName::as_str)))?;
    catalog
        .refuse_view_table(table)
        .map_err(|error| error.to_string())?;
    Ok(SweepAction::Delete(table.table.clone()))
}

fn unknown<'k>(what: &str, text: &str, known: impl Iterator<Item = &'k str>) -> String {
    let known: Vec<&str> = known.collect();
    format!(
        "the catalog has no {what} {text:?}; {}",
        meant_or_known(text, &known)
    )
}
