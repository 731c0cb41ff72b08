use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use schemars::JsonSchema;
use schemars::generate::SchemaGenerator;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::entity::primary;
use super::{Api, Problem, background};
use crate::guard::Actor;
use crate::logging::AUDIT;
use evenkeel_client::{SendResult, SentMessage};
use evenkeel_model::{QueueName, job};

/// A job that was sent.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "sent", rename = "Sent")]
pub(crate) struct SentJob {
    /// The queue, or the shard of it that the job's key belongs to.
    pub(crate) queue: String,
    /// Id of the message.
    pub(crate) message_id: String,
    /// The operation.
    pub(crate) op: &'static str,
    /// The client's id for the job.
    pub(crate) id: Option<String>,
    /// Number of fields that the operation does not have; they are ignored.
    pub(crate) unknown_fields: usize,
}

/// Jobs that were sent in one message.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "sent batch", rename = "SentBatch")]
pub(crate) struct SentBatch {
    /// Index of its first job.
    first: usize,
    /// How many consecutive jobs it contains, the first included.
    jobs: usize,
    #[serde(flatten)]
    message: SentJob,
}

/// Jobs of a message that could not be sent.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "refused jobs", rename = "RefusedJobs")]
pub(crate) struct RefusedJobs {
    /// Index of the first job.
    first: usize,
    /// Number of consecutive jobs.
    jobs: usize,
    /// The error message.
    error: String,
    /// Whether a store failed. The jobs may then have been sent nevertheless, and can be sent again.
    transient: bool,
}

/// The result of sending many jobs, if at least one may have been sent.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "many sent", rename = "SentMany")]
pub(crate) struct SentMany {
    sent: Vec<SentBatch>,
    refused: Vec<RefusedJobs>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Submitted {
    One(SentJob),
    Many(SentMany),
}

pub(super) fn answer(schemas: &mut SchemaGenerator) -> Value {
    json!({"anyOf": [schemas.subschema_for::<SentJob>(), schemas.subschema_for::<SentMany>()]})
}

pub(super) fn body(_: &mut SchemaGenerator) -> Value {
    json!({"anyOf": [job::schema(), {"type": "array", "items": {"type": "object"}}]})
}

#[derive(Debug, Deserialize)]
pub(super) struct SubmitQuery {
    queue: Option<String>,
    pack: Option<usize>,
}

/// Default number of jobs per message: as many as fit into one transaction.
pub(super) const PACK: usize = 100;
/// Maximum number of jobs per message.
const MOST: usize = 1_000;

pub(super) async fn submit(
    State(api): State<Api>,
    Query(to): Query<SubmitQuery>,
    Extension(actor): Extension<Actor>,
    body: String,
) -> Result<(StatusCode, Json<Submitted>), Problem> {
    let queue = to.queue.filter(|queue| !queue.is_empty());
    let queue = queue
        .map(|queue| QueueName::new(queue).map_err(|error| Problem::unusable(error.to_string())))
        .transpose()?;
    let pack = to.pack.unwrap_or(PACK);
    if !(1..=MOST).contains(&pack) {
        return Err(Problem::unusable(format!(
            "pack: expected 1 to {MOST}, found {pack}"
        )));
    }
    let sent = match many(&body)? {
        None if pack > 1 => {
            Submitted::One(api.batcher.send(&api, &body, queue.as_ref(), actor).await?)
        }
        None => Submitted::One(send_in_time(&api, &body, queue.as_ref(), actor).await?),
        Some(jobs) => {
            let (sender, jobs): (Api, Vec<String>) = (
                Arc::clone(&api),
                jobs.into_iter().map(str::to_owned).collect(),
            );
            let sending = api
                .changes
                .spawn(async move { send_many(&sender, jobs, queue.as_ref(), pack, &actor).await });
            Submitted::Many(background::sent(sending).await?)
        }
    };
    Ok((StatusCode::ACCEPTED, Json(sent)))
}

/// Splits a JSON array or JSON lines into jobs. Returns `None` if the body is a single job.
fn many(body: &str) -> Result<Option<Vec<&str>>, Problem> {
    let trimmed = body.trim_start_matches('\u{feff}').trim();
    if trimmed.starts_with('[') {
        let jobs: Vec<&RawValue> = serde_json::from_str(trimmed).map_err(|error| {
            Problem::unusable(format!("the array of jobs is not JSON: {error}"))
        })?;
        if jobs.is_empty() {
            return Err(Problem::unusable(
                "the array has no jobs: expected at least one",
            ));
        }
        return Ok(Some(jobs.into_iter().map(RawValue::get).collect()));
    }
    let lines: Vec<&str> = trimmed
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    // If the first line is no complete job, all lines together are a single job.
    let is_job = |line: &&str| serde_json::from_str::<Map<String, Value>>(line).is_ok();
    let are_jobs = lines.len() > 1 && lines.first().is_some_and(is_job);
    Ok(are_jobs.then_some(lines))
}

pub(super) async fn reconcile(
    State(api): State<Api>,
    Path((table, pk, rk)): Path<(String, String, String)>,
    Extension(actor): Extension<Actor>,
) -> Result<(StatusCode, Json<SentJob>), Problem> {
    let job = sync_of(&api, &table, &pk, &rk)?;
    Ok((
        StatusCode::ACCEPTED,
        Json(send_in_time(&api, &job, None, actor).await?),
    ))
}

/// Returns a sync job for one entity.
pub(crate) fn sync_of(api: &Api, table: &str, pk: &str, rk: &str) -> Result<String, Problem> {
    let (_, primary) = primary(api, table, pk, rk)?;
    Ok(
        json!({"op": "sync", "table": primary.table, "pk": primary.key.pk, "rk": primary.key.rk})
            .to_string(),
    )
}

/// Like [`send`], but returns after a timeout. Sending then continues in the background.
pub(crate) async fn send_in_time(
    api: &Api,
    text: &str,
    queue: Option<&QueueName>,
    actor: Actor,
) -> Result<SentJob, Problem> {
    let (sender, text, queue) = (Arc::clone(api), text.to_owned(), queue.cloned());
    background::sent(
        api.changes
            .spawn(async move { send(&sender, &text, queue.as_ref(), &actor).await }),
    )
    .await
}

/// Checks a job like the worker does, and sends it.
pub(super) async fn send(
    api: &Api,
    text: &str,
    queue: Option<&QueueName>,
    actor: &Actor,
) -> Result<SentJob, Problem> {
    let client = api.client();
    let job = client.prepare(text, queue)?;
    let sent = client.send(&job).await?;
    Ok(announced(api, sent, &job.about, actor))
}

/// Sends many jobs. If it is certain that no job was sent, the first error is returned.
async fn send_many(
    api: &Api,
    jobs: Vec<String>,
    queue: Option<&QueueName>,
    pack: usize,
    actor: &Actor,
) -> Result<SentMany, Problem> {
    let mut many = SentMany {
        sent: Vec::new(),
        refused: Vec::new(),
    };
    let (client, mut problem) = (api.client(), None);
    for SendResult { first, jobs, sent } in client.submit_many(queue, pack, jobs).await {
        match sent {
            Ok(sent) => {
                let message = announced(api, sent, &format!("{jobs} jobs"), actor);
                many.sent.push(SentBatch {
                    first,
                    jobs,
                    message,
                });
            }
            Err(error) => {
                let transient = !error.is_misuse();
                many.refused.push(RefusedJobs {
                    first,
                    jobs,
                    error: error.to_string(),
                    transient,
                });
                problem.get_or_insert((first, error));
            }
        }
    }
    let none_sent = many.sent.is_empty() && many.refused.iter().all(|refused| !refused.transient);
    match problem {
        Some((first, error)) if none_sent => {
            Err(Problem::from(error).before(&format!("job {}", first + 1)))
        }
        _ => Ok(many),
    }
}

/// Logs a sent message and wakes the receiver of its queue.
pub(super) fn announced(api: &Api, sent: SentMessage, about: &str, actor: &Actor) -> SentJob {
    let SentMessage {
        queue,
        message_id,
        op,
        id,
        unknown_fields,
    } = sent;
    tracing::info!(
        target: AUDIT, %queue, message_id, op, about, by = actor.by(), peer = %actor.peer, claimed = actor.claimed(), "audit: job submitted"
    );
    api.ops_state.wake(Some(&queue));
    SentJob {
        queue: queue.to_string(),
        message_id,
        op,
        id,
        unknown_fields: unknown_fields.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_jobs_are_an_array_or_lines_and_one_job_may_span_lines() {
        let two = [r#"{"op":"sync"}"#, r#"{"op":"put"}"#];
        for body in [
            "[{\"op\":\"sync\"} ,\n{\"op\":\"put\"}]",
            "\u{feff}{\"op\":\"sync\"}\r\n\n{\"op\":\"put\"}\n",
        ] {
            assert_eq!(many(body).unwrap().unwrap(), two, "{body}");
        }
        let truncated = "{\"op\":\"sync\"}\n{\"op\":\"pu";
        assert_eq!(
            many(truncated).unwrap().unwrap().len(),
            2,
            "an invalid line does not keep the other from being sent"
        );
        for body in [
            "{\"op\":\n\"sync\"}",
            "{\"op\":\"sync\",\n\"entity\":\n{\n}\n}",
            "eyJv",
            "",
            "{",
            r#"{"op":"sync"}"#,
        ] {
            assert_eq!(many(body).unwrap(), None, "{body}");
        }
        assert!(many("[{},").unwrap_err().words().contains("line 1"));
        assert!(many("[]").unwrap_err().words().contains("no jobs"));
    }
}
