//! Retention: tables with a date in their name are created ahead, kept for a time, and dropped whole.
//!
//! ```text
//!   every hour:   [retention] × existing tables × now ── plan (pure) ──▶ create   the present table and those ahead
//!                                                                      └▶ drop     a drop_table job for each expired one
//! ```
//!
//! Dropping a table is one request, however many rows it has; deleting the rows would take one request per hundred. A
//! table that matches no pattern is never dropped. A table name is never used again, because it contains the date.
//! Every worker checks the tables, and one of them queues each job (`turns`). Two workers that act at the same time
//! do no harm, because creating an existing table or dropping a missing one changes nothing. Workers check the rules
//! (`[rules]`) together with the tables.

mod keeper;
mod plan;
mod rules;
mod turns;

#[cfg(test)]
mod tests;

pub use keeper::{Keeper, KeeperError};
pub use plan::{ExistingTables, RetentionPlan};
pub use turns::{QueuedTurn, TurnTime};
