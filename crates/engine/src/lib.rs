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

mod archive;
mod audit;
mod audit_records;
mod backfill;
mod carries;
mod carry;
mod change;
mod close;
mod commit;
mod conflicts;
mod contenders;
mod content;
mod context;
mod copy_decision;
mod dated;
mod delete;
mod document;
mod doubt;
mod drop_table;
mod encryption;
mod engine;
mod env;
mod erase;
mod execute;
mod failure;
pub mod footprint;
mod footprints;
mod freshness;
mod group;
mod items;
mod jobs;
mod known;
mod log;
mod log_lane;
mod log_record;
mod look;
mod marks;
mod memory;
mod moving;
mod nesting;
mod newer;
mod observation;
mod outbox;
mod pass;
mod passes;
mod permit;
mod plan;
mod primary;
mod put;
mod queueing;
mod receive;
mod recheck;
mod recheck_queue;
mod reconciler;
mod record;
mod relocation;
mod report;
mod restore;
pub mod retention;
mod rounds;
mod row_memory;
#[cfg(feature = "samples")]
mod sample_touch;
mod scope;
mod seal;
mod second_look;
mod secret;
mod sent_at;
mod shared;
mod since;
mod situation;
mod stage;
mod staging;
mod steps;
mod subject;
mod sweep;
mod sync;
mod table_archive;
mod target;
mod value;
mod values_left;
mod waiting;
mod walk;

pub use audit::{AuditFailure, AuditFinding, AuditPass, Mismatch};
pub use audit_records::{AuditRecord, audit_records, audited_primaries};
pub use backfill::BackfillPass;
pub use engine::{Engine, EngineParts};
pub use env::{CatalogHold, Unread};
pub use erase::{Erasure, Removed};
pub use execute::{
    Action, Delivery, Execute, Failure, FailureClass, ItemChange, Outcome, SealBodies, Summary,
    Work,
};
pub use memory::{MemoryBudget, MemoryGrant, MemoryListener, MemoryShare, MemoryUse};
pub use recheck::{Recheck, RecheckError};
pub use report::{PlanReport, TakenItem, UnderivedView};
pub use secret::{SealSecret, Secret};
pub use situation::OutdatedCatalog;
pub use staging::{Unstaged, unstage};
pub use sweep::SweepPage;
pub use values_left::ValuesLeft;
pub use waiting::Waits;
pub use waiting::{aside, note_untold};
