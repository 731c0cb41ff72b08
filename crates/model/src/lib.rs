//! The values of evenkeel: keys, names, ETags, EDM values, entities, filters, conditions,
//! templates, jobs, and the catalog.
//!
//! Invariant: nothing here does I/O, reads a clock or draws a random number. Every type is parsed
//! once, at the edge, into a value that cannot be invalid; the rest of the program never validates
//! again.
//!
//! ```text
//!   values ◀── settings                the configuration besides the catalog
//!     ▲─────── catalog ◀── patterns    views and archives; one file per kind derives its items
//!                 ▲─────── shared      documents that several primaries share
//! ```
//!
//! The crate may depend on libraries of values and formats, but on nothing asynchronous, because
//! every other crate of the workspace depends on this crate.

#![warn(missing_docs)]

pub mod allowed;
pub mod audit;
pub mod backfill;
pub mod blob_path;
pub mod body;
pub mod caret;
pub mod catalog;
pub mod cause;
mod column;
pub mod condition;
pub mod cursor;
pub mod dated;
pub mod datetime;
pub mod document;
pub mod drop_table;
pub mod edm;
pub mod entity;
pub mod etag;
pub mod event;
pub mod filter;
pub mod item;
pub mod job;
pub mod key;
mod key_bytes;
pub mod large;
pub mod limits;
pub mod local;
pub mod log;
pub mod names;
pub mod nearest;
pub mod odata;
pub mod patterns;
pub mod prices;
pub mod propagation;
pub mod quoted;
pub mod range_overlay;
mod rendezvous;
pub mod settings;
pub mod settled;
mod shard;
pub mod shared;
pub mod sink;
mod stamp;
pub mod stored;
pub mod sweep;
pub mod template;
pub mod units;
pub mod unprintable;

pub use column::ColumnType;
pub use datetime::EdmDateTime;
pub use edm::EdmValue;
pub use entity::{Entity, Row};
pub use etag::ETag;
pub use filter::{Comparison, Filter};
pub use item::{ItemAddress, Member, Part, Site};
pub use job::{Job, JobEnvelope};
pub use key::{EntityKey, Key};
pub use key_bytes::KeyBytes;
pub use names::{
    AccountName, BlobName, CatalogOwner, CollectionName, ContainerName, DocumentKey, QueueName,
    TableName, ViewName,
};
pub use rendezvous::rendezvous;
pub use shard::shard;
pub use sink::SinkDocument;
