//! Finds problems of the collections to which views write. No migration repairs these problems,
//! because the index of a search service belongs to its owner, and a column of another type may
//! hold somebody's data.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::Migrator;
use evenkeel_model::catalog::{Documents, Form};
use evenkeel_model::sink::{ROW_KEY, ROW_VERSION};
use evenkeel_model::{AccountName, CollectionName, ColumnType, ViewName, cause};

/// An index or table that a view cannot write to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CollectionProblem {
    pub view: ViewName,
    pub sink: AccountName,
    pub index: CollectionName,
    #[serde(flatten)]
    pub problem: ProblemKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum ProblemKind {
    Index,
    Fields {
        fields: Vec<String>,
    },
    Types {
        /// For each field, its actual and its expected type.
        fields: BTreeMap<String, [String; 2]>,
    },
    /// The index could not be checked, because the service did not answer.
    Unknown {
        reason: String,
    },
}

impl Migrator {
    /// Problems of the collections that the catalog's views write to. Sends one read request for
    /// each collection.
    pub async fn indexes(&self) -> Vec<CollectionProblem> {
        let mut problems = Vec::new();
        for view in self.catalog.views.values() {
            let documents = match view.form() {
                Form::Documents(documents) => documents,
                Form::Copies { .. }
                | Form::Lists { .. }
                | Form::BlobLists(_)
                | Form::Values(_)
                | Form::Properties { .. }
                | Form::RangeOverlays(_) => continue,
            };
            if let Some(problem) = self.problem(documents).await {
                let Documents {
                    sink, collection, ..
                } = documents;
                problems.push(CollectionProblem {
                    view: view.name.clone(),
                    sink: sink.clone(),
                    index: collection.clone(),
                    problem,
                });
            }
        }
        problems
    }

    async fn problem(&self, documents: &Documents) -> Option<ProblemKind> {
        let Documents {
            sink,
            collection,
            fields,
            types,
        } = documents;
        let sink = match self.stores.sink(sink) {
            Ok(sink) => sink,
            Err(error) => {
                return Some(ProblemKind::Unknown {
                    reason: error.to_string(),
                });
            }
        };
        match sink.fields(collection).await {
            Ok(existing) if !types.is_empty() => {
                let existing = existing.unwrap_or_default();
                let other = |(name, wanted): (&String, &ColumnType)| {
                    let found = existing
                        .get(name)
                        .filter(|found| **found != wanted.to_string())?;
                    Some((name.clone(), [found.clone(), wanted.to_string()]))
                };
                let mut fields: BTreeMap<String, [String; 2]> =
                    types.iter().filter_map(other).collect();
                // Adding evenkeel's own columns would leave them empty in existing rows, so no
                // migration adds them.
                for (name, wanted) in [(ROW_KEY, "text"), (ROW_VERSION, "integer")] {
                    if !existing.is_empty() && !existing.contains_key(name) {
                        fields.insert(name.to_owned(), ["missing", wanted].map(str::to_owned));
                    }
                }
                (!fields.is_empty()).then_some(ProblemKind::Types { fields })
            }
            Ok(None) => Some(ProblemKind::Index),
            // An index that accepts any field has an empty list of fields.
            Ok(Some(existing)) if existing.is_empty() => None,
            Ok(Some(existing)) => {
                let fields: Vec<String> = fields
                    .keys()
                    .filter(|name| !existing.contains_key(*name))
                    .cloned()
                    .collect();
                (!fields.is_empty()).then_some(ProblemKind::Fields { fields })
            }
            Err(error) => Some(ProblemKind::Unknown {
                reason: cause::chain(&error),
            }),
        }
    }
}

impl fmt::Display for CollectionProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            view,
            sink,
            index,
            problem,
        } = self;
        match problem {
            ProblemKind::Index => write!(
                f,
                "view {view} writes to index {index} of sink {sink}, which does not exist. Create it"
            ),
            ProblemKind::Fields { fields } => {
                write!(
                    f,
                    "index {index} of sink {sink} lacks fields of view {view}. Add {}",
                    fields.join(", ")
                )
            }
            ProblemKind::Types { fields } => {
                let other: Vec<String> = fields
                    .iter()
                    .map(|(name, [found, wanted])| format!("{name} is {found}, not {wanted}"))
                    .collect();
                let theirs = [ROW_KEY, ROW_VERSION]
                    .iter()
                    .any(|name| fields.contains_key(*name));
                let advice = if theirs {
                    "evenkeel did not create this table: give the view another one, or add these columns"
                        .to_owned()
                } else {
                    format!(
                        "alter these columns, or drop the table and run `evenkeel migrate up` and `evenkeel backfill --view {view}`"
                    )
                };
                write!(
                    f,
                    "the columns of table {index} of sink {sink} do not match view {view}: {}; {advice}",
                    other.join(", ")
                )
            }
            ProblemKind::Unknown { reason } => {
                write!(
                    f,
                    "could not check {index} of sink {sink} for view {view}: {reason}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_is_not_to_drop_a_table_that_evenkeel_did_not_create() {
        let text_of = |fields: &[(&str, [&str; 2])]| {
            let fields = fields
                .iter()
                .map(|(name, types)| ((*name).to_owned(), types.map(str::to_owned)))
                .collect();
            let (view, index) = (
                ViewName::new("staff").unwrap(),
                CollectionName::new("people").unwrap(),
            );
            CollectionProblem {
                view,
                sink: AccountName::main(),
                index,
                problem: ProblemKind::Types { fields },
            }
            .to_string()
        };
        let ours = text_of(&[("salary", ["double", "integer"])]);
        assert!(
            ours.contains("salary is double, not integer; alter these columns, or drop the table"),
            "{ours}"
        );
        for own in [ROW_KEY, ROW_VERSION] {
            let theirs = text_of(&[
                (own, ["missing", "text"]),
                ("salary", ["double", "integer"]),
            ]);
            assert!(
                theirs.contains("give the view another one") && !theirs.contains("drop"),
                "{theirs}"
            );
        }
    }
}
