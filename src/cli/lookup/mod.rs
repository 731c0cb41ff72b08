//! `evenkeel lookup`: finds copies by the values that their keys are made of.
//!
//! ```text
//!   terms ─▶ plan (pure, in patterns): points and key ranges ─▶ a cursor each ─▶ merged in order ─▶ rows
//!                                                                    ▲                              │ --entities
//!                                            token: where each stood ┘                              ▼
//!                                                                                     their primaries, read in parallel
//! ```
//!
//! What it asks is what the keys allow, never a filter over properties; the class of the query and the requests
//! it took are said with the result.

mod act;
mod args;
mod cursor;
mod members;
mod merge;
mod print;
mod token;

#[cfg(test)]
mod tests;

pub use act::lookup;
pub use args::LookupArgs;
