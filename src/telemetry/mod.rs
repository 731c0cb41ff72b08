//! What the program tells about itself: metrics and logs.
//!
//! [`names`] is the contract with dashboards and alerts: every metric name, label and unit, in one file.
//! Whoever counts something takes the name from there (`metrics::counter!(names::JOBS_TOTAL, …)`).
//! [`describe`](describe::describe) hands the descriptions to the recorder, and the functions beside it set
//! gauges and counters to zero when the program starts, so that a dashboard shows 0 rather than a gap and the
//! first increase is an increase. [`logging`] sets up `tracing`, once, in the program's `main`.

pub mod describe;
pub mod logging;
pub mod names;

pub use describe::{announce_queue, announce_view, describe};
pub use logging::{LoggingError, Verbosity};
