//! Code that several test binaries share.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses a part of it, and another part than the next one"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot set its stage has failed"
)]

pub mod azurite;
pub mod capabilities;
pub mod gusty;
pub mod postgres;
pub mod search;
pub mod stub;
