//! Records the storage requests of a job.
//!
//! The worker opens a trace around a delivery, and the innermost layer of the adapters adds each request to the trace of the
//! task that sends it. So the worker and this layer do not depend on each other. A request that several jobs share is a step of
//! each, but counts for only one of them.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use evenkeel_model::prices;

/// Maximum number of steps kept per job. All are counted.
pub const STEPS: usize = 40;

tokio::task_local! {
    static TRACE: RefCell<Option<JobTrace>>;
    static JOB: JobMark;
}

/// Number of deliveries in this process.
static JOBS: AtomicU64 = AtomicU64::new(0);

/// The delivery that a request belongs to, and its priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobMark {
    /// Unique per delivery in this process. All jobs of a batch have the same.
    pub number: u64,
    pub urgency: Urgency,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// A sender waits for it.
    Live,
    /// A walk over a whole table (backfill, audit), which gives way to live jobs.
    Background,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recording {
    On,
    Off,
}

/// The storage requests of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobTrace {
    /// The first [`STEPS`] requests, in the order of their answers.
    pub steps: Vec<Step>,
    /// Number of all requests.
    pub requests: u32,
    pub billed: Billed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The storage operation, as in metrics.
    pub op: &'static str,
    /// The table, queue or container.
    pub target: String,
    /// `ok`, or the class of the error.
    pub answer: &'static str,
    /// HTTP status of an error, if there was an answer.
    pub status: Option<u16>,
    pub took: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bill {
    Table,
    Queue,
    /// A write or listing of Blob storage.
    BlobWrite,
    BlobRead,
    /// Deletes of blobs, and all requests to a search service.
    Free,
}

/// Number of requests by how they are billed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Billed {
    pub table: u64,
    pub queue: u64,
    /// Writes and listings of Blob storage.
    pub blob_writes: u64,
    pub blob_reads: u64,
}

impl Billed {
    pub const fn add(&mut self, bill: Bill, requests: u64) {
        match bill {
            Bill::Table => self.table += requests,
            Bill::Queue => self.queue += requests,
            Bill::BlobWrite => self.blob_writes += requests,
            Bill::BlobRead => self.blob_reads += requests,
            Bill::Free => {}
        }
    }

    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            table: self.table + other.table,
            queue: self.queue + other.queue,
            blob_writes: self.blob_writes + other.blob_writes,
            blob_reads: self.blob_reads + other.blob_reads,
        }
    }

    pub const fn requests(self) -> u64 {
        self.table + self.queue + self.blob_writes + self.blob_reads
    }

    /// US dollars at list prices.
    #[expect(
        clippy::cast_precision_loss,
        reason = "requests of a process stay below 2^52"
    )]
    pub fn dollars(self) -> f64 {
        let Self {
            table,
            queue,
            blob_writes,
            blob_reads,
        } = self;
        let priced = [
            (table, prices::TABLE),
            (queue, prices::QUEUE),
            (blob_writes, prices::BLOB_WRITES),
            (blob_reads, prices::BLOB_READS),
        ];
        priced
            .into_iter()
            .map(|(requests, price)| requests as f64 * price / 10_000.0)
            .sum()
    }

    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            table: self.table.saturating_sub(earlier.table),
            queue: self.queue.saturating_sub(earlier.queue),
            blob_writes: self.blob_writes.saturating_sub(earlier.blob_writes),
            blob_reads: self.blob_reads.saturating_sub(earlier.blob_reads),
        }
    }
}

/// Runs a delivery with a trace of its own.
pub async fn scope<F: Future>(recording: Recording, urgency: Urgency, future: F) -> F::Output {
    let trace = (recording == Recording::On).then(JobTrace::default);
    let mark = JobMark {
        number: JOBS.fetch_add(1, Ordering::Relaxed),
        urgency,
    };
    JOB.scope(mark, TRACE.scope(RefCell::new(trace), future))
        .await
}

/// Returns the delivery of this task; `None` in a command.
pub fn job() -> Option<JobMark> {
    JOB.try_with(|mark| *mark).ok()
}

/// Takes the trace of this task; empty outside a job.
pub fn take() -> JobTrace {
    TRACE
        .try_with(|trace| trace.borrow_mut().as_mut().map(std::mem::take))
        .ok()
        .flatten()
        .unwrap_or_default()
}

/// Adds a request to the trace of this task. No-op outside a job.
pub fn record(bill: Bill, step: impl FnOnce() -> Step) {
    add_step(Some(bill), step);
}

/// Adds a step for a request that counts for another job.
pub fn record_shared(step: impl FnOnce() -> Step) {
    add_step(None, step);
}

fn add_step(bill: Option<Bill>, step: impl FnOnce() -> Step) {
    // There is no trace outside a job, which is not an error.
    let _ = TRACE.try_with(|trace| {
        if let Some(trace) = trace.borrow_mut().as_mut() {
            if let Some(bill) = bill {
                trace.requests = trace.requests.saturating_add(1);
                trace.billed.add(bill, 1);
            }
            if trace.steps.len() < STEPS {
                trace.steps.push(step());
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step() -> Step {
        Step {
            op: "get_entity",
            target: "Employees".to_owned(),
            answer: "ok",
            status: None,
            took: Duration::ZERO,
        }
    }

    #[tokio::test]
    async fn a_shared_request_is_a_step_but_not_counted() {
        let trace = scope(Recording::On, Urgency::Live, async {
            record(Bill::Table, step);
            record_shared(step);
            take()
        });
        let trace = trace.await;
        assert_eq!(
            (trace.steps.len(), trace.requests, trace.billed.table),
            (2, 1, 1)
        );
    }

    #[tokio::test]
    async fn each_job_has_its_own_bounded_trace_and_all_requests_are_counted() {
        let job = |requests: u32| {
            scope(Recording::On, Urgency::Live, async move {
                for _ in 0..requests {
                    record(Bill::Table, step);
                    tokio::task::yield_now().await;
                }
                take()
            })
        };
        let (few, many) = tokio::join!(job(2), job(100));
        assert_eq!((few.steps.len(), few.requests, few.billed.table), (2, 2, 2));
        assert_eq!(
            (many.steps.len(), many.requests, many.billed.table),
            (STEPS, 100, 100)
        );
    }

    #[tokio::test]
    async fn nothing_is_recorded_outside_a_job_or_if_recording_is_off() {
        record(Bill::Table, || unreachable!("nobody keeps it"));
        assert_eq!(take(), JobTrace::default());
        let unkept = scope(Recording::Off, Urgency::Live, async {
            record(Bill::Queue, || unreachable!("nobody keeps it"));
            take()
        });
        assert_eq!(unkept.await, JobTrace::default());
    }
}
