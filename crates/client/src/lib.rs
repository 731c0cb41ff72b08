//! The library for applications: operations beside an application's own reads and writes.
//!
//! ```text
//!   submit    a job  ─▶ checked as the worker will ─▶ Base64, or gzip in it ─▶ the queue, or the key's shard of it
//!   get       an entity ─▶ the rows of a wide one joined, blobs in the place of pointers, pieces of a list put together
//!   lookup    a view and values ─▶ points and ranges, never a scan unasked ─▶ rows, merged in order, page by page
//!   wait_for  what one has just written ─▶ its footprint: found by everything derived from it, or not yet
//!   find      an entity that may be on its way into its archive, or back
//! ```
//!
//! The program's own commands and pages do all of this through here: there is no second way.
//!
//! # Example
//!
//! [`connect()`] reads a configuration as the program does and opens its accounts on Azure. Tests of applications open an embedded store
//! in the same way, by `evenkeel::app::connect` of the program's own library.
//!
//! ```
//! use evenkeel_config::Request;
//! use evenkeel_model::{EntityKey, TableName, ViewName};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = evenkeel_client::connect(&Request::of_process(None, None, Vec::new()))?;
//!
//! // An application changes its own table, and says so.
//! client.submit(r#"{"op": "sync", "table": "Employees", "pk": "Sales", "rk": "000223"}"#).await?;
//!
//! // One entity, whole.
//! let key = EntityKey::new("Sales", "000223")?;
//! let employee = client.get(&TableName::new("Employees")?, &key).await?;
//!
//! // Through a view, by the values that its keys are made of.
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
pub use encryption::{EncryptionError, OpenedRows};
pub use entity::Whole;
pub use error::ClientError;
pub use find::{Found, Whereabouts};
pub use lookup::{JoinSpec, JoinSpecError, Lookup, LookupResult};
pub use packing::{IN_FLIGHT, Packing, ReadyMessage, SentJobs};
pub use settled::InStep;
pub use submission::{Prepared, Sent};

/// The client of an application. Cheap to clone; may be used from many tasks at once.
#[derive(Debug, Clone)]
pub struct Client {
    stores: Stores,
    catalog: Arc<Catalog>,
    queues: Arc<[QueueSettings]>,
    caches: Arc<BTreeMap<TableRef, Arc<EntityCache>>>,
    /// The encrypted properties in the rows of each table, wherever rows are copied or archived to.
    encrypted: Arc<BTreeMap<TableName, BTreeSet<String>>>,
    /// Whether encrypted properties may lie in clear.
    allows_plain: bool,
}

impl Client {
    /// A client of these accounts, with their catalog and queues.
    pub fn new(
        stores: Stores,
        catalog: Arc<Catalog>,
        queues: impl Into<Arc<[QueueSettings]>>,
    ) -> Self {
        let encrypted = Arc::new(catalog.sealed_properties());
        Self {
            stores,
            catalog,
            queues: queues.into(),
            caches: Arc::default(),
            encrypted,
            allows_plain: false,
        }
    }

    /// A client that also reads encrypted properties that lie in clear, which is an error otherwise: for the time until
    /// `evenkeel keys seal` has sealed what a table had before it said `encrypt`. Who may write a row may put a plain value there.
    #[must_use]
    pub const fn allowing_plain(mut self) -> Self {
        self.allows_plain = true;
        self
    }

    /// The catalog.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// A table of the catalog, spelled in any case.
    fn table(&self, name: &TableName) -> Result<&TableRef, ClientError> {
        self.catalog
            .table(name)
            .ok_or_else(|| ClientError::unknown("table", name, self.catalog.tables.values()))
    }

    /// A table of the catalog that is read, spelled in any case: also one in several accounts.
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
