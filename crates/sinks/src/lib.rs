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

pub mod search;
pub mod sql;
pub mod webhook;
