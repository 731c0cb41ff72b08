//! Retention: the tables of a date pattern are created ahead, kept for a time, and dropped whole.
//!
//! ```text
//!   every hour:   [retention] × tables there are × now ── plan (pure) ──▶ create   the present table and those ahead
//!                                                                       └▶ drop     a drop_table job for each that is over
//! ```
//!
//! Dropping a table is one request, however many rows it has, where deleting them would be a request for every hundred. The
//! invariant: a table that no pattern has is never dropped, and a name is not used again, since names follow the date.
//! Every worker looks, and one of them queues a job (`turns`); twice is harmless, since a table is created or dropped once. Rules
//! (`[rules]`) are looked at with them.

mod keeper;
mod plan;
mod rules;
mod turns;

#[cfg(test)]
mod tests;

pub use keeper::{Keeper, KeeperError};
pub use plan::{RetentionPlan, There};
pub use rules::RuleKeeper;
pub use turns::{QueuedTurn, TurnTime};
