//! Layers: the decorators that every port can have.
//!
//! A [`Layer`] sees each storage request as a [`Request`] (the operation and its target) beside the
//! future that would send it. It may look at the result, or refuse without polling the future, in which case
//! nothing was sent. [`Layered`] puts a layer around a port: it implements all ports in full, so a new
//! method of a port does not compile until every layer sees it.
//!
//! ```text
//! retry ─▶ group ─▶ pace ─▶ circuit ─▶ observe ─▶ adapter
//! ```
//!
//! Retrying and grouping are no [`Layer`]s: whether a repetition is safe depends on each operation's own result, and a
//! group is another request than those it is made of.

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
