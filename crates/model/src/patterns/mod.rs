//! The patterns: pure functions from a primary to the items that should exist because of it.
//!
//! One file per kind of view. No tokio, no ports, no clock: the same primary and the same catalog always
//! give the same items, which lets `reconcile` act on the present state of a primary rather than on the
//! history of it.

mod aggregate;
mod denormalize;
mod denormalize_range;
mod derive;
mod documents;
mod index_entity;
pub mod large_entity;
pub mod lookup;
mod ownership;
pub mod sample;
mod secondary_index;

pub use derive::{
    Content, Derivation, DeriveError, Item, computed_from, derive, has_copy_at, values,
};
pub use ownership::{Claimant, Claimed};
