//! List prices of storage requests, to judge a catalog and a pace by: US dollars for 10,000 of them (Azure: Storage pricing, locally
//! redundant, general purpose v2, hot tier, US; as published in 2025). No bill: data and traffic come on top, and regions differ.

use std::time::Duration;

/// Requests to tables; a transaction is one.
pub const TABLE: f64 = 0.000_36;
/// Requests to queues.
pub const QUEUE: f64 = 0.004;
/// Writes and lists of blobs.
pub const BLOB_WRITES: f64 = 0.05;
/// Reads of blobs.
pub const BLOB_READS: f64 = 0.004;

/// A month: a twelfth of a year.
const MONTH: Duration = Duration::from_secs(2_629_746);

/// US dollars a month of one request to a queue each so often.
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
