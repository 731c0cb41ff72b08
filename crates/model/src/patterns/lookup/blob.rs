//! Lookups of lists in blobs, by the values in their names.

use super::error::LookupError;
use super::plan::described;
use super::range::KeyField;
use super::term::{Term, TermOp, Values, with_each};
use crate::BlobName;
use crate::catalog::{BlobLists, View};
use crate::document::PlaceError;
use crate::template::Escaping;

/// Maximum number of names in one lookup.
const MAX_NAMES: usize = 100;

/// The blob names of the lists for these values. Each property in the name needs a term with `=`.
/// There are several names if the text of a term stands for values of several types.
pub fn blobs(view: &View, lists: &BlobLists, terms: &[Term]) -> Result<Vec<BlobName>, LookupError> {
    let what = described(view);
    let unusable = |term: &Term, problem: &str| LookupError::Unusable {
        what: what.clone(),
        term: term.to_string(),
        problem: problem.to_owned(),
    };
    let properties = lists.name.properties();
    for (at, term) in terms.iter().enumerate() {
        if term.op != TermOp::Equal {
            return Err(unusable(
                term,
                "the whole blob name must be known; give the value with =",
            ));
        }
        if !properties.contains(&term.property.as_str()) {
            return Err(unusable(
                term,
                &format!("its name is made of {}", properties.join(", ")),
            ));
        }
        if let Some(other) = terms[..at]
            .iter()
            .find(|other| other.property == term.property)
        {
            return Err(LookupError::Contradiction {
                first: other.to_string(),
                second: term.to_string(),
            });
        }
    }
    let missing: Vec<String> = properties
        .into_iter()
        .filter(|property| terms.iter().all(|term| term.property != *property))
        .map(ToOwned::to_owned)
        .collect();
    let template = lists.name.as_str().to_owned();
    if !missing.is_empty() {
        return Err(LookupError::MissingInName {
            what,
            missing,
            template,
        });
    }
    let mut choices = vec![Values::new()];
    for term in terms {
        choices = with_each(&choices, &term.property, &term.values());
        if choices.len() > MAX_NAMES {
            return Err(LookupError::TooMany {
                what,
                count: choices.len(),
                max: MAX_NAMES,
            });
        }
    }
    let (mut names, mut problem) = (Vec::new(), None);
    for choice in choices {
        match name(lists, &choice) {
            Ok(name) if names.contains(&name) => {}
            Ok(name) => names.push(name),
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    match problem {
        Some(problem) if names.is_empty() => Err(LookupError::Value { what, problem }),
        _ => Ok(names),
    }
}

fn name(lists: &BlobLists, values: &Values<'_>) -> Result<BlobName, String> {
    let found = lists.name.with(|template, field| {
        let in_name = KeyField {
            escaping: Escaping::Always,
            template,
            field,
        };
        values
            .get(field.property())
            .map(|value| in_name.text(value).map_err(Unusable::Value))
            .transpose()
    });
    match found {
        Ok(Some(blob)) => Ok(blob),
        Ok(None) => Err("a value in its name is empty".to_owned()),
        Err(Unusable::Value(problem)) => Err(problem),
        Err(Unusable::Place(error)) => Err(error.to_string()),
    }
}

enum Unusable {
    Value(String),
    Place(PlaceError),
}

impl From<PlaceError> for Unusable {
    fn from(error: PlaceError) -> Self {
        Self::Place(error)
    }
}
