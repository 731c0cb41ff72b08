//! Checks that the queue of a job allows the job's tables, before anything is read for the job.

use crate::env::Env;
use crate::execute::{Delivery, Failure, Work};
use crate::failure::permanent;
use evenkeel_model::Job;

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct TableRefused(String);

pub(crate) fn permit(env: &Env, work: &Work, delivery: &Delivery) -> Result<(), Failure> {
    match work {
        Work::Job(job) => permit_job(env, job, delivery),
        Work::Recheck(_) => Ok(()),
    }
}

pub(crate) fn permit_job(env: &Env, job: &Job, delivery: &Delivery) -> Result<(), Failure> {
    let Some(tables) = &delivery.tables else {
        return Ok(());
    };
    let refused = tables.refuse(env.catalog.tables_of(job.operation().subject()));
    refused.map_or(Ok(()), |refused| {
        Err(permanent(
            "checking the tables that the queue allows",
            TableRefused(refused),
        ))
    })
}
