//! The embedded store: tables, queues and blobs of one account in one SQLite file.
//!
//! It behaves as Azure Storage does where a caller can see it (ETags, conditions, limits, transactions, pop
//! receipts, continuations), and as the stricter of Azure and Azurite where those two differ, so that a program that
//! works on it works on the service. Several processes may use one file.
//!
//! The invariant: an acknowledged write is on the disk. Writes go through one thread, which takes all that
//! wait, executes each inside its own savepoint, commits them together and only then answers, so that many
//! writers share one sync of the disk:
//!
//! ```text
//!  caller ──request──▶ ┌────────────────────── writer thread ──────────────────────┐
//!  caller ──request──▶ │ BEGIN IMMEDIATE; (SAVEPOINT; work; RELEASE | ROLLBACK)…;  │
//!  caller ──request──▶ │ COMMIT (write-ahead log, synchronous=FULL)                │
//!         ◀──answer─── └───────────────────────────────────────────────────────────┘
//!  caller ──read─────▶ one of a few reader threads: waiting reads share a snapshot
//! ```
//!
//! - `store`: opening; the three ports meet the threads here
//! - `schema`: the file's layout and its version; how a connection is set up
//! - `writer`, `readers`: the threads; `stamp`: the versions that writes get; `reclaim`: the leftovers of deleted tables,
//!   queues and containers
//! - `tables`, `entities`, `group`, `codec`: table storage; `query`, `range`: queries
//! - `queues`, `messages`: queue storage; `blobs`, `contents`: blob storage
//! - `fault`: failures on their way to the ports' error

mod blobs;
mod blocks;
mod codec;
mod contents;
mod entities;
mod fault;
mod group;
mod messages;
mod query;
mod queues;
mod readers;
mod reclaim;
mod schema;
mod stamp;
mod store;
mod tables;
#[cfg(test)]
mod tests;
mod writer;

pub use schema::OpenError;
pub use store::{EmbeddedStore, Options};
