//! Decorators of the storage ports, between the program and an adapter.
//!
//! ```text
//!   caller ─▶ retry ─▶ entrance ─▶ group ─▶ pace ─▶ circuit ─▶ observe ─▶ adapter
//!             repeats   delays     combines  limits     withholds  counts
//!             safe      new jobs   table     the rate   requests   the
//!             requests  of a busy  requests  of each    during an  requests
//!                       partition            scope      outage     sent
//! ```
//!
//! [`stack`] assembles them for an account, and [`layer`] defines the decorator trait. Sinks use [`gather`] in place of
//! `group`. [`namespace`] (prefixed names) and [`unreliable`] (faults) serve `certify`; [`spend`] limits its cost.
//!
//! Invariant: a caller gets the answer that its own request would have had, or an error that states that nothing was sent.
//!
//! The crate depends on `storage`, `model` and `telemetry` only.

pub mod circuit;
pub mod gather;
pub mod group;
pub mod heat;
pub mod layer;
pub mod namespace;
pub mod observe;
pub mod pace;
pub mod retry;
pub mod spend;
pub mod stack;
#[cfg(test)]
mod testing;
pub mod unreliable;
