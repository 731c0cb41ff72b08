//! Batches: messages for many primaries, with one job for each.
//!
//! ```json
//! {"op": "sync", "table": "Employees", "pk": "Sales", "rks": ["000223", "000224"]}
//! {"op": "archive", "archive": "former_employees", "keys": [["Sales", "000223"], ["Marketing", "000301"]]}
//! {"op": "put", "table": "Employees", "mode": "merge", "entities": [{"PartitionKey": "Sales", "RowKey": "1", "Email": "a@b"}]}
//! ```
//!
//! The other fields apply to every job. If the list is unreadable, the whole message is an error. If a key is invalid, only the job of that
//! key is an error.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::gone;
use super::operations::{OperationSpec, operation_spec};
use super::shared::SharedFields;
use super::{Effect, JobEnvelope, JobError, decode_job};

/// Maximum number of primaries in one message.
pub const BATCH_KEYS: usize = 1_000;

/// Name of the operation that checks items again.
pub const RECHECK: &str = "recheck";
/// Name of the field that lists the rechecks of a batch.
pub const RECHECKS: &str = "rechecks";

/// Fields that are allowed only in a message for one primary.
const ALONE: [&str; 2] = ["if_match", "blobs"];

/// Maximum bytes of the items in a packed message. The remainder of the 48 KiB limit is for the shared fields.
const PACKED_BYTES: usize = 44 * 1024;

/// How messages of an operation list primaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// The message lists keys: `rks` of one `pk`, or `keys`.
    Keys,
    /// The message lists entities.
    Entities,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SubjectList {
    RowKeys,
    Keys,
    Entities,
    /// Rechecks, which only workers queue.
    Rechecks,
}

impl SubjectList {
    pub(super) const ALL: [Self; 3] = [Self::RowKeys, Self::Keys, Self::Entities];

    pub(super) const fn field(self) -> &'static str {
        match self {
            Self::RowKeys => "rks",
            Self::Keys => "keys",
            Self::Entities => "entities",
            Self::Rechecks => RECHECKS,
        }
    }

    /// Returns the fields of a single-job message that the list replaces.
    const fn instead_of(self) -> &'static [&'static str] {
        match self {
            Self::RowKeys => &["rk"],
            Self::Keys => &["pk", "rk"],
            Self::Entities => &["entity", "entity_ref", "pk", "rk"],
            Self::Rechecks => &["pk", "rk", "items"],
        }
    }

    /// Returns the fields that cannot be combined with the list.
    pub(super) fn excluded(self) -> impl Iterator<Item = &'static str> {
        self.instead_of().iter().copied().chain(ALONE)
    }

    const fn listing(self) -> Option<Listing> {
        match self {
            Self::RowKeys | Self::Keys => Some(Listing::Keys),
            Self::Entities => Some(Listing::Entities),
            Self::Rechecks => None,
        }
    }

    pub(super) fn of(listing: Listing) -> impl Iterator<Item = Self> {
        Self::ALL
            .into_iter()
            .filter(move |list| list.listing() == Some(listing))
    }

    pub(super) fn schema(self) -> Value {
        let (items, description) = match self {
            Self::RowKeys => (json!({"type": "string"}), "The primaries' RowKeys."),
            Self::Keys => {
                let key = json!({"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2});
                (key, "The primaries' keys: PartitionKey and RowKey.")
            }
            Self::Entities => (
                json!({"type": "object"}),
                "The primaries, each as `entity`.",
            ),
            Self::Rechecks => (
                json!({"type": "object"}),
                "The primaries, each with `pk`, `rk` and `items`.",
            ),
        };
        json!({"type": "array", "items": items, "minItems": 1, "maxItems": BATCH_KEYS, "description": description})
    }

    /// Returns the fields that an item of the list adds to its single-job message, or `None` if the item is invalid.
    fn fields(self, item: &Value) -> Option<Vec<(&'static str, Value)>> {
        match (self, item) {
            (Self::RowKeys, Value::String(_)) => Some(vec![("rk", item.clone())]),
            (Self::Keys, Value::Array(key)) => match key.as_slice() {
                [pk @ Value::String(_), rk @ Value::String(_)] => {
                    Some(vec![("pk", pk.clone()), ("rk", rk.clone())])
                }
                _ => None,
            },
            (Self::Entities, Value::Object(_)) => Some(vec![("entity", item.clone())]),
            (Self::Rechecks, Value::Object(one)) => {
                let fields: Option<Vec<_>> = self
                    .instead_of()
                    .iter()
                    .map(|name| one.get(*name).map(|value| (*name, value.clone())))
                    .collect();
                let optional = ["chained", "told"]
                    .into_iter()
                    .filter_map(|name| one.get(name).map(|value| (name, value.clone())));
                Some(fields?.into_iter().chain(optional).collect())
            }
            _ => None,
        }
    }

    /// Returns a message with the shared fields of a batch and a placeholder as its primary.
    fn sample_of(self, shared: &SharedFields) -> Map<String, Value> {
        let item = match self {
            Self::RowKeys => json!("-"),
            Self::Keys => json!(["-", "-"]),
            Self::Rechecks => json!({"pk": "-", "rk": "-", "items": []}),
            // The placeholder entity needs the property that `newer_by` names.
            Self::Entities => {
                let mut entity = Map::from_iter([
                    ("PartitionKey".to_owned(), json!("-")),
                    ("RowKey".to_owned(), json!("-")),
                ]);
                entity.extend(
                    shared
                        .fields
                        .get("newer_by")
                        .and_then(Value::as_str)
                        .map(|name| (name.to_owned(), json!(0))),
                );
                Value::Object(entity)
            }
        };
        shared.single(self, &item)
    }

    /// Adds the fields of an item's single job to the shared fields.
    pub(super) fn fill(self, shared: &mut Map<String, Value>, item: &Value) {
        let fields = self.fields(item).unwrap_or_default();
        shared.extend(
            fields
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value)),
        );
    }

    /// Returns the text that identifies the primary of an item, or `None` if the item has no key.
    fn key(self, item: &Value) -> Option<String> {
        let [pk, rk] = match self {
            Self::RowKeys | Self::Keys => return Some(item.to_string()),
            Self::Entities => ["PartitionKey", "RowKey"],
            Self::Rechecks => ["pk", "rk"],
        };
        (item[pk].is_string() && item[rk].is_string())
            .then(|| json!([item[pk], item[rk]]).to_string())
    }

    /// Returns the PartitionKey and RowKey of an item, or `None` if one is missing.
    fn keys<'a>(self, shared: &'a Map<String, Value>, item: &'a Value) -> Option<[&'a str; 2]> {
        let [pk, rk] = match self {
            Self::RowKeys => [shared.get("pk")?, item],
            Self::Keys => [&item[0], &item[1]],
            Self::Entities => [&item["PartitionKey"], &item["RowKey"]],
            Self::Rechecks => [&item["pk"], &item["rk"]],
        };
        Some([pk.as_str()?, rk.as_str()?])
    }

    const fn shape(self) -> &'static str {
        match self {
            Self::RowKeys => "a RowKey",
            Self::Keys => "[PartitionKey, RowKey]",
            Self::Entities => "an entity",
            Self::Rechecks => "an object of pk, rk and items",
        }
    }
}

/// A message for many primaries.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    op: &'static str,
    shared: SharedFields,
    list: SubjectList,
    items: Vec<Value>,
}

/// The content of a message.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "the value is moved only twice, and most messages are one job"
)]
pub enum JobRequest {
    /// One job.
    Job(JobEnvelope),
    /// One job for each of many primaries.
    Batch(Batch),
}

/// Decodes a JSON object into a single job or a batch.
pub fn decode_request(mut object: Map<String, Value>) -> Result<JobRequest, JobError> {
    match Batch::of(&mut object)? {
        Some(batch) => Ok(JobRequest::Batch(batch)),
        None => decode_job(object).map(JobRequest::Job),
    }
}

impl Batch {
    /// Decodes a batch and takes the fields out of `object`. Returns `None` and leaves `object` untouched if the message has no list, or
    /// if its operation is missing or unknown.
    ///
    /// # Errors
    ///
    /// The message is invalid. Possible reasons:
    /// - The operation does not take this list.
    /// - The list is empty or too long, or has an invalid item.
    /// - The list repeats a primary, and the operation does not allow this.
    /// - A shared field is invalid, or the shared fields are too large.
    /// - A field is allowed only in a message for one primary.
    pub fn of(object: &mut Map<String, Value>) -> Result<Option<Self>, JobError> {
        let Some(list) = SubjectList::ALL
            .into_iter()
            .find(|list| object.contains_key(list.field()))
        else {
            return Ok(None);
        };
        let Some(OperationSpec {
            op,
            known,
            effect,
            listing,
            ..
        }) = object
            .get("op")
            .and_then(Value::as_str)
            .and_then(operation_spec)
        else {
            // The operation is missing or unknown. The caller decodes the message as a single job next, and that reports the error.
            return Ok(None);
        };
        gone::refuse(object)?;
        if listing != list.listing() {
            return Err(JobError::field(
                op,
                format_args!("this operation takes no {:?}", list.field()),
            ));
        }
        let batch = Self::listed(list, (op, known()), object, effect == Effect::Derives)?;
        batch.sample()?;
        batch.shared.check(op)?;
        Ok(Some(batch))
    }

    /// Decodes a batch from a recheck queue. Returns `None` if the message has no list.
    ///
    /// # Errors
    ///
    /// The operation is not `recheck`, the list is invalid, or the shared fields are too large.
    pub fn of_rechecks(object: &mut Map<String, Value>) -> Result<Option<Self>, JobError> {
        let list = SubjectList::Rechecks;
        if !object.contains_key(list.field()) {
            return Ok(None);
        }
        if object.get("op").and_then(Value::as_str) != Some(RECHECK) {
            return Err(JobError::field(
                RECHECK,
                format_args!("{:?} is allowed only with this operation", list.field()),
            ));
        }
        let batch = Self::listed(list, (RECHECK, &["table"]), object, true)?;
        batch.shared.check(RECHECK)?;
        Ok(Some(batch))
    }

    fn listed(
        list: SubjectList,
        (op, known): (&'static str, &[&str]),
        object: &mut Map<String, Value>,
        may_repeat: bool,
    ) -> Result<Self, JobError> {
        let wrong = |problem: String| JobError::field(op, problem);
        let others = SubjectList::ALL
            .into_iter()
            .filter(|other| *other != list)
            .map(SubjectList::field);
        let beside = others
            .chain(list.excluded())
            .find(|name| object.contains_key(*name));
        if let Some(beside) = beside {
            return Err(wrong(format!(
                "{beside:?} cannot be combined with {:?}",
                list.field()
            )));
        }
        let mut shared = std::mem::take(object);
        let Some(Value::Array(items)) = shared.remove(list.field()) else {
            return Err(wrong(format!(
                "{:?} must be a list of 1 to {BATCH_KEYS} primaries",
                list.field()
            )));
        };
        if items.is_empty() || items.len() > BATCH_KEYS {
            return Err(wrong(format!(
                "{:?} has {} primaries; 1 to {BATCH_KEYS} are allowed",
                list.field(),
                items.len()
            )));
        }
        if let Some(at) = items.iter().position(|item| list.fields(item).is_none()) {
            return Err(wrong(format!(
                "{}[{at}] is not {}",
                list.field(),
                list.shape()
            )));
        }
        let mut seen = BTreeSet::new();
        let mut unique = Vec::with_capacity(items.len());
        for (at, item) in items.into_iter().enumerate() {
            if list.key(&item).is_none_or(|key| seen.insert(key)) {
                unique.push(item);
            } else if !may_repeat {
                return Err(wrong(format!("{}[{at}] repeats a primary", list.field())));
            }
        }
        let shared = SharedFields::of(list, known, shared);
        Ok(Self {
            op,
            shared,
            list,
            items: unique,
        })
    }

    /// The operation.
    pub const fn op(&self) -> &'static str {
        self.op
    }

    /// The number of jobs in the batch, at least one.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Always false, because a batch has at least one job.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns one job of the batch as a single-job message.
    pub fn single(&self, at: usize) -> Map<String, Value> {
        self.shared
            .single(self.list, self.items.get(at).unwrap_or(&Value::Null))
    }

    /// Decodes a job with the shared fields and a placeholder as its primary.
    ///
    /// # Errors
    ///
    /// A shared field is invalid.
    pub fn sample(&self) -> Result<JobEnvelope, JobError> {
        let envelope = decode_job(self.sample_message())?;
        Ok(JobEnvelope {
            unknown_fields: self.shared.unknown.clone(),
            ..envelope
        })
    }

    /// The message that [`sample`](Self::sample) decodes.
    pub fn sample_message(&self) -> Map<String, Value> {
        self.list.sample_of(&self.shared)
    }

    /// Number of shared fields that no job reads.
    pub fn unknown_fields(&self) -> usize {
        self.shared.unknown.len()
    }

    /// PartitionKey and RowKey of one job of the batch, as in the message.
    pub fn key(&self, at: usize) -> Option<[&str; 2]> {
        self.items
            .get(at)
            .and_then(|item| self.list.keys(&self.shared.fields, item))
    }

    /// Decodes one job of the batch.
    pub fn job(&self, at: usize) -> Result<JobEnvelope, JobError> {
        decode_job(self.single(at))
    }

    /// Returns the jobs that remain after a delivery, as the list field of their message; `None` if every job has ended. Jobs from index
    /// `unbegun` on have not started, and the jobs in `again` must be repeated.
    /// Jobs that have not started come first, so that failing jobs do not delay them.
    pub fn rest(&self, unbegun: usize, again: &[usize]) -> Option<Map<String, Value>> {
        let items = (unbegun..self.len())
            .chain(again.iter().copied())
            .filter_map(|at| self.items.get(at).cloned());
        let items: Vec<Value> = items.collect();
        let some = !items.is_empty();
        some.then(|| Map::from_iter([(self.list.field().to_owned(), Value::Array(items))]))
    }
}

/// Joins consecutive single messages into batches, for senders.
#[derive(Debug)]
pub struct Packer {
    most: usize,
    /// The shared fields of the waiting jobs, and the kind of their list.
    open: Option<(Map<String, Value>, SubjectList)>,
    items: Vec<Value>,
    seen: BTreeSet<String>,
    bytes: usize,
}

/// Result of adding a message to a `Packer`.
#[derive(Debug, Clone, PartialEq)]
pub struct PackResult {
    /// The finished message of the jobs that were added before, if the added message cannot join them.
    pub ready: Option<Map<String, Value>>,
    /// Whether the added message becomes part of the next batch. If not, the added message must be sent by itself, after `ready`.
    pub is_packed: bool,
}

impl Packer {
    /// Creates a packer that makes batches of at most `most` primaries, and never more than 1,000.
    pub fn new(most: usize) -> Self {
        Self {
            most: most.clamp(1, BATCH_KEYS),
            open: None,
            items: Vec::new(),
            seen: BTreeSet::new(),
            bytes: 0,
        }
    }

    /// The number of waiting jobs.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether no job is waiting.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Adds a message for one primary.
    pub fn add(&mut self, message: &Map<String, Value>) -> PackResult {
        let Some((shared, list, item)) = split(message) else {
            return PackResult {
                ready: self.take(),
                is_packed: false,
            };
        };
        let bytes = item.to_string().len() + 1;
        let key = list.key(&item);
        let joins = self
            .open
            .as_ref()
            .is_none_or(|(open, of)| *open == shared && *of == list);
        let fits = self.items.len() < self.most && self.bytes + bytes <= PACKED_BYTES
            || self.items.is_empty();
        let ready = if joins && fits && key.as_ref().is_none_or(|key| !self.seen.contains(key)) {
            None
        } else {
            self.take()
        };
        self.open = Some((shared, list));
        self.items.push(item);
        self.seen.extend(key);
        self.bytes += bytes;
        PackResult {
            ready,
            is_packed: true,
        }
    }

    /// Returns the message of the waiting jobs, or `None` if there are none.
    pub fn take(&mut self) -> Option<Map<String, Value>> {
        let Self { open, items, .. } = std::mem::replace(self, Self::new(self.most));
        let (mut message, list) = open?;
        let first = items.first()?;
        if items.len() == 1 {
            list.fill(&mut message, first);
            return Some(message);
        }
        let one_pk = list == SubjectList::Keys && items.iter().all(|item| item[0] == first[0]);
        let (list, items) = if one_pk {
            message.insert("pk".to_owned(), first[0].clone());
            (
                SubjectList::RowKeys,
                items.into_iter().map(|mut item| item[1].take()).collect(),
            )
        } else {
            (list, items)
        };
        message.insert(list.field().to_owned(), Value::Array(items));
        Some(message)
    }
}

/// Splits a message for one primary into two parts: the fields that messages for other primaries may share with it, and its item
/// in a list. Returns `None` if the message cannot be part of a list.
fn split(message: &Map<String, Value>) -> Option<(Map<String, Value>, SubjectList, Value)> {
    let listing = operation_spec(message.get("op")?.as_str()?)?.listing?;
    let mut shared = message.clone();
    let (list, item) = match listing {
        Listing::Keys => (
            SubjectList::Keys,
            Value::Array(vec![shared.remove("pk")?, shared.remove("rk")?]),
        ),
        Listing::Entities => (SubjectList::Entities, shared.remove("entity")?),
    };
    let lists = SubjectList::ALL.into_iter().map(SubjectList::field);
    let alone = list
        .excluded()
        .chain(lists)
        .any(|name| shared.contains_key(name));
    (!alone).then_some((shared, list, item))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Job;
    use crate::job::{JobSubject, PutMode, schema};

    fn object(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(object) => object,
            _ => panic!("no object"),
        }
    }

    fn batch(value: Value) -> Batch {
        Batch::of(&mut object(value)).unwrap().unwrap()
    }

    fn problem(value: Value) -> String {
        Batch::of(&mut object(value)).unwrap_err().to_string()
    }

    fn keys(batch: &Batch) -> Vec<String> {
        (0..batch.len())
            .map(|at| batch.job(at).unwrap().job.key().unwrap().to_string())
            .collect()
    }

    #[test]
    fn each_form_is_a_job_for_each_of_its_primaries() {
        let rks = batch(
            json!({"op": "sync", "table": "Staff", "pk": "p", "rks": ["1", "2"], "id": "mine"}),
        );
        assert_eq!(
            (rks.op(), keys(&rks)),
            (
                "sync",
                vec!["(\"p\", \"1\")".to_owned(), "(\"p\", \"2\")".to_owned()]
            )
        );
        assert_eq!(rks.job(1).unwrap().id.as_deref(), Some("mine"));
        let pairs =
            batch(json!({"op": "archive", "archive": "a", "keys": [["p", "1"], ["q", "1"]]}));
        assert_eq!(keys(&pairs), ["(\"p\", \"1\")", "(\"q\", \"1\")"]);
        let merged = batch(
            json!({"op": "put", "table": "Staff", "mode": "merge", "entities": [{"PartitionKey": "p", "RowKey": "1", "A": 1}]}),
        );
        let Job::Put(put) = merged.job(0).unwrap().job else {
            panic!("no put")
        };
        assert_eq!(
            (put.mode, put.entity.key.to_string()),
            (PutMode::Merge, "(\"p\", \"1\")".to_owned())
        );
    }

    #[test]
    fn each_form_has_the_keys_of_its_jobs_without_decoding_them() {
        for message in [
            json!({"op": "sync", "table": "Staff", "pk": "p", "rks": ["0", "a/b"]}),
            json!({"op": "delete", "table": "Staff", "keys": [["p", "0"], ["p", "a/b"]]}),
            json!({"op": "put", "table": "Staff", "entities": [{"PartitionKey": "p", "RowKey": "0"}, {"PartitionKey": "p", "RowKey": "a/b"}]}),
        ] {
            let listed = batch(message);
            assert_eq!(
                [0, 1, 2].map(|at| listed.key(at)),
                [Some(["p", "0"]), Some(["p", "a/b"]), None]
            );
        }
        let item = |rk: &str| json!({"pk": "p", "rk": rk, "items": []});
        let rechecks = Batch::of_rechecks(&mut object(
            json!({"op": "recheck", "table": "Staff", "rechecks": [item("0")]}),
        ))
        .unwrap()
        .unwrap();
        assert_eq!(rechecks.key(0), Some(["p", "0"]));
        let unnamed = batch(
            json!({"op": "put", "table": "Staff", "entities": [{}, {"RowKey": 1}, {"PartitionKey": "p", "RowKey": "0"}, {}]}),
        );
        assert_eq!(
            (unnamed.len(), unnamed.key(0), unnamed.key(2)),
            (4, None, Some(["p", "0"])),
            "two entities without a key are not duplicates"
        );
    }

    #[test]
    fn a_job_of_a_batch_is_the_same_job_as_its_own_message() {
        let listed = batch(
            json!({"op": "delete", "table": "Staff", "pk": "p", "rks": ["1", "2"], "id": "mine", "v": 1}),
        );
        let alone = decode_job(object(
            json!({"op": "delete", "table": "Staff", "pk": "p", "rk": "2", "id": "mine"}),
        ))
        .unwrap();
        assert_eq!(listed.job(1).unwrap(), alone, "its digest too");
    }

    #[test]
    fn the_remaining_jobs_are_a_message_of_the_same_form() {
        let mut message = object(
            json!({"op": "sync", "table": "Staff", "keys": [["p", "1"], ["p", "2"], ["p", "3"]]}),
        );
        let listed = batch(Value::Object(message.clone()));
        message.extend(listed.rest(2, &[0]).unwrap());
        assert_eq!(
            keys(&batch(Value::Object(message))),
            ["(\"p\", \"3\")", "(\"p\", \"1\")"],
            "the jobs that were not begun come first"
        );
        assert_eq!(listed.rest(3, &[]), None);
    }

    #[test]
    fn a_primary_that_is_named_twice_is_synced_once_and_nothing_else() {
        assert_eq!(
            batch(json!({"op": "sync", "table": "Staff", "pk": "p", "rks": ["1", "1"]})).len(),
            1
        );
        assert!(
            problem(json!({"op": "delete", "table": "Staff", "pk": "p", "rks": ["1", "1"]}))
                .contains("rks[1]")
        );
        let twice = json!([{"PartitionKey": "p", "RowKey": "1"}, {"PartitionKey": "p", "RowKey": "1", "A": 2}]);
        assert!(
            problem(json!({"op": "put", "table": "Staff", "entities": twice}))
                .contains("entities[1]")
        );
    }

    #[test]
    fn an_invalid_list_is_an_error_of_the_message() {
        for (message, word) in [
            (
                json!({"op": "move", "table": "Staff", "pk": "p", "rks": ["1"], "to_pk": "q", "to_rk": "1"}),
                "this operation takes no",
            ),
            (
                json!({"op": "sync", "table": "Staff", "entities": [{}]}),
                "this operation takes no",
            ),
            (
                json!({"op": "sync", "table": "Staff", "pk": "p", "rk": "1", "rks": ["1"]}),
                "\"rk\"",
            ),
            (
                json!({"op": "sync", "table": "Staff", "pk": "p", "keys": [["p", "1"]]}),
                "\"pk\"",
            ),
            (
                json!({"op": "delete", "table": "Staff", "pk": "p", "rks": ["1"], "if_match": "e"}),
                "if_match",
            ),
            (
                json!({"op": "put", "table": "Staff", "pk": "p", "entities": [{}]}),
                "\"pk\"",
            ),
            (
                json!({"op": "put", "table": "Staff", "entities": [{}], "blobs": {"Photo": {"blob": "evenkeel-staging/a"}}}),
                "\"blobs\"",
            ),
            (
                json!({"op": "sync", "table": "Staff", "pk": "p", "rks": "1"}),
                "must be a list",
            ),
            (
                json!({"op": "sync", "table": "Staff", "pk": "p", "rks": []}),
                "has 0 primaries",
            ),
            (
                json!({"op": "sync", "table": "Staff", "pk": "p", "rks": vec!["1"; 1001]}),
                "has 1001 primaries",
            ),
            (
                json!({"op": "sync", "table": "Staff", "pk": "p", "rks": ["1", 2]}),
                "rks[1] is not a RowKey",
            ),
            (
                json!({"op": "sync", "table": "Staff", "keys": [["p"]]}),
                "keys[0] is not [PartitionKey, RowKey]",
            ),
        ] {
            let problem = problem(message);
            assert!(problem.contains(word), "{word}: {problem}");
        }
    }

    #[test]
    fn shared_fields_are_refused_once_and_copied_only_if_a_job_reads_them() {
        let sync = |field: &str, value: Value| {
            let mut message =
                json!({"op": "sync", "table": "Staff", "pk": "p", "rks": ["1", "2"], "id": "mine"});
            message[field] = value;
            Batch::of(&mut object(message))
        };
        let long = "\u{7f}".repeat(100_000);
        for field in ["table", "pk", "thorough", "id", "traceparent", "v"] {
            let error = crate::cause::chain(&sync(field, json!(long)).unwrap_err());
            assert!(error.len() < 1_000, "{field}: {error}");
        }
        let nested = json!([vec![json!({}); 5_000]]);
        let listed = sync("x", nested).unwrap().unwrap();
        assert_eq!(
            listed.single(1),
            object(json!({"op": "sync", "table": "Staff", "pk": "p", "rk": "2", "id": "mine"}))
        );
        assert_eq!(
            (
                listed.unknown_fields(),
                listed.sample().unwrap().unknown_fields
            ),
            (1, vec!["x".to_owned()])
        );
        let condition = json!({"op": "delete", "table": "Staff", "pk": "p", "rks": ["1"], "when": format!("A == \"{}\"", "x".repeat(8_000))});
        assert!(
            Batch::of(&mut object(condition)).is_ok(),
            "the longest condition has room"
        );
    }

    #[test]
    fn every_field_that_the_schema_allows_with_a_list_is_read() {
        let sample = |op: &str, name: &str| match name {
            "newer_by" if op == "delete" => json!({"V": 1}),
            "table" => json!("Staff"),
            "archive" => json!("former"),
            "pk" => json!("p"),
            "rks" => json!(["1", "2"]),
            "keys" => json!([["p", "1"], ["q", "1"]]),
            "entities" => {
                json!([{"PartitionKey": "p", "RowKey": "1", "V": 1}, {"PartitionKey": "p", "RowKey": "2", "V": 1}])
            }
            "mode" => json!("merge"),
            "if_absent" => json!(false),
            "newer_by" => json!("V"),
            "thorough" => json!(true),
            "when" => json!("Ended < now - 90d"),
            "id" | "traceparent" => json!("mine"),
            "v" => json!(1),
            name => panic!("a field without a sample: {name}"),
        };
        let schema = schema();
        let mut lists = 0;
        for alternative in schema["anyOf"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| one["title"].as_str().unwrap().contains("of many"))
        {
            let fields = alternative["properties"].as_object().unwrap().iter();
            let op = alternative["properties"]["op"]["const"].as_str().unwrap();
            let fields = fields.map(|(name, field)| {
                (
                    name.clone(),
                    if name == "op" {
                        field["const"].clone()
                    } else {
                        sample(op, name)
                    },
                )
            });
            let message: Map<String, Value> = fields.collect();
            let title = &alternative["title"];
            let request =
                decode_request(message).unwrap_or_else(|error| panic!("{title}: {error}"));
            let JobRequest::Batch(batch) = request else {
                panic!("{title}: one job")
            };
            assert!(
                (0..batch.len()).all(|at| batch.job(at).unwrap().unknown_fields.is_empty()),
                "{title}: {batch:?}"
            );
            lists += 1;
        }
        assert!(lists > 6, "the schema has only {lists} lists");
    }

    #[test]
    fn an_invalid_key_is_an_error_of_its_job_alone() {
        let listed = batch(json!({"op": "sync", "table": "Staff", "pk": "p", "rks": ["1", "a/b"]}));
        assert!(matches!(
            listed.job(0).unwrap().job.operation().subject(),
            JobSubject::Primary(..)
        ));
        assert!(listed.job(1).is_err());
    }

    #[test]
    fn a_message_without_a_list_is_one_job() {
        let one = json!({"op": "sync", "table": "Staff", "pk": "p", "rk": "1"});
        assert!(matches!(
            decode_request(object(one)).unwrap(),
            JobRequest::Job(_)
        ));
        assert!(
            decode_request(object(json!({"op": "explode", "keys": []})))
                .unwrap_err()
                .to_string()
                .contains("explode")
        );
    }

    fn packed(most: usize, messages: &[Value]) -> Vec<Value> {
        let (mut packer, mut sent) = (Packer::new(most), Vec::new());
        for message in messages {
            let message = object(message.clone());
            let PackResult { ready, is_packed } = packer.add(&message);
            sent.extend(ready.map(Value::Object));
            if !is_packed {
                sent.push(Value::Object(message));
            }
        }
        sent.extend(packer.take().map(Value::Object));
        sent
    }

    #[test]
    fn consecutive_messages_with_the_same_fields_are_joined() {
        let sync = |pk: &str, rk: &str| json!({"op": "sync", "table": "Staff", "pk": pk, "rk": rk});
        let archive =
            json!({"op": "archive", "archive": "a", "pk": "p", "rk": "1", "if_match": "e"});
        let entity = |rk: &str| json!({"PartitionKey": "p", "RowKey": rk});
        let put = |rk: &str| json!({"op": "put", "table": "Staff", "mode": "merge", "entity": entity(rk)});
        let mut with_key = put("3");
        with_key["pk"] = json!("p");
        let sent = packed(
            3,
            &[
                sync("p", "1"),
                sync("p", "2"),
                sync("p", "3"),
                sync("p", "4"),
                sync("q", "1"),
                archive.clone(),
                put("1"),
                put("2"),
                put("1"),
                with_key.clone(),
            ],
        );
        assert_eq!(
            sent,
            [
                json!({"op": "sync", "table": "Staff", "pk": "p", "rks": ["1", "2", "3"]}),
                json!({"op": "sync", "table": "Staff", "keys": [["p", "4"], ["q", "1"]]}),
                archive,
                json!({"op": "put", "table": "Staff", "mode": "merge", "entities": [entity("1"), entity("2")]}),
                put("1"),
                with_key,
            ]
        );
        for message in sent {
            decode_request(object(message)).unwrap();
        }
    }

    #[test]
    fn a_packed_message_fits_into_a_message() {
        let long = "x".repeat(500);
        let messages: Vec<Value> =
            (0..300).map(|at| json!({"op": "sync", "table": "Staff", "pk": "p", "rk": format!("{long}{at}")})).collect();
        let sent = packed(1_000, &messages);
        assert!(
            sent.iter()
                .all(|message| message.to_string().len() <= 48 * 1024)
                && sent.len() > 1
        );
        assert_eq!(
            sent.iter()
                .map(|message| message["rks"].as_array().unwrap().len())
                .sum::<usize>(),
            300
        );
    }
}
