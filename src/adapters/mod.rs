//! Implementations of the ports: one folder per store, and decorators for any port.
//!
//! Adapters depend on [`ports`](crate::ports), [`model`](crate::model), `settings` and `telemetry` alone; nothing
//! depends on them but `app`, the place that puts the program together.

pub mod circuit;
pub mod embedded;
pub mod gather;
pub mod group;
pub mod heat;
pub mod namespace;
pub mod observe;
pub mod pace;
mod range;
#[cfg(any(test, feature = "simulation"))]
pub mod sim;
pub mod spend;
pub mod sql;
pub mod stack;
pub mod unreliable;

pub use evenkeel_azure::{self as azure, files, layer, retry, search, system, webhook};
