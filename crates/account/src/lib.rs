//! A deterministic storage account in memory: tables, queues, blobs, files and documents of sinks with the semantics of Azure Storage. The
//! test provides the clock and the fault policy.
//!
//! It passes the same contract suite as the other adapters. In addition, a [`FaultPolicy`] decides about each operation before it is
//! executed. It may reject the operation, execute it and lose the answer, let the request arrive later, wait, or never return (a crash of
//! the caller). Each caller may have its own policy. A [`Witness`] sees every executed operation and its changes at that moment.
//!
//! # Fault model
//!
//! Injected: an error before the operation; an error after it took effect; a request that arrives after its sender gave up; duplicate
//! delivery (a visibility timeout that ends during a job); throttling; a store that rejects everything; a caller that stops at any
//! operation. Not injected: lost acknowledged writes and stale reads, because Azure Storage is strongly consistent.
//!
//! # Limits
//!
//! An account has no rate limits and no latency, unless [`SimWorld::limit`] sets [`ServiceLimits`].
//!
//! [`company`] is a catalog with every kind of view, for tests of the engine and the worker, and for the simulation.
//!
//! This crate depends only on `model` and `storage`, so that the unit tests of every crate above can use it.

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
pub use queues::QueuedMessage;
pub use witness::{Execution, ObservedChange, Witness};
pub use world::{REFUSED, ROW_REFUSED, SimWorld};
