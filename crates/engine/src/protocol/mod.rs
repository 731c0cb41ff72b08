//! The protocol. A *primary* is an entity of a source table. Its *items* are the rows, blobs, list members, properties
//! and documents that views derive from it. One pass brings the items of one primary in step with the primary.
//!
//! ```text
//!   observe   read footprint → items → primary   always in this order
//!   plan      (pure)
//!   announce  write the footprint, at its ETag   before anything is created or dropped
//!   apply     write large values and the primary, if it changes; then write items, then drop items, each on a condition
//!   close     queue messages for later work (`outbox`), then write the footprint at its ETag
//!   recheck   later: look at items that an old request may bring back, and remove old tombstones
//! ```
//!
//! The footprint is read before the primary, and is later written at the ETag that was read. If another pass closes in
//! between, this write fails. A pass therefore never closes from an older state of the primary than the last closed
//! pass. If the condition of a write fails, the pass observes again and looks at the items that it has written or
//! dropped. If a pass is cancelled at any point, its unfinished changes stay marked in the footprint, and the next pass
//! finishes them.
//!
//! Each step has its own file. `run` has the stack of open passes, their rounds and their stages. `footprint` has the
//! record of a primary's items. The other modules have the types and requests of single steps.
//!
//! The protocol may use the modules `env` and `items`, but not `jobs`. The module `items` may use only these modules of
//! the protocol: `scope`, `change`, `steps`, `footprint`, `actual`, `observed_item` and `unanswered`.

pub(crate) mod actual;
mod announce;
mod apply;
pub(crate) mod change;
mod close;
mod commit;
pub(crate) mod conflicts;
pub mod footprint;
mod freshness;
pub(crate) mod group;
pub(crate) mod observe;
pub(crate) mod observed_item;
mod outbox;
pub(crate) mod overlays;
mod plan;
pub(crate) mod plan_input;
pub(crate) mod primary;
pub(crate) mod queueing;
pub(crate) mod recheck;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod scope;
mod sent_at;
pub(crate) mod steps;
pub(crate) mod unanswered;
