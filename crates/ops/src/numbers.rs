//! Formats numbers for people. Pure.

use std::time::Duration;

use crate::state::{grouped, lasting};

/// A measured number. An unknown value is shown as a dash.
pub trait Measure {
    fn measured(&self) -> Option<f64>;

    /// Formats a rate per second.
    fn rate(&self) -> String {
        or_dash(self.measured(), |per_second| match per_second {
            none if none <= 0.0 => "0".to_owned(),
            few if few < 0.995 => format!("{few:.2}"),
            some if some < 99.5 => format!("{some:.1}"),
            many => grouped(whole(many)),
        })
    }

    /// Formats a duration given in seconds.
    fn seconds(&self) -> String {
        or_dash(self.measured(), |seconds| match seconds {
            none if none <= 0.0 => "0 ms".to_owned(),
            tiny if tiny < 0.000_995 => format!("{:.0} µs", tiny * 1_000_000.0),
            small if small < 0.009_95 => format!("{:.1} ms", small * 1_000.0),
            short if short < 0.995 => format!("{:.0} ms", short * 1_000.0),
            some if some < 99.5 => format!("{some:.1} s"),
            long => lasting(Duration::from_secs(whole(long))),
        })
    }

    /// Formats US dollars with the significant digits only.
    fn dollars(&self) -> String {
        or_dash(self.measured(), |dollars| match dollars {
            none if none <= 0.0 => "$0".to_owned(),
            tiny if tiny < 0.000_1 => "< $0.0001".to_owned(),
            small if small < 0.01 => format!("${small:.4}"),
            some if some < 999.5 => format!("${some:.2}"),
            many => format!("${}", grouped(whole(many))),
        })
    }

    /// Formats a ratio in per cent.
    fn percent(&self) -> String {
        or_dash(self.measured(), |share| match share * 100.0 {
            none if none <= 0.0 => "0%".to_owned(),
            few if few < 0.95 => format!("{few:.1}%"),
            many => format!("{many:.0}%"),
        })
    }
}

impl Measure for f64 {
    fn measured(&self) -> Option<f64> {
        Some(*self)
    }
}

impl Measure for Option<f64> {
    fn measured(&self) -> Option<f64> {
        *self
    }
}

/// A count. An unknown value is shown as a dash.
pub trait Counted {
    fn counted(&self) -> Option<u64>;

    /// Formats the count with digits in groups of three.
    fn grouped(&self) -> String {
        or_dash(self.counted(), grouped)
    }

    /// Formats the count with a noun: "1 job", "2 jobs".
    fn of(&self, noun: &str) -> String {
        format!(
            "{} {noun}{}",
            self.grouped(),
            if self.counted() == Some(1) { "" } else { "s" }
        )
    }

    /// Formats a duration given in seconds.
    fn lasting(&self) -> String {
        or_dash(self.counted(), |seconds| {
            lasting(Duration::from_secs(seconds))
        })
    }
}

impl Counted for u64 {
    fn counted(&self) -> Option<u64> {
        Some(*self)
    }
}

impl Counted for u32 {
    fn counted(&self) -> Option<u64> {
        Some(u64::from(*self))
    }
}

impl Counted for usize {
    fn counted(&self) -> Option<u64> {
        Some(*self as u64)
    }
}

impl Counted for Option<u64> {
    fn counted(&self) -> Option<u64> {
        *self
    }
}

/// Describes the age of the oldest visible message, or states that no message is visible.
pub(super) fn age(seconds: Option<u64>, messages: Option<u64>) -> String {
    match (seconds, messages) {
        (None, Some(1..)) => "hidden".to_owned(),
        (seconds, messages) => seconds.filter(|_| messages > Some(0)).lasting(),
    }
}

fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), show)
}

/// Formats an RFC 3339 time without the fraction of a second.
pub(super) fn moment(at: &str) -> String {
    let whole = at
        .split_once('.')
        .map_or_else(|| at.trim_end_matches('Z'), |(whole, _)| whole);
    whole.replace('T', " ")
}

pub(super) fn time_of_day(at: &str) -> String {
    let moment = moment(at);
    moment
        .split_once(' ')
        .map_or_else(|| moment.clone(), |(_, time)| time.to_owned())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounded, not negative, and far below 2^64"
)]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

/// Returns the next round number that is not less than a value: 1, 2 or 5 times a power of ten, at least 0.01.
pub fn ceiling(value: f64) -> f64 {
    let mut step = 0.01;
    loop {
        for times in [1.0, 2.0, 5.0] {
            if step * times >= value || step > 1e12 {
                return step * times;
            }
        }
        step *= 10.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_significant_digits_only() {
        assert_eq!(
            [0.0, 0.1, 12.34, 1_234.5].map(|rate| rate.rate()),
            ["0", "0.10", "12.3", "1,235"]
        );
        assert_eq!(
            [0.0, 0.000_25, 0.002, 0.02, 1.0, 45.26, 600.0].map(|seconds| seconds.seconds()),
            [
                "0 ms", "250 µs", "2.0 ms", "20 ms", "1.0 s", "45.3 s", "10 min"
            ]
        );
        let dollars = [0.0, 0.000_01, 0.0042, 1.239, 12_345.0].map(|dollars| dollars.dollars());
        assert_eq!(dollars, ["$0", "< $0.0001", "$0.0042", "$1.24", "$12,345"]);
        assert_eq!(
            [0.0, 0.004, 0.034, 1.5].map(|share| share.percent()),
            ["0%", "0.4%", "3%", "150%"]
        );
        assert_eq!(
            [1_u64, 2_000].map(|number| number.of("job")),
            ["1 job", "2,000 jobs"]
        );
        assert_eq!(
            (None::<f64>.rate(), None.lasting(), Some(121).lasting()),
            ("–".to_owned(), "–".to_owned(), "2 min".to_owned())
        );
        assert_eq!(
            (age(Some(7), Some(0)), age(Some(7), Some(1))),
            ("–".to_owned(), "7 s".to_owned())
        );
        assert_eq!(
            (age(None, Some(452)), age(None, Some(0)), age(None, None)),
            ("hidden".to_owned(), "–".to_owned(), "–".to_owned())
        );
        assert_eq!(moment("2026-11-20T15:00:01.123456Z"), "2026-11-20 15:00:01");
        assert_eq!(time_of_day("2026-11-20T15:00:01Z"), "15:00:01");
    }
}
