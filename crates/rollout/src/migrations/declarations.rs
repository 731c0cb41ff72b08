//! The recorded archives, retentions and rules. No item is derived from them, so a worker runs
//! even if its configuration has other archives, retentions and rules. But commands that remove
//! entities because of such a declaration use only recorded declarations. Pure.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::plan::hash;
use evenkeel_model::catalog::Catalog;

/// Archives, retentions and rules of one owner. The key is the kind and the name, and the value is
/// the hash of the definition, or an empty text if the declaration was removed.
pub type Declarations = BTreeMap<String, String>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeclarationChange {
    pub declaration: String,
    pub action: DeclarationAction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeclarationAction {
    New,
    Changed,
    /// The declaration was removed and is declared again.
    Restored,
    /// The declaration is recorded but no longer configured.
    Retired,
}

impl fmt::Display for DeclarationChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let declaration = &self.declaration;
        match self.action {
            DeclarationAction::New => write!(f, "{declaration} is not recorded"),
            DeclarationAction::Changed => write!(f, "{declaration} differs from its record"),
            DeclarationAction::Restored => {
                write!(f, "{declaration} is configured, but recorded as removed")
            }
            DeclarationAction::Retired => {
                write!(f, "{declaration} is recorded, but not configured")
            }
        }
    }
}

impl DeclarationAction {
    /// How the description of a migration continues after the name of the declaration.
    pub(super) const fn recorded(self) -> &'static str {
        match self {
            Self::New => "",
            Self::Changed => " as changed",
            Self::Restored => " as restored",
            Self::Retired => " as removed",
        }
    }
}

pub(super) fn of(catalog: &Catalog) -> Declarations {
    catalog
        .declarations()
        .into_iter()
        .map(|(name, definition)| (name, hash(&definition)))
        .collect()
}

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

/// Returns the declarations to record. An operator records all of them. A worker may have an
/// outdated configuration, so it only adds new ones.
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
    fn changes_have_a_kind_and_everything_is_new_without_a_record() {
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
        let texts: Vec<String> = changes(Some(&recorded), &configured)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            texts,
            [
                "retention new is not recorded",
                "rule gone is configured, but recorded as removed",
                "rule other differs from its record",
                "archive a is recorded, but not configured",
            ]
        );
        assert!(
            changes(None, &configured)
                .iter()
                .all(|change| change.action == DeclarationAction::New)
        );
    }

    #[test]
    fn a_worker_only_adds_and_an_operator_records_removals() {
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
