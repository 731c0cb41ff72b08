//! Adapters: what the ports look like from the inside of a real (or simulated) store.
//!
//! Adapters depend on [`ports`](crate::ports) and [`model`](crate::model) alone; nothing depends on them but
//! the place that puts the program together.

pub mod azure;
pub mod sim;
