//! Azure AI Search: documents of an index over its REST API (2024-07-01).
//!
//! ```text
//!   write   POST /indexes/{index}/docs/search.index   upload or delete, a status for each document (200, 207)
//!   get     GET  /indexes/{index}/docs/{key}
//!   fields  GET  /indexes/{index}
//! ```
//!
//! - [`service`]: its address and credential.
//! - `index`: the port. `answer`: from a status to an error class, pure.
//!
//! The service answers for a write once it is durable, and shows it to readers some seconds later. Nothing is sent twice
//! here, and no secret gets into an error.

mod answer;
mod index;
pub mod service;

pub use service::{OpenedSearch, SearchError, SearchService, connect, open};
