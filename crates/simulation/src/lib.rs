//! The deterministic simulator: the daemon's own code in a world in memory, in virtual time, from a seed.
//!
//! ```text
//!   seed ─▶ fault plan ──▶ fleet: 1 to 3 workers, each as `app` composes it (retry ▸ group ▸ pace ▸ circuit ▸ account)
//!      │    (swarm of       │ crash, SIGTERM, start again
//!      │     faults)        ▼
//!      ├───────────▶ injector: what happens to each of their operations ─▶ sim account ◀─ client: a script from the seed
//!      │                                                                       │
//!      └───────────────────────── witness: every change ◀──────────────────────┘
//!                                  mirror   every derived item is listed or queued, after every operation
//!                                  history  nothing is lost or changed without warrant, deletes stay deleted
//!                                  ledger   every message is done or poisoned for a reason
//!                                 readers  what they are told is so, while everything fails
//!                                 oracle: in the end, derived data is what a second implementation derives
//! ```
//!
//! # Four worlds
//!
//! [`World`] says what the catalog is, what the client does and who judges in the end; everything else is the same. The company
//! has what lies in rows; the patterns have what lies in blobs, over several rows or with many; the archives have what leaves: lines
//! of logs, documents in containers and folders, tables by date. They have a search index, too. The releases have the company's
//! or the patterns' entities in two accounts, some spread over both, and catalogs that follow each other while workers run.
//!
//! # What is real
//!
//! [`Worker`](evenkeel_worker::Worker) with its receivers, leases, schedule, settlements, poison and drain;
//! [`Engine`](evenkeel_engine::Engine) with the protocol and every job; the layers around an account. Not: the
//! store, the clock, chance, and the network.
//!
//! # Determinism
//!
//! One thread, paused time, one generator for each part of a run, every `select!` biased. A run ends with a hash
//! of all its operations; the same seed gives the same hash, and so does a seed with [cuts](Cut).
//!
//! # Fault model
//!
//! Injected: the kinds of [`FaultKind`], each at a rate that is zero in many seeds.
//!
//! | | |
//! |---|---|
//! | one request | refused or lost before it is executed; executed, and its answer lost; late, slow; refused for good in the middle of its attempts (401, 403, 409 of a name that is being deleted, 400, 413) |
//! | for a while | a throttled partition or queue; a service that refuses everything, or executes everything and answers nothing; one of two accounts that refuses everything for up to three hours; a gateway that answers 503 for what it has forwarded; no answer of Get Messages; one row that is always refused, alone or in a transaction |
//! | pages | short or empty, with a continuation |
//! | workers | crashes, SIGTERM, panics of one run or of every run of a message; no worker for hours |
//! | clocks | wrong and jumping clocks of workers; services whose clocks differ |
//! | messages | shown early, put twice by their sender, expiring |
//! | batches | messages about up to 20 primaries, some of which are absent, come twice, or can be no entity's |
//! | clients | write, remove, recreate, also between two attempts of a worker's request; merge a property by themselves while jobs are under way; entities that views keep properties on come and go |
//! | strangers | save derived rows again, so that they have other ETags; add rows of others to footprints |
//!
//! In a quarter of the company's seeds some of these belong together in one story (`scenario`).
//!
//! Not injected: a store that loses acknowledged writes or returns stale reads (Azure Storage is strongly consistent), and
//! requests that arrive more than 15 minutes after they were given up (the service refuses their signature); and copies of blobs
//! that stay pending.
//!
//! A known limit is counted and not judged: the late insert of a *primary* (by a `put` or a `restore`), or of an
//! archived row, may bring back what was deleted meanwhile.

mod archives;
mod arrivals;
mod asked;
mod batches;
mod busy;
mod client;
mod company_script;
mod content;
mod cuts;
mod entry;
pub mod explore;
mod fault;
mod fault_plan;
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
mod readers;
mod releases;
mod run;
pub mod scale;
mod scenario;
mod scene;
mod sealed;
mod shrink;
mod sim_accounts;
mod smooth;
mod stage;
mod story;
mod tally;
mod warrant;
mod world;

pub use cuts::{Cut, NoCut};
pub use fault::{FaultCounts, FaultKind};
pub use run::{RunRequest, SimulationReport, run};
pub use scene::{Scene, Scenes};
pub use shrink::shrink;
pub use stage::Allowed;
pub use tally::{Median, Tally, Together};
pub use world::{NoWorld, World};
