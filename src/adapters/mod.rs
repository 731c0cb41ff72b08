//! What implements the ports: one folder per store, and decorators that any port can wear.
//!
//! Adapters depend on [`ports`](crate::ports) and [`model`](crate::model) alone; nothing depends on them but
//! the place that puts the program together.

pub mod azure;
pub mod sim;
