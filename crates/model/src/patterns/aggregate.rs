//! Aggregates: figures of groups of primaries.
//!
//! One primary derives its *contribution*: a member of its group that names the primary and the values
//! that the figures are made of. Figures are computed anew from all contributions whenever one changes, and never
//! counted up or down, so that a repeated job changes nothing.

use std::collections::BTreeMap;

use super::DeriveError;
use super::derive::Deriving;
use crate::catalog::{Figure, contributed, figure_properties};
use crate::model::{EdmValue, Member};

/// The contribution of a primary to its group.
pub(super) fn contribution(of: &Deriving<'_>, figures: &BTreeMap<String, Figure>) -> Result<Member, Box<DeriveError>> {
    let mut texts = vec![of.primary.key.pk.as_str().to_owned(), of.primary.key.rk.as_str().to_owned()];
    for property in figure_properties(figures) {
        let summed = figures.values().any(|figure| *figure == Figure::Sum(property.to_owned()));
        let value = match of.entity.get(property) {
            Some(EdmValue::DateTime(_)) if summed => Err("Edm.DateTime"),
            _ => contributed(of.entity, property),
        };
        let problem = |found| DeriveError::Contribution {
            view: of.view.name.clone(),
            primary: of.primary.clone(),
            property: property.to_owned(),
            found,
        };
        texts.extend(value.map_err(|found| Box::new(problem(found)))?);
    }
    Ok(Member(texts))
}
