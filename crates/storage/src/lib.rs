//! The storage ports, and code that applies to every store.
//!
//! A port is a trait for one service: tables, queues, blobs, files, sinks, key vaults, the clock. Its methods return a value or a
//! [`StoreError`], whose [`ErrorClass`] tells whether the request was executed, may have been executed, or can never succeed.
//! `crates/conformance` is the test suite of the ports' contract, and runs against every adapter.
//!
//! ```text
//!   engine, worker, client, ops ──▶ ports ◀── layers ◀── azure, sqlite, sinks, account
//!                                     │
//!       error     what an answer means: refused, lost race, throttled, ambiguous, permanent
//!       wide      one entity over several rows        encryption   encrypted properties and their keys
//!       check     limits of Azure Storage             range     a filter as a range of keys
//!       combine   many callers, one request           system    the machine's clock and chance
//! ```
//!
//! Invariant: ports have no type of an SDK, no SQL, and no default methods, so a new method does not compile until every adapter and every
//! layer has it.
//!
//! This crate may depend only on `model`.

pub mod blobs;
pub mod check;
pub mod clock;
pub mod combine;
pub mod encryption;
pub mod error;
pub mod files;
pub mod health;
pub mod queues;
pub mod range;
pub mod service_clocks;
pub mod sink;
pub mod stores;
pub mod system;
pub mod tables;
pub mod vault;
pub mod wide;

pub use blobs::{
    Blob, BlobCondition, BlobCopy, BlobItem, BlobPage, BlobProperties, BlobStore, BlobUpload,
    BlockId, all_blobs,
};
pub use clock::{Clock, Deadline, Rng};
pub use error::{ErrorClass, Missing, Resource, Service, StoreError, Subject, Withheld};
pub use files::{File, FileInfo, FilePlace, FileStore, Pieces};
pub use health::{OpenCircuit, StoreHealth};
pub use queues::{
    Message, MessageText, PeekedMessage, QueueStore, SentMessage, Ttl, UpdatedMessage,
};
pub use service_clocks::{ClockSkew, ServiceClocks};
pub use sink::{DocumentWrite, Fields, Sink, SinkBatching, WriteResults};
pub use stores::{Account, AccountFacts, Stores};
pub use tables::{
    Continuation, IfMatch, Page, Query, TableOperation, TablePage, TableStore, all_rows, all_tables,
};
pub use vault::{Vault, VaultError};
