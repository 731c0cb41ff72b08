//! The `releases` world has the entities of the `company` or the `patterns` world. An operator changes the catalog while workers run.
//!
//! ```text
//!   operator   migrate up 1 ─▶ backfills ············ migrate up --retire 2 ─▶ backfills
//!   worker 1   ── 0 ──┤SIGHUP├── 1 ───────────────────────────── 1, stale ─▶ drains, exits ─▶ 2
//!   worker 2   ── 0 ─────────── 0, stale ─▶ drains ─▶ 1 ──┤SIGTERM├── refused to start ─▶ 2
//! ```
//!
//! A *release* is a catalog in which views were added, retired, brought back or redefined. Each host gets a release at its own time, before
//! or after the operator migrates. The host notifies its worker by SIGHUP, by a restart, or not at all. Sources, targets, archives and
//! footprints are distributed over two accounts, each with its own faults and its own clock. In some seeds one account refuses everything
//! for a long time. In half of the seeds the items of some views are spread over both accounts, and releases add and remove accounts.
//!
//! In addition to the checks of the other worlds, three conditions must hold at the end. Derived data matches the last catalog, although
//! workers wrote it under different catalogs. The last catalog is recorded. Workers have only added to the record.

mod fleet;
mod operator;
mod record;
mod rush;
mod shape;
mod timeline;

use super::fault_plan::FaultScope;

pub(super) use fleet::{ReleaseWorker, is_refusal};
pub(super) use record::KnownRecord;
pub(super) use shape::ReleasesShape;
pub(super) use timeline::Releases;

pub(super) const SCOPES: [FaultScope; 8] = [
    FaultScope::Partition("Employees", "Sales"),
    FaultScope::Partition("EvenkeelFootprints", "Employees~Sales"),
    FaultScope::Partition("EvenkeelMigrations", "catalog"),
    FaultScope::Partition("ByEmail", "email_Sales"),
    FaultScope::Partition("FormerEmployees", "Sales"),
    FaultScope::Partition("Managers", "managers"),
    FaultScope::Queue(super::fault_plan::JOBS),
    FaultScope::Queue("jobs-recheck"),
];

const SOURCES: [&str; 4] = ["Employees", "FormerEmployees", "Managers", "Teams"];
