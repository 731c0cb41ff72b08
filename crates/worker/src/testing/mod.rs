//! A small world for the worker's tests: queues and blobs in memory on the runtime's paused clock,
//! with chosen faults and scripted work.
//!
//! Injected: an error before an operation, or after it took effect (ambiguous), at any operation of
//! any queue; stores that refuse everything; slow requests; crashes of a worker at any await (its
//! run is dropped). Not injected: a queue that loses or invents messages.

mod queues;
mod stores;
mod text;
mod time;
mod work;
mod world;

pub(crate) use queues::{Effect, Op, Stored};
pub(crate) use text::{full, gzip, random_text};
pub(crate) use time::{SECOND, Seeded, TestClock, at, from_to};
pub(crate) use work::{done, permanent, transient, withheld};
pub(crate) use world::{JOBS, POISON, RECHECK, World, put, sync};
