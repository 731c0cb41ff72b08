//! Code that several test binaries share.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses a different part"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed setup fails the test"
)]

pub mod azurite;
pub mod capabilities;
pub mod gusty;
pub mod postgres;
pub mod search;
pub mod stub;
