//! Operations state: recent jobs, one hour of measures of every queue and storage service, the busiest partitions, the
//! cost, and a headline.
//!
//! ```text
//!   worker ── delivery ended, items changed ──▶ journal (recent jobs), series (10 s slots, one hour)
//!   worker's status, request counts, poison counts ── every 10 s ──▶ series
//!   operations state ──▶ snapshots: plain data, read by the API and the pages
//! ```
//!
//! All of this has a limited size: the journal has a maximum number of jobs, and each series has a maximum number of
//! slots. Only the task that takes measures waits for something. A program without HTTP has no operations state, and
//! its worker reports nothing.

mod acknowledged;
mod advice;
mod cost;
mod freshness;
mod gauges;
mod headline;
mod histogram;
mod hot;
mod journal;
pub(super) mod measuring;
mod ops_state;
mod partition;
mod poison;
mod queue;
mod storage;
mod view;
mod walks;

#[cfg(test)]
mod tests;

pub use advice::buckets;
pub use cost::{Costs, ServiceCost};
pub use freshness::Freshness;
pub use headline::{Headline, HealthState, Note, SilentWorker};
pub use headline::{grouped, lasting};
pub use hot::{HotPartition, PartitionLoad, TARGET};
pub use journal::{JobFilter, JobRecord, JournalItem, KeyRecord, StepRecord};
pub use ops_state::{OpsState, OpsStateParts, WorkerHandles};
pub use partition::PartitionNames;
pub use queue::{QueueNow, QueueSlot};
pub use storage::{LimitedScope, ServiceSlot, ServiceTally, StorageHour, StorageMeter, StorageNow};
pub use view::ViewNow;
pub use walks::WalkNow;

use std::time::Duration;

pub const SLOT: Duration = Duration::from_secs(10);
/// Number of slots in one hour.
pub const SLOTS: usize = 360;
/// Number of slots over which a current rate is averaged. They cover one minute.
const RECENT: u64 = 6;
