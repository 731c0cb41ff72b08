//! A deterministic world in memory: tables, queues, blobs, files and other stores' documents with the semantics of Azure Storage, on a clock
//! and with a fault policy that a test gives.
//!
//! It passes the same contract suite as the other adapters. What it adds is [`FaultPolicy`]: every operation asks
//! it before it is executed, and it may refuse, execute and then lose the answer, keep the request on its way
//! and let it arrive later, wait, or never come back (a crash of the caller). Each caller may have a fault policy of its
//! own. A [`Witness`] is told of everything that is executed and of what it changed, at that very moment.
//!
//! # Fault model
//!
//! Injected: an error before the operation; an error after it took effect; a request that its sender gave up
//! and that arrives later; duplicate delivery (visibility that ends while somebody works); throttling; a
//! store that refuses everything; a caller that stops at any operation. Not injected: a store that loses
//! acknowledged writes or returns stale reads, since Azure Storage is strongly consistent.
//!
//! # Limits
//!
//! An account takes anything at once, unless [`SimWorld::limit`] gives it [`ServiceLimits`].
//!
//! [`company`] is a catalog with every kind of view, for tests of the engine and the worker, and for the simulation.
//!
//! It may name `model` and `storage` alone, so that the unit tests of every crate above can use it.

mod blobs;
pub mod company;
mod fault_policy;
mod files;
mod limits;
mod queues;
mod sinks;
mod tables;
mod witness;
mod world;

pub use fault_policy::{FaultDecision, FaultPolicy, NoFaults, OperationInfo};
pub use limits::{ServiceLimits, ServiceLoad};
pub use queues::LyingMessage;
pub use witness::{Execution, ObservedChange, Witness};
pub use world::{REFUSED, ROW_REFUSED, SimWorld};
