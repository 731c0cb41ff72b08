//! Webhooks: each change of a document as a `CloudEvents` 1.0 event by HTTP, signed as Standard Webhooks has it.
//!
//! - `event`: the body and its signature, pure. `answer`: from a status to an error class, pure. `sink`: the port.
//!
//! A receiver keeps nothing that can be read back: what was sent is known from the footprint alone, and a document that is read is empty
//! ("nothing of it can be read"). Nothing is sent twice here, redirects are not followed, and no secret gets into an error.

mod answer;
mod event;
mod sink;

pub use sink::{WebhookError, open};
