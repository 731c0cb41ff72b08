//! Durations and sizes with their units.

use std::time::Duration;

/// Parses a duration: an integer with one of `ms`, `s`, `m`, `h`, `d`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let expected = || {
        format!(
            "expected a whole number and a unit (ms, s, m, h, d), such as \"90s\", found {text:?}"
        )
    };
    let (number, unit) = split(text).ok_or_else(expected)?;
    let seconds = match unit {
        "ms" => return Ok(Duration::from_millis(number)),
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(expected()),
    };
    number
        .checked_mul(seconds)
        .map(Duration::from_secs)
        .ok_or_else(expected)
}

/// Parses a size in bytes: an integer with one of `B`, `KiB`, `MiB`, `GiB`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let expected = || {
        format!(
            "expected a whole number and a unit (B, KiB, MiB, GiB), such as \"32KiB\", found {text:?}"
        )
    };
    let (number, unit) = split(text).ok_or_else(expected)?;
    let bytes = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(expected()),
    };
    number.checked_mul(bytes).ok_or_else(expected)
}

/// Formats a duration for the configuration, in the largest unit that keeps it an integer.
pub fn duration_text(duration: Duration) -> String {
    let millis = duration.as_millis();
    for (unit, size) in [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
    ] {
        if millis > 0 && millis.is_multiple_of(size) {
            return format!("{}{unit}", millis / size);
        }
    }
    format!("{millis}ms")
}

/// Formats a size for the configuration, in the largest unit that keeps it an integer.
pub fn size_text(bytes: u64) -> String {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let unit = units
        .into_iter()
        .find(|(_, size)| bytes > 0 && bytes.is_multiple_of(*size));
    unit.map_or_else(
        || format!("{bytes}B"),
        |(unit, size)| format!("{}{unit}", bytes / size),
    )
}

fn split(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let end = text.bytes().position(|b| !b.is_ascii_digit())?;
    let number = text[..end].parse().ok()?;
    Some((number, text[end..].trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_unit_is_read() {
        for (text, seconds) in [
            ("60s", 60.0),
            ("10m", 600.0),
            ("6h", 21_600.0),
            ("60d", 5_184_000.0),
            ("50ms", 0.05),
            (" 2 s ", 2.0),
        ] {
            assert!(
                (parse_duration(text).unwrap().as_secs_f64() - seconds).abs() < 1e-9,
                "{text}"
            );
        }
        assert_eq!(parse_size("32KiB"), Ok(32_768));
        assert_eq!(parse_size("1 MiB"), Ok(1_048_576));
        assert_eq!(parse_size("7B"), Ok(7));
    }

    #[test]
    fn a_missing_or_unknown_unit_is_refused() {
        for text in [
            "",
            "60",
            "s",
            "-1s",
            "1.5s",
            "60 sec",
            "1h30m",
            "99999999999999999999s",
            "18446744073709551615d",
        ] {
            assert!(
                parse_duration(text).unwrap_err().contains("\"90s\""),
                "{text}"
            );
        }
        for text in ["", "32", "32KB", "32k", "KiB", "17179869184GiB"] {
            assert!(
                parse_size(text).unwrap_err().contains("\"32KiB\""),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in any::<String>(), digits in "[0-9]{0,25} ?[a-zA-Z]{0,3}") {
            let _ = (parse_duration(&text), parse_size(&text), parse_duration(&digits), parse_size(&digits));
        }

        #[test]
        fn a_duration_is_written_as_it_is_read(millis in any::<u32>()) {
            let duration = Duration::from_millis(u64::from(millis));
            prop_assert_eq!(parse_duration(&duration_text(duration)), Ok(duration));
        }

        #[test]
        fn a_size_is_written_as_it_is_read(bytes in prop_oneof![any::<u64>(), (0_u64..5_000).prop_map(|number| number << 20)]) {
            prop_assert_eq!(parse_size(&size_text(bytes)), Ok(bytes));
        }
    }
}
