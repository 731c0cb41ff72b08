//! Creates what a worker needs in the stores, and records the catalog from which the data is
//! derived.
//!
//! A migration has three steps, in this order. Each step can be repeated, and several processes can
//! run it at once:
//!
//! 1. **Numbered files** (`migrations/0001_….toml`, compiled in) create the control tables. Each
//!    file is applied once per account and recorded in the account's table `EvenkeelMigrations`.
//! 2. **Declared tables and queues** are created, with their poison and recheck queues.
//! 3. **The catalog is recorded** in the account `main`. The record has:
//!    - the definition of every view, and its generation (1, 2, … as the definition changes),
//!    - the archives and tables that jobs may name,
//!    - the archives, retentions and rules, for commands that remove entities because of them,
//!    - one number for the whole catalog, which rises with every change.
//!
//! ```text
//!   needs(settings, catalog) ─┐
//!                             ├─ plan ──▶ changes ──▶ carried out one by one ──▶ read again, until none is left
//!   state(stores) ────────────┘   pure                 each one conditional
//! ```
//!
//! Invariant: the record changes in one entity group transaction, conditional on the ETag of the
//! catalog's number. So two concurrent migrations take effect one after the other. If a worker
//! reads a higher number than its own, items may exist that its catalog does not know.
//!
//! Before a changed view is recorded, a sample of its primaries is derived with both definitions.
//! If existing items would be lost, the operator must accept the loss for that view
//! ([`AcceptedLosses`]).
//!
//! Only additions need no consent. A change that retires or replaces a view waits for [`Consent`], because it may come from
//! an outdated configuration. Each view has an owner, and a catalog changes only the views of its owner.

use std::time::Duration;

mod declarations;
mod error;
mod indexes;
mod key_sampler;
mod needs;
mod numbered;
mod plan;
mod planned;
mod record;
mod rows;
mod sample;
mod state;
mod survey;
mod up;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
pub(crate) mod tests;

/// How long a worker may use its catalog after it has read the record. So after another catalog was recorded, workers
/// may acknowledge jobs with the older catalog for this time.
pub const LEASE_DURATION: Duration = Duration::from_secs(15);

pub use declarations::{DeclarationAction, DeclarationChange, Declarations};
pub use error::{MigrationError, SourceChanged, SourceRespelled, acceptance};
pub use indexes::{CollectionProblem, ProblemKind};
pub use needs::Needs;
pub use numbered::Migration;
pub use planned::{Consent, PlannedChange, ViewAction, ViewChange};
pub use record::{CatalogRecord, RecordedView};
pub use state::{AppliedMigration, StoreState};
pub use survey::{ForeignRows, ViewSurvey};
pub use up::{AcceptedLosses, MigrationStatus, Migrator};
