//! Decides which catalog a worker uses. A worker uses the configured catalog from the time when
//! this catalog is recorded until another catalog is recorded.
//!
//! ```text
//!   a start ─────────▶ read the folder ─▶ prepare: is it the recorded catalog? ── no ─▶ unready; again, or exit code 5 after a minute
//!                        ▲                       │ yes
//!     receive nothing    │                       ▼
//!     more, drain ───────┘           Current: engine and lease, a worker of its own
//!          ▲                                     │
//!          └─ the folder has another catalog ────┤ SIGHUP
//!             another one is recorded ───────────┘ watch
//! ```
//!
//! There is no other way from one catalog to the next. A command that walks over whole tables
//! checks the record itself (`hold`), and ends if another catalog is recorded.
//!
//! Invariant: a run is acknowledged only if the record was read during the run or shortly before
//! the run. Otherwise the message is released.
//!
//! This crate may depend on `worker`, `engine`, `storage`, `model` and `telemetry` only.

mod changes;
mod current;
mod hold;
mod lease;
pub mod migrations;
mod prepare;
mod terms;
mod watch;

pub use changes::encryption_changes;
pub use current::CurrentCatalog;
pub use hold::RecordHold;
pub use prepare::{RecordedCatalog, prepare, prepare_with_retries};
pub use terms::{CatalogNotRecorded, Host, Notice, TermContext, work};
pub use watch::RecordWatch;
