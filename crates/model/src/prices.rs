//! List prices of storage requests in US dollars per 10,000, for estimates (Azure Storage pricing of 2025: locally redundant, general
//! purpose v2, hot tier, US). Data and traffic cost extra, and regions differ.

use std::time::Duration;

/// Table requests. A transaction counts as one.
pub const TABLE: f64 = 0.000_36;
/// Queue requests.
pub const QUEUE: f64 = 0.004;
/// Writes and lists of blobs.
pub const BLOB_WRITES: f64 = 0.05;
/// Reads of blobs.
pub const BLOB_READS: f64 = 0.004;

/// A twelfth of a year.
const MONTH: Duration = Duration::from_secs(2_629_746);

/// US dollars per month for one queue request per interval.
pub fn polling(interval: Duration) -> f64 {
    MONTH.as_secs_f64() / interval.as_secs_f64() * QUEUE / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_a_second_is_about_a_dollar_a_month() {
        assert!((polling(Duration::from_secs(1)) - 1.05).abs() < 0.01);
    }
}
