//! Decorators that work on every port.
//!
//! A [`Layer`] gets each storage request as a [`Request`] (the operation, its target, and what is noted about its answer)
//! and a function that sends it. It may inspect the result, send the request again, or return an error without sending it.
//! [`Layered`] puts a layer around a port. It implements every method of every port, so a new method does not compile until
//! layers see it.
//!
//! ```text
//! retry ─▶ group ─▶ pace ─▶ circuit ─▶ observe ─▶ adapter
//! ```
//!
//! A layer does not know the type of a result. If an attempt before the last one had no answer, `retry` notes that in the
//! request. [`Layered`] then lets `retry::earlier` judge the last answer. For example, a deletion has succeeded if the item is
//! gone.
//!
//! `group` is not a [`Layer`], because a combined request differs from its parts.

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
