//! What several test binaries share. Each uses a part of it.

pub mod azurite;
pub mod stub;
