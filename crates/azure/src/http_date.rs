//! Dates in HTTP headers and queue messages.

use jiff::Timestamp;

/// Parses `Fri, 20 Nov 2026 15:00:00 GMT`. Returns `None` for other formats and dates outside the range of [`Timestamp`].
pub(super) fn parse(text: &str) -> Option<Timestamp> {
    let zoned = jiff::fmt::rfc2822::parse(text.trim()).ok()?;
    Some(zoned.timestamp())
}

/// Whether a date is the last one, 31 Dec 9999 23:59:59, which means "never".
pub(super) fn is_never(text: &str) -> bool {
    text.contains(" 9999 ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_dates_of_the_services() {
        assert_eq!(
            parse("Fri, 20 Nov 2026 15:00:00 GMT").unwrap().to_string(),
            "2026-11-20T15:00:00Z"
        );
        assert_eq!(parse("yesterday"), None);
        assert!(is_never("Fri, 31 Dec 9999 23:59:59 GMT"));
        assert!(!is_never("Fri, 20 Nov 2026 15:00:00 GMT"));
    }
}
