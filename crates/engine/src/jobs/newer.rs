//! Compares a job with the stored entity by a property that grows with every change (`newer_by`). This module is pure:
//! it makes no requests and reads no clock.

use std::cmp::Ordering;

use evenkeel_model::EdmValue;
use evenkeel_model::condition::{compare_by_value, is_comparable};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"newer_by\": cannot compare {property:?}, which is {new} in the job and {stored} in the table. Numbers compare with numbers, other values with their own type"
)]
pub(crate) struct IncomparableValues {
    property: String,
    new: &'static str,
    stored: &'static str,
}

/// Compares the value of a job with the stored value. Numbers of all types compare by value, without rounding. `None`
/// if one of the values is NaN.
pub(crate) fn compared(
    property: &str,
    new: &EdmValue,
    stored: &EdmValue,
) -> Result<Option<Ordering>, IncomparableValues> {
    if !is_comparable(new, stored) {
        return Err(IncomparableValues {
            property: property.to_owned(),
            new: new.type_name(),
            stored: stored.type_name(),
        });
    }
    Ok(compare_by_value(new, stored))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::EdmDateTime;

    #[test]
    fn numbers_compare_by_value_whatever_their_types() {
        let (of, greater) = (
            |new: EdmValue, stored: EdmValue| compared("V", &new, &stored),
            Ok(Some(Ordering::Greater)),
        );
        assert_eq!(of(1_764_322_001.into(), 1_764_322_000.5.into()), greater);
        assert_eq!(of(2_147_483_648_i64.into(), i32::MAX.into()), greater);
        assert_eq!(
            of(
                9_007_199_254_740_993_i64.into(),
                9_007_199_254_740_992.0.into()
            ),
            greater,
            "neither is rounded"
        );
        assert_eq!(of(5.into(), 5.0.into()), Ok(Some(Ordering::Equal)));
        assert_eq!(of(f64::NAN.into(), 5.into()), Ok(None));
    }

    #[test]
    fn other_values_compare_with_their_own_type_alone() {
        let moment = || EdmDateTime::parse("2026-11-20T15:00:00Z").unwrap();
        assert_eq!(
            compared("V", &moment().into(), &moment().into()),
            Ok(Some(Ordering::Equal))
        );
        assert_eq!(
            compared("V", &"b".into(), &"a".into()),
            Ok(Some(Ordering::Greater))
        );
        for (new, stored) in [
            ("5".into(), 5.into()),
            (5.into(), "5".into()),
            (moment().into(), "2026-11-20T15:00:00Z".into()),
            (true.into(), 1.into()),
        ] {
            let error = compared("V", &new, &stored).unwrap_err().to_string();
            assert!(
                error.contains(new.type_name()) && error.contains(stored.type_name()),
                "{error}"
            );
        }
    }
}
