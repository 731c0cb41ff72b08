//! The dead letters.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::timeout;

use super::{Api, Problem};
use crate::ops::board::keep;
use crate::settings::QueueSettings;
use crate::worker::poison::{Handled, PoisonEntry, PoisonFilter, PoisonMessage, PoisonQueue, Reason};

/// How long an answer waits for a change. A long one goes on without it.
const PATIENCE: Duration = Duration::from_secs(20);

/// The front of the poison queues.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "poison")]
pub(crate) struct Poison {
    /// The messages at the front that are meant, queue by queue, the oldest first.
    pub(crate) messages: Vec<Poisoned>,
    /// How many messages the poison queues hold in all, copies and other reasons included.
    pub(crate) total: u64,
    /// Whether that was all of them. A storage queue shows its first 32 messages only: when these are handled, the
    /// next come forward.
    pub(crate) complete: bool,
}

/// A message that will not be tried again.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "poisoned")]
pub(crate) struct Poisoned {
    /// The queue it came from and goes back to.
    pub(crate) queue: String,
    /// The queue as configured whose poison queue holds it.
    pub(crate) held_by: String,
    /// The original's id.
    pub(crate) message_id: String,
    /// The client's own name for the job.
    pub(crate) id: Option<String>,
    /// `exhausted`, `permanent`, `undecodable`, `expired`, or `foreign`: put there by something else.
    pub(crate) reason: &'static str,
    /// What went wrong, with all causes.
    pub(crate) error: String,
    /// What was being done.
    pub(crate) step: String,
    /// The operation, where one could be read.
    pub(crate) op: Option<String>,
    /// How often the message had been got.
    pub(crate) dequeue_count: u32,
    /// When it was first put on its queue (RFC 3339).
    pub(crate) first_enqueued: String,
    /// When it was poisoned (RFC 3339).
    pub(crate) at: String,
    /// By which worker.
    pub(crate) worker: String,
    /// How many copies of it there are.
    pub(crate) copies: usize,
    /// The body: JSON where it is some, else a string; null where it lies in a blob.
    pub(crate) body: Value,
    /// The blob that has the body, where it was too large for a message.
    pub(crate) body_blob: Option<String>,
}

/// Which messages are shown.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Shown {
    pub(crate) queue: Option<String>,
    pub(crate) reason: Option<String>,
}

/// Which messages are to be handled.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(title = "selection")]
#[serde(deny_unknown_fields)]
pub(crate) struct Selection {
    /// The queue as configured; every queue where absent.
    pub(crate) queue: Option<String>,
    /// Message ids, or clients' own ids.
    #[serde(default)]
    pub(crate) ids: BTreeSet<String>,
    /// All messages: must be said where no id is given.
    #[serde(default)]
    pub(crate) all: bool,
    /// Only those poisoned for this reason.
    pub(crate) reason: Option<String>,
}

/// What became of the messages that were meant.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
#[schemars(title = "handled")]
pub(crate) struct Report {
    /// Ids of the messages that were requeued or discarded.
    pub(crate) done: Vec<String>,
    /// Those that were not, or not wholly.
    pub(crate) failed: Vec<Failed>,
    /// Why the rest of a queue was not looked at, where a store failed half-way.
    pub(crate) cut_short: Option<String>,
    /// Whether the change goes on: then what became of each message is in the log.
    pub(crate) under_way: bool,
}

/// A message that was not handled.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(title = "failed")]
pub(crate) struct Failed {
    /// Its id.
    pub(crate) message_id: String,
    /// Why.
    pub(crate) error: String,
}

/// What is done to messages.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    Requeue,
    Discard,
}

pub(super) async fn list(State(api): State<Api>, Query(shown): Query<Shown>) -> Result<Json<Poison>, Problem> {
    front(&api, &shown).await.map(Json)
}

pub(super) async fn requeue(State(api): State<Api>, Json(selection): Json<Selection>) -> Result<Response, Problem> {
    answer(change(&api, selection, Change::Requeue).await?)
}

pub(super) async fn discard(State(api): State<Api>, Json(selection): Json<Selection>) -> Result<Response, Problem> {
    answer(change(&api, selection, Change::Discard).await?)
}

#[expect(clippy::unnecessary_wraps, reason = "what handlers give back")]
fn answer(report: Report) -> Result<Response, Problem> {
    let status = if report.under_way { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, Json(report)).into_response())
}

/// The front of the poison queues that are meant.
pub(crate) async fn front(api: &Api, shown: &Shown) -> Result<Poison, Problem> {
    let filter = PoisonFilter { ids: BTreeSet::new(), reason: reason(shown.reason.as_deref())? };
    let mut poison = Poison { messages: Vec::new(), total: 0, complete: true };
    for (settings, queue) in queues(api, shown.queue.as_deref())? {
        let front = queue.front().await.map_err(|error| Problem::store("reading a poison queue", &error))?;
        let (entries, total) = front;
        let seen: usize = entries.iter().map(|entry| entry.copies).sum();
        poison.total += total;
        poison.complete &= seen as u64 >= total;
        api.board.counted(&settings.name, total);
        let meant = entries.into_iter().filter(|entry| filter.matches(&entry.message));
        poison.messages.extend(meant.map(|entry| poisoned(entry, settings)));
    }
    Ok(poison)
}

/// Requeues or discards. Goes on in the background where it takes long: it is not undone by a client that leaves.
pub(crate) async fn change(api: &Api, selection: Selection, change: Change) -> Result<Report, Problem> {
    if selection.ids.is_empty() && !selection.all {
        return Err(Problem::unusable("say which messages: ids, or all"));
    }
    let filter = PoisonFilter { ids: selection.ids.clone(), reason: reason(selection.reason.as_deref())? };
    // Found before anything is begun: a mistake is told at once.
    queues(api, selection.queue.as_deref())?;
    let (worker, queue) = (api.clone(), selection.queue);
    let mut under_way = api.changes.spawn(async move { carry_out(&worker, queue.as_deref(), &filter, change).await });
    match timeout(PATIENCE, &mut under_way).await {
        Ok(Ok(report)) => report,
        Ok(Err(error)) => Err(Problem::not_yet(format!("the change ended half-way: {error}"))),
        Err(_) => Ok(Report { under_way: true, ..Report::default() }),
    }
}

async fn carry_out(api: &Api, queue: Option<&str>, filter: &PoisonFilter, change: Change) -> Result<Report, Problem> {
    let mut report = Report::default();
    for (settings, queue) in queues(api, queue)? {
        let handled = match change {
            Change::Requeue => queue.requeue(filter).await,
            Change::Discard => queue.discard(filter).await,
        };
        let Handled { done, failed, cut_short } = handled.map_err(|error| Problem::store("handling a poison queue", &error))?;
        for PoisonEntry { message, .. } in done {
            let PoisonMessage { queue, message_id, reason, .. } = message;
            match change {
                Change::Requeue => tracing::info!(%queue, message_id, %reason, "audit: poisoned message requeued"),
                Change::Discard => tracing::info!(%queue, message_id, %reason, "audit: poisoned message discarded"),
            }
            report.done.push(message_id);
        }
        for (PoisonEntry { message, .. }, error) in failed {
            tracing::warn!(queue = %message.queue, message_id = message.message_id, error, "audit: poisoned message not handled");
            report.failed.push(Failed { message_id: message.message_id, error });
        }
        if let Some(error) = cut_short {
            tracing::warn!(queue = %settings.name, error, "audit: the rest of the poison queue was not looked at");
            report.cut_short = Some(error);
        }
        keep::count(&api.board, &api.stores, settings).await;
    }
    Ok(report)
}

fn queues<'a>(api: &'a Api, named: Option<&str>) -> Result<Vec<(&'a QueueSettings, PoisonQueue)>, Problem> {
    let named = named.filter(|named| !named.is_empty());
    let meant: Vec<_> = api.board.configured().iter().filter(|queue| named.is_none_or(|named| queue.name.as_str() == named)).collect();
    if let (Some(named), true) = (named, meant.is_empty()) {
        let known: Vec<&str> = api.board.configured().iter().map(|queue| queue.name.as_str()).collect();
        return Err(Problem::unknown(format!("no queue {named:?} is declared; declared are {}", known.join(", "))));
    }
    let open = |settings: &'a QueueSettings| {
        let account = api.stores.account(&settings.account).map_err(|error| Problem::unknown(error.to_string()))?;
        let queue = PoisonQueue::new(account, &settings.name).map_err(|error| Problem::unusable(error.to_string()))?;
        Ok((settings, queue))
    };
    meant.into_iter().map(open).collect()
}

fn reason(name: Option<&str>) -> Result<Option<Reason>, Problem> {
    name.filter(|name| !name.is_empty())
        .map(|name| name.parse().map_err(|error: crate::worker::poison::PoisonError| Problem::unusable(error.to_string())))
        .transpose()
}

fn poisoned(entry: PoisonEntry, settings: &QueueSettings) -> Poisoned {
    let PoisonEntry { message, copies } = entry;
    let body = message.body.as_deref().map(PoisonMessage::shown_body);
    let body = body.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap_or(Value::String(text)));
    Poisoned {
        queue: message.queue.to_string(),
        held_by: settings.name.to_string(),
        message_id: message.message_id,
        id: message.id,
        reason: message.reason.name(),
        error: message.error,
        step: message.step,
        op: message.op,
        dequeue_count: message.dequeue_count,
        first_enqueued: message.first_enqueued.to_string(),
        at: message.poisoned.to_string(),
        worker: message.worker,
        copies,
        body,
        body_blob: message.body_blob.map(|blob| format!("{}/{}", blob.container, blob.name)),
    }
}
