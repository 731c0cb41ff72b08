//! The tables that jobs of a queue may be about, before anything is read for one.

use super::engine::Engine;
use super::execute::{Delivery, Failure, Work};
use super::failure::permanent;
use evenkeel_model::Job;

/// A job about a table that its queue does not carry.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct TableRefused(String);

impl Engine {
    /// Refuses work about a table that its queue does not carry.
    pub(super) fn permit(&self, work: &Work, delivery: &Delivery) -> Result<(), Failure> {
        match work {
            Work::Job(job) => self.permit_job(job, delivery),
            Work::Recheck(_) => Ok(()),
        }
    }

    pub(super) fn permit_job(&self, job: &Job, delivery: &Delivery) -> Result<(), Failure> {
        let Some(tables) = &delivery.tables else {
            return Ok(());
        };
        let refused = tables.refuse(self.catalog.tables_of(job.operation().subject()));
        refused.map_or(Ok(()), |refused| {
            Err(permanent(
                "looking at what the queue allows",
                TableRefused(refused),
            ))
        })
    }
}
