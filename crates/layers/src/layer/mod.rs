//! Decorators that work on every port.
//!
//! A [`Layer`] gets each storage request as a [`Request`] (the operation and its target) and the future that sends it.
//! It may inspect the result, or return an error without polling the future, and then nothing is sent. [`Layered`] puts
//! a layer around a port. It implements every method of every port, so a new method does not compile until layers see it.
//!
//! ```text
//! retry ─▶ group ─▶ pace ─▶ circuit ─▶ observe ─▶ adapter
//! ```
//!
//! Retrying and combining are not [`Layer`]s: whether a retry is safe depends on the result of each operation, and a
//! combined request differs from its parts.

mod blobs;
mod layered;
mod op;
mod queues;
mod request;
mod sink;
mod tables;

pub use layered::{Layer, Layered};
pub use op::Op;
pub use request::{Evidence, Request, Target, ThrottleScope};
