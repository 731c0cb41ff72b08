//! The patterns: pure functions that compute, for a primary, the items that should exist because of
//! the primary.
//!
//! There is one file per kind of view. The functions use no tokio, no stores and no clock, so the
//! same primary and the same catalog always give the same items. Therefore `reconcile` needs only
//! the current state of a primary and not its history.

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
    Content, Derivation, DeriveError, Item, computed_from, derive, derive_archived, has_copy_at,
};
pub use ownership::{Ownership, OwnershipCheck};
