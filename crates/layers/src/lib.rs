//! The layers between the program and an adapter: decorators of the ports.
//!
//! ```text
//!   caller ─▶ retry ─▶ entrance ─▶ group ─▶ pace ─▶ circuit ─▶ observe ─▶ adapter
//!             repeats   sends new   one       as fast   withholds  counts what
//!             where it  jobs away   request   as it     while a    was really
//!             is safe   for a while for many  answers   service    sent
//!                                                       refuses
//! ```
//!
//! [`stack`] puts them together for an account; [`layer`] is what each is made of. [`gather`] takes the place of `group` for sinks.
//! [`namespace`] and [`unreliable`] are for `certify`: names of its own, and faults; [`spend`] counts what a command costs.
//!
//! Invariant: a caller gets the answer that a request of its own would have had, or an error that says that nothing was sent.
//!
//! It may name `storage`, `model` and `telemetry`: what is withheld, repeated and sent is counted here.

pub mod circuit;
pub mod gather;
pub mod group;
pub mod heat;
pub mod layer;
pub mod namespace;
pub mod observe;
pub mod pace;
pub mod retry;
pub mod spend;
pub mod stack;
#[cfg(test)]
mod testing;
pub mod unreliable;
