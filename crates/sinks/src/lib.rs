//! Stores beside Azure Storage that views write to. Each is a feature, on by default.
//!
//! ```text
//!   a view's document ──▶ Sink (port) ──┬─▶ sql      a row in PostgreSQL or SQLite       feature postgres, sqlite
//!                                       ├─▶ search   a document in Azure AI Search       feature search
//!                                       └─▶ webhook  a CloudEvents event by HTTP         feature webhooks
//! ```
//!
//! Invariant: nothing is sent twice here, and no secret gets into an error.
//!
//! It may name `storage` and `model`, and `azure` for its HTTP exchange, identities and keys.

mod open;
#[cfg(feature = "search")]
pub mod search;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub mod sql;
#[cfg(feature = "webhooks")]
pub mod webhook;

pub use open::{OpenedSink, SinkOpenError, open};
