//! The circuit of each service of an account: while a service as a whole refuses, nothing is asked of it.
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
//! Failures are refused connections, errors of the service and missing answers. Throttling counts only once
//! three partitions, queues or containers throttle: **one throttled partition never opens a circuit**, however
//! long it lasts (that is handled by [`pace`](super::pace)). Any answer in between starts the count again.
//!
//! The worker asks [`StoreHealth`](evenkeel_storage::StoreHealth) and receives nothing while a circuit is open,
//! so an outage takes no deliveries from the messages' dequeue counts. Trials keep programs without a worker
//! (an audit in the foreground) from waiting forever.
//!
//! **A sink is not probed**: a webhook has no harmless question, and a database that answers one may still take no write. Its circuit is tried
//! by requests alone, and lapses where there are none for a quarter of an hour: it is closed, and its next failure opens it again.

mod breaker;
mod circuits;
mod guard;

pub use circuits::Circuits;
pub use guard::{CIRCUIT_OPEN, Circuit};
