//! Retries of one storage request, bounded, by class.
//!
//! Requests that were not executed (`Refused`, `Throttled`, `Transient`) are repeated for every operation. A
//! request of unknown outcome (`Ambiguous`: it was sent, and no whole answer came back) is repeated only
//! where that is harmless, or where the answer to the repetition tells the outcome of the first:
//!
//! | Operation, outcome unknown | | A repetition may meet, and that means |
//! | --- | --- | --- |
//! | get, query, list, peek, count, properties | repeated | – |
//! | create table, queue, container | repeated | exists: created |
//! | delete table, queue, container | repeated | gone, or being deleted: deleted |
//! | delete entity or blob at an ETag | repeated | gone: deleted. Anything else, 412 above all: surfaced (1) |
//! | delete entity or blob unconditionally | surfaced | (could delete one that was created since) |
//! | insert, replace, merge, transaction | surfaced | (409 or 412 would hide an own success: the reconcile protocol looks again) |
//! | insert-or-replace, insert-or-merge | surfaced | (could overwrite a newer write) |
//! | put message | repeated | a duplicate message: at-least-once, and jobs bear it |
//! | get messages | surfaced | (hidden and counted, the messages come again after their visibility timeout: the worker asks for fewer) |
//! | update message | surfaced | (the new pop receipt is unknown, so the lease is) |
//! | delete message | repeated | `LeaseLost`: deleted, unless the service says that its receipt is another one |
//! | put block | repeated | the same block once more |
//! | put blob or block list, copy blob, all unconditionally | repeated | the same content once more |
//! | write documents of a sink | surfaced | (could overwrite a newer write: nothing but the footprint knows) |
//! | put blob or block list, copy blob, all under a condition, append, set metadata | surfaced | (409 or 412 would hide an own success) |
//!
//! (1) The first attempt may have deleted it, and the present one may have been created since.
//!
//! An error that ends a request after one of its attempts went unanswered stays `Ambiguous` for any answer to the last
//! attempt (403, 409, 412, 413, …), unless that said that the thing is gone, or nothing but a read was asked. Everything else
//! (400, 403, 409, 412, 413, 501, 505, the service's own 404) is never repeated.
//!
//! The waits are those of [`Backoff`](evenkeel_model::settings::Backoff): the n-th is min(min + rand(0.8, 1.2) · base · (2ⁿ − 1), max), after one
//! immediate repetition of a refused connection. A `Retry-After` is a minimum; one beyond the longest wait ends
//! the request at once, so that the job is released with that delay and its slot is free for others. So does a scope
//! that is paced by the program for more than half a second.

mod attempts;
mod blobs;
mod queues;
mod rules;
mod sink;
mod tables;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use evenkeel_model::settings::RetryPolicy;
use evenkeel_storage::{Account, BlobStore, QueueStore, Rng, TableStore};

pub use attempts::{Retried, Retry};

/// An account with retries around its three services.
pub fn around(account: &Account, policy: RetryPolicy, rng: &Arc<dyn Rng>) -> Account {
    Account {
        tables: Arc::new(Retry::<dyn TableStore>::new(
            account.tables.clone(),
            policy,
            rng.clone(),
        )),
        queues: Arc::new(Retry::<dyn QueueStore>::new(
            account.queues.clone(),
            policy,
            rng.clone(),
        )),
        blobs: Arc::new(Retry::<dyn BlobStore>::new(
            account.blobs.clone(),
            policy,
            rng.clone(),
        )),
        clocks: account.clocks.clone(),
    }
}
