//! Prerequisites of a worker in the stores, and the record of the catalog that the data was made by.
//!
//! Three things, in this order, each safe to repeat and safe to do by several processes at once:
//!
//! 1. **Numbered files** (`migrations/0001_….toml`, compiled in): the control tables. Applied once per account
//!    and recorded there, in the table `EvenkeelMigrations`.
//! 2. **Declared tables and queues**, with their poison and recheck queues.
//! 3. **The catalog's record**, in the account `main`: the definition of every view with its generation
//!    (1, 2, … as it changes), the archives and tables that jobs may name, and one number for the whole catalog that rises with every change;
//!    beside them the declarations of archives, retentions and rules, for commands that remove by them.
//!
//! ```text
//!   needs(settings, catalog) ─┐
//!                             ├─ plan ──▶ changes ──▶ carried out one by one ──▶ look again, until none is left
//!   state(stores) ────────────┘   pure                 each one conditional
//! ```
//!
//! The invariant: the record changes in one entity group transaction, conditional on the ETag of the
//! catalog's number. So two migrations at once are one after the other, and a worker that sees a number
//! above its own knows that the data may hold items unknown to it.
//!
//! Before a changed view is recorded, a sample of its primaries is derived by both definitions: where items that exist would be lost, the change
//! waits until that is accepted by the view's name ([`AcceptedLosses`]).
//!
//! Only additions need no consent: a change that retires a view, or replaces its definition, waits for [`Consent`],
//! since it may be a stale configuration that asks for it. Each view has an owner, and a catalog speaks of its owner's alone.

use std::time::Duration;

mod declarations;
mod error;
mod indexes;
mod needs;
mod numbered;
mod plan;
mod planned;
mod record;
mod rows;
mod sample;
mod spread;
mod state;
mod survey;
mod up;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
pub(crate) mod tests;

/// How long a worker may take its catalog for the recorded one after it has looked at the record: so long after a catalog was recorded
/// jobs may be acknowledged by an older one.
pub const TRUST: Duration = Duration::from_secs(15);

pub use declarations::{DeclarationAction, DeclarationChange, Declarations};
pub use error::{MigrationError, SourceChanged, SourceRespelled, acceptance};
pub use indexes::{IndexLack, Lack};
pub use needs::Needs;
pub use numbered::Migration;
pub use planned::{Consent, Planned, ViewAction, ViewChange};
pub use record::{CatalogRecord, RecordedView};
pub use state::{AppliedMigration, State};
pub use survey::{ForeignRows, ViewSurvey};
pub use up::{AcceptedLosses, MigrationStatus, Migrator};
