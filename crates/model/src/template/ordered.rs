//! Texts that sort by their values: padded numbers, and moments with the latest first.

use crate::EdmDateTime;

/// Number of digits of an inverted tick count.
pub const INVERTED_TICKS_DIGITS: usize = 19;

/// 9999-12-31T23:59:59.9999999Z in ticks of 100 ns, .NET's `DateTime.MaxValue`.
const MAX_TICKS: i64 = 3_155_378_975_999_999_999;

/// Returns a number in decimal, padded with zeros to a width, so that texts sort by value. Returns `None` if the number does not fit.
pub fn pad(number: u64, width: usize) -> Option<String> {
    let text = format!("{number:0width$}");
    (text.len() == width).then_some(text)
}

/// The inverse of [`pad`].
pub fn unpad(text: &str) -> Option<u64> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        text.parse().ok()
    } else {
        None
    }
}

/// `DateTime.MaxValue` − moment as 19 digits of ticks: the latest moment sorts first (the log tail pattern).
pub fn inverted_ticks(moment: EdmDateTime) -> String {
    format!("{:019}", MAX_TICKS - moment.ticks())
}

/// The inverse of [`inverted_ticks`].
pub fn from_inverted_ticks(text: &str) -> Option<EdmDateTime> {
    if text.len() != INVERTED_TICKS_DIGITS || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    EdmDateTime::from_ticks(MAX_TICKS.checked_sub(text.parse().ok()?)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_ends_of_the_range_are_reached() {
        assert_eq!(
            inverted_ticks(EdmDateTime::parse("9999-12-31T23:59:59.9999999Z").unwrap()),
            "0000000000000000000"
        );
        assert_eq!(
            inverted_ticks(EdmDateTime::parse("1601-01-01T00:00:00Z").unwrap()),
            "2650467743999999999"
        );
        assert_eq!(pad(7, 3).as_deref(), Some("007"));
        assert_eq!(pad(1_000, 3), None);
        assert_eq!(from_inverted_ticks("9223372036854775807"), None);
    }

    proptest! {
        #[test]
        fn padded_numbers_sort_as_numbers_and_come_back(a in any::<u64>(), b in any::<u64>()) {
            let (x, y) = (pad(a, 20).unwrap(), pad(b, 20).unwrap());
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
            prop_assert_eq!(unpad(&x), Some(a));
        }

        #[test]
        fn later_moments_sort_first_and_come_back(a in 504_911_232_000_000_000_i64..=MAX_TICKS, b in 504_911_232_000_000_000_i64..=MAX_TICKS) {
            let (a, b) = (EdmDateTime::from_ticks(a).unwrap(), EdmDateTime::from_ticks(b).unwrap());
            let (x, y) = (inverted_ticks(a), inverted_ticks(b));
            prop_assert_eq!(x.cmp(&y), b.cmp(&a));
            prop_assert_eq!(from_inverted_ticks(&x), Some(a));
        }

        #[test]
        fn arbitrary_text_is_no_number_or_one(text in any::<String>()) {
            let _ = (unpad(&text), from_inverted_ticks(&text));
        }
    }
}
