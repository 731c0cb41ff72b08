//! Batches with their list in a blob: JSON lines, of any number.
//!
//! ```json
//! {"op": "sync", "table": "Employees", "keys_ref": {"blob": "evenkeel-staging/import-7.jsonl", "sha256": "…"}}
//! ```
//!
//! A line is an item of the list that a message would have in its place: `["Sales", "000223"]`; `"000223"` where the message has the
//! `pk`; an entity where the operation is `put`. Empty lines are skipped. A delivery works on a window of lines, and leaves the place of
//! the next one in the message:
//!
//! ```text
//!   done or poisoned    left        window        unread
//!   ═══════════════════╪══·══·═════╪─────────────╪────────────────
//!                         └──┴ by their places   └ next
//! ```

use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::batch::{Batch, SubjectList};
use super::object::{Unambiguous, unrounded};
use super::operations::{Described, described, staged};
use super::shared::SharedFields;
use super::{BATCH_KEYS, Effect, JobEnvelope, JobError, Listing, StagedBlob, decode_job};
use crate::model::cursor::JobCursor;
use crate::model::{limits, quoted};

/// The field that says where the list lies.
pub(super) const KEYS_REF: &str = "keys_ref";
/// A list, checked line by line: by its sender, and by the worker.
#[derive(Debug)]
pub struct ListCheck {
    list: ListedBatch,
    /// Lines so far, empty ones included.
    number: u64,
    primaries: u64,
    /// Hashes of the primaries so far, where none may be named twice.
    seen: HashSet<u64>,
    hasher: RandomState,
}

impl ListCheck {
    /// Before the first line.
    pub fn of(list: ListedBatch) -> Self {
        Self { list, number: 0, primaries: 0, seen: HashSet::new(), hasher: RandomState::new() }
    }

    /// The list, of which nothing is read.
    pub const fn list(&self) -> &ListedBatch {
        &self.list
    }

    /// Lines so far, empty ones included.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Primaries so far.
    pub const fn primaries(&self) -> u64 {
        self.primaries
    }

    /// The item of the next line, white space and line end included; `None` for an empty one.
    ///
    /// # Errors
    ///
    /// The list cannot be used: which line, and why, in words.
    pub fn line(&mut self, raw: &[u8]) -> Result<Option<Value>, String> {
        let text = line_text(raw, self.number == 0);
        self.number += 1;
        let wrong = |problem: String| format!("line {}: {problem}", self.number);
        may_have(raw.len()).map_err(wrong)?;
        if text.is_empty() {
            return Ok(None);
        }
        let item = self.list.item(text).map_err(wrong)?;
        self.primaries += 1;
        if !self.list.may_repeat() {
            if self.list.line.key(&item).is_some_and(|key| !self.seen.insert(self.hasher.hash_one(key))) {
                return Err(format!("line {} names a primary for the second time", self.number));
            }
            if self.primaries > MOST_UNLIKE {
                return Err(format!("it has more than {MOST_UNLIKE} lines, the most of an operation other than `sync`: send it in parts"));
            }
        }
        Ok(Some(item))
    }
}

/// The text of a line: without white space around it, and without the byte order mark of a list's beginning.
pub fn line_text(raw: &[u8], is_first: bool) -> &[u8] {
    let mark = "\u{feff}".as_bytes();
    raw.strip_prefix(mark).filter(|_| is_first).unwrap_or(raw).trim_ascii()
}

/// Whether a line, white space around it included, may be so long.
fn may_have(bytes: usize) -> Result<(), String> {
    let problem = || format!("it has {bytes} bytes, white space included; at most 49,152 (48 KiB) are allowed");
    if bytes > limits::QUEUE_BODY_BYTES { Err(problem()) } else { Ok(()) }
}

/// Most lines where no primary may be named twice: their hashes are in memory while they are compared.
pub const MOST_UNLIKE: u64 = 1_000_000;
/// Lines that are left before no further one is read: jobs that fail must not pile up in the message.
const MOST_LEFT: usize = 100;

/// A message about the primaries of a list in a blob.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedBatch {
    op: &'static str,
    effect: Effect,
    shared: SharedFields,
    /// The form of a line.
    line: SubjectList,
    /// The blob with the list, in [`STAGING`](crate::model::large::STAGING).
    pub blob: StagedBlob,
    /// How far its jobs have come.
    pub cursor: ListCursor,
}

/// How far the jobs of a list have come. A client sends none; a worker writes it into the message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListCursor {
    /// The blob's ETag: every line is of this version.
    pub etag: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Where the next line that was not read begins.
    pub next: u64,
    /// Where the lines before it begin that come again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<u64>,
    /// The delivery that wrote this: the next one is the first of the lines from `next` on.
    pub delivery: u32,
    /// Whether an earlier delivery may have begun jobs of these all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub begun: bool,
    /// The worker's seal on the cursor and on the message that carries it: a cursor from any other sender is not trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

impl JobCursor for ListCursor {
    fn take_seal(&mut self) -> Option<String> {
        self.seal.take()
    }
    fn has_begun(&self) -> bool {
        *self != Self::default()
    }
    fn restart(&mut self) {
        *self = Self::default();
    }
    fn to_json(&self) -> Value {
        json!(self)
    }
}

/// What a delivery reads of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextLines {
    /// The lines from this place on.
    From(u64),
    /// The lines at these places, those that have waited longest first.
    At(Vec<u64>),
}

impl ListCursor {
    /// Of a list that was checked, none of its lines read.
    pub fn checked(etag: String, bytes: u64, delivery: u32) -> Self {
        Self { etag, bytes, delivery, ..Self::default() }
    }

    /// The lines of the next delivery: new ones while few are left, so that jobs that fail keep no others waiting.
    pub fn reading(&self) -> NextLines {
        if self.next < self.bytes && self.left.len() < MOST_LEFT {
            return NextLines::From(self.next);
        }
        NextLines::At(self.left.iter().copied().take(BATCH_KEYS).collect())
    }

    /// The dequeue count of its lines in the delivery of this count: lines that were never read are delivered for the first time.
    pub fn deliveries(&self, dequeue_count: u32) -> u32 {
        match self.reading() {
            NextLines::From(_) if !self.begun => dequeue_count.saturating_sub(self.delivery).max(1),
            NextLines::From(_) | NextLines::At(_) => dequeue_count,
        }
    }
}

/// Where the jobs of a batch come from, when their list lies in a blob.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LineWindow {
    /// The cursor that it was read at.
    cursor: ListCursor,
    /// Where each line begins.
    places: Vec<u64>,
    /// Where the first line begins that was not read.
    next: u64,
    /// The delivery that works on it.
    delivery: u32,
}

impl LineWindow {
    /// The cursor after a delivery that did not begin the jobs from `unbegun` on, and of which these others come again; `None` where the
    /// list is done.
    pub(super) fn after(&self, unbegun: usize, again: &[usize]) -> Option<ListCursor> {
        let Self { cursor, places, next, delivery } = self;
        let read: BTreeSet<u64> = places.iter().copied().collect();
        let fresh = matches!(cursor.reading(), NextLines::From(_));
        let waiting = places.get(unbegun..).unwrap_or_default();
        // A run that took the process down may have begun those that this one did not.
        let begun = if fresh { !waiting.is_empty() && cursor.deliveries(*delivery) > 1 } else { cursor.begun };
        let (next, waiting) = if fresh { (waiting.first().copied().unwrap_or(*next), &[][..]) } else { (*next, waiting) };
        let failed = again.iter().filter_map(|at| places.get(*at));
        let earlier = cursor.left.iter().filter(|place| !read.contains(place));
        let left: Vec<u64> = earlier.chain(waiting).chain(failed).copied().collect();
        let goes_on = next < cursor.bytes || !left.is_empty();
        goes_on.then(|| ListCursor { next, left, delivery: *delivery, begun, seal: None, ..cursor.clone() })
    }
}

impl ListedBatch {
    /// The batch of a message; `None` where its list lies in no blob.
    ///
    /// # Errors
    ///
    /// Mistakes of the message: an operation that is about one primary, a blob outside of the staging container, fields that no job of the
    /// operation has, or that have no meaning beside a list.
    pub(super) fn of(object: &mut Map<String, Value>) -> Result<Option<Self>, JobError> {
        let Some(Described { op, known, effect, listing, .. }) = object.get("op").and_then(Value::as_str).and_then(described) else {
            return Ok(None);
        };
        let Some(blob) = object.remove(KEYS_REF) else { return Ok(None) };
        let mut shared = std::mem::take(object);
        let wrong = |problem: String| JobError::field(op, problem);
        let line = match listing {
            None => return Err(wrong(format!("the field {KEYS_REF:?} is none of this operation"))),
            Some(Listing::Entities) => SubjectList::Entities,
            Some(Listing::Keys) if shared.contains_key("pk") => SubjectList::RowKeys,
            Some(Listing::Keys) => SubjectList::Keys,
        };
        let mut beside = SubjectList::ALL.into_iter().map(SubjectList::field).chain(line.refused());
        if let Some(beside) = beside.find(|name| shared.contains_key(*name)) {
            return Err(wrong(format!("the field {beside:?} has no meaning beside {KEYS_REF:?}")));
        }
        let blob = staged(op, KEYS_REF, blob)?;
        let cursor = shared.remove("cursor").map(serde_json::from_value).transpose();
        let cursor =
            cursor.map_err(|_| wrong("the field \"cursor\" is none of a worker's; a client sends none".to_owned()))?.unwrap_or_default();
        let shared = SharedFields::of(line, known(), shared);
        let listed = Self { op, effect, shared, line, blob, cursor };
        listed.sample()?;
        listed.shared.check(op)?;
        Ok(Some(listed))
    }

    /// The operation, as `op` spells it.
    pub const fn op(&self) -> &'static str {
        self.op
    }

    /// Whether a primary may be named twice: the second time has no effect.
    pub fn may_repeat(&self) -> bool {
        self.effect == Effect::Derives
    }

    /// A job as those of the list, about a primary of no meaning.
    ///
    /// # Errors
    ///
    /// Mistakes in the fields that all jobs share.
    pub fn sample(&self) -> Result<JobEnvelope, JobError> {
        let envelope = decode_job(self.line.sample_of(&self.shared))?;
        Ok(JobEnvelope { unknown_fields: self.shared.unknown.clone(), ..envelope })
    }

    /// How many fields beside the list no job reads.
    pub fn unknown_fields(&self) -> usize {
        self.shared.unknown.len()
    }

    /// The item of a line.
    ///
    /// # Errors
    ///
    /// The line is no item of such a list: why, in words.
    pub fn item(&self, line: &[u8]) -> Result<Value, String> {
        let text = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
        let Unambiguous(item) = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {}", quoted::cut(error, 600)))?;
        unrounded(text).map_err(|error| error.to_string())?;
        if self.line.fields(&item).is_none() { Err(format!("it is not {}", self.line.shape())) } else { Ok(item) }
    }

    /// The jobs of these lines, with the place where the next one begins; `None` without a line. Of primaries named twice the first counts.
    pub fn window(&self, lines: Vec<(u64, Value)>, next: u64, delivery: u32) -> Option<Batch> {
        let mut seen = BTreeSet::new();
        let (places, items): (Vec<u64>, Vec<Value>) =
            lines.into_iter().filter(|(_, item)| self.line.key(item).is_none_or(|key| seen.insert(key))).unzip();
        let window = LineWindow { cursor: self.cursor.clone(), places, next, delivery };
        (!items.is_empty()).then(|| Batch { op: self.op, shared: self.shared.clone(), list: self.line, items, window: Some(window) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(message: Value) -> Result<Option<ListedBatch>, JobError> {
        let Value::Object(mut object) = message else { panic!("no object") };
        ListedBatch::of(&mut object)
    }

    fn sync() -> ListedBatch {
        let blob = json!({"blob": "evenkeel-staging/list.jsonl"});
        let mut listed = listed(json!({"op": "sync", "table": "Staff", "pk": "p", "keys_ref": blob, "id": "mine"})).unwrap().unwrap();
        listed.cursor = ListCursor::checked("e".to_owned(), 100, 1);
        listed
    }

    fn window(listed: &ListedBatch, places: &[u64], next: u64) -> Batch {
        let lines = places.iter().map(|place| (*place, json!(place.to_string()))).collect();
        listed.window(lines, next, 2).unwrap()
    }

    fn cursor(batch: &Batch, unbegun: usize, again: &[usize]) -> Option<ListCursor> {
        batch.window.as_ref().unwrap().after(unbegun, again)
    }

    #[test]
    fn each_operation_has_its_form_of_a_line() {
        let blob = json!({"blob": "evenkeel-staging/a/b.jsonl", "sha256": "0".repeat(64)});
        for (message, line) in [
            (json!({"op": "sync", "table": "Staff", "keys_ref": blob}), r#"["p", "1"]"#),
            (json!({"op": "archive", "archive": "former", "pk": "p", "keys_ref": blob}), r#""1""#),
            (
                json!({"op": "put", "table": "Staff", "mode": "merge", "newer_by": "V", "keys_ref": blob}),
                r#"{"PartitionKey": "p", "RowKey": "1", "V": 2}"#,
            ),
        ] {
            let listed = listed(message).unwrap().unwrap();
            let item = listed.item(line.as_bytes()).unwrap();
            let batch = listed.window(vec![(0, item)], 9, 1).unwrap();
            assert_eq!(batch.job(0).unwrap().job.key().unwrap().to_string(), "(\"p\", \"1\")");
            assert!(!batch.single(0).contains_key("keys_ref"));
        }
    }

    #[test]
    fn mistakes_of_the_message_are_told_before_the_blob_is_read() {
        let blob = json!({"blob": "evenkeel-staging/list.jsonl"});
        for (message, word) in [
            (json!({"op": "move", "table": "Staff", "keys_ref": blob}), "none of this operation"),
            (json!({"op": "sync", "table": "Staff", "keys_ref": blob, "keys": []}), "\"keys\""),
            (json!({"op": "sync", "table": "Staff", "keys_ref": blob, "rk": "1"}), "\"rk\""),
            (json!({"op": "delete", "table": "Staff", "keys_ref": blob, "if_match": "e"}), "if_match"),
            (json!({"op": "put", "table": "Staff", "keys_ref": blob, "entity": {}}), "\"entity\""),
            (json!({"op": "sync", "table": "Staff", "keys_ref": {"blob": "others/list"}}), "evenkeel-staging"),
            (json!({"op": "sync", "table": "Staff", "keys_ref": "list"}), "keys_ref"),
            (json!({"op": "sync", "table": "S", "keys_ref": blob}), "table"),
            (json!({"op": "sync", "table": "Staff", "keys_ref": blob, "cursor": 0}), "a client sends none"),
        ] {
            let error = listed(message.clone()).unwrap_err().to_string();
            assert!(error.contains(word), "{message}: {error} does not name {word}");
        }
    }

    #[test]
    fn a_line_that_is_no_item_says_why() {
        let listed = sync();
        for (line, word) in [(&b"000223"[..], "not JSON"), (b"\"1", "not JSON"), (b"[\"p\", \"1\"]", "not a RowKey"), (b"\xff", "UTF-8")] {
            let error = listed.item(line).unwrap_err();
            assert!(error.contains(word), "{error} does not name {word}");
        }
        assert!(may_have(49_152).is_ok() && may_have(49_153).is_err());
    }

    #[test]
    fn the_message_goes_on_behind_the_last_job_that_was_begun() {
        let listed = sync();
        assert_eq!(listed.cursor.reading(), NextLines::From(0));
        let batch = window(&listed, &[0, 10, 20], 30);
        let after = cursor(&batch, 3, &[]).unwrap();
        assert_eq!((after.next, after.left.as_slice(), after.delivery), (30, &[][..], 2));
        let after = cursor(&batch, 2, &[1]).unwrap();
        assert_eq!((after.next, after.left.as_slice()), (20, &[10][..]));
    }

    #[test]
    fn the_list_is_done_when_every_line_is() {
        let mut listed = sync();
        listed.cursor.next = 90;
        assert_eq!(cursor(&window(&listed, &[90], 100), 1, &[]), None);
        let mut rest = cursor(&window(&listed, &[90], 100), 1, &[0]).unwrap();
        assert_eq!((rest.next, rest.reading()), (100, NextLines::At(vec![90])));
        std::mem::swap(&mut listed.cursor, &mut rest);
        assert_eq!(cursor(&window(&listed, &[90], 100), 1, &[]), None);
    }

    #[test]
    fn jobs_that_fail_keep_the_others_waiting_only_when_they_are_many() {
        let mut listed = sync();
        (listed.cursor.next, listed.cursor.left) = (50, vec![10, 5]);
        assert_eq!(listed.cursor.reading(), NextLines::From(50));
        let after = cursor(&window(&listed, &[50, 60], 70), 2, &[0]).unwrap();
        assert_eq!((after.next, after.left.as_slice()), (70, &[10, 5, 50][..]));
        listed.cursor.left = (0..100).collect();
        assert_eq!(listed.cursor.reading(), NextLines::At((0..100).collect()));
        let after = cursor(&window(&listed, &[1, 2, 3], 50), 2, &[0]).unwrap();
        assert_eq!((after.next, after.left.len()), (50, 99), "2 is done; 3 was not begun and 1 failed");
        assert_eq!(after.left[97..], [3, 1]);
        listed.cursor = ListCursor { next: 100, ..after };
        let NextLines::At(places) = listed.cursor.reading() else { panic!("{:?}", listed.cursor) };
        assert_eq!(places[97..], [3, 1], "one that has failed goes behind those that were not begun, whatever its place");
    }

    #[test]
    fn lines_that_were_never_read_are_delivered_for_the_first_time() {
        let mut cursor = ListCursor::checked("e".to_owned(), 100, 0);
        assert_eq!((cursor.deliveries(1), cursor.deliveries(2)), (1, 2));
        cursor.delivery = 7;
        assert_eq!((cursor.deliveries(8), cursor.deliveries(9)), (1, 2));
        (cursor.next, cursor.left) = (100, vec![10]);
        assert_eq!(cursor.deliveries(8), 8, "these were");
    }

    #[test]
    fn lines_that_a_lost_run_may_have_begun_are_delivered_again() {
        let mut listed = sync();
        let again = |listed: &ListedBatch| listed.window(vec![(0, json!("1")), (10, json!("2"))], 20, 3).unwrap();
        let after = cursor(&again(&listed), 1, &[0]).unwrap();
        assert!(after.begun && after.deliveries(4) == 4, "the second delivery of a window that the first may have run to its end");
        assert!(!cursor(&again(&listed), 2, &[0]).unwrap().begun, "every line of it was begun now");
        assert!(!cursor(&window(&listed, &[0, 10], 20), 1, &[]).unwrap().begun, "in the first one nobody else has");
        listed.cursor = ListCursor { left: (0..100).collect(), ..after };
        assert!(cursor(&again(&listed), 2, &[]).unwrap().begun, "those that were left say nothing of the others");
    }

    #[test]
    fn a_primary_that_is_named_twice_in_a_window_has_one_job() {
        let listed = sync();
        let batch = listed.window(vec![(0, json!("1")), (4, json!("1")), (8, json!("2"))], 12, 1).unwrap();
        assert_eq!(batch.len(), 2);
        assert_eq!(cursor(&batch, 2, &[1]).unwrap().left, [8]);
    }
}
