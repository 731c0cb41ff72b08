//! Stores other than Azure Storage that views write to. Each is a Cargo feature, on by default.
//!
//! ```text
//!   a view's document ──▶ Sink (port) ──┬─▶ sql      a row in PostgreSQL or SQLite       feature postgres, sqlite
//!                                       ├─▶ search   a document in Azure AI Search       feature search
//!                                       └─▶ webhook  a CloudEvents event by HTTP         feature webhooks
//! ```
//!
//! Invariant: this crate sends nothing twice, and no secret appears in an error.
//!
//! The crate depends on `storage` and `model`, and on `azure` for its HTTP client, identities and keys.

mod open;
#[cfg(feature = "search")]
pub mod search;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub mod sql;
#[cfg(feature = "webhooks")]
pub mod webhook;

pub use open::{OpenedSink, SinkOpenError, open};
