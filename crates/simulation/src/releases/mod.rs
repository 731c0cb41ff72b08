//! The fourth world: an operator, and a running fleet. Its entities are the company's or the patterns'; its catalog changes.
//!
//! ```text
//!   operator   migrate up 1 ─▶ backfills ············ migrate up --retire 2 ─▶ backfills
//!   worker 1   ── 0 ──┤SIGHUP├── 1 ───────────────────────────── 1, stale ─▶ drains, exits ─▶ 2
//!   worker 2   ── 0 ─────────── 0, stale ─▶ drains ─▶ 1 ──┤SIGTERM├── refused to start ─▶ 2
//! ```
//!
//! A *release* is a catalog: views are added, retired, brought back, or mean something else from then on. Each host gets it at its own
//! time, before the operator migrates or after it, and its worker learns of it by SIGHUP, by a restart, or not at all. Sources,
//! targets, archives and footprints lie in two accounts, each with its own faults and its own clock; in some seeds one of them refuses
//! everything for long. In half of the seeds the items of some views are spread over both accounts, and releases add an account to them
//! and take one away.
//!
//! Judged in addition to what is judged there: in the end everything is as the last catalog derives it, whoever wrote it under
//! whichever; the record is the last catalog; and workers only ever add to the record.

mod fleet;
mod operator;
mod record;
mod rush;
mod shape;
mod timeline;

use super::fault_plan::FaultScope;

pub(super) use fleet::{ReleaseWorker, is_refusal};
pub(super) use record::Register;
pub(super) use shape::ReleasesShape;
pub(super) use timeline::Releases;

/// What is throttled by itself, in whichever account it lies.
pub(super) const LANES: [FaultScope; 8] = [
    FaultScope::Partition("Employees", "Sales"),
    FaultScope::Partition("EvenkeelFootprints", "Employees~Sales"),
    FaultScope::Partition("EvenkeelMigrations", "catalog"),
    FaultScope::Partition("ByEmail", "email_Sales"),
    FaultScope::Partition("FormerEmployees", "Sales"),
    FaultScope::Partition("Managers", "managers"),
    FaultScope::Queue(super::fault_plan::JOBS),
    FaultScope::Queue("jobs-recheck"),
];

/// The tables whose primaries have views in some release.
const SOURCES: [&str; 4] = ["Employees", "FormerEmployees", "Managers", "Teams"];
