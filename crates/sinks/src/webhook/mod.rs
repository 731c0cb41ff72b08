//! Webhooks: each change of a document is sent as a `CloudEvents` 1.0 event over HTTP, signed as in Standard Webhooks.
//!
//! - `event`: the body and its signature. `answer`: maps a status to an error class. `sink`: the port.
//!
//! A receiver cannot be read, so only the footprint records what was sent. A read returns a document without fields. This
//! module sends nothing twice, does not follow redirects, and no secret appears in an error.

mod answer;
mod event;
mod sink;

pub use sink::{WebhookError, open};
