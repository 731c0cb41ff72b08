//! What several test binaries share.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it, and another part than the next one")]

pub mod azurite;
pub mod stub;
