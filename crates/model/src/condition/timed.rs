//! Conditions that depend on time, for jobs and rules.

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;

use super::parse::ConditionError;
use super::tree::Condition;
use crate::Row;

pub(super) const TIMESTAMP: &str = "Timestamp";
/// The value of `now` while a condition is parsed, in seconds since 1970. When a job runs, `now` has another value. If `now` and the
/// duration then give a moment out of range, the job fails.
const SOME_MOMENT: i64 = 1_800_000_000;

/// A condition that may use the present (`Ended < now - 90d`) and a row's `Timestamp`.
///
/// Views can use neither, because their items would change without a write, or with every write of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimedCondition(String);

impl TimedCondition {
    /// Parses a condition.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        Condition::parse_with(
            text,
            Some(Timestamp::from_second(SOME_MOMENT).unwrap_or_default()),
        )?;
        Ok(Self(text.to_owned()))
    }

    /// The names of the properties used, including `PartitionKey`, `RowKey` and `Timestamp`.
    pub fn properties(&self) -> BTreeSet<String> {
        self.names(Condition::properties)
    }

    /// Like [`Condition::compared`].
    pub fn compared(&self) -> BTreeSet<String> {
        self.names(Condition::compared)
    }

    fn names(&self, of: fn(&Condition) -> BTreeSet<&str>) -> BTreeSet<String> {
        let parsed = self.at(Timestamp::from_second(SOME_MOMENT).unwrap_or_default());
        parsed
            .map(|condition| of(&condition).into_iter().map(str::to_owned).collect())
            .unwrap_or_default()
    }

    /// Returns the condition at a moment. Fails if the condition names a moment outside the years 1601 to 9999.
    pub fn at(&self, now: Timestamp) -> Result<Condition, ConditionError> {
        Condition::parse_with(&self.0, Some(now))
    }
}

impl fmt::Display for TimedCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Condition {
    /// Whether a row satisfies the condition, its `Timestamp` included.
    pub fn holds_of(&self, row: &Row) -> bool {
        match row.timestamp {
            Some(written) if self.properties().contains(TIMESTAMP) => {
                self.holds(&row.entity.clone().with(TIMESTAMP, written))
            }
            _ => self.holds(&row.entity),
        }
    }

    /// The properties that a query must select. Keys and `Timestamp` come with every row.
    pub fn selected(&self) -> impl Iterator<Item = &str> {
        self.properties()
            .into_iter()
            .filter(|name| !["PartitionKey", "RowKey", TIMESTAMP].contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ETag, EdmDateTime, Entity, EntityKey};

    fn row(ended: &str, written: Option<&str>) -> Row {
        let entity = Entity::new(EntityKey::new("p", "r").unwrap())
            .with("Ended", EdmDateTime::parse(ended).unwrap());
        Row {
            entity,
            etag: ETag::new("1").unwrap(),
            timestamp: written.map(|written| EdmDateTime::parse(written).unwrap()),
        }
    }

    fn holds(text: &str, row: &Row) -> bool {
        let now = "2026-11-20T12:00:00Z".parse().unwrap();
        TimedCondition::parse(text)
            .unwrap()
            .at(now)
            .unwrap()
            .holds_of(row)
    }

    #[test]
    fn now_is_the_moment_of_the_job_plus_or_minus_a_duration() {
        let row = row("2026-11-10T12:00:00Z", Some("2026-11-19T12:00:00Z"));
        for (text, expected) in [
            ("Ended < now", true),
            ("Ended < now - 10d", false),
            ("Ended <= now-10d", true),
            ("Ended < now - 9d and Ended > now - 11d", true),
            ("now_ == 1 or Ended < now + 1h", true),
            ("Timestamp < now - 1d", false),
            ("Timestamp <= now - 1d", true),
            ("Timestamp < now - 23h and exists(Ended)", true),
        ] {
            assert_eq!(holds(text, &row), expected, "{text}");
        }
        assert!(
            !holds(
                "Timestamp < now",
                &Row {
                    timestamp: None,
                    ..row
                }
            ),
            "as with any missing property"
        );
    }

    #[test]
    fn errors_show_their_place() {
        for (text, word) in [
            ("Ended < now - 90", "a whole number and a unit"),
            ("Ended < now - ", "a whole number and a unit"),
            ("Ended < now - 90 d", "a whole number and a unit"),
            ("Ended < now - 900000d", "1601"),
            ("now < Ended", "expected a property"),
            ("Ended < then", "double quotes"),
        ] {
            let error = TimedCondition::parse(text).unwrap_err();
            assert!(
                error.message.contains(word) && error.to_string().contains('^'),
                "{text}: {error}"
            );
        }
        let far = TimedCondition::parse("Ended < now - 150000d").unwrap();
        assert!(far.at("1900-01-01T00:00:00Z".parse().unwrap()).is_err());
        for text in [
            "Ended < now - 1d",
            "Timestamp < datetime'2026-11-20T12:00:00Z'",
        ] {
            assert!(Condition::parse(text).is_err(), "{text} in a view");
        }
    }
}
