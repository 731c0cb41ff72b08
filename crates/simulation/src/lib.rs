//! The deterministic simulator. It runs the daemon's own code on simulated accounts in memory, in virtual time. All random choices come from a
//! seed.
//!
//! ```text
//!   seed ─▶ fault plan ──▶ fleet: 1 to 3 workers, each as `app` composes it (retry ▸ group ▸ pace ▸ circuit ▸ account)
//!      │    (swarm of       │ crash, SIGTERM, start again
//!      │     faults)        ▼
//!      ├───────────▶ injector: a fault for each worker's operation ────▶ sim account ◀─ client: a script from the seed
//!      │                                                                       │
//!      └───────────────────────── witness: every change ◀──────────────────────┘
//!                                  mirror   after every operation, each derived item is in a footprint or queued for a recheck
//!                                  history  no content is lost or changed without a job that allows it; deletes stay deleted
//!                                  ledger   every message is done, or poisoned for a valid reason
//!                                  readers  the answers to applications are correct during faults
//!                                  oracle   at the end, derived data equals a second computation
//! ```
//!
//! # Four worlds
//!
//! [`World`] chooses the catalog, the client's script and the final checks. Everything else is the same.
//!
//! * `company`: derived items in rows.
//! * `patterns`: derived items in blobs, items that take several rows, and items to which several primaries contribute.
//! * `archives`: log lines, archived entities in blob containers and folders, dated tables, and a search index.
//! * `releases`: the entities of `company` or `patterns` in two accounts. Views may be spread over both accounts, and the catalog changes while
//!   workers run.
//!
//! # What is real
//!
//! Real are [`Worker`](evenkeel_worker::Worker), [`Engine`](evenkeel_engine::Engine) with every job, and the layers around an account. The store,
//! the clock, the random numbers and the network are simulated.
//!
//! # Determinism
//!
//! A run uses one thread, paused time and biased `select!`. Each part of a run has its own random generator. A run ends with a hash of all
//! operations. The same seed with the same [cuts](Cut) always gives the same hash.
//!
//! # Fault model
//!
//! These faults are injected. Each [`FaultKind`] has its own rate, which is zero in many seeds.
//!
//! | scope | faults |
//! |---|---|
//! | one request | lost or refused before it is executed; executed, but its answer is lost; slow; executed after its sender gave up |
//! | | refused permanently between two attempts (401, 403, 409 for a name that is being deleted, 400, 413) |
//! | a service for a while | a throttled partition or queue; refuses everything; executes everything and answers nothing; Get Messages without an answer |
//! | | a gateway that forwards requests and answers 503; one row that is always refused, alone or in a transaction |
//! | one of two accounts | refuses everything for up to three hours |
//! | pages | short or empty, with a continuation |
//! | workers | crashes; SIGTERM; panics of one run or of every run of a message; no worker for hours |
//! | clocks | wrong and jumping clocks of workers; services whose clocks differ |
//! | messages | delivered too early; put twice by their sender; expiring |
//! | batches | messages for up to 20 primaries, with absent, duplicate and invalid keys |
//! | clients | write, delete and recreate entities, also between two attempts of a worker's request; merge a property while jobs are running; create and delete entities on which views set properties |
//! | other writers | save derived rows again, so that these have other ETags; add rows of other primaries to footprints |
//!
//! In a quarter of the seeds of `company`, some of these faults form a story (`scenario`) that provokes one problem.
//!
//! The simulation does not inject: a store that loses acknowledged writes or returns stale reads (Azure Storage is strongly consistent);
//! requests that arrive more than 15 minutes after their sender gave up (the service refuses their signature); copies of blobs that stay
//! pending.
//!
//! One limit is known. It is counted, and is not a failure: a primary or an archived row may be inserted late, after it was deleted, and so
//! exist again. `warrant` describes this.

mod archives;
mod arrivals;
mod batches;
mod busy;
mod client;
mod company_script;
mod content;
mod cuts;
mod encryption;
mod entry;
mod expectation;
pub mod explore;
mod fault;
mod fault_plan;
mod faultless;
mod fleet;
mod hash;
mod hazards;
mod history;
mod hosts;
mod injector;
mod items;
mod ledger;
mod listed;
mod meddling;
mod mirror;
mod notes;
pub mod oracle;
mod patterns;
mod poison_desk;
mod races;
mod rare_event;
mod readers;
mod releases;
mod run;
pub mod scale;
mod scenario;
mod shared_state;
mod shrink;
mod sim_accounts;
mod story;
mod tally;
mod warrant;
mod world;

pub use cuts::{Cut, InvalidCut};
pub use fault::{FaultCounts, FaultKind};
pub use rare_event::{RareEvent, RareEvents};
pub use run::{RunRequest, SimulationReport, run};
pub use shared_state::RunLimits;
pub use shrink::shrink;
pub use tally::{GroupedRequests, Median, Tally};
pub use world::{UnknownWorld, World};
