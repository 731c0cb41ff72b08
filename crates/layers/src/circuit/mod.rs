//! A circuit breaker for each service of an account: requests are withheld while the whole service fails.
//!
//! ```text
//!                8 failures in a row, over 1 s or more,
//!                or 8 refused connections in a row
//!   closed ───────────────────────────────────────────────▶ open
//!     ▲                                                      │ requests fail unsent;
//!     │                                                      │ one goes as a trial every 5 s
//!     └──────────── any answer, also 404 or 403 ─────────────┘ and whenever `probe` is called
//! ```
//!
//! Failures are refused connections, errors of the service and missing answers. Throttling counts only when at least
//! three partitions, queues or containers throttle: **one throttled partition never opens a circuit**, however long
//! it lasts ([`pace`](super::pace) handles that). Any answer resets the count.
//!
//! The worker reads [`StoreHealth`](evenkeel_storage::StoreHealth) and receives no messages while a circuit is open,
//! so an outage does not raise the dequeue counts of messages. Trials let programs without a worker (an audit in the
//! foreground) continue after the outage.
//!
//! **A sink is not probed**: a webhook has no harmless request, and a database that answers a read may still reject writes.
//! Its circuit relies on trials. After a quarter of an hour without a request it closes, and the next failure opens it again.

mod breaker;
mod circuits;
mod guard;

pub use circuits::Circuits;
pub use guard::{CIRCUIT_OPEN, Circuit};
