//! Poison: messages that will not be tried again, kept with the reason until a person decides.
//!
//! ```text
//!   job queue                         <queue>-poison                 a person
//!   message ── put with its reason ──▶ poison message ── requeue ──▶ its body back on its queue, first;
//!      └────── deleted, second                                       then every copy is deleted
//! ```
//!
//! Put first and deleted second, in both directions: a crash in between leaves two, never none. Copies of one
//! original carry its message id and are shown, requeued and discarded as one.
//!
//! [`PoisonMessage`] is the format (pure); [`PoisonQueue`] implements the operations of the command line on a poison queue.

mod causes;
mod erase;
mod filter;
mod list;
mod mention;
mod message;
mod pages;
mod preview;
mod queue;
mod relevance;
mod send;
mod walk;

pub use causes::{PoisonCause, cause_id, causes};
pub use erase::{ErasureDiscards, RemainingMessages};
pub use filter::{PoisonCriteria, PoisonFilter, PoisonKeyFilter};
pub use list::PoisonListing;
#[cfg(test)]
pub(crate) use message::tests;
pub use message::{BODY_CONTAINER, BodyBlob, PoisonError, PoisonMessage, Reason};
pub use preview::{BodyPreview, PREVIEW_BYTES};
pub use queue::{HandledMessages, PoisonEntry, PoisonQueue};
pub(crate) use relevance::ErasureTargets;
pub use relevance::{ErasedPrimary, ErasureReach};
pub(crate) use send::send;
