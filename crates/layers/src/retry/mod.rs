//! Bounded retries of one storage request, by class of error.
//!
//! Requests that were not executed (`Refused`, `Throttled`, `Transient`) are repeated for every operation. If the outcome
//! is unknown (`Ambiguous`: the request was sent, and no complete answer arrived), it is repeated only if that is harmless
//! or if the answer to the repetition shows the outcome of the first attempt:
//!
//! | Operation with unknown outcome | Reaction | Result of the repetition: its meaning (in parentheses: why the error is surfaced) |
//! | --- | --- | --- |
//! | get, query, list, peek, count, properties | repeated | – |
//! | create table, queue, container | repeated | exists: created |
//! | delete table, queue, container | repeated | gone, or being deleted: deleted |
//! | delete entity or blob at an ETag | repeated | gone: deleted. Anything else, above all 412: surfaced (1) |
//! | delete entity or blob unconditionally | surfaced | (could delete one that was created in the meantime) |
//! | insert, replace, merge, transaction | surfaced | (409 or 412 could hide its own success; the reconcile protocol reads again) |
//! | insert-or-replace, insert-or-merge | surfaced | (could overwrite a newer write) |
//! | put message | repeated | a duplicate message: delivery is at least once anyway |
//! | get messages | surfaced | (the messages are hidden and counted, and return after their visibility timeout; the worker requests fewer) |
//! | update message | surfaced | (the new pop receipt is unknown, and with it the lease) |
//! | delete message | repeated | `LeaseLost`: deleted, unless the service reports a different receipt |
//! | put block | repeated | the same block again |
//! | put blob or block list, copy blob, unconditionally | repeated | the same content again |
//! | write documents of a sink | surfaced | (could overwrite a newer write; only the footprint knows) |
//! | put blob or block list, copy blob with a condition, append, set metadata | surfaced | (409 or 412 could hide its own success) |
//!
//! (1) The first attempt may have deleted the item, and the current one may have been created in the meantime.
//!
//! If an attempt was unanswered, the final error is `Ambiguous`, whatever the last answer is (403, 409, 412, 413, …). There are
//! two exceptions: the operation is a read, or the last answer shows that the item is gone. Answers such as 400,
//! 403, 409, 412, 413, 501, 505 and a 404 of the service are never repeated.
//!
//! The waits are those of [`Backoff`](evenkeel_model::settings::Backoff): the n-th is min(min + rand(0.8, 1.2) · base · (2ⁿ − 1), max).
//! A refused connection is first repeated once without a wait. A `Retry-After` is a minimum. If it exceeds the longest wait,
//! the request ends at once, so that the job is released with that delay and its slot becomes free. The same happens if the
//! scope is held locally for more than half a second.

mod attempts;
mod earlier;
mod rules;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::stack::layered;
use evenkeel_model::settings::RetryPolicy;
use evenkeel_storage::{Account, Rng};

pub use attempts::{Retry, RetryCallback};
pub(crate) use earlier::EarlierAttempts;
pub(crate) use rules::Unanswered;

pub fn around(account: &Account, policy: RetryPolicy, rng: &Arc<dyn Rng>) -> Account {
    let policy = Arc::new(ArcSwap::from_pointee(policy));
    layered(account, &Arc::new(Retry::new(policy, rng.clone())))
}
