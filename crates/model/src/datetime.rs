//! `Edm.DateTime`.

use std::fmt;

use jiff::civil::{self, date};
use jiff::{SignedDuration, Timestamp};

use super::quoted;

/// A moment in UTC, in ticks of 100 ns, from 1601-01-01 to 9999-12-31 (the range of Azure Table storage).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EdmDateTime {
    ticks: i64,
}

const EPOCH: civil::DateTime = date(1970, 1, 1).at(0, 0, 0, 0);
const TICKS_PER_SECOND: i64 = 10_000_000;
const TICKS_PER_DAY: i64 = 86_400 * TICKS_PER_SECOND;
/// Ticks of 100 ns from 0001-01-01, where .NET starts, to 1970-01-01.
const UNIX_EPOCH_TICKS: i64 = 621_355_968_000_000_000;
/// 1601-01-01T00:00:00Z, the earliest moment that Azure Table storage accepts.
const MIN_TICKS: i64 = 504_911_232_000_000_000;
/// 9999-12-31T23:59:59.9999999Z, the latest moment that Azure Table storage accepts.
const MAX_TICKS: i64 = 3_155_378_975_999_999_999;

/// Reasons why a text or number is not an `Edm.DateTime`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DateTimeError {
    /// The text is not RFC 3339.
    #[error("{0:?} is not a date and time such as 2026-11-20T15:00:00Z")]
    Syntax(String),
    /// The moment is outside 1601 to 9999.
    #[error("{0} is outside the range of Edm.DateTime, 1601-01-01 to 9999-12-31")]
    Range(String),
}

impl EdmDateTime {
    /// Converts .NET ticks (100 ns since 0001-01-01).
    pub fn from_ticks(ticks: i64) -> Result<Self, DateTimeError> {
        if (MIN_TICKS..=MAX_TICKS).contains(&ticks) {
            Ok(Self { ticks })
        } else {
            Err(DateTimeError::Range(format!("{ticks} ticks")))
        }
    }

    /// .NET ticks (100 ns since 0001-01-01).
    pub const fn ticks(self) -> i64 {
        self.ticks
    }

    /// Parses RFC 3339 with an offset or `Z`. A text with neither is in UTC. Digits below 100 ns are cut off.
    ///
    /// The parser uses civil times of the time library, because the library's timestamps end a day before .NET's `DateTime.MaxValue`, which
    /// is common in real tables.
    pub fn parse(text: &str) -> Result<Self, DateTimeError> {
        let ticks = parse_ticks(text)
            .ok_or_else(|| DateTimeError::Syntax(quoted::shortened(text.to_owned())))?;
        Self::from_ticks(ticks)
            .map_err(|_| DateTimeError::Range(quoted::shortened(text.to_owned())))
    }

    /// Returns a text such as `2026-11-20T15:00:00.0000000Z`, always with seven digits of fraction, so that texts sort by time.
    pub fn sorting_text(self) -> String {
        let fraction = self.ticks.rem_euclid(TICKS_PER_SECOND);
        let second = Self {
            ticks: self.ticks - fraction,
        }
        .to_string();
        format!("{}.{fraction:07}Z", second.trim_end_matches('Z'))
    }

    /// Converts a clock's time. Digits below 100 ns are cut off.
    pub fn from_timestamp(timestamp: Timestamp) -> Result<Self, DateTimeError> {
        let ticks = timestamp.as_nanosecond().div_euclid(100) + i128::from(UNIX_EPOCH_TICKS);
        i64::try_from(ticks)
            .ok()
            .and_then(|ticks| Self::from_ticks(ticks).ok())
            .ok_or_else(|| DateTimeError::Range(timestamp.to_string()))
    }

    /// Converts to a clock's time.
    pub fn timestamp(self) -> Timestamp {
        // The range of the library's timestamps ends on 30 December 9999. A later moment becomes the end of this range. This changes only
        // the results of arithmetic into the year 10000.
        Timestamp::from_nanosecond(i128::from(self.ticks - UNIX_EPOCH_TICKS) * 100)
            .unwrap_or(Timestamp::MAX)
    }
}

impl fmt::Display for EdmDateTime {
    /// Writes `2026-11-20T15:00:00.1234567Z`, without trailing zeros of the fraction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.ticks - UNIX_EPOCH_TICKS;
        let day = EPOCH.date().checked_add(SignedDuration::from_hours(
            since.div_euclid(TICKS_PER_DAY) * 24,
        ));
        let time = EPOCH.time().checked_add(SignedDuration::from_nanos(
            since.rem_euclid(TICKS_PER_DAY) * 100,
        ));
        write!(
            f,
            "{}Z",
            day.and_then(|day| Ok(day.to_datetime(time?)))
                .map_err(|_| fmt::Error)?
        )
    }
}

impl fmt::Debug for EdmDateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Ticks from 0001-01-01 to an RFC 3339 text.
fn parse_ticks(text: &str) -> Option<i64> {
    let is =
        |at: usize, allowed: &[u8]| text.as_bytes().get(at).is_some_and(|b| allowed.contains(b));
    if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":")) {
        return None;
    }
    let number = |from: usize| {
        text.get(from..from + 2)
            .filter(|part| part.bytes().all(|b| b.is_ascii_digit()))?
            .parse::<i8>()
            .ok()
    };
    let year = i16::from(number(0)?) * 100 + i16::from(number(2)?);
    let time = civil::DateTime::new(
        year,
        number(5)?,
        number(8)?,
        number(11)?,
        number(14)?,
        number(17)?,
        0,
    )
    .ok()?;
    let mut rest = text.get(19..)?;
    let mut fraction = 0;
    if let Some(tail) = rest.strip_prefix('.') {
        let end = tail
            .bytes()
            .position(|b| !b.is_ascii_digit())
            .unwrap_or(tail.len());
        if end == 0 {
            return None;
        }
        fraction = format!("{:0<7.7}", &tail[..end]).parse().ok()?;
        rest = &tail[end..];
    }
    let offset_minutes = match rest.as_bytes() {
        [] | [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2]
            if [h1, h2, m1, m2].iter().all(|b| b.is_ascii_digit()) =>
        {
            let value = |tens: u8, ones: u8| i64::from(tens - b'0') * 10 + i64::from(ones - b'0');
            let minutes = value(*h1, *h2) * 60 + value(*m1, *m2);
            if *sign == b'-' { -minutes } else { minutes }
        }
        _ => return None,
    };
    let seconds = time.duration_since(EPOCH).as_secs() - offset_minutes * 60;
    Some(UNIX_EPOCH_TICKS + seconds * TICKS_PER_SECOND + fraction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_is_kept_to_100_ns_and_trimmed() {
        for text in [
            "1601-01-01T00:00:00Z",
            "2026-11-20T15:00:00Z",
            "2021-09-21T01:04:48.453251Z",
            "9999-12-31T23:59:59.9999999Z",
        ] {
            assert_eq!(EdmDateTime::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(
            EdmDateTime::parse("2026-11-20T15:00:00+02:00")
                .unwrap()
                .to_string(),
            "2026-11-20T13:00:00Z"
        );
        assert_eq!(
            EdmDateTime::parse("2026-11-20T15:00:00.1200000")
                .unwrap()
                .to_string(),
            "2026-11-20T15:00:00.12Z"
        );
        assert!(EdmDateTime::parse("1600-12-31T23:59:59Z").is_err());
        for bad in [
            "yesterday",
            "2026-02-30T00:00:00Z",
            "2026-11-20T24:00:00Z",
            "2026-11-20T15:00:00.Z",
            "2026-11-20",
            "2026-11-20T15:00:00é",
        ] {
            assert!(EdmDateTime::parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn formatting_and_parsing_agree(ticks in MIN_TICKS..MAX_TICKS - 864_000_000_000 * 2) {
            let value = EdmDateTime::from_ticks(ticks).unwrap();
            prop_assert_eq!(EdmDateTime::parse(&value.to_string()).unwrap(), value);
            prop_assert_eq!(EdmDateTime::from_timestamp(value.timestamp()).unwrap(), value);
        }

        #[test]
        fn sorting_texts_have_one_length_and_sort_as_the_moments(a in MIN_TICKS..=MAX_TICKS, b in MIN_TICKS..=MAX_TICKS, near in 0..30_000_000_i64) {
            for (a, b) in [(a, b), (a, (a + near).min(MAX_TICKS))] {
                let (a, b) = (EdmDateTime::from_ticks(a).unwrap(), EdmDateTime::from_ticks(b).unwrap());
                prop_assert_eq!(a.sorting_text().len(), 28);
                prop_assert_eq!(a.sorting_text().cmp(&b.sorting_text()), a.cmp(&b));
                prop_assert_eq!(EdmDateTime::parse(&a.sorting_text()), Ok(a));
            }
        }
    }
}
