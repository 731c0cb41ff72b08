//! The deterministic simulator: the daemon's own code in a world in memory, in virtual time, from a seed.
//!
//! ```text
//!   seed ─▶ fault plan ──▶ fleet: 1 to 3 workers, each as `app` composes it (retry ▸ group ▸ pace ▸ circuit ▸ account)
//!      │    (swarm of       │ crash, SIGTERM, start again
//!      │     faults)        ▼
//!      ├───────────▶ injector: the fault of each of their operations ──▶ sim account ◀─ client: a script from the seed
//!      │                                                                       │
//!      └───────────────────────── witness: every change ◀──────────────────────┘
//!                                  mirror   every derived item is listed or queued, after every operation
//!                                  history  nothing is lost or changed without warrant, deletes stay deleted
//!                                  ledger   every message is done or poisoned for a reason
//!                                  readers  their answers are true, while everything fails
//!                                  oracle   at the end, derived data equals a second computation
//! ```
//!
//! # Four worlds
//!
//! [`World`] chooses the catalog, the client's script and the final checks. Everything else is the same. `company` has derived rows.
//! `patterns` has derived items in blobs, items that take several rows, and items that many primaries share. `archives` has log lines,
//! documents in containers and folders, tables by date, and a search index. `releases` has the entities of the company or of the patterns in
//! two accounts, some of them spread over both, and catalogs that change while workers run.
//!
//! # What is real
//!
//! [`Worker`](evenkeel_worker::Worker) with its receivers, leases, schedule, settlements, poison and drain;
//! [`Engine`](evenkeel_engine::Engine) with the protocol and every job; and the layers around an account. The store, the clock, the random
//! numbers and the network are simulated.
//!
//! # Determinism
//!
//! A run uses one thread, paused time, one random generator for each of its parts, and only biased `select!`. A run ends with a hash of all
//! operations. The same seed gives the same hash, and so does a seed with the same [cuts](Cut).
//!
//! # Fault model
//!
//! The kinds of [`FaultKind`] are injected. In many seeds, the rate of a kind is zero:
//!
//! | | |
//! |---|---|
//! | one request | refused or lost before it is executed; executed, and its answer lost; late, slow; refused permanently between its attempts (401, 403, 409 for a name that is being deleted, 400, 413) |
//! | for a while | a throttled partition or queue; a service that refuses everything, or executes everything and answers nothing; one of two accounts that refuses everything for up to three hours; a gateway that answers 503 to requests that it has forwarded; no answer of Get Messages; one row that is always refused, alone or in a transaction |
//! | pages | short or empty, with a continuation |
//! | workers | crashes, SIGTERM, panics of one run or of every run of a message; no worker for hours |
//! | clocks | wrong and jumping clocks of workers; services whose clocks differ |
//! | messages | shown early, put twice by their sender, expiring |
//! | batches | messages for up to 20 primaries, with absent, duplicate and invalid keys |
//! | clients | write, delete and recreate entities, also between two attempts of a worker's request; merge a property while jobs are running; create and delete entities on which views set properties |
//! | foreign writers | save derived rows again, so that they have other ETags; add rows of other primaries to footprints |
//!
//! In a quarter of the company's seeds, some of these faults form one story (`scenario`).
//!
//! The simulation does not inject: a store that loses acknowledged writes or returns stale reads (Azure Storage is strongly consistent);
//! requests that arrive more than 15 minutes after their sender gave up (the service refuses their signature); copies of blobs that stay
//! pending.
//!
//! A known limit is counted, and is not a failure: the late insert of a *primary* (by a `put` or a `restore`), or of an archived row, may
//! restore what was deleted in between.

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
