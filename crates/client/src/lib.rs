//! The client library for applications.
//!
//! ```text
//!   submit    a job ─▶ checked as the worker checks it ─▶ Base64, or gzip in Base64 ─▶ the queue, or the shard of its key
//!   get       an entity ─▶ rows of a wide entity joined, pointers replaced by blobs, pieces of a list joined
//!   lookup    a view and values ─▶ points and ranges, never an implicit scan ─▶ rows, merged in order, page by page
//!   wait_for  a primary that was just written ─▶ its footprint: everything derived is in step, or not yet
//!   find      an entity that may be moving to its archive or back
//! ```
//!
//! The program's own commands and pages use this library as well.
//!
//! # Example
//!
//! [`connect()`] reads a configuration like the program does, and opens its Azure accounts. To open an embedded store, tests of
//! applications use `evenkeel::app::connect` of the program's own library.
//!
//! ```
//! use evenkeel_config::Request;
//! use evenkeel_model::{EntityKey, TableName, ViewName};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = evenkeel_client::connect(&Request::of_process(None, None, Vec::new()))?;
//!
//! // Report a change of the application's own table.
//! client.submit(r#"{"op": "sync", "table": "Employees", "pk": "Sales", "rk": "000223"}"#).await?;
//!
//! // Read one entity.
//! let key = EntityKey::new("Sales", "000223")?;
//! let employee = client.get(&TableName::new("Employees")?, &key).await?;
//!
//! // Look up through a view, by the values in its keys.
//! let by_email = ViewName::new("employees_by_email")?;
//! let found = client.lookup(&by_email, &["PartitionKey=Sales", "Email=jun.cao@contoso.com"])?.run().await?;
//! # let _ = (employee, found);
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

mod cache;
mod connect;
mod encryption;
mod entity;
mod error;
mod find;
pub mod lists;
mod lookup;
mod packing;
mod resolve;
mod settled;
mod submission;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use evenkeel_model::catalog::{Archive, Catalog, TableRef, TargetRef};
use evenkeel_model::settings::QueueSettings;
use evenkeel_model::{AccountName, TableName, ViewName};
use evenkeel_storage::{Account, Stores};

use cache::EntityCache;

pub use cache::CacheLimits;
pub use connect::{ConnectError, connect};
pub use encryption::{DecryptedRows, EncryptionError};
pub use entity::WholeEntity;
pub use error::ClientError;
pub use find::{EntityLocation, FoundEntity};
pub use lookup::{JoinSpec, JoinSpecError, Lookup, LookupResult};
pub use packing::{IN_FLIGHT, MessagePacker, ReadyMessage, SendResult};
pub use settled::InStep;
pub use submission::{PreparedMessage, SentMessage};

/// A client for applications. Cloning it is cheap, and many tasks can use it at once.
#[derive(Debug, Clone)]
pub struct Client {
    stores: Stores,
    catalog: Arc<Catalog>,
    queues: Arc<[QueueSettings]>,
    caches: Arc<BTreeMap<TableRef, Arc<EntityCache>>>,
    /// The encrypted properties of each table. Tables of copies and archives are included.
    encrypted: Arc<BTreeMap<TableName, BTreeSet<String>>>,
    /// Whether properties that should be encrypted may be read if they are stored in plain text.
    allows_plain: bool,
}

impl Client {
    /// Creates a client from opened accounts, a catalog and its queues.
    pub fn new(
        stores: Stores,
        catalog: Arc<Catalog>,
        queues: impl Into<Arc<[QueueSettings]>>,
    ) -> Self {
        let encrypted = Arc::new(catalog.encrypted_properties());
        Self {
            stores,
            catalog,
            queues: queues.into(),
            caches: Arc::default(),
            encrypted,
            allows_plain: false,
        }
    }

    /// Allows reading properties that should be encrypted but are stored in plain text, which is an error otherwise.
    /// Use this until `evenkeel keys encrypt` has encrypted the values that were written before `encrypt` was declared.
    /// Meanwhile, anyone who can write a row can put a plain value into it.
    #[must_use]
    pub const fn allowing_plain(mut self) -> Self {
        self.allows_plain = true;
        self
    }

    /// Returns the catalog.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Returns a table of the catalog. The comparison of names ignores case.
    fn table(&self, name: &TableName) -> Result<&TableRef, ClientError> {
        self.catalog
            .table(name)
            .ok_or_else(|| ClientError::unknown("table", name, self.catalog.tables.values()))
    }

    /// Like `table`, but also accepts a table that is spread over several accounts. Such a table can only be read.
    fn target(&self, name: &TableName) -> Result<TargetRef, ClientError> {
        self.catalog
            .target(name)
            .ok_or_else(|| ClientError::unknown("table", name, self.catalog.targets()))
    }

    fn archive(&self, name: &ViewName) -> Result<&Arc<Archive>, ClientError> {
        self.catalog
            .archives
            .get(name)
            .ok_or_else(|| ClientError::unknown("archive", name, self.catalog.archives.keys()))
    }

    fn account(&self, name: &AccountName) -> Result<&Account, ClientError> {
        self.stores
            .account(name)
            .map_err(|error| ClientError::Unknown(error.to_string()))
    }
}
