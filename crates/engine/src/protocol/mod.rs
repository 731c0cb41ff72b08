//! The protocol: one pass brings the items of one primary in step with it.
//!
//! ```text
//!   observe   footprint → items → primary        always in this order
//!   plan      (pure)
//!   announce  the footprint, at its ETag         before anything is created or dropped
//!   apply     large values and the primary, if it changes; then items: written, then dropped, each under a condition
//!   close     what follows is queued (`outbox`), then the footprint is written at its ETag
//!   recheck   later: items that an old request may bring back, and tombstones that have served
//! ```
//!
//! The footprint is read before the primary, so a later successful write of it never rests on an older state of the
//! primary. If a write fails its condition, the pass observes again and looks at the items that it touched. A pass that
//! is dropped at any point leaves its unfinished changes marked in the footprint for the next one.
//!
//! Each step is a file. `run` has the stack of open passes, their rounds and their stages, and `footprint` has the
//! record of a primary's items. The other modules are values and requests of a step.
//!
//! The protocol may name `env` and `items`, but no job. Of the protocol, `items` names only the values of a pass:
//! `scope`, `change`, `steps`, `footprint`, `actual`, `observed_item` and `unanswered`.

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
mod plan;
pub(crate) mod plan_input;
pub(crate) mod primary;
pub(crate) mod queueing;
pub(crate) mod receive;
pub(crate) mod recheck;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod scope;
mod sent_at;
pub(crate) mod steps;
pub(crate) mod unanswered;
