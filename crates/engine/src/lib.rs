//! The protocol that keeps derived items in step with their primary, and the jobs that are built on it. A *primary* is
//! an entity of a source table, and its *items* are what views derive from it.
//!
//! One loop serves all views. It acts on the present state of the primary, so the order and repetition of messages do
//! not matter. Each primary with views has a [`footprint`], the record of its items. A `pass` reads the footprint, then
//! the primary. `plan` decides, as a pure function, what to announce, write and drop. The pass carries out the plan and
//! closes the footprint. All writes of a pass are conditional, except those of documents of sinks, which have no ETags.
//!
//! The invariant holds at every moment, even after crashes, repetitions and late requests: **every derived item that
//! exists is listed in its owner's footprint or queued for a recheck.** When nothing is queued and no worker runs,
//! derived data is exactly what `patterns::derive` derives from each primary. Both statements depend neither on leases
//! nor on clocks, except for the time for which an unanswered request may live (`recheck_after`).
//!
//! The jobs are `put`, `delete` and `sync` (one pass), `archive`, `move`, `restore`, `backfill` (a pass for every
//! primary), `erase` (a `delete` in the table and in every archive), `delete_where` and `archive_where` (a `delete` or
//! `archive` of every primary that satisfies a condition), `audit` (a comparison for every primary), `propagate`
//! (applies the range overlay of one entity), and `drop_table`. Jobs that write a primary use `commit`, which writes
//! the primary in one transaction with the items in its own partition.
//!
//! The crate may use `storage` and `model`. It uses no adapter, no queue of its own and no lease.

mod encryption;
mod engine;
mod env;
mod execute;
mod failure;
mod items;
mod jobs;
mod permit;
mod protocol;

pub use engine::{Engine, EngineParts};
pub use env::memory::{MemoryBudget, MemoryGrant, MemoryListener, MemoryShare, MemoryUse};
pub use env::recheck_message::{Recheck, RecheckError};
pub use env::secret::{Secret, SigningSecret};
pub use env::waiting::Waits;
pub use env::waiting::{exclude_from_timeout, record_unreported};
pub use env::{CatalogHold, Unread};
pub use execute::{
    Action, Delivery, EncryptBodies, Execute, Failure, FailureClass, ItemChange, Outcome, Summary,
    Work,
};
pub use jobs::audit::{AuditFailure, AuditFinding, AuditPass, Mismatch};
pub use jobs::audit_records::{AuditRecord, audit_records, audited_primaries};
pub use jobs::backfill::BackfillPass;
pub use jobs::erase::{Erasure, Removed};
pub use jobs::retention;
pub use jobs::staging::{Unstaged, unstage};
pub use jobs::sweep::SweepPage;
pub use jobs::values_left::ValuesLeft;
pub use protocol::footprint;
pub use protocol::plan_input::OutdatedCatalog;
pub use protocol::report::{PlanReport, TakenItem, UnderivedView};
