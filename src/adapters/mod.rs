//! Implementations of the ports: one folder per store, and decorators for any port.
//!
//! Adapters depend on [`ports`](crate::ports), [`model`](crate::model), `settings` and `telemetry` alone; nothing
//! depends on them but `app`, the place that puts the program together.

pub mod azure;
mod check;
pub mod circuit;
pub mod embedded;
pub mod files;
pub mod gather;
pub mod group;
pub mod heat;
mod http;
pub mod layer;
pub mod observe;
pub mod pace;
pub mod retry;
#[cfg(test)]
pub(crate) mod scripted;
pub mod search;
pub mod sim;
pub mod system;
pub mod wear;
