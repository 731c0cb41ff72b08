//! Poison messages are messages that will not be retried. They are kept with their reason until a
//! person decides what to do.
//!
//! ```text
//!   job queue                         <queue>-poison                 a person
//!   message ── put with its reason ──▶ poison message ── requeue ──▶ its body back on its queue, first;
//!      └────── deleted, second                                       then every copy is deleted
//! ```
//!
//! In both directions, the message is first put on the new queue and then deleted from the old one.
//! A crash between the two steps leaves two copies, never none. Copies of one original have the
//! same message id and are shown, requeued and discarded together.
//!
//! [`PoisonMessage`] is the format (pure); [`PoisonQueue`] has the operations of the command line.

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
