//! Lookups find copies, lists, groups and archived entities by the values in their keys.
//!
//! ```text
//!   terms ─▶ plan (pure, in patterns): points and key ranges ─▶ a cursor each ─▶ merged in order ─▶ rows
//!                                                                    ▲                              │ entities
//!                                            token: their positions  ┘                              ▼
//!                                                                                     their primaries, read in parallel
//!                                                                                                   │ with
//!                                                                                                   ▼
//!                                                                                     joined entities of other tables
//! ```
//!
//! A lookup sends only point reads and range queries on keys. It never sends a filter that scans other properties, and never an `or`
//! over keys. Its result contains the class of the query and the number of requests.

mod cursor;
mod join_spec;
mod joins;
mod members;
mod merge;
mod primaries;
mod query;
mod run;
mod token;

#[cfg(test)]
mod tests;

pub use join_spec::{JoinSpec, JoinSpecError};
pub use query::{Lookup, LookupResult};
