//! Checks that the declarations of a catalog do not contradict each other.
//!
//! For each view, archive and table, the model lists clauses ([`Clause`]): what the declaration owns, which rows it writes, and which
//! facts about tables it states, needs or forbids. This module compares clauses without knowing the kinds of declarations. It reports
//! things with two owners, rows with two writers, and facts that are forbidden or missing.

use std::collections::BTreeMap;

use super::section::Section;
use evenkeel_model::catalog::{
    Clause, Declaration, Fact, Statement, Tables, WrittenPart, WrittenRows,
};
use evenkeel_model::template::{Template, TemplatePart};

pub(super) fn error(root: &Section<'_>, by: Declaration<'_>, key: &str, message: &str) {
    report_at(root, by, key, |section, key| section.error(key, message));
}

pub(super) fn warning(root: &Section<'_>, by: Declaration<'_>, key: &str, message: &str) {
    report_at(root, by, key, |section, key| section.warning(key, message));
}

fn report_at(
    root: &Section<'_>,
    by: Declaration<'_>,
    key: &str,
    report: impl FnOnce(&Section<'_>, &str),
) {
    let (kind, name) = by.section();
    let mut sections = root.subsections(kind).into_iter();
    let Some((_, section)) = sections.find(|(found, _)| *found == name) else {
        return;
    };
    let target = key.strip_prefix("to.");
    match target.and_then(|key| Some((key, section.section("to")?))) {
        Some((key, to)) => report(&to, key),
        None => report(&section, key),
    }
}

type Writer<'w, 'c> = (&'w Clause<'c>, &'w WrittenRows<'c>);

struct Violation<'c> {
    by: Declaration<'c>,
    key: &'static str,
    is_warning: bool,
    message: String,
}

pub(super) fn check(root: &Section<'_>, clauses: &[Clause<'_>]) {
    let facts = Facts::of(clauses);
    let mut writers: Vec<Writer<'_, '_>> = Vec::new();
    let mut owners: BTreeMap<&str, Vec<(Option<&str>, &str)>> = BTreeMap::new();
    let mut all = Vec::new();
    for clause in clauses {
        let condition = clause.condition.as_ref();
        let condition = condition.map(|(tables, fact)| facts.sentence(tables, fact));
        if condition == Some(None) {
            continue;
        }
        let message = match &clause.term {
            Statement::Is(..) => None,
            Statement::Bars(tables, fact, why) => facts
                .sentence(tables, fact)
                .map(|sentence| format!("{sentence}{why}")),
            Statement::Needs(tables, fact, why) => match facts.sentence(tables, fact) {
                Some(_) => None,
                None => Some(format!("{}{why}", condition.flatten().unwrap_or_default())),
            },
            Statement::Owns {
                thing,
                shared_as,
                message: own_message,
            } => {
                let owners = owners.entry(thing).or_default();
                let shared_as = shared_as.as_deref();
                let another = owners
                    .iter()
                    .find(|(other, _)| other.is_none() || *other != shared_as);
                let message = another.map(|(_, message)| (*message).to_owned());
                owners.push((shared_as, own_message));
                message
            }
            Statement::Writes(rows) => {
                let clashes = writers.iter().map(|other| clash((clause, rows), *other));
                all.extend(clashes.flatten());
                writers.push((clause, rows));
                None
            }
        };
        all.extend(message.map(|message| violation(clause, message)));
    }
    for violation in all {
        let report = if violation.is_warning { warning } else { error };
        report(root, violation.by, violation.key, &violation.message);
    }
}

fn violation<'c>(clause: &Clause<'c>, message: String) -> Violation<'c> {
    Violation {
        by: clause.by,
        key: clause.key,
        is_warning: clause.is_warning,
        message,
    }
}

struct Facts<'f, 'c>(BTreeMap<&'f Fact, Vec<(Declaration<'c>, &'f Tables)>>);

impl<'f, 'c> Facts<'f, 'c> {
    fn of(clauses: &'f [Clause<'c>]) -> Self {
        let mut facts: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for clause in clauses {
            if let Statement::Is(tables, fact) = &clause.term {
                facts.entry(fact).or_default().push((clause.by, tables));
            }
        }
        Self(facts)
    }

    /// Describes the declaration that states a fact about these tables; `None` if no declaration states it.
    fn sentence(&self, named: &Tables, fact: &Fact) -> Option<String> {
        let mut stated = self.0.get(fact)?.iter();
        let (by, tables) = stated.find(|(_, tables)| tables.cover(named))?;
        Some(fact.sentence(*by, tables, named))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RowOverlap {
    /// The two declarations have equal key templates, so they write the same rows.
    Same,
    /// At least one declaration has no key templates and may write any row of the table.
    Any,
    /// The key templates differ, but may give the same keys for some values of properties.
    Possible,
}

/// Returns a violation if two declarations write the same rows, or the same properties of a row. The later declaration is reported. If
/// one declaration sets properties on rows that the other declaration writes, the declaration that sets the properties is reported
/// instead.
fn clash<'c>(later: Writer<'_, 'c>, earlier: Writer<'_, 'c>) -> Option<Violation<'c>> {
    let (mine, others) = match (later.1.part, earlier.1.part) {
        (WrittenPart::Copy | WrittenPart::List, WrittenPart::Properties(_)) => (earlier, later),
        _ => (later, earlier),
    };
    let ((clause, rows), (other, others)) = (mine, (others.0.by, others.1));
    let tables = (rows.tables == others.tables).then_some(&rows.tables)?;
    let row_overlap = row_overlap(rows, others)?;
    let (key, message) = match (rows.part, others.part) {
        (WrittenPart::Copy | WrittenPart::List, _) if row_overlap == RowOverlap::Possible => {
            return None;
        }
        (WrittenPart::Copy | WrittenPart::List, _) => (
            "row_key",
            format!(
                "{other} writes the same keys to the same table {tables}; expected other keys or another table"
            ),
        ),
        (WrittenPart::Properties(set), WrittenPart::Properties(others)) => {
            let name = set.keys().find(|name| others.contains_key(*name))?;
            let what = match row_overlap {
                RowOverlap::Same => format!("the same entities of {tables}; expected another name"),
                RowOverlap::Any => format!("entities of {tables} too; expected another name"),
                RowOverlap::Possible => format!(
                    "entities of {tables} too, perhaps on the same entities. Use another name, or keys that begin with different literals"
                ),
            };
            ("set", format!("{other} sets {name} on {what}"))
        }
        // A copy replaces a whole row, including the properties that another view sets on this row. The job that sets these properties
        // then fails. If a view writes rows into its source table, these rows are not primaries, so they conflict only if the keys are
        // equal.
        (WrittenPart::Properties(_), made) => {
            let is_copy = matches!(made, WrittenPart::Copy);
            let remedy = match row_overlap {
                RowOverlap::Any if others.in_source_table => return None,
                RowOverlap::Possible if others.in_source_table || !is_copy => return None,
                RowOverlap::Same | RowOverlap::Any => "; expected a table of your own entities",
                RowOverlap::Possible => {
                    ", and may replace your entities there. Use a table with only your own entities, or keys that begin with different literals"
                }
            };
            let message = format!("{other} writes its own rows to {tables}{remedy}");
            (clause.key, message)
        }
    };
    Some(Violation {
        key,
        is_warning: row_overlap == RowOverlap::Possible,
        ..violation(clause, message)
    })
}

fn row_overlap(one: &WrittenRows<'_>, other: &WrittenRows<'_>) -> Option<RowOverlap> {
    let (Some(one), Some(other)) = (one.keys, other.keys) else {
        return Some(RowOverlap::Any);
    };
    let mut keys = one.into_iter().zip(other);
    if one.map(ToString::to_string) == other.map(ToString::to_string) {
        return Some(RowOverlap::Same);
    }
    let may_be_equal = |(one, other)| may_begin(one, other) && may_begin(other, one);
    keys.all(may_be_equal).then_some(RowOverlap::Possible)
}

fn may_begin(one: &Template, other: &Template) -> bool {
    let literal = |template: &Template| match template.parts() {
        [TemplatePart::Literal(text), rest @ ..] => (text.clone(), rest.is_empty()),
        _ => (String::new(), false),
    };
    let ((one, is_whole), (other, _)) = (literal(one), literal(other));
    one.starts_with(&other) || (!is_whole && other.starts_with(&one))
}
