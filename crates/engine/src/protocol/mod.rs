//! The protocol: one pass brings the items of one primary in step with it.
//!
//! ```text
//!   observe   footprint → looks → primary        always in this order
//!   plan      (pure)
//!   announce  the footprint, at its ETag         before anything is created or dropped
//!   apply     large values and the primary, where it changes; then items written, then dropped, each conditional
//!   close     what follows is queued (`outbox`), then the footprint, at its ETag
//!   recheck   later: items that an old request may bring back, and tombstones that have served
//! ```
//!
//! The footprint is read before the primary, so a later successful write of it never rests on an older
//! state of the primary. A write that fails its condition sends the pass back to `observe`, with a look at
//! the items it touched. A pass dropped anywhere leaves its unfinished changes marked in the footprint for the next one.
//!
//! A step is a file. `run` has the stack of open passes, their rounds and their stages; `footprint` the record of a primary's items. The other
//! modules are values and requests of a step.
//!
//! The protocol may name `env`, and `items`, which work for it and know of it no more than the scope, the plan's steps and the footprint. It
//! names no job.

mod announce;
mod apply;
pub(crate) mod change;
mod close;
mod commit;
pub(crate) mod conflicts;
pub(crate) mod doubt;
pub mod footprint;
mod freshness;
pub(crate) mod group;
pub(crate) mod known;
pub(crate) mod look;
pub(crate) mod observe;
mod outbox;
mod plan;
pub(crate) mod primary;
pub(crate) mod queueing;
pub(crate) mod receive;
pub(crate) mod recheck;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod scope;
mod sent_at;
pub(crate) mod situation;
pub(crate) mod steps;
