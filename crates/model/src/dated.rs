//! Dated tables: one per hour, day, month or year, dropped as a whole when its retention ends.
//!
//! ```text
//!   "LoginAttempts%Y%m%d"  ── name_at(2026-11-20T15:04Z) ──▶  LoginAttempts20261120
//!                          ◀─ period(LoginAttempts20261120) ─  2026-11-20T00:00Z to 2026-11-21T00:00Z
//! ```
//!
//! Names sort by time, and each name stands for exactly one period in UTC.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};

use super::TableName;

/// Maximum length of a table name (Azure).
const NAME: usize = 63;

/// Length of the period that one table covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Period {
    /// `%Y`
    Year,
    /// `%Y%m`
    Month,
    /// `%Y%m%d`
    Day,
    /// `%Y%m%d%H`
    Hour,
}

impl Period {
    const ALL: [Self; 4] = [Self::Year, Self::Month, Self::Day, Self::Hour];

    const fn directives(self) -> &'static str {
        match self {
            Self::Year => "%Y",
            Self::Month => "%Y%m",
            Self::Day => "%Y%m%d",
            Self::Hour => "%Y%m%d%H",
        }
    }

    const fn digits(self) -> usize {
        match self {
            Self::Year => 4,
            Self::Month => 6,
            Self::Day => 8,
            Self::Hour => 10,
        }
    }
}

/// A pattern of table names: a prefix and a date. Patterns compare case-insensitively, as table names do.
#[derive(Debug, Clone)]
pub struct DatedTables {
    prefix: String,
    period: Period,
}

/// A text that is not a pattern of table names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a pattern of dated tables. Expected letters and digits, starting with a letter, then %Y, %Y%m, %Y%m%d or %Y%m%d%H"
)]
pub struct DatedTablesError(String);

impl DatedTables {
    /// Parses a pattern.
    pub fn parse(text: &str) -> Result<Self, DatedTablesError> {
        let wrong = || DatedTablesError(text.to_owned());
        let (prefix, date) = text.split_at(text.find('%').ok_or_else(wrong)?);
        let period = Period::ALL
            .into_iter()
            .find(|period| period.directives() == date)
            .ok_or_else(wrong)?;
        let named = prefix.bytes().all(|byte| byte.is_ascii_alphanumeric())
            && prefix.starts_with(|first: char| first.is_ascii_alphabetic())
            // Without this check, `Log1%Y%m` and `Log%Y%m` could give one name to two months.
            && !prefix.ends_with(|last: char| last.is_ascii_digit())
            && prefix.len() + period.digits() <= NAME;
        if named {
            Ok(Self {
                prefix: prefix.to_owned(),
                period,
            })
        } else {
            Err(wrong())
        }
    }

    /// The text before the date.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The table whose period contains a moment.
    pub fn name_at(&self, moment: Timestamp) -> TableName {
        let at = moment.to_zoned(TimeZone::UTC);
        let digits = format!(
            "{:04}{:02}{:02}{:02}",
            at.year(),
            at.month(),
            at.day(),
            at.hour()
        );
        #[expect(
            clippy::expect_used,
            reason = "parse accepts only prefixes of valid names"
        )]
        TableName::new(format!(
            "{}{}",
            self.prefix,
            &digits[..self.period.digits()]
        ))
        .expect("a valid table name")
    }

    /// Returns the start of a table's period and the start of the next period, or `None` if the name does not match the pattern. Prefixes
    /// are matched case-insensitively, as on the service.
    pub fn period(&self, name: &TableName) -> Option<(Timestamp, Timestamp)> {
        let digits = name.as_str().get(self.prefix.len()..)?;
        if !name
            .as_str()
            .get(..self.prefix.len())?
            .eq_ignore_ascii_case(&self.prefix)
            || digits.len() != self.period.digits()
            || !digits.bytes().all(|byte| byte.is_ascii_digit())
        {
            return None;
        }
        let part = |range: std::ops::Range<usize>, otherwise: i8| {
            digits
                .get(range)
                .map_or(Some(otherwise), |text| text.parse().ok())
        };
        let date = Date::new(digits[..4].parse().ok()?, part(4..6, 1)?, part(6..8, 1)?).ok()?;
        let begins =
            DateTime::from_parts(date, jiff::civil::Time::new(part(8..10, 0)?, 0, 0, 0).ok()?);
        let ends = begins.checked_add(match self.period {
            Period::Year => 1.year(),
            Period::Month => 1.month(),
            Period::Day => 1.day(),
            Period::Hour => 1.hour(),
        });
        let at = |moment: DateTime| TimeZone::UTC.to_timestamp(moment).ok();
        Some((at(begins)?, at(ends.ok()?)?))
    }

    /// Returns the table of a moment and the tables of the next `periods` periods.
    pub fn from(&self, moment: Timestamp, periods: u32) -> Vec<TableName> {
        let mut names = vec![self.name_at(moment)];
        for _ in 0..periods {
            let Some((_, next)) = names.last().and_then(|name| self.period(name)) else {
                break;
            };
            names.push(self.name_at(next));
        }
        names
    }

    /// Whether both patterns have the same period.
    pub fn has_dates_of(&self, other: &Self) -> bool {
        self.period == other.period
    }

    /// The directives of the date, such as `%Y%m%d`.
    pub const fn dates(&self) -> &'static str {
        self.period.directives()
    }

    /// Returns a text that is the same for every spelling of the pattern. Two patterns with different texts have no table in common.
    pub fn canonical(&self) -> String {
        format!(
            "{}{}",
            self.prefix.to_ascii_lowercase(),
            self.period.directives()
        )
    }
}

impl PartialEq for DatedTables {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for DatedTables {}

impl PartialOrd for DatedTables {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DatedTables {
    fn cmp(&self, other: &Self) -> Ordering {
        self.canonical().cmp(&other.canonical())
    }
}

impl FromStr for DatedTables {
    type Err = DatedTablesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Display for DatedTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.prefix, self.period.directives())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn dated(text: &str) -> DatedTables {
        DatedTables::parse(text).unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_pattern_is_a_prefix_and_a_date_from_large_to_small() {
        for text in ["LoginAttempts%Y%m%d", "L%Y", "Log2x%Y%m", "Hits%Y%m%d%H"] {
            assert_eq!(dated(text).to_string(), text);
        }
        for text in [
            "Logins",
            "%Y%m%d",
            "Logins%d%m%Y",
            "Logins%Y-%m",
            "Logins%Y%m%dx",
            "1Logins%Y",
            "Log1%Y",
            "Lögins%Y",
            &format!("{}%Y", "x".repeat(60)),
        ] {
            assert!(DatedTables::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_stands_for_one_period() {
        let logins = dated("Logins%Y%m%d");
        let name = logins.name_at(at("2026-11-20T15:04:05Z"));
        assert_eq!(name.as_str(), "Logins20261120");
        assert_eq!(
            logins.period(&name),
            Some((at("2026-11-20T00:00:00Z"), at("2026-11-21T00:00:00Z")))
        );
        assert!(
            logins
                .period(&TableName::new("LOGINS20261120").unwrap())
                .is_some()
        );
        for other in [
            "Logins",
            "Logins2026112",
            "Logins20261399",
            "Logins20260230",
            "LoginsX0261120",
            "Other20261120",
            "Logins2026112012",
        ] {
            assert_eq!(
                logins.period(&TableName::new(other).unwrap()),
                None,
                "{other}"
            );
        }
    }

    #[test]
    fn patterns_compare_without_regard_to_case() {
        assert_eq!(dated("Logins%Y%m%d"), dated("LOGINS%Y%m%d"));
        assert_ne!(dated("Logins%Y%m%d"), dated("Logins%Y%m"));
        assert!(
            dated("Logins%Y%m").has_dates_of(&dated("Other%Y%m"))
                && !dated("Logins%Y%m").has_dates_of(&dated("Logins%Y"))
        );
    }

    #[test]
    fn the_next_tables_cross_the_ends_of_months_and_years() {
        let names = |text: &str, from: &str| {
            dated(text)
                .from(at(from), 2)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names("L%Y%m%d", "2026-12-30T23:59:59Z"),
            ["L20261230", "L20261231", "L20270101"]
        );
        assert_eq!(
            names("L%Y%m", "2026-12-31T23:59:59Z"),
            ["L202612", "L202701", "L202702"]
        );
        assert_eq!(
            names("L%Y%m%d%H", "2024-02-28T23:00:00Z"),
            ["L2024022823", "L2024022900", "L2024022901"]
        );
        assert_eq!(
            names("L%Y", "2026-06-01T00:00:00Z"),
            ["L2026", "L2027", "L2028"]
        );
    }

    proptest! {
        #[test]
        fn the_period_of_a_table_contains_its_moment(seconds in 0_i64..4_000_000_000, which in 0_usize..4) {
            let moment = Timestamp::from_second(seconds).unwrap();
            let tables = dated(["L%Y", "L%Y%m", "L%Y%m%d", "L%Y%m%d%H"][which]);
            let (begins, ends) = tables.period(&tables.name_at(moment)).unwrap();
            prop_assert!(begins <= moment && moment < ends);
            prop_assert_eq!(tables.name_at(begins), tables.name_at(moment));
            prop_assert_ne!(tables.name_at(ends), tables.name_at(moment));
        }

        #[test]
        fn any_text_is_a_pattern_or_not(text in "\\PC{0,20}") {
            let _ = DatedTables::parse(&text);
        }
    }
}
