//! `[sinks.NAME]`. Each kind has a file and a line in [`KINDS`].

mod postgresql;
mod search;
mod sqlite;
mod webhook;

use super::section::Section;
use evenkeel_model::AccountName;
use evenkeel_model::nearest::nearest;
use evenkeel_model::settings::{SinkKind, SinkSettings};

/// The declared sinks. A sink whose section has a mistake is `None`.
pub(super) type Sinks<'s> = &'s [(AccountName, Option<SinkSettings>)];

/// Reads the section of a sink. Returns `None` after a mistake, which has then been reported.
type ReadSink = fn(&Section<'_>) -> Option<SinkKind>;

const KINDS: [(&str, ReadSink); 4] = [
    ("search", search::read),
    ("postgresql", postgresql::read),
    ("sqlite", sqlite::read),
    ("webhook", webhook::read),
];

pub(super) fn read(
    root: &Section<'_>,
    accounts: &[AccountName],
) -> Vec<(AccountName, Option<SinkSettings>)> {
    let mut sinks = Vec::new();
    for (name, section) in root.subsections("sinks") {
        match AccountName::new(name) {
            Ok(name) if accounts.contains(&name) => {
                section.error("", format!("{name} is already the name of an account, and metrics would not distinguish the two; expected another name"));
            }
            Ok(name) => sinks.push((name.clone(), sink(name, &section))),
            Err(error) => section.error("", error),
        }
    }
    sinks
}

fn sink(name: AccountName, section: &Section<'_>) -> Option<SinkSettings> {
    let Some(read) = section.required_one_of("kind", &KINDS) else {
        section.ignore_unknown_keys();
        return None;
    };
    let kind = read(section);
    section.finish();
    Some(SinkSettings { name, kind: kind? })
}

/// Reads the key `sink` of a view. Returns the name of the sink and the settings that the function `of` takes from the kind of the sink. If
/// the section of the sink has a mistake, the settings are `None`, and the mistake has already been reported. `wanted` and `declare` are
/// parts of error messages: `wanted` describes the expected kind of sink, and `declare` its keys.
pub(super) fn sink_of_view<S>(
    section: &Section<'_>,
    sinks: Sinks<'_>,
    (wanted, declare): (&str, &str),
    of: impl Fn(&SinkKind) -> Option<S>,
) -> Option<(AccountName, Option<S>)> {
    let name = section.required(
        "sink",
        &format!("the name of {wanted}, declared as [sinks.NAME]"),
        str::parse::<AccountName>,
    )?;
    let Some((_, settings)) = sinks.iter().find(|(known, _)| *known == name) else {
        let hint = match nearest(name.as_str(), sinks.iter().map(|(name, _)| name.as_str())) {
            Some(known) => format!("did you mean {known:?}?"),
            None => format!("declare [sinks.{name}] with {declare}"),
        };
        section.error("sink", format!("unknown sink {:?}; {hint}", name.as_str()));
        return None;
    };
    let Some(settings) = settings else {
        return Some((name, None));
    };
    let found = of(&settings.kind);
    if found.is_none() {
        section.error(
            "sink",
            format!("[sinks.{name}] is another kind of sink; expected {wanted}"),
        );
    }
    found.map(|found| (name, Some(found)))
}
