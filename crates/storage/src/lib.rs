//! The outside, in terms of the model: tables, queues, blobs, files, other stores, a clock.
//!
//! One contract suite (`crates/conformance`) states the contract of each port and runs on every adapter.
//! Decorators (retry, pacing, observation) implement every method: there are no silent defaults.

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
