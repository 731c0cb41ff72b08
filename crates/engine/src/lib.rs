//! The protocol that keeps every item of a primary in step with it, and the jobs that are built on it.
//!
//! One loop serves every view, and it acts on the present state of the primary, so that order and repetition of
//! messages do not matter. Each primary with views has a [`footprint`]: the record of its items. A `pass`
//! reads the footprint, then the primary; `plan` decides, purely, what to announce, write and drop; the
//! pass walks the plan with conditional writes only, and closes the footprint.
//!
//! The invariant, at every moment through crashes, repetitions and late arrivals: **every derived item that
//! exists is listed in its owner's footprint or queued for a recheck.** When nothing is queued and no worker
//! runs, derived data is exactly what `patterns::derive` gives for each primary. Neither rests on leases or
//! clocks, except for how long a forgotten request may live (`recheck_after`).
//!
//! The jobs: `put`, `delete` and `sync` (the pass alone), `archive`, `move`, `restore`, `backfill` (a pass for every
//! primary), `erase` (a `delete` wherever it is kept), `delete_where` and `archive_where` (a `delete` or `archive` of every primary that satisfies a condition), `audit` (a comparison for every primary), `carry` (the claims of one entity brought to a range of others),
//! and `drop_table`. Those that write a primary do so by `commit`, in one transaction with the items in the primary's
//! own partition.
//!
//! It may name `storage` and `model`: it knows no adapter, no queue of its own and no lease.

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
pub use env::secret::{SealSecret, Secret};
pub use env::waiting::Waits;
pub use env::waiting::{aside, note_untold};
pub use env::{CatalogHold, Unread};
pub use execute::{
    Action, Delivery, Execute, Failure, FailureClass, ItemChange, Outcome, SealBodies, Summary,
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
pub use protocol::report::{PlanReport, TakenItem, UnderivedView};
pub use protocol::situation::OutdatedCatalog;
