//! The ports: storage as the rest of the program sees it, and what holds for every store.
//!
//! A port is a trait for one service: tables, queues, blobs, files, sinks, the keys of a vault, a clock. An answer is a value or a
//! [`StoreError`] with its [`ErrorClass`], which says what the request did: nothing, perhaps something, or that it can never succeed.
//! One contract suite (`crates/conformance`) states what each port promises, and runs on every adapter.
//!
//! ```text
//!   engine, worker, client, ops ──▶ ports ◀── layers ◀── azure, sqlite, sinks, account
//!                                     │
//!       error     what an answer means: refused, lost race, throttled, ambiguous, permanent
//!       wide      one entity over several rows        sealing   encrypted properties and their keys
//!       check     limits of Azure Storage             range     a filter as a range of keys
//!       combine   many callers, one request           system    the machine's clock and chance
//! ```
//!
//! Invariant: no type of an SDK and no SQL in a port, and no default method: a new method does not compile until every adapter and layer has it.
//!
//! It may name `model` alone.

pub mod blobs;
pub mod check;
pub mod clock;
pub mod combine;
pub mod error;
pub mod files;
pub mod health;
pub mod queues;
pub mod range;
pub mod sealing;
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
pub use clock::{Chance, Clock, Deadline};
pub use error::{ErrorClass, Missing, Service, StoreError, Subject, What, Withheld};
pub use files::{File, FilePlace, FileStore, FoundFile, Pieces};
pub use health::{OpenCircuit, StoreHealth};
pub use queues::{
    Message, MessageText, PeekedMessage, QueueStore, SentMessage, Ttl, UpdatedMessage,
};
pub use service_clocks::{ClocksApart, ServiceClocks};
pub use sink::{DocumentWrite, Fields, Sink, SinkBatching, Written};
pub use stores::{Account, AccountFacts, Stores};
pub use tables::{
    Continuation, IfMatch, Page, Query, TableOperation, TablePage, TableStore, all_rows, all_tables,
};
pub use vault::{Vault, VaultError};
