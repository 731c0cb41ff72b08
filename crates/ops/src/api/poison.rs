//! Poison messages.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::background::result_in_time;
use super::{Api, Problem};
use crate::guard::{Actor, Visitor};
use crate::in_step::in_step_now;
use crate::logging::AUDIT;
use crate::state::measuring;
use evenkeel_model::quoted::Quoted;
use evenkeel_model::settings::QueueSettings;
use evenkeel_model::{QueueName, cause};
use evenkeel_storage::StoreError;
use evenkeel_worker::poison::{
    BodyPreview, HandledMessages, PREVIEW_BYTES, PoisonCriteria, PoisonEntry, PoisonFilter,
    PoisonMessage, PoisonQueue, cause_id,
};

/// Maximum size of an answer or page.
const ANSWER_BYTES: usize = 1024 * 1024;
/// Limits the number of concurrent answers, because each of them holds up to 32 messages of 64 KiB per queue in memory.
static READERS: Semaphore = Semaphore::const_new(2);
/// Size of a message in an answer, without its texts.
const FRAME_BYTES: usize = 2 * 1024;
/// Maximum factor by which escaping makes a text longer: `&quot;` in HTML, `\u0001` in JSON.
const ESCAPED_TIMES: usize = 6;
/// Maximum factor by which a body becomes longer: it is escaped and indented, and its keys are repeated in a heading
/// and a link.
const BODY_TIMES: usize = 20;
/// Maximum length of an error in an answer, which is also the maximum length that workers write.
const SHOWN_ERROR_BYTES: usize = 4_096;
/// Maximum length of any other text in an answer.
const SHOWN_TEXT_BYTES: usize = 1_024;

/// The front of the poison queues.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "poison")]
pub(crate) struct PoisonList {
    /// The matching messages at the front of each queue, the oldest first.
    pub(crate) messages: Vec<PoisonedMessage>,
    /// Number of messages in the poison queues, including copies and messages that do not match.
    pub(crate) total: u64,
    /// Whether these are all messages. Only the first 32 messages of a queue can be read, and the size of an answer is
    /// limited. Handle these to see more.
    pub(crate) complete: bool,
    /// The time of the list (RFC 3339), by the clock of the queue service. If the list is from several services, the
    /// earliest of their times. Use it as `until` to requeue or discard all messages of the list.
    pub(crate) as_of: String,
}

/// A message that will not be tried again.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "poisoned")]
pub(crate) struct PoisonedMessage {
    /// The queue it came from and would be requeued to.
    pub(crate) queue: String,
    /// The configured queue whose poison queue has the message.
    pub(crate) configured_queue: String,
    /// Id of the original message.
    pub(crate) message_id: String,
    /// Id of the message on the poison queue. The service assigns it, so it is unique.
    pub(crate) poison_id: String,
    /// The client's id for the job.
    pub(crate) id: Option<String>,
    /// `exhausted`, `permanent`, `undecodable`, `expired`, or `foreign` if something else put it there.
    pub(crate) reason: &'static str,
    /// The cause. Messages whose errors differ only in keys and values have the same cause.
    pub(crate) cause: String,
    /// The error with all its causes. Without the right to see contents, only the step and the reason.
    pub(crate) error: String,
    /// The step that failed.
    pub(crate) step: String,
    /// The operation, if it could be read.
    pub(crate) op: Option<String>,
    /// Whether the effect has been reached meanwhile: the primary is in step, and has the values that a `put` was to
    /// write. Null if unknown.
    pub(crate) in_step: Option<bool>,
    /// How often the message was received.
    pub(crate) dequeue_count: u32,
    /// When the message was first enqueued (RFC 3339).
    pub(crate) first_enqueued: String,
    /// When it was poisoned (RFC 3339).
    pub(crate) at: String,
    pub(crate) worker: String,
    /// Number of copies of the message.
    pub(crate) copies: usize,
    /// The body as JSON or, if it is not JSON, as a string. Null if it is in a blob or the answer is full.
    pub(crate) body: Value,
    /// Whether `body` contains only the beginning, as a string, or was left out. `evenkeel poison show` prints all of
    /// it.
    pub(crate) body_cut: bool,
    /// Whether `body` is null because the token may not see contents.
    pub(crate) body_withheld: bool,
    /// Length of the body's text.
    #[serde(skip)]
    body_bytes: usize,
    /// The blob with the body, if it was too large for a message.
    pub(crate) body_blob: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct FilterQuery {
    pub(crate) queue: Option<String>,
    #[serde(flatten)]
    pub(crate) criteria: PoisonCriteria,
}

/// The messages to requeue or discard.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(title = "selection", deny_unknown_fields)]
pub(crate) struct Selection {
    /// The queue as configured; all queues if absent.
    pub(crate) queue: Option<String>,
    /// Values of `poison_id` or `message_id`, or clients' ids.
    #[serde(default)]
    pub(crate) ids: BTreeSet<String>,
    /// Select all messages. Required if there are no ids.
    #[serde(default)]
    pub(crate) all: bool,
    /// Only messages that were put on the poison queue until this time (RFC 3339), by the queue service's clock. A
    /// list of messages has such a time in its field `as_of`.
    pub(crate) until: Option<String>,
    #[serde(flatten)]
    pub(crate) criteria: PoisonCriteria,
    /// Unknown fields are an error: a misspelt one must not select more messages than intended.
    #[serde(flatten)]
    #[schemars(skip)]
    pub(crate) unknown: BTreeMap<String, Value>,
}

/// Result of a requeue or discard.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
#[schemars(title = "handled")]
pub(crate) struct PoisonReport {
    /// Ids of the messages that were requeued or discarded.
    pub(crate) done: Vec<String>,
    /// Messages that were not handled, or only in part.
    pub(crate) failed: Vec<FailedMessage>,
    /// Requested ids that no message has.
    pub(crate) not_found: Vec<String>,
    /// Approximate number of messages that could not be read because another command or operator holds them, for at
    /// most two minutes.
    pub(crate) hidden: u64,
    /// Number of matching messages that were skipped because they came after `until`.
    pub(crate) newer: u64,
    /// Why the rest of a queue was not processed, if a store failed.
    pub(crate) stopped_by: Option<String>,
    /// Whether the change is still in progress. The log then has the result of each message.
    pub(crate) in_progress: bool,
}

/// A message that was not handled.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(title = "failed")]
pub(crate) struct FailedMessage {
    pub(crate) message_id: String,
    /// The error.
    pub(crate) error: String,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum MessageAction {
    Requeue,
    Discard,
}

impl MessageAction {
    const fn verb(self) -> &'static str {
        match self {
            Self::Requeue => "requeue",
            Self::Discard => "discard",
        }
    }
}

pub(super) async fn list(
    State(api): State<Api>,
    Query(shown): Query<FilterQuery>,
    Extension(visitor): Extension<Visitor>,
) -> Result<Json<PoisonList>, Problem> {
    front(&api, &shown, visitor).await.map(Json)
}

pub(super) async fn requeue(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Json(selection): Json<Selection>,
) -> Result<Response, Problem> {
    answer(change(&api, selection, MessageAction::Requeue, actor).await?)
}

pub(super) async fn discard(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Json(selection): Json<Selection>,
) -> Result<Response, Problem> {
    answer(change(&api, selection, MessageAction::Discard, actor).await?)
}

#[expect(clippy::unnecessary_wraps, reason = "handlers return a `Result`")]
fn answer(report: PoisonReport) -> Result<Response, Problem> {
    let status = if report.in_progress {
        StatusCode::ACCEPTED
    } else {
        StatusCode::OK
    };
    Ok((status, Json(report)).into_response())
}

/// Returns the first messages of the selected poison queues.
pub(crate) async fn front(
    api: &Api,
    shown: &FilterQuery,
    visitor: Visitor,
) -> Result<PoisonList, Problem> {
    let PoisonCriteria {
        key,
        text,
        view,
        table,
        ..
    } = &shown.criteria;
    // Without this check, a visitor could test guesses about the contents by filtering for them.
    if !visitor.contents
        && [key, text, view, table]
            .into_iter()
            .flatten()
            .any(|value| !value.is_empty())
    {
        return Err(Problem::withheld(
            "filters on message contents require a token with contents = true",
        ));
    }
    let filter = filter(api, &shown.criteria)?;
    let as_of = as_of(api, shown.queue.as_deref()).to_string();
    let mut poison = PoisonList {
        messages: Vec::new(),
        total: 0,
        complete: true,
        as_of,
    };
    let mut room = ANSWER_BYTES;
    // Acquiring cannot fail, because the semaphore is never closed.
    let _one = READERS.acquire().await;
    for (settings, queue) in queues(api, shown.queue.as_deref())? {
        let front = queue.front().await.map_err(|error| {
            let doing = format!("could not read the poison queue of {}", settings.name);
            Problem::store(&doing, &error)
        })?;
        let (entries, total) = front;
        let seen: usize = entries.iter().map(|entry| entry.ids.len()).sum();
        poison.total += total;
        poison.complete &= seen as u64 >= total;
        api.ops_state.poison_counted(&settings.name, total);
        let matching: Vec<PoisonEntry> = entries
            .into_iter()
            .filter(|entry| filter.matches(entry))
            .collect();
        let (count, configured_queue) = (matching.len(), settings.name.clone());
        let in_step = in_step_now(&api.client(), &api.ops_state.catalog(), matching.iter()).await;
        let (mut messages, left) =
            off_the_runtime(move || fitting(matching, &configured_queue, visitor.contents, room))
                .await?;
        messages
            .iter_mut()
            .zip(in_step)
            .for_each(|(message, in_step)| message.in_step = in_step);
        room = left;
        poison.complete &= messages.len() == count;
        poison.messages.extend(messages);
    }
    Ok(poison)
}

/// Runs a long computation outside the async runtime, because the runtime also renews leases. Any sender of jobs can
/// send a body that takes long to format.
pub(crate) async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.map_err(|error| Problem::not_yet(format!("could not show the poison queue: {error}")))
}

/// Returns as many messages as fit into a size, and the remaining size. If a message does not fit with its body, the
/// body is left out.
fn fitting(
    entries: Vec<PoisonEntry>,
    configured_queue: &QueueName,
    contents: bool,
    mut room: usize,
) -> (Vec<PoisonedMessage>, usize) {
    let mut messages = Vec::new();
    for entry in entries {
        let mut message = poisoned(entry, configured_queue, contents);
        let (mut cost, body) = message.cost();
        if cost + body > room && body > 0 {
            (message.body, message.body_cut) = (Value::Null, true);
        } else {
            cost += body;
        }
        if cost > room {
            break;
        }
        room -= cost;
        messages.push(message);
    }
    (messages, room)
}

impl PoisonedMessage {
    /// Returns two maximum sizes in an answer or page: of the message without its body, and of the body alone.
    fn cost(&self) -> (usize, usize) {
        let texts = [
            Some(&self.message_id),
            self.id.as_ref(),
            Some(&self.error),
            Some(&self.step),
            self.op.as_ref(),
            Some(&self.worker),
        ];
        let texts: usize = texts.into_iter().flatten().map(String::len).sum();
        (
            FRAME_BYTES + texts * ESCAPED_TIMES,
            self.body_bytes * BODY_TIMES,
        )
    }
}

/// Requeues or discards messages. A change that takes long continues in the background, even if the client disconnects.
pub(crate) async fn change(
    api: &Api,
    selection: Selection,
    change: MessageAction,
    actor: Actor,
) -> Result<PoisonReport, Problem> {
    if let Some(name) = selection.unknown.keys().next() {
        return Err(Problem::unreadable(format!(
            "unknown field {}",
            Quoted(name)
        )));
    }
    if selection.ids.is_empty() && !selection.all {
        return Err(Problem::unusable(
            "no messages selected: expected ids or all",
        ));
    }
    let until = selection
        .until
        .as_deref()
        .map(str::parse::<Timestamp>)
        .transpose();
    let until = until.map_err(|error| Problem::unusable(format!("until: {error}")))?;
    let filter = PoisonFilter {
        ids: selection.ids,
        until,
        ..filter(api, &selection.criteria)?
    };
    // The queue is checked first, so that a wrong name is reported before anything is changed.
    queues(api, selection.queue.as_deref())?;
    let (worker, queue) = (api.clone(), selection.queue);
    let under_way = api
        .changes
        .spawn(async move { carry_out(&worker, queue.as_deref(), &filter, change, &actor).await });
    let report = result_in_time(under_way).await?;
    Ok(report.unwrap_or_else(|| PoisonReport {
        in_progress: true,
        ..PoisonReport::default()
    }))
}

async fn carry_out(
    api: &Api,
    queue: Option<&str>,
    filter: &PoisonFilter,
    change: MessageAction,
    actor: &Actor,
) -> Result<PoisonReport, Problem> {
    let (by, peer, claimed) = (actor.by(), actor.peer, actor.claimed());
    let (mut report, mut absent) = (PoisonReport::default(), filter.ids.clone());
    for (settings, queue) in queues(api, queue)? {
        let ended = match change {
            MessageAction::Requeue => queue.requeue(filter).await,
            MessageAction::Discard => queue.discard(filter).await,
        };
        let HandledMessages {
            done,
            failed,
            cut_short: stopped_by,
            hidden,
            since,
        } = handled(ended, &report)?;
        absent.retain(|id| {
            !done
                .iter()
                .chain(failed.iter().map(|(entry, _)| entry))
                .any(|entry| entry.has(id))
        });
        for PoisonEntry { message, .. } in done {
            let PoisonMessage {
                queue,
                message_id,
                reason,
                ..
            } = message;
            match change {
                MessageAction::Requeue => {
                    tracing::info!(target: AUDIT, %queue, message_id, %reason, by, %peer, claimed, "audit: poisoned message requeued");
                }
                MessageAction::Discard => {
                    tracing::info!(target: AUDIT, %queue, message_id, %reason, by, %peer, claimed, "audit: poisoned message discarded");
                }
            }
            report.done.push(message_id);
        }
        for (PoisonEntry { message, .. }, error) in failed {
            tracing::warn!(
                target: AUDIT, queue = %message.queue, message_id = message.message_id, error, by, %peer, claimed,
                "audit: could not {} poisoned message {}: {error}", change.verb(), message.message_id
            );
            report.failed.push(FailedMessage {
                message_id: message.message_id,
                error,
            });
        }
        if hidden > 0 {
            tracing::warn!(
                target: AUDIT, queue = %settings.name, hidden, by, %peer, claimed,
                "audit: {hidden} poisoned messages skipped: another command or operator holds them"
            );
        }
        report.hidden += hidden;
        report.newer += since;
        if let Some(error) = stopped_by {
            tracing::warn!(target: AUDIT, queue = %settings.name, error, by, %peer, claimed, "audit: the rest of the poison queue of {} was not read: {error}", settings.name);
            let before = report
                .stopped_by
                .take()
                .map(|before| format!("{before}; "))
                .unwrap_or_default();
            report.stopped_by = Some(format!("{before}{}: {error}", settings.name));
        }
        measuring::count(&api.ops_state, &api.stores, settings).await;
    }
    report.not_found = absent.into_iter().collect();
    Ok(report)
}

/// Converts the result of one queue. An error is returned only if nothing has been changed yet. Otherwise the error
/// becomes part of the result, because changes in earlier queues cannot be undone.
fn handled(
    ended: Result<HandledMessages, StoreError>,
    report: &PoisonReport,
) -> Result<HandledMessages, Problem> {
    let is_begun = !(report.done.is_empty() && report.failed.is_empty());
    match ended {
        Err(error) if is_begun => Ok(HandledMessages {
            cut_short: Some(cause::chain(&error)),
            ..HandledMessages::default()
        }),
        ended => ended.map_err(|error| Problem::store("could not change a poison queue", &error)),
    }
}

/// Returns the present time by the clock of the queue service. If there are several services, returns the earliest of
/// their times. The time of an embedded store is that of the program's own clock.
pub(crate) fn as_of(api: &Api, named: Option<&str>) -> Timestamp {
    let now = api.ops_state.now();
    let clock =
        |queue: &QueueSettings| api.stores.account(&queue.account).ok()?.clocks.queues_now();
    selected_queues(api, named)
        .into_iter()
        .map(|queue| clock(queue).unwrap_or(now))
        .min()
        .unwrap_or(now)
}

fn selected_queues<'a>(api: &'a Api, named: Option<&str>) -> Vec<&'a QueueSettings> {
    let named = named.filter(|named| !named.is_empty());
    api.ops_state
        .job_queues()
        .iter()
        .filter(|queue| named.is_none_or(|named| queue.name.as_str() == named))
        .collect()
}

fn queues<'a>(
    api: &'a Api,
    named: Option<&str>,
) -> Result<Vec<(&'a QueueSettings, PoisonQueue)>, Problem> {
    let selected = selected_queues(api, named);
    if let (Some(named), true) = (named.filter(|named| !named.is_empty()), selected.is_empty()) {
        let known: Vec<&str> = api
            .ops_state
            .job_queues()
            .iter()
            .map(|queue| queue.name.as_str())
            .collect();
        return Err(Problem::unknown(format!(
            "queue {named:?} is not declared; declared are {}",
            known.join(", ")
        )));
    }
    let open = |settings: &'a QueueSettings| {
        let account = api
            .stores
            .account(&settings.account)
            .map_err(|error| Problem::unknown(error.to_string()))?;
        let queue = PoisonQueue::new(account, settings)
            .map_err(|error| Problem::unusable(error.to_string()))?;
        Ok((settings, queue))
    };
    selected.into_iter().map(open).collect()
}

fn filter(api: &Api, criteria: &PoisonCriteria) -> Result<PoisonFilter, Problem> {
    criteria
        .filter(api.ops_state.now())
        .map_err(|error| Problem::unusable(error.to_string()))
}

fn poisoned(entry: PoisonEntry, configured_queue: &QueueName, contents: bool) -> PoisonedMessage {
    let (copies, PoisonEntry { message, ids, .. }) = (entry.ids.len(), entry);
    let shown = message
        .body
        .as_deref()
        .filter(|_| contents)
        .map(|kept| BodyPreview::of(kept, PREVIEW_BYTES));
    let body_cut = shown.as_ref().is_some_and(|shown| shown.cut);
    let text = |text: String| cause::shortened(&text, SHOWN_TEXT_BYTES);
    let cause = cause_id(&message);
    PoisonedMessage {
        queue: message.queue.to_string(),
        configured_queue: configured_queue.to_string(),
        message_id: message.message_id,
        poison_id: ids.into_iter().next().unwrap_or_default(),
        id: message.id.map(text),
        reason: message.reason.name(),
        cause,
        error: if contents {
            cause::shortened(&message.error, SHOWN_ERROR_BYTES)
        } else {
            cause::in_short(&message.step, message.reason.name())
        },
        step: if contents {
            text(message.step)
        } else {
            text(cause::step(&message.step).to_owned())
        },
        op: message.op.map(text),
        in_step: None,
        dequeue_count: message.dequeue_count,
        first_enqueued: message.first_enqueued.to_string(),
        at: message.poisoned.to_string(),
        worker: text(message.worker),
        copies,
        body_bytes: shown.as_ref().map_or(0, |shown| shown.text.len()),
        body: shown.map_or(Value::Null, BodyPreview::into_value),
        body_cut,
        body_withheld: !contents,
        body_blob: message
            .body_blob
            .map(|blob| format!("{}/{}", blob.container, blob.name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::body;
    use evenkeel_model::stored::FormatVersion;
    use evenkeel_worker::poison::{PoisonMessage, Reason};

    fn entry(body: &str) -> PoisonEntry {
        let message = PoisonMessage {
            v: FormatVersion,
            reason: Reason::Permanent,
            error: "reading the primary: no such table".to_owned(),
            step: "reading the primary".to_owned(),
            op: Some("sync".to_owned()),
            dequeue_count: 1,
            first_enqueued: "2026-11-20T15:00:00Z".parse().unwrap(),
            poisoned: "2026-11-20T15:00:01Z".parse().unwrap(),
            worker: "w1".to_owned(),
            queue: configured_queue(),
            message_id: "m1".to_owned(),
            id: None,
            body: Some(body.to_owned()),
            body_blob: None,
        };
        PoisonEntry {
            inserted: message.poisoned,
            message,
            ids: vec!["p1".to_owned()],
        }
    }

    fn configured_queue() -> QueueName {
        QueueName::new("evenkeel-jobs").unwrap()
    }

    #[test]
    fn a_decompression_bomb_is_shown_as_a_few_kilobytes() {
        let json = format!(
            "{{\"op\":\"nope\",\"a\":[{}]}}",
            vec!["0"; 500_000].join(",")
        );
        let bomb = body::pack(&json).unwrap();
        let message = poisoned(entry(&bomb), &configured_queue(), true);
        assert!(
            message.body_cut
                && message
                    .body
                    .as_str()
                    .is_some_and(|text| text.len() == PREVIEW_BYTES),
            "{:?}",
            message.body
        );
    }

    #[test]
    fn an_error_is_the_step_and_the_reason_for_who_may_not_see_contents() {
        let mut kept = entry("{}");
        kept.message.step = "writing ByEmail(\"Sales\", \"kim@contoso.com\")".to_owned();
        kept.message.error = "it is taken by kim@contoso.com".to_owned();
        let message = poisoned(kept.clone(), &configured_queue(), false);
        assert_eq!(
            (message.error.as_str(), message.step.as_str()),
            ("writing ByEmail: permanent", "writing ByEmail")
        );
        assert!(
            poisoned(kept, &configured_queue(), true)
                .error
                .contains("kim@")
        );
    }

    #[test]
    fn an_answer_has_room_for_so_many_and_bodies_are_left_out_first() {
        let body = format!("{{\"note\":\"{}\"}}", "x".repeat(8_000));
        let (messages, left) = fitting(
            (0..1_000).map(|_| entry(&body)).collect(),
            &configured_queue(),
            true,
            ANSWER_BYTES,
        );
        assert!(messages.iter().any(|message| message.body_cut) && !messages[0].body_cut);
        assert!(messages.len() < 1_000 && left < ANSWER_BYTES);
        assert!(serde_json::to_string(&messages).unwrap().len() <= ANSWER_BYTES);
    }

    #[test]
    fn a_failing_queue_does_not_hide_changes_in_earlier_queues() {
        use evenkeel_model::AccountName;
        use evenkeel_storage::{ErrorClass, Resource, Service, Subject};
        let refused = || {
            let subject = Subject {
                account: AccountName::main(),
                resource: Resource::Service(Service::Queue),
            };
            Err(StoreError::new(
                ErrorClass::Refused,
                "Get Messages",
                subject,
                "no connection",
            ))
        };
        let mut report = PoisonReport::default();
        assert!(handled(refused(), &report).is_err());
        report.done.push("m1".to_owned());
        let later = handled(refused(), &report).unwrap();
        assert!(
            later.done.is_empty()
                && later
                    .cut_short
                    .is_some_and(|reason| reason.contains("no connection"))
        );
    }

    #[test]
    fn forged_texts_are_shortened_to_a_workers_limits() {
        let mut forged = entry("{}");
        forged.message.error = "e".repeat(60_000);
        forged.message.worker = "w".repeat(60_000);
        let message = poisoned(forged, &configured_queue(), true);
        assert!(
            message.error.len() <= SHOWN_ERROR_BYTES + 8
                && message.worker.len() <= SHOWN_TEXT_BYTES + 8
        );
    }
}
