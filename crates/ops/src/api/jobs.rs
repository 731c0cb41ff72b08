use axum::extract::{Query, State};
use axum::{Extension, Json};
use serde::Deserialize;

use super::{Api, Problem};
use crate::guard::Visitor;
use crate::state::{JobFilter, JobRecord};
use evenkeel_worker::DeliveryStatus;

/// Default number of jobs per page.
const PAGE: usize = 100;
/// Number of keys shown per job.
const KEYS: usize = 20;

#[derive(Debug, Deserialize)]
pub(super) struct JobsQuery {
    #[serde(default)]
    key: String,
    outcome: Option<String>,
    before: Option<u64>,
    number: Option<u64>,
    top: Option<usize>,
}

pub(super) async fn jobs(
    State(api): State<Api>,
    Query(which): Query<JobsQuery>,
    Extension(visitor): Extension<Visitor>,
) -> Result<Json<Vec<JobRecord>>, Problem> {
    let ending = which
        .outcome
        .as_deref()
        .filter(|name| !name.is_empty())
        .map(ending)
        .transpose()?;
    let filter = JobFilter {
        text: which.key,
        ending,
        before: which.before,
        number: which.number,
    };
    Ok(Json(shown_jobs(
        &api,
        &filter,
        which.top.unwrap_or(PAGE).min(1_000),
        visitor,
    )))
}

/// Returns the newest matching jobs, with only those details that the visitor may see.
pub(crate) fn shown_jobs(
    api: &Api,
    filter: &JobFilter,
    most: usize,
    visitor: Visitor,
) -> Vec<JobRecord> {
    let jobs = api.ops_state.jobs(filter, most, KEYS);
    if visitor.contents {
        jobs
    } else {
        jobs.into_iter().map(JobRecord::without_contents).collect()
    }
}

pub(crate) fn ending(name: &str) -> Result<DeliveryStatus, Problem> {
    DeliveryStatus::ALL
        .into_iter()
        .find(|ending| ending.name() == name)
        .ok_or_else(|| {
            let known = DeliveryStatus::ALL.map(DeliveryStatus::name).join(", ");
            Problem::unusable(format!("outcome: expected one of {known}"))
        })
}
