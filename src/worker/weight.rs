//! How much memory a message takes while it is examined, and afterwards. Pure, and done without taking that memory.

use super::examine::Assigned;
use crate::model::body::Extent;
use crate::ports::{Message, MessageText};
use crate::reconcile::Work;

/// A text is there as it came, as the lease keeps it, and decoded.
const TEXTS: u64 = 3;

/// Memory of a message that was only received.
pub(crate) fn received(message: &Message) -> u64 {
    TEXTS
        * match &message.text {
            MessageText::Readable(text) => text.len() as u64,
            MessageText::Unreadable { raw, .. } => raw.len() as u64,
        }
}

/// Memory that examining a message of this extent takes at most.
pub(crate) fn examining(message: &Message, extent: Extent) -> u64 {
    received(message) + TEXTS * extent.bytes + extent.parsed()
}

/// Memory that a message holds from then on, out of the memory that it took to examine.
pub(crate) fn kept(message: &Message, work: Option<&Assigned>, examining: u64) -> u64 {
    match work {
        // Its entity has as many properties as the text had.
        Some(Assigned::One(Work::Job(job))) if job.operation().holds_entity() => examining,
        // Each job of many is decoded once more.
        Some(Assigned::One(Work::Recheck(_)) | Assigned::Many(_)) => examining,
        Some(Assigned::One(Work::Job(_)) | Assigned::Listed(_)) | None => received(message),
    }
}
