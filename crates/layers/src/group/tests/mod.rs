//! Grouping on a simulated account in virtual time: results of the callers, and requests sent.

mod reading;
mod serial;
mod stage;
mod writing;
