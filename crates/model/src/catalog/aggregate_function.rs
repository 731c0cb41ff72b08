//! Aggregate functions: count, sum, minimum and maximum of the contributions of a group's members.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use crate::condition::compare_by_value;
use crate::entity::valid_property_name;
use crate::{EdmDateTime, EdmValue, Entity, Member};

/// How a property of a group is computed from the members' contributions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AggregateFunction {
    /// `count()`: the number of members.
    Count,
    /// `sum(P)`: an Int64 if every value is an integer and the sum fits, else a Double; 0 if no
    /// member has the property.
    Sum(String),
    /// `min(P)` of numbers or moments, ignoring NaN; absent if no member has the property.
    Min(String),
    /// `max(P)` of numbers or moments, ignoring NaN; absent if no member has the property.
    Max(String),
}

/// The error for a text that is not an aggregate function.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not an aggregate function: {problem}; expected count(), sum(Property), min(Property) or max(Property)"
)]
pub struct AggregateFunctionError {
    /// The text.
    pub text: String,
    /// The problem.
    pub problem: String,
}

/// The properties of a primary from which these functions compute.
pub fn properties(set: &BTreeMap<String, AggregateFunction>) -> BTreeSet<&str> {
    set.values()
        .filter_map(AggregateFunction::property)
        .collect()
}

impl AggregateFunction {
    /// The property from which the function computes.
    pub fn property(&self) -> Option<&str> {
        match self {
            Self::Count => None,
            Self::Sum(property) | Self::Min(property) | Self::Max(property) => Some(property),
        }
    }

    /// The function's value for these members; `None` if it has no value.
    pub fn of<'m>(&self, members: impl Iterator<Item = &'m Member>) -> Option<EdmValue> {
        match self {
            Self::Count => Some(EdmValue::Int64(
                i64::try_from(members.count()).unwrap_or(i64::MAX),
            )),
            Self::Sum(property) => Some(sum(
                members.filter_map(|member| parse_contribution(member, property))
            )),
            Self::Min(property) => extreme(
                members.filter_map(|member| parse_contribution(member, property)),
                Ordering::Less,
            ),
            Self::Max(property) => extreme(
                members.filter_map(|member| parse_contribution(member, property)),
                Ordering::Greater,
            ),
        }
    }

    /// The function's value for several groups together, computed from its value for each group.
    pub fn combine(&self, groups: impl Iterator<Item = EdmValue>) -> Option<EdmValue> {
        match self {
            Self::Count | Self::Sum(_) => Some(sum(groups)),
            Self::Min(_) => extreme(groups, Ordering::Less),
            Self::Max(_) => extreme(groups, Ordering::Greater),
        }
    }
}

impl FromStr for AggregateFunction {
    type Err = AggregateFunctionError;

    fn from_str(text: &str) -> Result<Self, AggregateFunctionError> {
        let error = |problem: String| AggregateFunctionError {
            text: text.to_owned(),
            problem,
        };
        let inner = text
            .trim()
            .strip_suffix(')')
            .and_then(|text| text.split_once('('));
        let Some((name, argument)) = inner else {
            return Err(error("its parentheses are missing".to_owned()));
        };
        let (name, argument) = (name.trim(), argument.trim());
        if name == "count" {
            return if argument.is_empty() {
                Ok(Self::Count)
            } else {
                Err(error("count takes no argument".to_owned()))
            };
        }
        let make: fn(String) -> Self = match name {
            "sum" => Self::Sum,
            "min" => Self::Min,
            "max" => Self::Max,
            _ => return Err(error(format!("{name:?} is unknown"))),
        };
        if valid_property_name(argument) {
            Ok(make(argument.to_owned()))
        } else {
            Err(error(format!("{argument:?} is not a property name")))
        }
    }
}

impl fmt::Display for AggregateFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count => f.write_str("count()"),
            Self::Sum(property) => write!(f, "sum({property})"),
            Self::Min(property) => write!(f, "min({property})"),
            Self::Max(property) => write!(f, "max({property})"),
        }
    }
}

/// The contribution of one property of a primary as text, such as `Salary=i1200`. `None` if the
/// primary lacks the property. An error with the name of the type if the value is neither a number
/// nor a moment.
pub fn encode_contribution(
    entity: &Entity,
    property: &str,
) -> Result<Option<String>, &'static str> {
    match entity.get(property) {
        None => Ok(None),
        Some(EdmValue::Int32(number)) => Ok(Some(format!("{property}=i{number}"))),
        Some(EdmValue::Int64(number)) => Ok(Some(format!("{property}=i{number}"))),
        Some(EdmValue::Double(number)) => Ok(Some(format!("{property}=d{number:?}"))),
        Some(EdmValue::DateTime(moment)) => Ok(Some(format!("{property}=t{moment}"))),
        Some(other) => Err(other.type_name()),
    }
}

/// The value of one property in a member's contribution. The first two texts of the member are
/// skipped, because they are the keys of the primary.
fn parse_contribution(member: &Member, property: &str) -> Option<EdmValue> {
    let text = member
        .0
        .iter()
        .skip(2)
        .find_map(|text| text.strip_prefix(property)?.strip_prefix('='))?;
    let value = text.get(1..)?;
    match text.get(..1)? {
        "i" => value.parse().ok().map(EdmValue::Int64),
        "d" => value.parse().ok().map(EdmValue::Double),
        "t" => EdmDateTime::parse(value).ok().map(EdmValue::DateTime),
        _ => None,
    }
}

/// Adds the values in the order of the members, so that every process gets the same rounding.
fn sum(values: impl Iterator<Item = EdmValue>) -> EdmValue {
    let (mut whole, mut broken, mut all_whole) = (0_i128, 0.0_f64, true);
    for value in values {
        match value {
            EdmValue::Int64(number) => {
                whole += i128::from(number);
                broken += float(number);
            }
            EdmValue::Double(number) => {
                all_whole = false;
                broken += number;
            }
            // Moments cannot be summed, and `patterns::aggregate` refuses them.
            _ => {}
        }
    }
    match i64::try_from(whole) {
        Ok(whole) if all_whole => EdmValue::Int64(whole),
        _ => EdmValue::Double(broken),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the sum of an integer and a Double is a Double, with its precision"
)]
const fn float(number: i64) -> f64 {
    number as f64
}

/// The minimum or maximum. Integers and doubles are compared exactly by value, because rounding
/// would make the result depend on the order of the members. NaN is left out for the same reason. A
/// moment and a number cannot be compared: values that are not comparable with the first value are
/// ignored.
fn extreme(values: impl Iterator<Item = EdmValue>, wanted: Ordering) -> Option<EdmValue> {
    let is_nan = |value: &EdmValue| matches!(value, EdmValue::Double(number) if number.is_nan());
    let better = |value: &EdmValue, best: &EdmValue| compare_by_value(value, best) == Some(wanted);
    values
        .filter(|value| !is_nan(value))
        .reduce(|best, value| if better(&value, &best) { value } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EntityKey;

    fn member(texts: &[&str]) -> Member {
        Member(
            ["Sales", "7"]
                .iter()
                .chain(texts)
                .map(|text| (*text).to_owned())
                .collect(),
        )
    }

    #[test]
    fn measures_are_parsed_from_their_own_text() {
        for text in ["count()", "sum(Salary)", "min(Hired)", "max(Hired)"] {
            assert_eq!(text.parse::<AggregateFunction>().unwrap().to_string(), text);
        }
        assert_eq!(
            " sum( Salary ) ".parse(),
            Ok(AggregateFunction::Sum("Salary".to_owned()))
        );
        for text in [
            "count",
            "count(Salary)",
            "sum()",
            "sum(a b)",
            "avg(Salary)",
            "sum(Salary",
        ] {
            assert!(
                text.parse::<AggregateFunction>()
                    .unwrap_err()
                    .to_string()
                    .contains("expected count()"),
                "{text}"
            );
        }
    }

    #[test]
    fn measures_are_computed_from_contributions() {
        let moment = EdmDateTime::parse("2026-11-20T15:00:00Z").unwrap();
        let entity = Entity::new(EntityKey::new("Sales", "7").unwrap())
            .with("Age", 42)
            .with("Salary", 1.5)
            .with("Big", i64::MAX)
            .with("Hired", moment)
            .with("Name", "Ada");
        assert_eq!(encode_contribution(&entity, "Name"), Err("Edm.String"));
        assert_eq!(encode_contribution(&entity, "Nothing"), Ok(None));
        let texts: Vec<String> = ["Age", "Salary", "Big", "Hired"]
            .iter()
            .map(|name| encode_contribution(&entity, name).unwrap().unwrap())
            .collect();
        let members = [
            member(&texts.iter().map(String::as_str).collect::<Vec<_>>()),
            member(&["Age=i-2", "Big=i1"]),
            member(&[]),
        ];
        let measure = |text: &str| {
            text.parse::<AggregateFunction>()
                .unwrap()
                .of(members.iter())
        };
        assert_eq!(measure("count()"), Some(3_i64.into()));
        assert_eq!(measure("sum(Age)"), Some(40_i64.into()));
        assert_eq!(measure("sum(Salary)"), Some(1.5.into()));
        assert_eq!(
            measure("sum(Big)"),
            Some(9_223_372_036_854_775_808.0.into()),
            "a sum that no Int64 can hold is a Double"
        );
        assert_eq!(measure("sum(Nothing)"), Some(0_i64.into()));
        assert_eq!(
            (measure("min(Age)"), measure("max(Age)")),
            (Some((-2_i64).into()), Some(42_i64.into()))
        );
        assert_eq!(
            (measure("min(Hired)"), measure("max(Nothing)")),
            (Some(moment.into()), None)
        );
    }

    #[test]
    fn measures_of_groups_combine_into_those_of_all() {
        let over = |measure: &str, groups: &[EdmValue]| {
            measure
                .parse::<AggregateFunction>()
                .unwrap()
                .combine(groups.iter().cloned())
        };
        assert_eq!(
            over("count()", &[2_i64.into(), 3_i64.into()]),
            Some(5_i64.into())
        );
        assert_eq!(
            over("sum(a)", &[2_i64.into(), 0.5.into()]),
            Some(2.5.into())
        );
        assert_eq!(
            (
                over("min(a)", &[2_i64.into(), 1.5.into()]),
                over("max(a)", &[2_i64.into(), 1.5.into()])
            ),
            (Some(1.5.into()), Some(2_i64.into()))
        );
        assert_eq!(
            (over("sum(a)", &[]), over("min(a)", &[])),
            (Some(0_i64.into()), None)
        );
    }

    #[test]
    fn minimum_and_maximum_do_not_depend_on_the_order_of_members() {
        let texts = ["Age=dNaN", "Age=d1.0", "Age=i5"];
        for order in [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ] {
            let members = order.map(|at| member(&[texts[at]]));
            let measure = |text: &str| {
                text.parse::<AggregateFunction>()
                    .unwrap()
                    .of(members.iter())
            };
            assert_eq!(
                (measure("min(Age)"), measure("max(Age)")),
                (Some(1.0.into()), Some(5_i64.into())),
                "{order:?}"
            );
        }
        assert_eq!(
            AggregateFunction::Min("Age".to_owned()).of([member(&["Age=dNaN"])].iter()),
            None
        );
        // 2^53, and the next integer, which no Double represents.
        for order in [[0, 1], [1, 0]] {
            let members =
                order.map(|at| member(&[["Age=d9007199254740992.0", "Age=i9007199254740993"][at]]));
            let measure = |text: &str| {
                text.parse::<AggregateFunction>()
                    .unwrap()
                    .of(members.iter())
            };
            let (least, greatest) = (
                9_007_199_254_740_992.0.into(),
                9_007_199_254_740_993_i64.into(),
            );
            assert_eq!(
                (measure("min(Age)"), measure("max(Age)")),
                (Some(least), Some(greatest)),
                "{order:?}"
            );
        }
    }

    #[test]
    fn a_property_is_not_confused_with_a_longer_name() {
        let members = [member(&["SalaryMax=i9", "Salary=i1"])];
        assert_eq!(
            AggregateFunction::Sum("Salary".to_owned()).of(members.iter()),
            Some(1_i64.into())
        );
    }
}
