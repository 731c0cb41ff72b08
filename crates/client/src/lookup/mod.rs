//! Lookups: finding copies, lists, groups and archived entities by the values that their keys are made of.
//!
//! ```text
//!   terms ─▶ plan (pure, in patterns): points and key ranges ─▶ a cursor each ─▶ merged in order ─▶ rows
//!                                                                    ▲                              │ entities
//!                                            token: where each stood ┘                              ▼
//!                                                                                     their primaries, read in parallel
//!                                                                                                   │ with
//!                                                                                                   ▼
//!                                                                                     entities of other tables, beside
//! ```
//!
//! Its requests are those that the keys allow, never a filter over properties, and never an `or` over keys; the class of the query
//! and the requests that it took are said with the result.

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
