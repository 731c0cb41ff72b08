//! Examination of a message: the work that it asks for, or the reason not to run it. Pure.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::attempts::Deliveries;
use super::decide::Rejection;
use super::poison::Reason;
use super::source::Carries;
use evenkeel_engine::{Recheck, Work};
use evenkeel_model::allowed::JobAllowance;
use evenkeel_model::body::RawBody;
use evenkeel_model::cause;
use evenkeel_model::event::{EventMappings, ForeignEvent};
use evenkeel_model::job::{
    self, Batch, JobDigest, JobEnvelope, JobError, JobRequest, OPS, RECHECK,
};
use evenkeel_storage::{Message, MessageText};

/// A message that was looked at.
#[derive(Debug, Clone)]
pub(crate) struct Examined {
    /// The operation in metrics and logs: one of a closed set.
    pub(crate) op: &'static str,
    /// The operation as the message spells it, for its poison message.
    pub(crate) spelled: Option<String>,
    /// The client's own name for the job.
    pub(crate) id: Option<String>,
    /// W3C trace context.
    pub(crate) traceparent: Option<String>,
    /// Its deliveries, this one included.
    pub(crate) deliveries: Deliveries,
    /// Fields that no job has.
    pub(crate) unknown_fields: usize,
    /// The work, or why there is none.
    pub(crate) work: Result<Payload, Rejection>,
}

/// The jobs of a message.
#[derive(Debug, Clone)]
pub(crate) enum Payload {
    Single(Assignment<'static>),
    /// A job for each of many primaries.
    Batch(Batch),
}

/// The work that one job of a message asks for.
#[derive(Debug, Clone)]
pub(crate) struct Assignment<'a> {
    pub(crate) work: Cow<'a, Work>,
    /// Digest common to all messages of the job, if it has an `id`.
    pub(crate) digest: Option<JobDigest>,
}

impl Payload {
    /// How many jobs there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Single(_) => 1,
            Self::Batch(batch) => batch.len(),
        }
    }

    /// One of its jobs.
    pub(crate) fn job(&self, at: usize, carries: Carries) -> Result<Assignment<'_>, String> {
        match self {
            Self::Single(Assignment { work, digest }) => Ok(Assignment {
                work: Cow::Borrowed(work),
                digest: digest.clone(),
            }),
            Self::Batch(batch) => piece(batch, at, carries),
        }
    }

    /// The work, unless there is one for each of many primaries.
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

/// The operation where none could be read.
pub(crate) const UNKNOWN: &str = "unknown";
/// Longest text from outside in a log line, in bytes.
const TEXT_BYTES: usize = 256;
pub(crate) const STEP: &str = "decoding the message";
/// The operation that jobs of every other one may ask for.
pub(crate) const SYNC: &str = "sync";
/// The operation that jobs ask for which write what an entity says to a range.
pub(crate) const CARRY: &str = "carry";
/// The operations of the jobs that recheck queues carry.
const FURTHER: [&str; 2] = [SYNC, CARRY];

impl Examined {
    /// A message that is not run.
    pub(crate) fn rejected(message: &Message, reason: Reason, error: String) -> Self {
        let work = Err(Rejection {
            reason,
            step: STEP,
            error,
        });
        let deliveries = Deliveries::new(&message.id, message.dequeue_count, None);
        Self {
            op: UNKNOWN,
            spelled: None,
            id: None,
            traceparent: None,
            deliveries,
            unknown_fields: 0,
            work,
        }
    }
}

/// The body of a message, or why it has none. Nothing compressed is expanded.
pub(crate) fn open(message: &Message) -> Result<RawBody<'_>, String> {
    match &message.text {
        MessageText::Readable(text) => {
            RawBody::of(text).map_err(|error| cause::chain(&JobError::Body(error)))
        }
        MessageText::Unreadable { reason, .. } => {
            Err(format!("the queue's text cannot be read: {reason}"))
        }
    }
}

/// Examines a message with its body already opened.
pub(crate) fn examine(
    message: &Message,
    raw: Result<RawBody<'_>, String>,
    carries: Carries,
    allowed: &JobAllowance,
    events: &EventMappings,
) -> Examined {
    let raw = match raw {
        Ok(raw) => raw,
        Err(error) => return Examined::rejected(message, Reason::Undecodable, error),
    };
    let object = match job::object_in(raw) {
        Ok(object) => object,
        Err(error) => {
            let reason = if error.is_undecodable() {
                Reason::Undecodable
            } else {
                Reason::Permanent
            };
            return Examined::rejected(message, reason, cause::chain(&error));
        }
    };
    let field = |name: &str| {
        object
            .get(name)
            .and_then(Value::as_str)
            .map(|text| cause::shortened(text, TEXT_BYTES))
    };
    let note = job::note(&object, &message.id);
    let event = if carries == Carries::Jobs {
        ForeignEvent::of(&object)
    } else {
        None
    };
    let mapped = event.map(|event| {
        event
            .and_then(|event| events.map(&event))
            .map(|taken| taken.job)
    });
    let mut examined = Examined {
        spelled: field("op"),
        id: field("id"),
        traceparent: field("traceparent"),
        deliveries: Deliveries::new(&message.id, message.dequeue_count, note),
        ..Examined::rejected(message, Reason::Permanent, String::new())
    };
    let permanent = |error| {
        Err(Rejection {
            reason: Reason::Permanent,
            step: STEP,
            error,
        })
    };
    match carries {
        Carries::Rechecks => {
            examined.op = FURTHER
                .into_iter()
                .find(|op| examined.spelled.as_deref() == Some(op))
                .unwrap_or(RECHECK);
            examined.work = follow_ups(object).or_else(permanent);
        }
        Carries::Jobs => {
            let request = match mapped {
                Some(mapped) => mapped
                    .map_err(|error| cause::chain(&error))
                    .and_then(|job| {
                        examined.spelled = job.get("op").and_then(Value::as_str).map(str::to_owned);
                        job::decode_job(job)
                            .map(JobRequest::Job)
                            .map_err(|error| cause::chain(&error))
                    }),
                None => job::decode_request(object).map_err(|error| cause::chain(&error)),
            };
            examined.op = examined
                .spelled
                .as_ref()
                .and_then(|op| OPS.iter().copied().find(|known| known == op))
                .unwrap_or(UNKNOWN);
            examined.work = match request {
                Err(error) => permanent(error),
                Ok(request) if let Some(refused) = refuses(allowed, &request) => permanent(refused),
                Ok(JobRequest::Job(JobEnvelope {
                    job,
                    digest,
                    unknown_fields,
                    ..
                })) => {
                    examined.unknown_fields = unknown_fields.len();
                    Ok(Payload::Single(Assignment {
                        work: Cow::Owned(Work::Job(job)),
                        digest,
                    }))
                }
                Ok(JobRequest::Batch(batch)) => {
                    examined.unknown_fields = batch.unknown_fields();
                    Ok(Payload::Batch(batch))
                }
            };
        }
    }
    examined
}

/// Why a queue does not carry a request. All jobs of a batch are of one operation and about one table, which any of them tells.
fn refuses(allowed: &JobAllowance, request: &JobRequest) -> Option<String> {
    let (op, job) = match request {
        JobRequest::Job(envelope) => return allowed.refuses(&envelope.job),
        JobRequest::Batch(batch) => (batch.op(), batch.sample().ok()),
    };
    allowed
        .refuses_op(op)
        .or_else(|| allowed.refuses(&job?.job))
}

/// A piece as those of a batch's work, about a primary of no meaning.
pub(crate) fn sample(batch: &Batch, carries: Carries) -> Result<Work, String> {
    match carries {
        Carries::Jobs => batch
            .sample()
            .map(|one| Work::Job(one.job))
            .map_err(|error| cause::chain(&error)),
        Carries::Rechecks => follow_up(batch.sample_message()),
    }
}

/// One piece of a batch's work.
pub(crate) fn piece(
    batch: &Batch,
    at: usize,
    carries: Carries,
) -> Result<Assignment<'static>, String> {
    match carries {
        Carries::Jobs => batch
            .job(at)
            .map(|one| Assignment {
                work: Cow::Owned(Work::Job(one.job)),
                digest: one.digest,
            })
            .map_err(|error| cause::chain(&error)),
        Carries::Rechecks => follow_up(batch.single(at)).map(Assignment::from),
    }
}

/// The work of a message on a recheck queue: a list of rechecks, or one piece of work.
pub(crate) fn follow_ups(mut object: Map<String, Value>) -> Result<Payload, String> {
    match Batch::of_rechecks(&mut object).map_err(|error| cause::chain(&error))? {
        Some(batch) => sample(&batch, Carries::Rechecks).map(|_| Payload::Batch(batch)),
        None => follow_up(object).map(|work| Payload::Single(work.into())),
    }
}

/// A recheck, or a job that the queue of the one that asked for it does not carry.
fn follow_up(object: Map<String, Value>) -> Result<Work, String> {
    if object
        .get("op")
        .and_then(Value::as_str)
        .is_some_and(|op| FURTHER.contains(&op))
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

    fn examined(text: &str, carries: Carries, allow: Option<&[&str]>) -> Examined {
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
        examine(
            &message,
            open(&message),
            carries,
            &JobAllowance {
                ops,
                tables: Some(tables),
            },
            &EventMappings::default(),
        )
    }

    fn single(examined: &Examined) -> Option<&Work> {
        examined.work.as_ref().ok()?.single()
    }

    const JOB: &str = r#"{"op":"sync","table":"Employees","pk":"p","rk":"r","id":"mine","ek":{"id":"m1","free":3}}"#;

    #[test]
    fn a_job_comes_with_its_op_id_and_written_off_deliveries() {
        let examined = examined(JOB, Carries::Jobs, Some(&["sync"]));
        assert!(matches!(single(&examined), Some(Work::Job(_))));
        let note = Note {
            id: "m1".to_owned(),
            free: 3,
            ..Note::default()
        };
        assert_eq!(
            (examined.op, examined.id.as_deref()),
            ("sync", Some("mine"))
        );
        assert_eq!(examined.deliveries, Deliveries::new("m1", 1, Some(note)));
    }

    #[test]
    fn what_is_no_job_says_which_kind_of_mistake_it_is() {
        for (text, carries, allow, reason, word) in [
            ("hello", Carries::Jobs, None, Reason::Undecodable, "Base64"),
            ("{", Carries::Jobs, None, Reason::Undecodable, "JSON"),
            (
                r#"{"op":"explode"}"#,
                Carries::Jobs,
                None,
                Reason::Permanent,
                "explode",
            ),
            (
                r#"{"op":"sync"}"#,
                Carries::Jobs,
                None,
                Reason::Permanent,
                "table",
            ),
            (
                JOB,
                Carries::Jobs,
                Some(&["archive", "put"][..]),
                Reason::Permanent,
                "archive, put",
            ),
            (
                r#"{"op":"delete","table":"Salaries","pk":"p","rk":"r"}"#,
                Carries::Jobs,
                None,
                Reason::Permanent,
                "Salaries is not allowed",
            ),
            (
                r#"{"op":"delete","table":"Salaries","keys":[["p","r"]]}"#,
                Carries::Jobs,
                None,
                Reason::Permanent,
                "Salaries is not allowed",
            ),
            (
                r#"{"op":"put","table":"Salaries","entities":[{},{"PartitionKey":"p","RowKey":"r"}]}"#,
                Carries::Jobs,
                None,
                Reason::Permanent,
                "Salaries is not",
            ),
            (
                r#"{"op":"sync","table":"Employees","keys_ref":{}}"#,
                Carries::Jobs,
                None,
                Reason::Permanent,
                "submit --pack",
            ),
            (
                r#"{"op":"delete","table":"T","pk":"p","rk":"r"}"#,
                Carries::Rechecks,
                None,
                Reason::Permanent,
                "recheck",
            ),
            (
                r#"{"op":"sync","table":"T"}"#,
                Carries::Rechecks,
                None,
                Reason::Permanent,
                "pk",
            ),
            (
                "hello",
                Carries::Rechecks,
                None,
                Reason::Undecodable,
                "Base64",
            ),
        ] {
            let rejection = examined(text, carries, allow).work.unwrap_err();
            assert_eq!(rejection.reason, reason, "{text}");
            assert!(
                rejection.error.contains(word),
                "{} does not name {word}",
                rejection.error
            );
        }
    }

    #[test]
    fn a_carry_is_bound_by_its_queue_and_a_recheck_queue_takes_it() {
        let carry = |fields: &str| {
            format!(
                r#"{{"op":"carry","view":"department_name","one":{{"pk":"Sales","rk":"department"}},"pk":"Sales",{fields}}}"#
            )
        };
        let (own, another) = (
            carry(r#""table":"Employees""#),
            carry(r#""table":"Salaries""#),
        );
        let marked = carry(r#""table":"Employees","mark":{"table":"Salaries","mark":"5a"}"#);
        for (text, allow) in [
            (&own, &["sync", "put"][..]),
            (&another, &["carry"][..]),
            (&marked, &["carry"][..]),
        ] {
            let refused = examined(text, Carries::Jobs, Some(allow)).work.unwrap_err();
            assert!(
                refused.reason == Reason::Permanent
                    && refused.error.contains("not allowed on this queue"),
                "{text}: {}",
                refused.error
            );
        }
        let is_carry = |examined: &Examined| {
            matches!(single(examined), Some(Work::Job(Job::Carry(_)))) && examined.op == CARRY
        };
        assert!(is_carry(&examined(&own, Carries::Jobs, Some(&["carry"]))));
        assert!(
            is_carry(&examined(&another, Carries::Rechecks, None)),
            "workers alone write there"
        );
    }

    #[test]
    fn a_recheck_queue_carries_the_syncs_that_its_queue_does_not() {
        let examined = examined(JOB, Carries::Rechecks, Some(&["put"]));
        assert!(matches!(single(&examined), Some(Work::Job(Job::Sync(_)))));
        assert_eq!(examined.op, "sync");
    }

    #[test]
    fn a_rejected_job_keeps_its_id_and_op() {
        let examined = examined(r#"{"op":"explode","id":"mine"}"#, Carries::Jobs, None);
        assert_eq!(
            (
                examined.op,
                examined.spelled.as_deref(),
                examined.id.as_deref()
            ),
            (UNKNOWN, Some("explode"), Some("mine"))
        );
    }
}
