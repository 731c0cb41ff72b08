//! Grouping on a simulated account, in virtual time: what callers see, and what is really sent.

mod reading;
mod serial;
mod stage;
mod writing;
