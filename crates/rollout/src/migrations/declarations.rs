//! Archives, retentions and rules beside the views of the record. Nothing is derived by them, and workers go on where they differ: a command that
//! removes by them works by the recorded ones alone. Pure.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::plan::hash;
use evenkeel_model::catalog::Catalog;

/// The archives, retentions and rules of one owner, by kind and name: hashes of their definitions, empty of one that is gone.
pub type Declarations = BTreeMap<String, String>;

/// A change of an archive, a retention or a rule since it was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeclarationChange {
    /// Its kind and name.
    pub declaration: String,
    /// Kind of change to it.
    pub action: DeclarationAction,
}

/// Kind of change to an archive, a retention or a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeclarationAction {
    /// It is new.
    New,
    /// Its definition changed.
    Changed,
    /// It was taken out, and is declared again.
    Restored,
    /// It is no longer declared.
    Retired,
}

impl fmt::Display for DeclarationChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let declaration = &self.declaration;
        match self.action {
            DeclarationAction::New => write!(f, "{declaration} is not recorded"),
            DeclarationAction::Changed => write!(
                f,
                "{declaration} is recorded otherwise than it is configured"
            ),
            DeclarationAction::Restored => {
                write!(f, "{declaration} is recorded as taken out, and configured")
            }
            DeclarationAction::Retired => {
                write!(f, "{declaration} is recorded, and not configured")
            }
        }
    }
}

impl DeclarationAction {
    /// In the words of a migration, behind the name.
    pub(super) const fn recorded(self) -> &'static str {
        match self {
            Self::New => "",
            Self::Changed => " as changed",
            Self::Restored => " as back",
            Self::Retired => " as taken out",
        }
    }
}

/// Those of a catalog.
pub(super) fn of(catalog: &Catalog) -> Declarations {
    catalog
        .declarations()
        .into_iter()
        .map(|(name, definition)| (name, hash(&definition)))
        .collect()
}

/// The changes missing in a record.
pub(super) fn changes(
    recorded: Option<&Declarations>,
    declared: &Declarations,
) -> Vec<DeclarationChange> {
    let change = |name: &String, action| DeclarationChange {
        declaration: name.clone(),
        action,
    };
    let mut changes = Vec::new();
    for (name, definition) in declared {
        let action = match recorded.and_then(|recorded| recorded.get(name)) {
            None => DeclarationAction::New,
            Some(was) if was.is_empty() => DeclarationAction::Restored,
            Some(was) if was != definition => DeclarationAction::Changed,
            Some(_) => continue,
        };
        changes.push(change(name, action));
    }
    let gone = recorded
        .into_iter()
        .flatten()
        .filter(|(name, was)| !was.is_empty() && !declared.contains_key(*name));
    changes.extend(gone.map(|(name, _)| change(name, DeclarationAction::Retired)));
    changes
}

/// The next record. An operator records all; a worker, with a configuration that may be an old one, adds to a record that there is.
pub(super) fn next(
    recorded: Option<&Declarations>,
    declared: Declarations,
    by_operator: bool,
) -> Option<Declarations> {
    match (recorded, by_operator) {
        (None, false) => None,
        (None, true) => Some(declared),
        (Some(recorded), true) => {
            let gone = recorded.keys().map(|name| (name.clone(), String::new()));
            Some(gone.chain(declared).collect())
        }
        (Some(recorded), false) => Some(declared.into_iter().chain(recorded.clone()).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(all: &[(&str, &str)]) -> Declarations {
        all.iter()
            .map(|(name, hash)| ((*name).to_owned(), (*hash).to_owned()))
            .collect()
    }

    #[test]
    fn changes_are_told_by_kind_and_nothing_is_known_without_a_record() {
        let recorded = declared(&[
            ("archive a", "1"),
            ("rule gone", ""),
            ("rule other", "1"),
            ("rule same", "1"),
        ]);
        let configured = declared(&[
            ("retention new", "1"),
            ("rule gone", "1"),
            ("rule other", "2"),
            ("rule same", "1"),
        ]);
        let told: Vec<String> = changes(Some(&recorded), &configured)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            told,
            [
                "retention new is not recorded",
                "rule gone is recorded as taken out, and configured",
                "rule other is recorded otherwise than it is configured",
                "archive a is recorded, and not configured",
            ]
        );
        assert!(
            changes(None, &configured)
                .iter()
                .all(|change| change.action == DeclarationAction::New)
        );
    }

    #[test]
    fn a_worker_adds_and_an_operator_records_what_is_gone() {
        let recorded = declared(&[("archive a", "1"), ("rule b", "1"), ("rule gone", "")]);
        let configured = declared(&[("rule b", "2"), ("rule c", "1"), ("rule gone", "1")]);
        let by_worker = declared(&[
            ("archive a", "1"),
            ("rule b", "1"),
            ("rule c", "1"),
            ("rule gone", ""),
        ]);
        assert_eq!(
            next(Some(&recorded), configured.clone(), false),
            Some(by_worker)
        );
        let by_operator = declared(&[
            ("archive a", ""),
            ("rule b", "2"),
            ("rule c", "1"),
            ("rule gone", "1"),
        ]);
        assert_eq!(
            next(Some(&recorded), configured.clone(), true),
            Some(by_operator.clone())
        );
        assert_eq!(changes(Some(&by_operator), &configured), []);
        assert_eq!(
            (
                next(None, configured.clone(), false),
                next(None, configured.clone(), true)
            ),
            (None, Some(configured))
        );
    }
}
