//! Batches. Each job of a batch has its own entry in the ledger, as if it had its own message.
//!
//! The entry is named after the message and the index of the job in the list that the client sent, such as `id#3`. What
//! happens to the message concerns all jobs that the message still lists. The other jobs have ended.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::expectation::ListedKeys;
use evenkeel_model::job::{self, Note};

/// Separates the id of the message from the index of the job.
const PLACE: char = '#';
/// The id of a poison message for one job of a batch is the id of the batch, a dash, and this many digits.
const DIGITS: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Lists(BTreeMap<String, Vec<ListedKeys>>);

impl Lists {
    pub(super) fn insert(&mut self, message: &str, keys: Vec<ListedKeys>) {
        self.0.insert(message.to_owned(), keys);
    }

    pub(super) fn has(&self, message: &str) -> bool {
        self.0.contains_key(message)
    }

    /// Returns the names of the entries of a message. A message that is not a batch has one entry, with the same name.
    pub(super) fn entries(&self, message: &str) -> Vec<String> {
        match self.0.get(message) {
            None => vec![message.to_owned()],
            Some(keys) => (0..keys.len()).map(|place| entry(message, place)).collect(),
        }
    }

    pub(super) fn entry_of(&self, message: &str, keys: Option<(&str, &str)>) -> String {
        let listed = self.0.get(message);
        let place = listed.zip(keys).and_then(|(listed, (pk, rk))| {
            listed.iter().position(|keys| keys.0 == pk && keys.1 == rk)
        });
        place.map_or_else(|| message.to_owned(), |place| entry(message, place))
    }

    /// Returns the names of the entries that a poison message concerns. `id` and `body` are fields of the poison
    /// message.
    pub(super) fn poisoned(&self, id: &str, body: &str) -> Vec<String> {
        let single = id
            .len()
            .checked_sub(DIGITS + 1)
            .and_then(|end| id.split_at_checked(end))
            .filter(|(message, digits)| {
                self.0.contains_key(*message)
                    && digits.starts_with('-')
                    && digits[1..].bytes().all(|digit| digit.is_ascii_hexdigit())
            });
        let Some((message, _)) = single else {
            return self.entries(id);
        };
        let object: Map<String, Value> = serde_json::from_str(body).unwrap_or_default();
        let named = object
            .get("entity")
            .and_then(in_entity)
            .or_else(|| keys_of(object.get("pk"), object.get("rk")));
        vec![self.entry_of(
            message,
            named.as_ref().map(|(pk, rk)| (pk.as_str(), rk.as_str())),
        )]
    }
}

fn entry(message: &str, place: usize) -> String {
    format!("{message}{PLACE}{place}")
}

pub(super) fn message_of(entry: &str) -> &str {
    entry
        .split_once(PLACE)
        .map_or(entry, |(message, _)| message)
}

/// Returns the keys that a message lists, in order and without duplicates, or `None` if the message is not a batch.
pub(super) fn listed(text: &str) -> Option<Vec<ListedKeys>> {
    listed_in(&job::decode_object(text).ok()?)
}

fn listed_in(object: &Map<String, Value>) -> Option<Vec<ListedKeys>> {
    let list = |field: &str| object.get(field).and_then(Value::as_array);
    let keys: Vec<ListedKeys> = if let Some(rks) = list("rks") {
        rks.iter()
            .filter_map(|rk| keys_of(object.get("pk"), Some(rk)))
            .collect()
    } else if let Some(keys) = list("keys") {
        keys.iter()
            .filter_map(|key| keys_of(key.get(0), key.get(1)))
            .collect()
    } else if let Some(rechecks) = list("rechecks") {
        rechecks
            .iter()
            .filter_map(|one| keys_of(one.get("pk"), one.get("rk")))
            .collect()
    } else {
        list("entities")?.iter().filter_map(in_entity).collect()
    };
    let mut unique = Vec::with_capacity(keys.len());
    for keys in keys {
        if !unique.contains(&keys) {
            unique.push(keys);
        }
    }
    Some(unique)
}

/// The content of a message, decoded once for all jobs of the message.
#[derive(Debug)]
pub(super) struct MessageContent {
    pub(super) text: String,
    pub(super) listed: Option<Vec<ListedKeys>>,
    pub(super) client_id: Option<Value>,
    note: Option<Note>,
}

impl MessageContent {
    pub(super) fn of(text: &str, message: &str) -> Self {
        let object = job::decode_object(text).ok();
        Self {
            text: text.to_owned(),
            listed: object.as_ref().and_then(listed_in),
            client_id: object.as_ref().and_then(|object| object.get("id").cloned()),
            note: object.and_then(|object| job::note(&object, message)),
        }
    }

    /// Number of deliveries that do not count as attempts, according to the `Note` in the message.
    pub(super) fn free(&self) -> u64 {
        self.note.as_ref().map_or(0, |note| u64::from(note.free))
    }

    /// Number of runs that began in the deliveries that count, according to the `Note` in the message.
    pub(super) fn begun(&self) -> u64 {
        self.note.as_ref().map_or(0, |note| u64::from(note.begun))
    }

    /// Returns how many more attempts a batch has than a single job, and whether this job runs in this attempt. The
    /// first attempt runs all jobs of the batch, or as many as the `Note` allows. If an attempt never ends, the next
    /// attempt runs only the first half of that attempt's jobs.
    pub(super) fn turn(&self, keys: &ListedKeys, attempt: u64) -> (u64, bool) {
        let Some(listed) = &self.listed else {
            return (0, true);
        };
        let most = self.note.as_ref().and_then(|note| note.at_once);
        let at_once = most
            .map_or(listed.len(), |most| listed.len().min(most as usize))
            .max(1);
        let mut width = at_once;
        (1..attempt).for_each(|_| width = (width / 2).max(1));
        let mut halvings = 0;
        while 1_usize << halvings < at_once {
            halvings += 1;
        }
        (
            halvings,
            listed
                .iter()
                .position(|other| other == keys)
                .is_some_and(|place| place < width),
        )
    }
}

fn keys_of(pk: Option<&Value>, rk: Option<&Value>) -> Option<ListedKeys> {
    Some((pk?.as_str()?.to_owned(), rk?.as_str()?.to_owned()))
}

fn in_entity(entity: &Value) -> Option<ListedKeys> {
    keys_of(entity.get("PartitionKey"), entity.get("RowKey"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn keys(rks: &[&str]) -> Vec<ListedKeys> {
        rks.iter()
            .map(|rk| ("p".to_owned(), (*rk).to_owned()))
            .collect()
    }

    #[test]
    fn each_form_of_a_list_names_its_primaries_once() {
        for message in [
            json!({"op": "sync", "pk": "p", "rks": ["1", "2", "1"]}),
            json!({"op": "sync", "keys": [["p", "1"], ["p", "2"]]}),
            json!({"op": "put", "entities": [{"PartitionKey": "p", "RowKey": "1"}, {"PartitionKey": "p", "RowKey": "2"}]}),
            json!({"op": "recheck", "rechecks": [{"pk": "p", "rk": "1", "items": []}, {"pk": "p", "rk": "2", "items": []}]}),
        ] {
            assert_eq!(
                listed(&message.to_string()),
                Some(keys(&["1", "2"])),
                "{message}"
            );
        }
        assert_eq!(listed(r#"{"op":"sync","pk":"p","rk":"1"}"#), None);
    }

    #[test]
    fn a_poison_message_is_about_the_job_that_its_body_names_or_about_all() {
        let mut lists = Lists::default();
        lists.insert("m-7", keys(&["1", "a/b"]));
        let one = "m-7-0123456789abcdef";
        assert_eq!(
            lists.poisoned(one, r#"{"op":"sync","pk":"p","rk":"a/b"}"#),
            ["m-7#1"]
        );
        assert_eq!(
            lists.poisoned(
                one,
                r#"{"op":"put","entity":{"PartitionKey":"p","RowKey":"1"}}"#
            ),
            ["m-7#0"]
        );
        assert_eq!(lists.poisoned("m-7", "{}"), ["m-7#0", "m-7#1"]);
        assert_eq!(lists.poisoned("m-8", "{}"), ["m-8"]);
        assert_eq!((message_of("m-7#1"), message_of("m-8")), ("m-7", "m-8"));
    }

    #[test]
    fn after_runs_that_never_ended_only_the_first_jobs_run() {
        let text = |at_once: &str| {
            format!(
                r#"{{"pk":"p","rks":["1","2","3","4"],"ek":{{"id":"m","free":0,"begun":0{at_once}}}}}"#
            )
        };
        let turns = |text: &str, attempt| {
            keys(&["1", "2", "3", "4"])
                .iter()
                .map(|keys| MessageContent::of(text, "m").turn(keys, attempt))
                .collect::<Vec<_>>()
        };
        let (yes, no) = ((2, true), (2, false));
        assert_eq!(turns(&text(""), 1), [yes; 4]);
        assert_eq!(turns(&text(""), 2), [yes, yes, no, no]);
        assert_eq!(turns(&text(""), 5), [yes, no, no, no]);
        assert_eq!(
            turns(&text(r#","at_once":2"#), 1),
            [(1, true), (1, true), (1, false), (1, false)]
        );
    }
}
