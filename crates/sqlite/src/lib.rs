//! The embedded store: tables, queues and blobs of one account in one SQLite file.
//!
//! It behaves like Azure Storage wherever a caller can notice (ETags, conditions, limits, transactions,
//! pop receipts, continuations). If Azure and Azurite differ, it behaves like the stricter one, so a
//! program that works with this store works with the service. Several processes may use one file.
//!
//! Invariant: an acknowledged write is on the disk. All writes go through one thread. It takes all
//! waiting writes, executes each in its own savepoint, commits them together, and only then answers, so
//! that many writers share one sync of the disk:
//!
//! ```text
//!  caller ──request──▶ ┌────────────────────── writer thread ──────────────────────┐
//!  caller ──request──▶ │ BEGIN IMMEDIATE; (SAVEPOINT; work; RELEASE | ROLLBACK)…;  │
//!  caller ──request──▶ │ COMMIT (write-ahead log, synchronous=FULL)                │
//!         ◀──answer─── └───────────────────────────────────────────────────────────┘
//!  caller ──read─────▶ one of a few reader threads: waiting reads share a snapshot
//! ```
//!
//! - `store`: opening, and the link between the ports and the threads
//! - `schema`: layout and version of the file; setup of connections
//! - `writer`, `readers`: the threads; `stamp`: the versions of writes; `reclaim`: the contents of
//!   deleted tables, queues and containers
//! - `tables`, `entities`, `group`, `codec`, `query`: table storage
//! - `queues`, `messages`: queue storage; `blobs`, `blocks`, `contents`: blob storage
//! - `fault`: failures before they become errors of the ports

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
