//! Decodes a message into its work, or into the reason for rejecting it. Pure.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::attempts::Deliveries;
use super::consumer::QueueKind;
use super::decide::Rejection;
use super::poison::Reason;
use evenkeel_engine::{Recheck, Work};
use evenkeel_model::allowed::JobAllowance;
use evenkeel_model::body::RawBody;
use evenkeel_model::cause;
use evenkeel_model::event::{EventMappings, ForeignEvent};
use evenkeel_model::job::{
    self, Batch, JobDigest, JobEnvelope, JobError, JobRequest, OPS, RECHECK,
};
use evenkeel_storage::{Message, MessageText};

#[derive(Debug, Clone)]
pub(crate) struct DecodedMessage {
    pub(crate) op: &'static str,
    /// The operation as written in the message, for its poison message.
    pub(crate) op_text: Option<String>,
    /// The id that the client gave to the job.
    pub(crate) id: Option<String>,
    pub(crate) traceparent: Option<String>,
    pub(crate) deliveries: Deliveries,
    /// Number of fields that are not fields of any job.
    pub(crate) unknown_fields: usize,
    pub(crate) work: Result<Payload, Rejection>,
}

#[derive(Debug, Clone)]
pub(crate) enum Payload {
    Single(Assignment<'static>),
    Batch(Batch),
}

#[derive(Debug, Clone)]
pub(crate) struct Assignment<'a> {
    pub(crate) work: Cow<'a, Work>,
    /// Digest of the job, equal for all messages with the same job and client id; `None` if the job
    /// has no `id`.
    pub(crate) digest: Option<JobDigest>,
}

impl Payload {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Single(_) => 1,
            Self::Batch(batch) => batch.len(),
        }
    }

    pub(crate) fn job(&self, at: usize, kind: QueueKind) -> Result<Assignment<'_>, String> {
        match self {
            Self::Single(Assignment { work, digest }) => Ok(Assignment {
                work: Cow::Borrowed(work),
                digest: digest.clone(),
            }),
            Self::Batch(batch) => batch_work(batch, at, kind),
        }
    }

    /// The work of a message that is not a batch.
    pub(crate) fn single(&self) -> Option<&Work> {
        match self {
            Self::Single(assignment) => Some(&assignment.work),
            Self::Batch(_) => None,
        }
    }
}

impl From<Work> for Assignment<'_> {
    fn from(work: Work) -> Self {
        Self {
            work: Cow::Owned(work),
            digest: None,
        }
    }
}

pub(crate) const UNKNOWN_OP: &str = "unknown";
/// Maximum number of bytes of a message's text in a log line.
const TEXT_BYTES: usize = 256;
pub(crate) const STEP: &str = "decoding the message";
/// Operation of a job that brings one primary's derived data in step. Any job may queue a sync job
/// for another primary.
pub(crate) const SYNC: &str = "sync";
/// Operation of a job that writes the values of a range overlay to the entities of the range. A job
/// that changes the overlay queues such a job.
pub(crate) const PROPAGATE: &str = "propagate";
const RECHECK_QUEUE_OPS: [&str; 2] = [SYNC, PROPAGATE];

impl DecodedMessage {
    pub(crate) fn rejected(message: &Message, reason: Reason, error: String) -> Self {
        let work = Err(Rejection {
            reason,
            step: STEP,
            error,
        });
        let deliveries = Deliveries::new(&message.id, message.dequeue_count, None);
        Self {
            op: UNKNOWN_OP,
            op_text: None,
            id: None,
            traceparent: None,
            deliveries,
            unknown_fields: 0,
            work,
        }
    }
}

/// Returns the body of a message. Compressed content is not expanded yet.
pub(crate) fn open_body(message: &Message) -> Result<RawBody<'_>, String> {
    match &message.text {
        MessageText::Readable(text) => {
            RawBody::of(text).map_err(|error| cause::chain(&JobError::Body(error)))
        }
        MessageText::Unreadable { reason, .. } => {
            Err(format!("the text of the message is unreadable: {reason}"))
        }
    }
}

pub(crate) fn decode(
    message: &Message,
    raw: Result<RawBody<'_>, String>,
    kind: QueueKind,
    allowed: &JobAllowance,
    events: &EventMappings,
) -> DecodedMessage {
    let raw = match raw {
        Ok(raw) => raw,
        Err(error) => return DecodedMessage::rejected(message, Reason::Undecodable, error),
    };
    let object = match job::object_in(raw) {
        Ok(object) => object,
        Err(error) => {
            let reason = if error.is_undecodable() {
                Reason::Undecodable
            } else {
                Reason::Permanent
            };
            return DecodedMessage::rejected(message, reason, cause::chain(&error));
        }
    };
    let field = |name: &str| {
        object
            .get(name)
            .and_then(Value::as_str)
            .map(|text| cause::shortened(text, TEXT_BYTES))
    };
    let note = job::note(&object, &message.id);
    let event = if kind == QueueKind::Jobs {
        ForeignEvent::of(&object)
    } else {
        None
    };
    let mapped = event.map(|event| {
        event
            .and_then(|event| events.map(&event))
            .map(|taken| taken.job)
    });
    let mut decoded = DecodedMessage {
        op_text: field("op"),
        id: field("id"),
        traceparent: field("traceparent"),
        deliveries: Deliveries::new(&message.id, message.dequeue_count, note),
        ..DecodedMessage::rejected(message, Reason::Permanent, String::new())
    };
    let permanent = |error| {
        Err(Rejection {
            reason: Reason::Permanent,
            step: STEP,
            error,
        })
    };
    match kind {
        QueueKind::Rechecks => {
            decoded.op = RECHECK_QUEUE_OPS
                .into_iter()
                .find(|op| decoded.op_text.as_deref() == Some(op))
                .unwrap_or(RECHECK);
            decoded.work = recheck_payload(object).or_else(permanent);
        }
        QueueKind::Jobs => {
            let request = match mapped {
                Some(mapped) => mapped
                    .map_err(|error| cause::chain(&error))
                    .and_then(|job| {
                        decoded.op_text = job.get("op").and_then(Value::as_str).map(str::to_owned);
                        job::decode_job(job)
                            .map(JobRequest::Job)
                            .map_err(|error| cause::chain(&error))
                    }),
                None => job::decode_request(object).map_err(|error| cause::chain(&error)),
            };
            decoded.op = decoded
                .op_text
                .as_ref()
                .and_then(|op| OPS.iter().copied().find(|known| known == op))
                .unwrap_or(UNKNOWN_OP);
            decoded.work = match request {
                Err(error) => permanent(error),
                Ok(request) if let Some(refused) = refusal(allowed, &request) => permanent(refused),
                Ok(JobRequest::Job(JobEnvelope {
                    job,
                    digest,
                    unknown_fields,
                    ..
                })) => {
                    decoded.unknown_fields = unknown_fields.len();
                    Ok(Payload::Single(Assignment {
                        work: Cow::Owned(Work::Job(job)),
                        digest,
                    }))
                }
                Ok(JobRequest::Batch(batch)) => {
                    decoded.unknown_fields = batch.unknown_fields();
                    Ok(Payload::Batch(batch))
                }
            };
        }
    }
    decoded
}

/// Why a queue does not accept a request; `None` if the queue accepts it. All jobs of a batch have
/// the same operation and table, so it is enough to check one job.
fn refusal(allowed: &JobAllowance, request: &JobRequest) -> Option<String> {
    let (op, job) = match request {
        JobRequest::Job(envelope) => return allowed.refuses(&envelope.job),
        JobRequest::Batch(batch) => (batch.op(), batch.sample().ok()),
    };
    allowed
        .refuses_op(op)
        .or_else(|| allowed.refuses(&job?.job))
}

/// The work of one job of a batch. The caller uses only what all jobs of the batch have in common.
pub(crate) fn sample_work(batch: &Batch, kind: QueueKind) -> Result<Work, String> {
    match kind {
        QueueKind::Jobs => batch
            .sample()
            .map(|one| Work::Job(one.job))
            .map_err(|error| cause::chain(&error)),
        QueueKind::Rechecks => recheck_work(batch.sample_message()),
    }
}

pub(crate) fn batch_work(
    batch: &Batch,
    at: usize,
    kind: QueueKind,
) -> Result<Assignment<'static>, String> {
    match kind {
        QueueKind::Jobs => batch
            .job(at)
            .map(|one| Assignment {
                work: Cow::Owned(Work::Job(one.job)),
                digest: one.digest,
            })
            .map_err(|error| cause::chain(&error)),
        QueueKind::Rechecks => recheck_work(batch.single(at)).map(Assignment::from),
    }
}

/// The work of a message on a recheck queue: a batch of rechecks, or a single recheck or job.
pub(crate) fn recheck_payload(mut object: Map<String, Value>) -> Result<Payload, String> {
    match Batch::of_rechecks(&mut object).map_err(|error| cause::chain(&error))? {
        Some(batch) => sample_work(&batch, QueueKind::Rechecks).map(|_| Payload::Batch(batch)),
        None => recheck_work(object).map(|work| Payload::Single(work.into())),
    }
}

/// Decodes a recheck, or a job that was put on the recheck queue because the job queue does not
/// accept it.
fn recheck_work(object: Map<String, Value>) -> Result<Work, String> {
    if object
        .get("op")
        .and_then(Value::as_str)
        .is_some_and(|op| RECHECK_QUEUE_OPS.contains(&op))
    {
        return job::decode_job(object)
            .map(|envelope| Work::Job(envelope.job))
            .map_err(|error| cause::chain(&error));
    }
    Recheck::of_object(object)
        .map(Work::Recheck)
        .map_err(|error| cause::chain(&error))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use evenkeel_model::Job;
    use evenkeel_model::allowed::{AllowedTable, AllowedTables};
    use evenkeel_model::job::Note;

    fn decoded(text: &str, kind: QueueKind, allow: Option<&[&str]>) -> DecodedMessage {
        let message = Message {
            id: "m1".to_owned(),
            pop_receipt: "r".to_owned(),
            text: MessageText::Readable(text.to_owned()),
            dequeue_count: 1,
            inserted: Timestamp::UNIX_EPOCH,
            expires: None,
            next_visible: Timestamp::UNIX_EPOCH,
        };
        let ops = allow.map(|ops| ops.iter().map(|op| (*op).to_owned()).collect());
        let tables = AllowedTables::new(vec![AllowedTable::parse("Employees").unwrap()]);
        decode(
            &message,
            open_body(&message),
            kind,
            &JobAllowance {
                ops,
                tables: Some(tables),
            },
            &EventMappings::default(),
        )
    }

    fn single(decoded: &DecodedMessage) -> Option<&Work> {
        decoded.work.as_ref().ok()?.single()
    }

    const JOB: &str = r#"{"op":"sync","table":"Employees","pk":"p","rk":"r","id":"mine","ek":{"id":"m1","free":3}}"#;

    #[test]
    fn a_job_comes_with_its_op_id_and_written_off_deliveries() {
        let decoded = decoded(JOB, QueueKind::Jobs, Some(&["sync"]));
        assert!(matches!(single(&decoded), Some(Work::Job(_))));
        let note = Note {
            id: "m1".to_owned(),
            free: 3,
            ..Note::default()
        };
        assert_eq!((decoded.op, decoded.id.as_deref()), ("sync", Some("mine")));
        assert_eq!(decoded.deliveries, Deliveries::new("m1", 1, Some(note)));
    }

    #[test]
    fn an_invalid_job_is_rejected_with_its_kind_of_error() {
        for (text, kind, allow, reason, word) in [
            (
                "hello",
                QueueKind::Jobs,
                None,
                Reason::Undecodable,
                "Base64",
            ),
            ("{", QueueKind::Jobs, None, Reason::Undecodable, "JSON"),
            (
                r#"{"op":"explode"}"#,
                QueueKind::Jobs,
                None,
                Reason::Permanent,
                "explode",
            ),
            (
                r#"{"op":"sync"}"#,
                QueueKind::Jobs,
                None,
                Reason::Permanent,
                "table",
            ),
            (
                JOB,
                QueueKind::Jobs,
                Some(&["archive", "put"][..]),
                Reason::Permanent,
                "archive, put",
            ),
            (
                r#"{"op":"delete","table":"Salaries","pk":"p","rk":"r"}"#,
                QueueKind::Jobs,
                None,
                Reason::Permanent,
                "Salaries is not allowed",
            ),
            (
                r#"{"op":"delete","table":"Salaries","keys":[["p","r"]]}"#,
                QueueKind::Jobs,
                None,
                Reason::Permanent,
                "Salaries is not allowed",
            ),
            (
                r#"{"op":"put","table":"Salaries","entities":[{},{"PartitionKey":"p","RowKey":"r"}]}"#,
                QueueKind::Jobs,
                None,
                Reason::Permanent,
                "Salaries is not",
            ),
            (
                r#"{"op":"sync","table":"Employees","keys_ref":{}}"#,
                QueueKind::Jobs,
                None,
                Reason::Permanent,
                "submit --pack",
            ),
            (
                r#"{"op":"delete","table":"T","pk":"p","rk":"r"}"#,
                QueueKind::Rechecks,
                None,
                Reason::Permanent,
                "recheck",
            ),
            (
                r#"{"op":"sync","table":"T"}"#,
                QueueKind::Rechecks,
                None,
                Reason::Permanent,
                "pk",
            ),
            (
                "hello",
                QueueKind::Rechecks,
                None,
                Reason::Undecodable,
                "Base64",
            ),
        ] {
            let rejection = decoded(text, kind, allow).work.unwrap_err();
            assert_eq!(rejection.reason, reason, "{text}");
            assert!(
                rejection.error.contains(word),
                "{} does not name {word}",
                rejection.error
            );
        }
    }

    #[test]
    fn a_propagation_is_limited_by_its_queue_and_a_recheck_queue_accepts_it() {
        let propagation = |fields: &str| {
            format!(
                r#"{{"op":"propagate","view":"department_name","owner":{{"pk":"Sales","rk":"department"}},"pk":"Sales",{fields}}}"#
            )
        };
        let (own, another) = (
            propagation(r#""table":"Employees""#),
            propagation(r#""table":"Salaries""#),
        );
        let marked = propagation(r#""table":"Employees","mark":{"table":"Salaries","mark":"5a"}"#);
        for (text, allow) in [
            (&own, &["sync", "put"][..]),
            (&another, &["propagate"][..]),
            (&marked, &["propagate"][..]),
        ] {
            let refused = decoded(text, QueueKind::Jobs, Some(allow))
                .work
                .unwrap_err();
            assert!(
                refused.reason == Reason::Permanent
                    && refused.error.contains("not allowed on this queue"),
                "{text}: {}",
                refused.error
            );
        }
        let is_propagation = |decoded: &DecodedMessage| {
            matches!(single(decoded), Some(Work::Job(Job::Propagate(_)))) && decoded.op == PROPAGATE
        };
        assert!(is_propagation(&decoded(
            &own,
            QueueKind::Jobs,
            Some(&["propagate"])
        )));
        assert!(
            is_propagation(&decoded(&another, QueueKind::Rechecks, None)),
            "workers alone write there"
        );
    }

    #[test]
    fn a_recheck_queue_accepts_the_syncs_that_its_job_queue_does_not() {
        let decoded = decoded(JOB, QueueKind::Rechecks, Some(&["put"]));
        assert!(matches!(single(&decoded), Some(Work::Job(Job::Sync(_)))));
        assert_eq!(decoded.op, "sync");
    }

    #[test]
    fn a_rejected_job_keeps_its_id_and_op() {
        let decoded = decoded(r#"{"op":"explode","id":"mine"}"#, QueueKind::Jobs, None);
        assert_eq!(
            (
                decoded.op,
                decoded.op_text.as_deref(),
                decoded.id.as_deref()
            ),
            (UNKNOWN_OP, Some("explode"), Some("mine"))
        );
    }
}
