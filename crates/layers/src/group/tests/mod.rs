//! Grouping on a simulated account, in virtual time: the callers' results, and the requests sent.

mod reading;
mod serial;
mod stage;
mod writing;
