//! Evaluates a condition for an entity.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::tree::{Condition, Expr};
use crate::filter::compare_values;
use crate::template::Number;
use crate::{EdmValue, Entity};

/// The value of a name in a condition on something other than an entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The name has no value.
    Absent,
    /// A single value.
    Value(EdmValue),
    /// A list or an object. `exists` is true for this value, but every comparison with it is false.
    Compound,
    /// A value that cannot be read. The result of a test of this value is unknown.
    Unreadable,
}

impl Condition {
    /// Whether an entity satisfies the condition. A comparison with a missing property is false.
    pub fn holds(&self, entity: &Entity) -> bool {
        self.root
            .holds(&|property| entity.property_or_key(property))
    }

    /// Whether an entity satisfies the condition if the texts of some properties are unknown. Returns `None` if the result depends on these
    /// texts.
    pub fn decided(&self, entity: &Entity, is_unknown: &dyn Fn(&str) -> bool) -> Option<bool> {
        self.root.decided(&|test| {
            let is_unknown = test.compares_text() && test.property().is_some_and(is_unknown);
            (!is_unknown).then(|| test.holds(&|property| entity.property_or_key(property)))
        })
    }

    /// Like [`holds`](Self::holds), with values from elsewhere. Returns `None` if the result depends on an unreadable value.
    pub fn decided_with(&self, found: &dyn Fn(&str) -> Found) -> Option<bool> {
        self.root.decided(&|test| match found(test.property()?) {
            Found::Absent => Some(test.holds(&|_| None)),
            Found::Value(value) => Some(test.holds(&|_| Some(Cow::Borrowed(&value)))),
            Found::Compound => Some(matches!(test, Expr::Exists { .. })),
            Found::Unreadable => None,
        })
    }
}

impl Expr {
    /// Combines the results of the tests in this expression. Returns `None` if the result depends on a test whose result is unknown.
    fn decided(&self, answer: &dyn Fn(&Self) -> Option<bool>) -> Option<bool> {
        // A false test decides an `and`, and a true test decides an `or` (`decisive`). If no test decides the list, but the result of one
        // test is unknown, the result of the list is unknown.
        let first_of = |nodes: &[Self], decisive: bool| {
            let mut found = Some(!decisive);
            for node in nodes {
                match node.decided(answer) {
                    Some(answer) if answer == decisive => return Some(decisive),
                    Some(_) => {}
                    None => found = None,
                }
            }
            found
        };
        match self {
            Self::All(nodes) => first_of(nodes, false),
            Self::Any(nodes) => first_of(nodes, true),
            Self::Not(node) => node.decided(answer).map(|holds| !holds),
            Self::Compare { .. }
            | Self::In { .. }
            | Self::Exists { .. }
            | Self::StartsWith { .. } => answer(self),
        }
    }

    fn holds<'v>(&self, value_of: &dyn Fn(&str) -> Option<Cow<'v, EdmValue>>) -> bool {
        match self {
            Self::All(nodes) => nodes.iter().all(|node| node.holds(value_of)),
            Self::Any(nodes) => nodes.iter().any(|node| node.holds(value_of)),
            Self::Not(node) => !node.holds(value_of),
            Self::Compare {
                property,
                op,
                value,
            } => value_of(property).is_some_and(|found| {
                compare_by_value(&found, value).is_some_and(|ordering| op.holds(ordering))
            }),
            Self::In { property, values } => value_of(property).is_some_and(|found| {
                values
                    .iter()
                    .any(|value| compare_by_value(&found, value) == Some(Ordering::Equal))
            }),
            Self::Exists { property } => value_of(property).is_some(),
            Self::StartsWith { property, prefix } => value_of(property).is_some_and(|found| {
                found
                    .as_str()
                    .is_some_and(|text| text.starts_with(prefix.as_str()))
            }),
        }
    }
}

/// Compares two values. Numbers compare by value across types, without rounding; other values compare only within their type.
pub fn compare_by_value(found: &EdmValue, wanted: &EdmValue) -> Option<Ordering> {
    match (Number::of(found), Number::of(wanted)) {
        (Some(found), Some(wanted)) => compare_numbers(found, wanted),
        (None, None) => compare_values(found, wanted),
        (Some(_), None) | (None, Some(_)) => None,
    }
}

/// Whether [`compare_by_value`] can order two values: both are numbers, or both have the same type. NaN counts as a number.
pub fn is_comparable(one: &EdmValue, other: &EdmValue) -> bool {
    let kind = |value: &EdmValue| {
        Number::of(value)
            .is_none()
            .then(|| std::mem::discriminant(value))
    };
    kind(one) == kind(other)
}

fn compare_numbers(one: Number, other: Number) -> Option<Ordering> {
    match (one, other) {
        (Number::Integer(a), Number::Integer(b)) => Some(a.cmp(&b)),
        (Number::Double(a), Number::Double(b)) => a.partial_cmp(&b),
        (Number::Integer(a), Number::Double(b)) => compare_mixed(a, b),
        (Number::Double(a), Number::Integer(b)) => compare_mixed(b, a).map(Ordering::reverse),
    }
}

/// Compares without rounding the integer to a double, because rounding would make 2^53 and 2^53 + 1 equal.
fn compare_mixed(integer: i64, double: f64) -> Option<Ordering> {
    const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
    if double.is_nan() {
        return None;
    }
    if double >= TWO_TO_63 {
        return Some(Ordering::Less);
    }
    if double < -TWO_TO_63 {
        return Some(Ordering::Greater);
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "whole and inside the range of i64, as checked above"
    )]
    let whole = double.trunc() as i64;
    Some(integer.cmp(&whole).then_with(|| {
        0.0_f64
            .partial_cmp(&double.fract())
            .unwrap_or(Ordering::Equal)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EntityKey;
    use proptest::prelude::*;

    #[test]
    fn an_unknown_text_leaves_open_only_tests_of_it() {
        let entity = Entity::new(EntityKey::new("p", "r").unwrap())
            .with("Kind", "letter")
            .with("Text", "unknown");
        for (text, expected) in [
            ("Kind == \"letter\"", Some(true)),
            ("Text == \"x\"", None),
            ("not startsWith(Text, \"x\")", None),
            ("Text in [\"\", \"x\"]", None),
            (
                "Text != \"\" and exists(Text) and startsWith(Text, \"\")",
                Some(true),
            ),
            ("Text == 3 or Text == \"\"", Some(false)),
            ("Text == \"x\" and Kind == \"invoice\"", Some(false)),
            ("Text == \"x\" and Kind == \"letter\"", None),
            ("Text == \"x\" or Kind == \"letter\"", Some(true)),
            ("not (Text == \"x\" or Kind == \"invoice\")", None),
        ] {
            let condition = Condition::parse(text).unwrap();
            assert_eq!(
                condition.decided(&entity, &|property| property == "Text"),
                expected,
                "{text}"
            );
            assert_eq!(
                condition.decided(&entity, &|_| false),
                Some(condition.holds(&entity)),
                "{text}"
            );
        }
    }

    #[test]
    fn an_unreadable_value_leaves_open_only_tests_of_it() {
        let found = |name: &str| match name {
            "Kind" => Found::Value("letter".into()),
            "Tags" => Found::Compound,
            "Data" => Found::Unreadable,
            _ => Found::Absent,
        };
        for (text, expected) in [
            ("Kind == \"letter\" and not exists(Gone)", Some(true)),
            ("exists(Data)", None),
            ("not (Data > 5)", None),
            ("Data == true and Kind == \"invoice\"", Some(false)),
            ("exists(Tags) and not (Tags == \"x\")", Some(true)),
        ] {
            assert_eq!(
                Condition::parse(text).unwrap().decided_with(&found),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn large_integers_are_not_rounded() {
        assert_eq!(
            compare_mixed(9_007_199_254_740_993, 9_007_199_254_740_992.0),
            Some(Ordering::Greater)
        );
        assert_eq!(
            compare_mixed(i64::MAX, 9_223_372_036_854_775_808.0),
            Some(Ordering::Less)
        );
        assert_eq!(
            compare_mixed(i64::MIN, -9_223_372_036_854_775_808.0),
            Some(Ordering::Equal)
        );
        assert_eq!(compare_mixed(-1, -1.5), Some(Ordering::Greater));
        assert_eq!(compare_mixed(0, f64::NAN), None);
        assert_eq!(compare_mixed(0, f64::NEG_INFINITY), Some(Ordering::Greater));
    }

    proptest! {
        #[test]
        fn small_numbers_compare_as_doubles_do(a in -1_000_000_i32..1_000_000, b in any::<f64>()) {
            prop_assert_eq!(compare_mixed(i64::from(a), b), f64::from(a).partial_cmp(&b));
        }
    }
}
