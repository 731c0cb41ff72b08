//! Azure AI Search: documents of an index through the REST API (2024-07-01).
//!
//! ```text
//!   write   POST /indexes/{index}/docs/search.index   upload or delete, a status for each document (200, 207)
//!   get     GET  /indexes/{index}/docs/{key}
//!   fields  GET  /indexes/{index}
//! ```
//!
//! - [`service`]: the address and credential of a service.
//! - `index`: the port. `answer`: maps a status to an error class.
//!
//! The service acknowledges a write once it is durable, and readers see it some seconds later. This module sends nothing twice,
//! and no secret appears in an error.

mod answer;
mod index;
pub mod service;

pub use service::{OpenedSearch, SearchError, SearchService, connect, open};
