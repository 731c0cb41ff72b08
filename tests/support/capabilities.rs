//! What evenkeel's own stores guarantee beyond Azure.

use std::time::Duration;

use evenkeel_conformance::Capabilities;

/// The embedded and the simulated store keep every bit of a number and of a date, and give each version and each pop
/// receipt a number.
pub const OWN: Capabilities = Capabilities {
    sign_of_zero: true,
    date_comparison: Duration::from_nanos(100),
    transaction_etags_differ: true,
    receipts_differ: true,
    ..Capabilities::azure()
};
