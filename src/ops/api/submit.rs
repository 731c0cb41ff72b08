//! Sending jobs.

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::entity::primary;
use super::{Api, Problem};
use crate::client;
use crate::model::QueueName;
use crate::ops::guard::Actor;
use crate::telemetry::AUDIT;

/// A job that was sent.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "sent", rename = "Sent")]
pub(crate) struct SentJob {
    /// The queue, or the shard of it that carries this key's jobs.
    pub(crate) queue: String,
    /// The message's id.
    pub(crate) message_id: String,
    /// The operation.
    pub(crate) op: &'static str,
    /// The client's own name for the job.
    pub(crate) id: Option<String>,
    /// Fields that a job of this operation does not have: they are ignored.
    pub(crate) unknown_fields: usize,
}

/// Where it goes.
#[derive(Debug, Deserialize)]
pub(super) struct To {
    queue: Option<String>,
}

pub(super) async fn submit(
    State(api): State<Api>,
    Query(to): Query<To>,
    Extension(actor): Extension<Actor>,
    body: String,
) -> Result<(StatusCode, Json<SentJob>), Problem> {
    let queue = to.queue.filter(|queue| !queue.is_empty());
    let queue = queue.map(|queue| QueueName::new(queue).map_err(|error| Problem::unusable(error.to_string()))).transpose()?;
    let sent = send(&api, &body, queue.as_ref(), &actor).await?;
    Ok((StatusCode::ACCEPTED, Json(sent)))
}

pub(super) async fn reconcile(
    State(api): State<Api>,
    Path((table, pk, rk)): Path<(String, String, String)>,
    Extension(actor): Extension<Actor>,
) -> Result<(StatusCode, Json<SentJob>), Problem> {
    let job = sync_of(&api, &table, &pk, &rk)?;
    Ok((StatusCode::ACCEPTED, Json(send(&api, &job, None, &actor).await?)))
}

/// The job that brings everything of one primary in step.
pub(crate) fn sync_of(api: &Api, table: &str, pk: &str, rk: &str) -> Result<String, Problem> {
    let (_, primary) = primary(api, table, pk, rk)?;
    Ok(json!({"op": "sync", "table": primary.table, "pk": primary.key.pk, "rk": primary.key.rk}).to_string())
}

/// Sends a job, checked as the worker will.
pub(crate) async fn send(api: &Api, text: &str, queue: Option<&QueueName>, actor: &Actor) -> Result<SentJob, Problem> {
    let client = api.client();
    let job = client.prepare(text, queue)?;
    let sent = client.send(&job).await?;
    tracing::info!(
        target: AUDIT, queue = %sent.queue, message_id = sent.message_id, op = sent.op, about = job.about,
        peer = %actor.peer, claimed = actor.claimed(), "audit: job submitted"
    );
    api.board.ring(Some(&sent.queue));
    let client::Sent { queue, message_id, op, id, unknown_fields } = sent;
    Ok(SentJob { queue: queue.to_string(), message_id, op, id, unknown_fields })
}
