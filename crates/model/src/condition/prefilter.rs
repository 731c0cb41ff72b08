//! Translates the part of a condition that a table service can evaluate into a query filter.
//!
//! Only equality of texts and comparisons of booleans are translated. The service compares a number only with values of the same type
//! (Azurite answers 500 to an Int64 against an Int32), compares moments at its own precision, has no `exists`, and refuses other types for
//! keys and `Timestamp`.
//! Every other test is left out, and so is an `or` that contains such a test. The filter therefore passes every row that satisfies the
//! condition, and some more rows, which [`Condition::holds`] rejects.

use super::timed::TIMESTAMP;
use super::tree::{Condition, Expr};
use crate::{Comparison, EdmValue, Filter};

/// Maximum number of comparisons in the filter. The service accepts fifteen, and a key range needs up to four.
const COMPARISONS: usize = 10;

impl Condition {
    /// Returns a filter that passes every row that satisfies the condition, or `None` if the service can evaluate no part of the condition.
    pub fn prefilter(&self) -> Option<Filter> {
        let mut left = COMPARISONS;
        self.root.prefilter(&mut left)
    }
}

impl Expr {
    /// `left` is the number of comparisons that may still be used.
    fn prefilter(&self, left: &mut usize) -> Option<Filter> {
        let before = *left;
        let found = match self {
            // If no comparison is left for a test, the client evaluates the test.
            Self::All(nodes) => nodes
                .iter()
                .filter_map(|node| node.prefilter(left))
                .reduce(Filter::and),
            Self::Any(nodes) => nodes
                .iter()
                .map(|node| node.prefilter(left))
                .reduce(|a, b| Some(a?.or(b?)))
                .flatten(),
            Self::Compare {
                property,
                op,
                value,
            } => compare(property, *op, value, left),
            Self::In { property, values } => {
                let each = values
                    .iter()
                    .map(|value| compare(property, Comparison::Equal, value, left));
                each.reduce(|a, b| Some(a?.or(b?))).flatten()
            }
            Self::StartsWith { .. } | Self::Not(_) | Self::Exists { .. } => None,
        };
        if found.is_none() {
            *left = before;
        }
        found
    }
}

fn compare(property: &str, op: Comparison, value: &EdmValue, left: &mut usize) -> Option<Filter> {
    let is_typed = match property {
        "PartitionKey" | "RowKey" => value.as_str().is_some(),
        TIMESTAMP => false,
        // It is unknown whether every service accepts other names in a filter. A service that does not accept them might return no rows.
        _ => property.is_ascii(),
    };
    let decides = match value {
        // The service orders texts in its own way, so only equality is translated.
        EdmValue::String(_) => is_typed && matches!(op, Comparison::Equal | Comparison::NotEqual),
        EdmValue::Bool(_) => is_typed,
        EdmValue::Int32(_)
        | EdmValue::Int64(_)
        | EdmValue::Double(_)
        | EdmValue::DateTime(_)
        | EdmValue::Guid(_)
        | EdmValue::Binary(_) => false,
    };
    *left = left.checked_sub(1).filter(|_| decides)?;
    Some(Filter::compare(property, op, value.clone()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::TimedCondition;
    use super::*;
    use crate::{ETag, Entity, EntityKey, Row};

    fn prefilter(text: &str) -> Option<String> {
        Condition::parse(text)
            .unwrap()
            .prefilter()
            .map(|filter| filter.to_string())
    }

    #[test]
    fn only_tests_that_the_service_can_evaluate_are_in_the_filter() {
        for (text, filter) in [
            (r#"Name == "Kim""#, Some("Name eq 'Kim'")),
            (r#"Name != "Kim" and Salary > 100"#, Some("Name ne 'Kim'")),
            (
                r#"Name == "Kim" and not exists(Salary)"#,
                Some("Name eq 'Kim'"),
            ),
            (r#"Name == "Kim" or exists(Salary)"#, None),
            (
                r#"Name == "Kim" or IsManager == true"#,
                Some("(Name eq 'Kim' or IsManager eq true)"),
            ),
            (
                r#"Name in ["Kim", "Cao"]"#,
                Some("(Name eq 'Kim' or Name eq 'Cao')"),
            ),
            (r#"not (Name == "Kim")"#, None),
            (r#"Name >= "Kim""#, None),
            ("Salary > 100", None),
            (
                r#"PartitionKey == "Sales" and RowKey != "7""#,
                Some("(PartitionKey eq 'Sales' and RowKey ne '7')"),
            ),
            ("PartitionKey == true", None),
            (r#"Größe == "XL" and Name == "Kim""#, Some("Name eq 'Kim'")),
            (
                r#"RowKey == false and Name == "Kim""#,
                Some("Name eq 'Kim'"),
            ),
        ] {
            assert_eq!(prefilter(text).as_deref(), filter, "{text}");
        }
        let timed = TimedCondition::parse(r#"Timestamp == "x" or Timestamp < now"#).unwrap();
        assert_eq!(
            timed.at(jiff::Timestamp::UNIX_EPOCH).unwrap().prefilter(),
            None
        );
    }

    #[test]
    fn a_filter_has_no_more_comparisons_than_the_service_accepts() {
        let names = (0..11)
            .map(|number| format!("\"{number}\""))
            .collect::<Vec<_>>()
            .join(", ");
        assert_eq!(prefilter(&format!("Name in [{names}]")), None);
        let all: Vec<String> = (0..12).map(|number| format!("P{number} == true")).collect();
        let filter = prefilter(&format!("Name in [{names}] and {}", all.join(" and "))).unwrap();
        assert!(
            filter.contains("P9 eq true") && !filter.contains("P10"),
            "{filter}"
        );
    }

    fn value() -> impl Strategy<Value = EdmValue> {
        prop_oneof![
            (-3_i32..3).prop_map(EdmValue::Int32),
            (-3_i64..3).prop_map(EdmValue::Int64),
            (-6_i32..6).prop_map(|halves| EdmValue::Double(f64::from(halves) / 2.0)),
            "[ab]{0,2}".prop_map(EdmValue::from),
            any::<bool>().prop_map(EdmValue::Bool),
        ]
    }

    fn leaf() -> impl Strategy<Value = String> {
        let op = prop::sample::select(vec!["==", "!=", "<", "<=", ">", ">="]);
        let literal = prop_oneof![
            (-3_i32..3).prop_map(|n| n.to_string()),
            Just("1.5".to_owned()),
            Just(r#""a""#.to_owned())
        ];
        prop_oneof![
            ("[AB]", op, literal).prop_map(|(name, op, literal)| format!("{name} {op} {literal}")),
            "[AB]".prop_map(|name| format!("{name} == true")),
            "[AB]".prop_map(|name| format!("exists({name})")),
            "[AB]".prop_map(|name| format!("{name} in [1, \"a\", 2]")),
        ]
    }

    fn condition() -> impl Strategy<Value = String> {
        leaf().prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 2..4)
                    .prop_map(|parts| format!("({})", parts.join(" and "))),
                prop::collection::vec(inner.clone(), 2..4)
                    .prop_map(|parts| format!("({})", parts.join(" or "))),
                inner.prop_map(|part| format!("not ({part})")),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_row_that_satisfies_a_condition_passes_its_filter(text in condition(), a in prop::option::of(value()), b in prop::option::of(value())) {
            let condition = Condition::parse(&text).unwrap();
            let mut entity = Entity::new(EntityKey::new("p", "r").unwrap());
            for (name, value) in [("A", a), ("B", b)] {
                entity.properties.extend(value.map(|value| (name.to_owned(), value)));
            }
            let row = Row { entity, etag: ETag::new("1").unwrap(), timestamp: None };
            if condition.holds(&row.entity) {
                prop_assert!(condition.prefilter().is_none_or(|filter| filter.matches(&row)), "{text}");
            }
        }
    }
}
