//! Figures as people read them. Pure.

pub(super) use crate::ops::board::{grouped, lasting};

/// A rate per second.
pub(super) fn rate(per_second: f64) -> String {
    match per_second {
        none if none <= 0.0 => "0".to_owned(),
        few if few < 0.995 => format!("{few:.2}"),
        some if some < 99.5 => format!("{some:.1}"),
        many => grouped(whole(many)),
    }
}

/// A duration in seconds.
pub(super) fn seconds(seconds: f64) -> String {
    match seconds {
        short if short < 0.000_5 => "0 ms".to_owned(),
        short if short < 0.995 => format!("{:.0} ms", short * 1_000.0),
        some if some < 99.5 => format!("{some:.1} s"),
        long => lasting(std::time::Duration::from_secs(whole(long))),
    }
}

/// A figure that may be unknown.
pub(super) fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), show)
}

/// An RFC 3339 time without its fraction of a second.
pub(super) fn moment(at: &str) -> String {
    let whole = at.split_once('.').map_or_else(|| at.trim_end_matches('Z'), |(whole, _)| whole);
    whole.replace('T', " ")
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded, not negative, and far below 2^64")]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_as_many_digits_as_they_are_worth() {
        assert_eq!([0.0, 0.1, 12.34, 1_234.5].map(rate), ["0", "0.10", "12.3", "1,235"]);
        assert_eq!([0.0, 0.02, 1.0, 45.26, 600.0].map(seconds), ["0 ms", "20 ms", "1.0 s", "45.3 s", "10 min"]);
        assert_eq!(moment("2026-11-20T15:00:01.123456Z"), "2026-11-20 15:00:01");
        assert_eq!(moment("2026-11-20T15:00:01Z"), "2026-11-20 15:00:01");
    }
}
