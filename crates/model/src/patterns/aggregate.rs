//! Aggregates: values that are aggregated over groups of primaries.
//!
//! A primary derives its *contribution*: a member of its group, with the primary's keys and the
//! values to aggregate. Aggregate values are always computed from all contributions and never
//! incremented, so that a repeated job changes nothing.

use std::collections::BTreeMap;

use super::DeriveError;
use super::derive::ViewContext;
use crate::catalog::{AggregateFunction, aggregated_properties, encode_contribution};
use crate::{EdmValue, Member, limits};

pub(super) fn contribution(
    context: &ViewContext<'_>,
    measures: &BTreeMap<String, AggregateFunction>,
) -> Result<Member, Box<DeriveError>> {
    let mut texts = vec![
        context.primary.key.pk.as_str().to_owned(),
        context.primary.key.rk.as_str().to_owned(),
    ];
    for property in aggregated_properties(measures) {
        let summed = measures
            .values()
            .any(|measure| *measure == AggregateFunction::Sum(property.to_owned()));
        let value = match context.entity.get(property) {
            Some(EdmValue::DateTime(_)) if summed => Err("Edm.DateTime"),
            _ => encode_contribution(context.entity, property),
        };
        let problem = |found| DeriveError::Contribution {
            view: context.view.name.clone(),
            primary: context.primary.clone(),
            property: property.to_owned(),
            found,
        };
        texts.extend(value.map_err(|found| Box::new(problem(found)))?);
    }
    let member = Member(texts);
    let units = member.to_string().encode_utf16().count();
    if units > limits::CONTRIBUTION_UTF16_UNITS {
        return Err(Box::new(DeriveError::LongContribution {
            view: context.view.name.clone(),
            primary: context.primary.clone(),
            units,
        }));
    }
    Ok(member)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Aggregate, OnConflict, TableRef, View, ViewKind};
    use crate::job::Primary;
    use crate::template::Template;
    use crate::{AccountName, Entity, EntityKey, TableName, ViewName};

    #[test]
    fn a_contribution_over_its_limit_is_refused() {
        let source = TableRef {
            account: AccountName::main(),
            table: TableName::new("Staff").unwrap(),
        };
        let property = |number: usize| format!("{}{number:03}", "P".repeat(60));
        let measures = |count: usize| -> BTreeMap<String, AggregateFunction> {
            (0..count)
                .map(|number| {
                    (
                        format!("Sum{number}"),
                        AggregateFunction::Sum(property(number)),
                    )
                })
                .collect()
        };
        let kind = ViewKind::Aggregate(Aggregate {
            target: source.clone().into(),
            partition_key: Template::parse("group").unwrap(),
            row_key: Template::parse("{PartitionKey}").unwrap(),
            set: measures(80),
        });
        let primary = Primary {
            table: source.table.clone(),
            key: EntityKey::new("p", "r").unwrap(),
        };
        let view = View {
            name: ViewName::new("sums").unwrap(),
            source,
            when: None,
            kind,
            on_conflict: OnConflict::Reject,
        };
        let entity = (0..80).fold(Entity::new(primary.key.clone()), |entity, number| {
            entity.with(property(number), 7)
        });
        let context = ViewContext {
            view: &view,
            primary: &primary,
            entity: &entity,
        };
        assert!(contribution(&context, &measures(50)).is_ok());
        let error = contribution(&context, &measures(80)).unwrap_err();
        assert!(
            matches!(*error, DeriveError::LongContribution { units, .. } if units > limits::CONTRIBUTION_UTF16_UNITS),
            "{error}"
        );
    }
}
