//! Conditions that depend on time, for jobs and rules.

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;

use super::parse::ConditionError;
use super::tree::Condition;
use crate::Row;

/// The property in which the service says when a row was last written.
pub(super) const TIMESTAMP: &str = "Timestamp";
/// A moment of our time to check conditions at, in seconds since 1970. One that is out of range at another moment is refused by its job.
const SOME_MOMENT: i64 = 1_800_000_000;

/// A condition that may compare with the present (`Ended < now - 90d`) and with a row's `Timestamp`.
///
/// Views have none of either: their items would change with no write, and with every write of a worker's own.
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

    /// The names of the properties used, `PartitionKey`, `RowKey` and `Timestamp` among them.
    pub fn properties(&self) -> BTreeSet<String> {
        self.names(Condition::properties)
    }

    /// As [`Condition::compared`].
    pub fn compared(&self) -> BTreeSet<String> {
        self.names(Condition::compared)
    }

    fn names(&self, of: fn(&Condition) -> BTreeSet<&str>) -> BTreeSet<String> {
        let parsed = self.at(Timestamp::from_second(SOME_MOMENT).unwrap_or_default());
        parsed
            .map(|condition| of(&condition).into_iter().map(str::to_owned).collect())
            .unwrap_or_default()
    }

    /// The condition at a moment. Fails where it names one outside the years 1601 to 9999 then.
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
    /// Whether a row satisfies it, its `Timestamp` included.
    pub fn holds_of(&self, row: &Row) -> bool {
        match row.timestamp {
            Some(written) if self.properties().contains(TIMESTAMP) => {
                self.holds(&row.entity.clone().with(TIMESTAMP, written))
            }
            _ => self.holds(&row.entity),
        }
    }

    /// The properties that a query selects for it: keys and `Timestamp` come with every row.
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
    fn the_present_is_that_of_the_job_with_a_duration_added_or_taken_away() {
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
    fn mistakes_are_shown_where_they_stand() {
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
