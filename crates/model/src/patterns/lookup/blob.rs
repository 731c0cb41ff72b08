//! Lookups of lists in blobs: a name, made of values.

use super::plan::{LookupError, described};
use super::range;
use super::term::{Term, TermOp};
use crate::catalog::{BlobLists, View};
use crate::model::BlobName;
use crate::model::document::PlaceError;
use crate::model::template::Escaping;

/// Where the list lies that these values make: each property of the name has one, given with `=`.
pub fn blob(view: &View, lists: &BlobLists, terms: &[Term]) -> Result<BlobName, LookupError> {
    let what = described(view);
    let unusable =
        |term: &Term, problem: &str| LookupError::Unusable { what: what.clone(), term: term.to_string(), problem: problem.to_owned() };
    let properties = lists.name.properties();
    for (at, term) in terms.iter().enumerate() {
        if term.op != TermOp::Equal {
            return Err(unusable(term, "a list in a blob is found by its whole name; give the value with ="));
        }
        if !properties.contains(&term.property.as_str()) {
            return Err(unusable(term, &format!("its name is made of {}", properties.join(", "))));
        }
        if let Some(other) = terms[..at].iter().find(|other| other.property == term.property) {
            return Err(LookupError::Contradiction { first: other.to_string(), second: term.to_string() });
        }
    }
    let missing: Vec<String> =
        properties.into_iter().filter(|property| terms.iter().all(|term| term.property != *property)).map(ToOwned::to_owned).collect();
    let template = lists.name.as_str().to_owned();
    if !missing.is_empty() {
        return Err(LookupError::MissingInName { what, missing, template });
    }
    let value = |problem: String| LookupError::Value { what: described(view), problem };
    let found = lists.name.with(|template, field| {
        let term = terms.iter().find(|term| term.property == field.property());
        term.map(|term| range::text(Escaping::Always, template, field, &term.value).map_err(Unusable::Value)).transpose()
    });
    match found {
        Ok(Some(blob)) => Ok(blob),
        Ok(None) => Err(value("a value of its name is empty".to_owned())),
        Err(Unusable::Value(problem)) => Err(value(problem)),
        Err(Unusable::Place(error)) => Err(value(error.to_string())),
    }
}

/// Why a name cannot be made.
enum Unusable {
    Value(String),
    Place(PlaceError),
}

impl From<PlaceError> for Unusable {
    fn from(error: PlaceError) -> Self {
        Self::Place(error)
    }
}
