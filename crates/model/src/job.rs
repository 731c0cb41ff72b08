//! Jobs: the work that a message requests.
//!
//! Decoding can fail in two ways that operators treat differently: a text that is not a JSON object is *undecodable*, and a JSON object
//! that is not a valid job is a *permanent* error.

mod batch;
mod gone;
mod known;
mod object;
mod operations;
mod schema;
mod shared;

pub use batch::{
    BATCH_KEYS, Batch, JobRequest, Listing, PackResult, Packer, RECHECK, RECHECKS, decode_request,
};
pub use operations::*;
pub use schema::schema;

use jiff::Timestamp;
use serde::de::DeserializeSeed as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::body::{self, BodyError, Extent, RawBody};
use super::nearest::nearest;
use super::odata::{self, ODataError};
use super::quoted::{self, Quoted};
pub use super::stamp::{JobDigest, Stamp};
use super::{EntityKey, Key, TableName, limits};
use object::{FlatReader, Unambiguous, unrounded};

/// The version of the message format that this program reads.
pub const VERSION: u64 = 1;

/// Maximum length in bytes of the problem text in an error. The text may quote a value of the message.
const PROBLEM_BYTES: usize = 800;
/// Maximum bytes of a quoted value.
const VALUE_BYTES: usize = 180;

/// The address of a primary, the entity that is the source of truth.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "WirePrimary", into = "WirePrimary")]
pub struct Primary {
    /// The table of the primary.
    pub table: TableName,
    /// The key of the primary.
    pub key: EntityKey,
}

/// The JSON of a primary in stored formats.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WirePrimary {
    table: TableName,
    pk: Key,
    rk: Key,
}

impl From<WirePrimary> for Primary {
    fn from(WirePrimary { table, pk, rk }: WirePrimary) -> Self {
        let key = EntityKey { pk, rk };
        Self { table, key }
    }
}

impl From<Primary> for WirePrimary {
    fn from(Primary { table, key }: Primary) -> Self {
        let EntityKey { pk, rk } = key;
        Self { table, pk, rk }
    }
}

impl Primary {
    /// Returns the table and the unshortened key as text. [`Display`](std::fmt::Display) shortens long keys.
    pub fn whole(&self) -> String {
        format!("{}{:?}", self.table, self.key)
    }
}

impl std::fmt::Display for Primary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.table, self.key)
    }
}

impl Job {
    /// Returns the key of the job's primary, or `None` if the job covers many primaries.
    pub fn key(&self) -> Option<&EntityKey> {
        self.operation().subject().key()
    }
}

/// Progress of a job over a whole table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkProgress {
    /// Scope of the walk, in words.
    pub of: String,
    /// Primaries synced or compared so far.
    pub primaries: u64,
    /// Primaries that could not be processed.
    pub failed: u64,
    /// Wrong items that were found and not repaired; `None` for a job that does not compare.
    pub wrong: Option<u64>,
}

/// A decoded message: the job and its envelope.
#[derive(Debug, Clone, PartialEq)]
pub struct JobEnvelope {
    /// The job.
    pub job: Job,
    /// The id that the client gave the job. Logs and poison messages contain this id.
    pub id: Option<String>,
    /// Digest of the job, which is the same in every message of the job; `None` if the job has no `id`.
    pub digest: Option<JobDigest>,
    /// W3C trace context, if the client sent one.
    pub traceparent: Option<String>,
    /// Names of fields that no job of message version 1 has. These fields are ignored and counted.
    pub unknown_fields: Vec<String>,
}

/// A note that a worker stores in a message about how its deliveries ended. The queue service itself only counts deliveries.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Note {
    /// The id of the message. A note with another id is ignored, for example the note in a requeued copy.
    pub id: String,
    /// Number of deliveries that ended in order and not through a fault of the job. These deliveries do not count as attempts.
    pub free: u32,
    /// Number of runs that were started in all other deliveries.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub begun: u32,
    /// Number of runs among `begun` that panicked or timed out. These runs did not end the process.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ended: u32,
    /// Maximum number of jobs of a batch that one delivery runs; absent for no limit. A worker sets this number after an earlier run of
    /// more jobs was cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_once: Option<u32>,
    /// Transient failures since the message was enqueued or since the job last saved progress; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<TransientFailures>,
}

/// Consecutive transient failures of one job, without progress in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransientFailures {
    /// End of the first failed run, by the queue's clock, in whole seconds.
    pub since: Timestamp,
    /// Number of failed runs.
    pub runs: u32,
}

/// Whether a number is 0. Messages leave out counts that are 0.
pub const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Reasons why a message is not a job.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum JobError {
    /// The body cannot be decoded.
    #[error("the message cannot be decoded")]
    Body(#[source] BodyError),
    /// The text is not JSON, or has a duplicate key.
    #[error("the message is not JSON: {0}")]
    Json(String),
    /// The JSON is not an object.
    #[error("the message is JSON, but not an object")]
    NotAnObject,
    /// The message is larger than 48 KiB.
    #[error(
        "the message has {0} bytes; at most 49,152 (48 KiB) are allowed. Stage large values in a blob, or compress the message (gzip, then Base64)"
    )]
    TooLarge(usize),
    /// The JSON has too many small values.
    #[error(
        "the parsed message would take {0} bytes of memory; at most 33,554,432 (32 MiB) are allowed. Split it, or stage its entity in a blob"
    )]
    TooManyValues(u64),
    /// An integer does not fit into 64 bits and would be rounded. Holds the number of characters of the integer.
    #[error(
        "an integer of {0} characters exceeds 64 bits. Send a Double with a fraction (1.0), or a string to keep all digits"
    )]
    IntegerTooLong(usize),
    /// The version of the message is unknown.
    #[error("unsupported message version {0}; expected \"v\": 1")]
    Version(String),
    /// The message has no `op`, but a field with a similar name.
    #[error("unknown field {}; did you mean \"op\"?", Quoted(.0))]
    MisspelledOp(String),
    /// The operation is unknown.
    #[error("\"op\" is {found}; {}", match .meant { Some(op) => format!("did you mean {op:?}?"), None => format!("known operations are {}", OPS.join(", ")) })]
    Op {
        /// The value of `op`, as JSON.
        found: String,
        /// A known operation with a similar name.
        meant: Option<&'static str>,
    },
    /// The message has a field that no job has but that senders may expect.
    #[error("jobs have no field {field:?}; {instead}")]
    Unsupported {
        /// The field.
        field: &'static str,
        /// What to send instead.
        instead: &'static str,
    },
    /// A field is missing or wrong.
    #[error("op {op:?}: {problem}")]
    Field {
        /// The operation.
        op: &'static str,
        /// The problem.
        problem: String,
    },
    /// The entity of a `put` is invalid.
    #[error("op \"put\": invalid \"entity\"")]
    Entity(#[source] ODataError),
}

impl JobError {
    fn field(op: &'static str, problem: impl std::fmt::Display) -> Self {
        Self::Field {
            op,
            problem: quoted::cut(problem, PROBLEM_BYTES),
        }
    }

    /// Whether the text of the message cannot be decoded into a JSON object. All other errors are permanent errors of the job.
    pub const fn is_undecodable(&self) -> bool {
        match self {
            Self::Body(_) | Self::Json(_) | Self::NotAnObject => true,
            Self::TooLarge(_)
            | Self::TooManyValues(_)
            | Self::IntegerTooLong(_)
            | Self::Version(_)
            | Self::MisspelledOp(_)
            | Self::Op { .. }
            | Self::Unsupported { .. }
            | Self::Field { .. }
            | Self::Entity(_) => false,
        }
    }
}

/// A text of this length cannot exceed [`PARSED_BODY_BYTES`](limits::PARSED_BODY_BYTES): the densest JSON, `{},`, takes 256 bytes of memory
/// per byte.
const NEVER_DENSE: usize = 131_072;

/// Decodes the text of a message: plain JSON, Base64, or gzip in Base64.
pub fn decode(message: &str) -> Result<JobEnvelope, JobError> {
    let object = decode_object(message)?;
    decode_job(object)
}

/// Decodes the JSON object of a message without checking that the object is a job.
pub fn decode_object(message: &str) -> Result<Map<String, Value>, JobError> {
    object_in(RawBody::of(message).map_err(JobError::Body)?)
}

/// Decompresses a message body and decodes its JSON object.
pub fn object_in(raw: RawBody<'_>) -> Result<Map<String, Value>, JobError> {
    let body = raw.expanded().map_err(JobError::Body)?;
    if body.raw_bytes > limits::QUEUE_BODY_BYTES {
        return Err(JobError::TooLarge(body.raw_bytes));
    }
    object_of(&body.text)
}

/// Decodes a job from the message body that a worker stored.
pub fn decode_kept(body: &str) -> Result<JobEnvelope, JobError> {
    decode_job(kept_object(body)?)
}

/// Decodes the JSON object of a stored message body. A stored body may be longer than a message, because compressed bodies are stored
/// decompressed.
pub fn kept_object(body: &str) -> Result<Map<String, Value>, JobError> {
    let body = RawBody::of(body)
        .and_then(RawBody::expanded)
        .map_err(JobError::Body)?;
    object_of(&body.text)
}

/// Parses a JSON object. Refuses duplicate keys, integers that would be rounded, and JSON that would take more memory than a message may
/// take.
pub(super) fn object_of(text: &str) -> Result<Map<String, Value>, JobError> {
    if text.len() > NEVER_DENSE {
        let parsed = Extent::of(text.as_bytes()).parsed();
        if parsed > limits::PARSED_BODY_BYTES {
            return Err(JobError::TooManyValues(parsed));
        }
    }
    match serde_json::from_str(text) {
        Ok(Unambiguous(Value::Object(object))) => unrounded(text).map(|()| object),
        Ok(_) => Err(body::inside(text).map_or(JobError::NotAnObject, JobError::Body)),
        Err(error) => Err(body::inside(text).map_or_else(
            || JobError::Json(quoted::cut(error, PROBLEM_BYTES)),
            JobError::Body,
        )),
    }
}

/// Parses the JSON of an entity in a blob or a file, with at most `keys` keys and no duplicates. Nested values, which no property can have,
/// are not kept.
/// A byte order mark is skipped, as in messages and lists, because editors on Windows write one.
pub fn plain_object(content: &[u8], keys: usize) -> Result<Map<String, Value>, serde_json::Error> {
    let content = content
        .strip_prefix("\u{feff}".as_bytes())
        .unwrap_or(content);
    let mut json = serde_json::Deserializer::from_slice(content);
    let object = FlatReader { most: keys }.deserialize(&mut json)?;
    json.end()?;
    unrounded(&String::from_utf8_lossy(content))
        .map_err(serde::de::Error::custom)
        .map(|()| object)
}

/// Returns the note that a worker stored in a message, or `None` if the note belongs to another message.
pub fn note(object: &Map<String, Value>, message_id: &str) -> Option<Note> {
    let note: Note = serde_json::from_value(object.get("ek")?.clone()).ok()?;
    (note.id == message_id).then_some(note)
}

/// Decodes a JSON object into a job.
pub fn decode_job(mut object: Map<String, Value>) -> Result<JobEnvelope, JobError> {
    gone::refuse(&object)?;
    let digest = JobDigest::of(&object);
    match object.remove("v") {
        None => {}
        // JSON Schema treats 1.0 as the integer 1, so the version may be written as 1.0.
        Some(v)
            if v.as_u64() == Some(VERSION)
                || v.to_string()
                    .strip_suffix(".0")
                    .is_some_and(|whole| whole == VERSION.to_string()) => {}
        Some(v) if v.is_number() => return Err(JobError::Version(quoted::cut(v, VALUE_BYTES))),
        Some(v) => return Err(JobError::Version(odata::in_words(&v).to_owned())),
    }
    object.remove("ek");
    let op = match object.remove("op") {
        Some(Value::String(op)) => op,
        None if let Some(spelled) = object.keys().find(|name| nearest(name, ["op"]).is_some()) => {
            return Err(JobError::MisspelledOp(spelled.clone()));
        }
        found => {
            return Err(JobError::Op {
                found: found.as_ref().map_or("missing", odata::in_words).to_owned(),
                meant: None,
            });
        }
    };
    let Some(operations::OperationSpec { op, read, .. }) = operations::operation_spec(&op) else {
        let meant = nearest(&op, OPS.iter().copied());
        return Err(JobError::Op {
            found: Quoted(&op).to_string(),
            meant,
        });
    };
    let text = |object: &mut Map<String, Value>, name: &str| match object.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(JobError::field(
            op,
            format_args!("{name:?} must be a string"),
        )),
    };
    let id = text(&mut object, "id")?;
    let traceparent = text(&mut object, "traceparent")?;
    let (job, unknown_fields) = read(object)?;
    Ok(JobEnvelope {
        job,
        id,
        digest,
        traceparent,
        unknown_fields,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlobName;
    use serde_json::json;

    fn job(json: &Value) -> Result<JobEnvelope, JobError> {
        decode(&json.to_string())
    }

    #[test]
    fn a_sync_job_is_decoded_with_its_envelope() {
        let envelope =
            job(&json!({"v": 1, "op": "sync", "table": "Employees", "pk": "Sales", "rk": "7", "id": "a", "color": "red"})).unwrap();
        assert_eq!(envelope.job.op(), "sync");
        assert_eq!(envelope.id.as_deref(), Some("a"));
        assert_eq!(envelope.unknown_fields.len(), 1);
    }

    #[test]
    fn the_version_is_a_number_as_json_schema_has_it() {
        let sync =
            |v: Value| json!({"v": v, "op": "sync", "table": "Employees", "pk": "p", "rk": "r"});
        for v in [json!(1), json!(1.0)] {
            assert!(job(&sync(v.clone())).is_ok(), "{v}");
        }
        for (v, expected) in [
            (json!(2), "2"),
            (json!(1.5), "1.5"),
            (json!("1"), "a string"),
            (json!("1.0"), "a string"),
            (json!(null), "null"),
        ] {
            assert_eq!(job(&sync(v)), Err(JobError::Version(expected.to_owned())));
        }
    }

    #[test]
    fn a_message_in_another_encoding_says_which() {
        use base64::Engine as _;
        use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};
        let sync = r#"{"op":"sync","table":"Employees","pk":"?>?>","rk":"1"} "#;
        let utf_16: Vec<u8> = sync.encode_utf16().flat_map(u16::to_le_bytes).collect();
        for (message, words) in [
            (body::encode(&body::encode(sync)), "Base64 twice"),
            (
                body::encode(&body::pack(&format!("{sync}{}", " ".repeat(50_000))).unwrap()),
                "Base64 twice",
            ),
            (STANDARD.encode(&utf_16), "UTF-16"),
            (
                STANDARD.encode([&[0xff, 0xfe], utf_16.as_slice()].concat()),
                "UTF-16",
            ),
            (URL_SAFE.encode(sync), "padding"),
            (STANDARD_NO_PAD.encode(sync), "padding"),
            (
                format!("[{sync}]"),
                "a JSON array, not an object; send one message per event or job",
            ),
            (
                body::encode(&format!("[{sync}]")),
                "a JSON array, not an object; send one message per event or job",
            ),
            (
                r#"[{"eventType":"Contoso.Hired"}]"#.to_owned(),
                "an array of events; send one message per event",
            ),
            (
                body::encode(r#"[{"specversion":"1.0"}]"#),
                "an array of events; send one message per event",
            ),
            (json!(sync).to_string(), "encoded as JSON twice"),
            (
                body::encode(&json!(sync).to_string()),
                "encoded as JSON twice",
            ),
            (
                r#"{"Op":"sync"}"#.to_owned(),
                "unknown field \"Op\"; did you mean \"op\"?",
            ),
            (
                r#"{"op":"sync","Table":"Employees","pk":"a","rk":"b"}"#.to_owned(),
                "unknown field \"Table\"; did you mean \"table\"?",
            ),
            (
                r#"{"op":"sync","tabel":"Employees","pk":"a","rk":"b"}"#.to_owned(),
                "unknown field \"tabel\"; did you mean \"table\"?",
            ),
            (
                r#"{"op":"sync","table":"Employees","PK":"a","rk":"b"}"#.to_owned(),
                "unknown field \"PK\"; did you mean \"pk\"?",
            ),
            (
                r#"{"op":"sync","of":"Employees","pk":"a","rk":"b"}"#.to_owned(),
                "missing field `table`; unknown field \"of\"",
            ),
            (
                r#"{"op":"snyc","table":"Employees","pk":"a","rk":"b"}"#.to_owned(),
                "\"op\" is \"snyc\"; did you mean \"sync\"?",
            ),
            (body::encode("7"), "not an object"),
        ] {
            let error = crate::cause::chain(&decode(&message).unwrap_err());
            assert!(error.contains(words), "{words}: {error}");
        }
    }

    #[test]
    fn an_integer_that_would_be_rounded_is_refused_in_a_message_and_in_a_staged_entity() {
        let message = r#"{"op": "put", "table": "T", "entity": {"PartitionKey": "p", "RowKey": "r", "N": 99999999999999999999}}"#;
        let error = decode(message).unwrap_err();
        assert_eq!(
            (&error, error.is_undecodable()),
            (&JobError::IntegerTooLong(20), false)
        );
        let error = plain_object(br#"{"N": -9223372036854775809}"#, 9)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("an integer of 20 characters exceeds 64 bits"),
            "{error}"
        );
    }

    #[test]
    fn a_put_carries_an_entity_with_its_types() {
        let envelope = job(&json!({"op": "put", "table": "Employees", "mode": "merge", "entity": {"PartitionKey": "p", "RowKey": "r", "N@odata.type": "Edm.Int64", "N": "5"}})).unwrap();
        let Job::Put(put) = envelope.job else {
            panic!("not a put")
        };
        assert_eq!(put.mode, PutMode::Merge);
        assert_eq!(put.entity.get("N"), Some(&5_i64.into()));
    }

    #[test]
    fn a_put_may_leave_its_entity_or_large_values_in_staged_blobs() {
        let sha256 = "0".repeat(64);
        let staged = json!({"op": "put", "table": "Employees", "pk": "p", "rk": "r", "entity_ref": {"blob": "evenkeel-staging/a/b", "sha256": sha256}});
        let envelope = job(&staged).unwrap();
        let Job::Put(put) = envelope.job else {
            panic!("not a put")
        };
        assert_eq!(
            (put.entity.key.to_string(), envelope.unknown_fields),
            ("(\"p\", \"r\")".to_owned(), vec![])
        );
        assert_eq!(
            put.staged_entity,
            Some(StagedBlob {
                name: BlobName::new("a/b").unwrap(),
                sha256: Some(sha256)
            })
        );
        let entity = json!({"PartitionKey": "p", "RowKey": "r", "N": 5});
        let values = json!({"op": "put", "table": "Employees", "entity": entity, "blobs": {"Photo": {"blob": "evenkeel-staging/c"}}});
        let Job::Put(put) = job(&values).unwrap().job else {
            panic!("not a put")
        };
        assert_eq!(
            put.staged_values["Photo"],
            StagedBlob {
                name: BlobName::new("c").unwrap(),
                sha256: None
            }
        );
        for (bad, word) in [
            (
                json!({"op": "put", "table": "Employees", "entity": entity, "entity_ref": {"blob": "evenkeel-staging/a"}}),
                "exactly one",
            ),
            (json!({"op": "put", "table": "Employees"}), "exactly one"),
            (
                json!({"op": "put", "table": "Employees", "entity_ref": {"blob": "evenkeel-staging/a"}}),
                "\"pk\"",
            ),
            (
                json!({"op": "put", "table": "Employees", "entity": entity, "blobs": {"P": {"blob": "employee-large/a"}}}),
                "evenkeel-staging",
            ),
            (
                json!({"op": "put", "table": "Employees", "entity": entity, "blobs": {"P": {"blob": "x"}}}),
                "NAME",
            ),
            (
                json!({"op": "put", "table": "Employees", "entity": entity, "blobs": {"P": {"blob": "evenkeel-staging/a", "sha256": "F"}}}),
                "hex",
            ),
            (
                json!({"op": "put", "table": "Employees", "entity": entity, "blobs": {"N": {"blob": "evenkeel-staging/a"}}}),
                "both",
            ),
            (
                json!({"op": "put", "table": "Employees", "entity": entity, "blobs": {"ek_x": {"blob": "evenkeel-staging/a"}}}),
                "ek_x",
            ),
        ] {
            let error = job(&bad).unwrap_err().to_string();
            assert!(error.contains(word), "{error} does not name {word}");
        }
    }

    #[test]
    fn mistakes_name_the_field() {
        for (bad, word) in [
            (
                json!({"op": "sync", "table": "Employees", "pk": "p"}),
                "\"sync\": missing field `rk`",
            ),
            (
                json!({"op": "sync", "table": "Employees", "pk": "a/b", "rk": "r"}),
                "'/'",
            ),
            (
                json!({"op": "sync", "table": "E", "pk": "p", "rk": "r"}),
                "table",
            ),
            (
                json!({"op": "sync", "table": "Employees", "pk": 5, "rk": "r"}),
                "\"pk\": invalid type: integer …, expected a string",
            ),
            (
                json!({"op": "sync", "table": "Employees", "pk": "p", "rk": "r", "thorough": "yes"}),
                "\"thorough\": invalid type",
            ),
            (
                json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "p", "RowKey": "r"}, "mode": "both"}),
                "\"mode\": unknown",
            ),
            (json!({"op": "backfill"}), "exactly one"),
            (
                json!({"op": "backfill", "table": "Employees", "view": "v"}),
                "exactly one",
            ),
            (
                json!({"op": "backfill", "table": "Employees", "cursor": {"page": 1}}),
                "\"cursor\": unknown field `page`",
            ),
            (json!({"op": "audit"}), "table"),
            (
                json!({"op": "audit", "table": "Employees", "cursor": {"page": 1}}),
                "page",
            ),
            (
                json!({"op": "backfill", "table": "Employees", "cursor": {"v": 2, "page": 1}}),
                "\"cursor\": the cursor has format version 2, but this program reads version 1",
            ),
            (
                json!({"op": "propagate", "view": "v", "owner": {"pk": "p"}, "table": "Employees", "pk": "p"}),
                "\"owner\": missing field `rk`",
            ),
            (json!({"op": "explode"}), "explode"),
            (
                json!({"op": "move", "table": "Employees", "pk": "p", "rk": "r", "to_pk": "q"}),
                "to_rk",
            ),
            (
                json!({"op": "move", "table": "Employees", "pk": "p", "rk": "r", "to_pk": "p", "to_rk": "r", "to_table": "employees"}),
                "source and target of the move are the same",
            ),
            (json!({"table": "Employees"}), "missing"),
            (json!({"v": 2, "op": "sync"}), "version 2"),
            (
                json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "p", "RowKey": "r", "ek_job": "x"}}),
                "reserved",
            ),
            (
                json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "p", "RowKey": "r"}, "newer_by": "V"}),
                "newer_by",
            ),
        ] {
            let error = job(&bad).unwrap_err();
            assert!(!error.is_undecodable());
            assert!(
                error.to_string().contains(word),
                "{error} does not name {word}"
            );
        }
        assert!(job(&json!([1])).unwrap_err().is_undecodable());
        assert!(decode("{").unwrap_err().is_undecodable());
        assert!(
            !decode(&format!("{{\"op\":\"{}\"}}", "x".repeat(50_000)))
                .unwrap_err()
                .is_undecodable()
        );
    }

    #[test]
    fn json_that_needs_far_more_memory_than_its_text_is_refused_before_parsing() {
        let many = |value: &str, times: usize| {
            format!(
                r#"{{"op":"sync","table":"Staff","pk":"p","rk":"r","x":[{}]}}"#,
                vec![value; times].join(",")
            )
        };
        for (value, times) in [("{}", 100_000), (r#"{"":{"":{"":0}}}"#, 40_000)] {
            let error = decode(&body::pack(&many(value, times)).unwrap()).unwrap_err();
            assert!(
                matches!(error, JobError::TooManyValues(_)) && !error.is_undecodable(),
                "{error}"
            );
        }
        assert!(
            many("{}", NEVER_DENSE / 3 - 20).len() <= NEVER_DENSE,
            "a message this short is never refused"
        );
        assert!(
            decode(&body::pack(&many("{}", NEVER_DENSE / 3 - 20)).unwrap())
                .unwrap()
                .unknown_fields
                == ["x"]
        );
        let entity = |rk: usize| {
            format!(
                r#"{{"PartitionKey":"p","RowKey":"{rk}",{}}}"#,
                (0..80)
                    .map(|n| format!(r#""p{n}":{n}"#))
                    .collect::<Vec<_>>()
                    .join(",")
            )
        };
        let entities = (0..1_000).map(entity).collect::<Vec<_>>().join(",");
        let batch = body::pack(&format!(
            r#"{{"op":"put","table":"T","entities":[{entities}]}}"#
        ))
        .unwrap();
        assert!(
            decode_object(&batch).is_ok(),
            "a thousand entities of eighty properties"
        );
    }

    #[test]
    fn every_field_of_an_operation_is_known_and_no_other_is() {
        let unknown = |value: Value| job(&value).unwrap().unknown_fields;
        let sync = json!({"op": "sync", "table": "Employees", "pk": "p", "rk": "r"});
        assert!(unknown(sync.clone()).is_empty());
        for (name, is_unknown) in [
            ("thorough", false),
            ("thorou", true),
            ("if_match", true),
            ("cursor", true),
        ] {
            let mut with = sync.clone();
            with[name] = json!(true);
            assert_eq!(
                unknown(with).first().is_some_and(|unknown| unknown == name),
                is_unknown,
                "{name}"
            );
        }
        let put = json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "p", "RowKey": "r"}, "mode": "merge", "pk": "p", "color": 1});
        assert_eq!(unknown(put), ["color", "pk"]);
        let staged = json!({"op": "put", "table": "Employees", "entity_ref": {"blob": "evenkeel-staging/a"}, "pk": "p", "rk": "r"});
        assert!(unknown(staged).is_empty());
        let backfill = json!({"op": "backfill", "table": "Employees", "cursor": {}, "pk": "p"});
        assert_eq!(unknown(backfill), ["pk"]);
    }

    #[test]
    fn a_job_with_a_key_twice_cannot_be_decoded() {
        let error =
            decode(r#"{"op":"sync","table":"T","pk":"p","rk":"r","op":"delete"}"#).unwrap_err();
        assert!(error.is_undecodable());
        assert!(
            error.to_string().contains(r#"duplicate key "op""#),
            "{error}"
        );
    }

    #[test]
    fn a_note_counts_only_in_the_message_it_was_written_for() {
        let object = decode_object(r#"{"op":"sync","ek":{"id":"m1","free":3}}"#).unwrap();
        assert_eq!(note(&object, "m1").map(|n| n.free), Some(3));
        assert_eq!(note(&object, "m2"), None);
    }

    #[test]
    fn an_unchanged_note_is_written_unchanged() {
        let object = decode_object(r#"{"op":"sync","ek":{"id":"m1","free":3}}"#).unwrap();
        let note = note(&object, "m1").unwrap();
        assert_eq!((note.begun, note.failing), (0, None));
        assert_eq!(
            serde_json::to_string(&note).unwrap(),
            r#"{"id":"m1","free":3}"#
        );
    }
}
