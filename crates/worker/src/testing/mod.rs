//! Stores and work for the worker's tests. Queues and blobs are in memory and follow the runtime's
//! paused clock. A test chooses the faults and scripts the work.
//!
//! A test can inject these faults:
//!
//! - an error of any operation of a queue, before or after the operation takes effect;
//! - stores that refuse all requests;
//! - slow requests;
//! - a crash of a worker at any await. The worker's run is then dropped.
//!
//! A test cannot inject a queue that loses or invents messages.

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
