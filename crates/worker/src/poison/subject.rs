//! Which primaries a poisoned message is about, also if it is no valid job: its keys are read leniently. Pure.
//!
//! ```text
//!   an event that a mapping takes                      the job that it becomes
//!   an object with keys where a job has them           these keys, whatever else is wrong with it
//!   any other text that names both keys                about that primary
//! ```

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::filter::SoughtKey;
use super::mention::{Mention, Spellings};
use crate::context::KeyOf;
use evenkeel_model::allowed::AllowedTables;
use evenkeel_model::body::Extent;
use evenkeel_model::event::{EventMappings, ForeignEvent};
use evenkeel_model::job::{self, Primary, StagedBlob};
use evenkeel_model::nearest::nearest;
use evenkeel_model::{AccountName, EntityKey, Job, QueueName, TableName, limits};

/// What is kept in place of a body that may not be kept.
const WITHHELD: &str = "withheld";

/// A primary that is erased, and how far its erasure reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasedPrimary {
    /// The primary.
    pub primary: Primary,
    /// When its erasure was sent, by the clock of the queue; now if there is none. What was put since may be about an entity put anew.
    pub sent: Option<Timestamp>,
    /// Limits of the erasure, if its queue has any.
    pub reach: Option<ErasureReach>,
}

/// The reach of an erasure that came from a queue of some tables: messages about these tables, and of its own queue those that name no table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasureReach {
    /// The tables of the queue.
    pub tables: AllowedTables,
    /// The account of the queue.
    pub account: AccountName,
    /// Its recheck queue, which all its shards share.
    pub recheck: QueueName,
}

/// What is erased, and how messages are read.
pub(crate) struct Sought<'s> {
    pub(crate) erased: &'s [ErasedPrimary],
    pub(crate) key_of: &'s KeyOf,
    pub(crate) events: &'s EventMappings,
}

/// What a poisoned message has to do with erased primaries.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Bearing {
    /// It is about one of them, and about nothing else; with the blobs that it had staged.
    About(Vec<StagedBlob>),
    /// It is about one of them, and about others too.
    Several,
    /// Nobody can tell.
    Unclear,
    /// It is about something else.
    Other,
}

/// A key that a message names, with the field that tells its table.
#[derive(Debug, Clone, PartialEq)]
struct NamedKey {
    /// `table` or `archive`.
    field: &'static str,
    /// Its value.
    of: Option<String>,
    pk: String,
    rk: String,
}

/// The keys of one job: two if it moves an entity, none if they cannot be read.
type NamedJob = Vec<NamedKey>;

/// How a job matches what is sought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Match {
    Other,
    Unclear,
    About,
}

impl Sought<'_> {
    /// The bearing of a message with this body that was first put at this time, on the poison queue of this account and recheck queue.
    pub(super) fn bearing(
        &self,
        kept: &str,
        put: Timestamp,
        account: &AccountName,
        recheck: &QueueName,
    ) -> Bearing {
        let of_all = self.bearing_of(kept, account, recheck);
        let is_older = |erased: &&ErasedPrimary| erased.sent.is_none_or(|sent| put <= sent);
        if !matches!(of_all, Bearing::About(_))
            || self.erased.iter().all(|erased| is_older(&erased))
        {
            return of_all;
        }
        let erased: Vec<ErasedPrimary> = self.erased.iter().filter(is_older).cloned().collect();
        match (Sought {
            erased: &erased,
            ..*self
        })
        .bearing_of(kept, account, recheck)
        {
            about @ Bearing::About(_) => about,
            _ => Bearing::Unclear,
        }
    }

    fn bearing_of(&self, kept: &str, account: &AccountName, recheck: &QueueName) -> Bearing {
        let is_own = |reach: &ErasureReach| reach.account == *account && reach.recheck == *recheck;
        let Ok(object) = job::kept_object(kept) else {
            return self.bearing_of_text(kept, &is_own);
        };
        if is_withheld(&object) {
            return Bearing::Unclear;
        }
        let jobs = self.jobs_in(&object);
        match self.judged(&jobs, &is_own) {
            // Some of its entities cannot be told.
            Some(Bearing::Other) if jobs.iter().any(Vec::is_empty) => {
                self.at_most_unclear(&Spellings::of(kept), &is_own)
            }
            // It has items to look at that no footprint lists: it is to be requeued.
            Some(Bearing::About(_)) if object.get("op").is_some_and(|op| op == job::RECHECK) => {
                Bearing::Unclear
            }
            Some(Bearing::About(_)) => Bearing::About(staged(object)),
            Some(found) => found,
            None => {
                let mentioned = self.mentioned(&Spellings::of(kept), &is_own);
                match job::decode_request(object) {
                    // A valid job about many primaries need not name each of them.
                    Ok(_) if matches!(mentioned, Bearing::About(_)) => Bearing::Several,
                    Ok(_) => Bearing::Other,
                    Err(_) => mentioned,
                }
            }
        }
    }

    /// The bearing of a text that is no JSON object, or an ambiguous one.
    fn bearing_of_text(&self, kept: &str, is_own: &dyn Fn(&ErasureReach) -> bool) -> Bearing {
        let spellings = Spellings::of(kept);
        let mut jobs = Vec::new();
        for value in spellings.texts().filter_map(lenient) {
            if value.as_object().is_some_and(is_withheld) {
                return Bearing::Unclear;
            }
            jobs.extend(self.jobs(&value));
        }
        match self.judged(&jobs, is_own) {
            None => self.mentioned(&spellings, is_own),
            Some(Bearing::Other) => self.at_most_unclear(&spellings, is_own),
            Some(found) => found,
        }
    }

    /// The bearing of a message that names other primaries, and this one perhaps.
    fn at_most_unclear(
        &self,
        spellings: &Spellings,
        is_own: &dyn Fn(&ErasureReach) -> bool,
    ) -> Bearing {
        match self.mentioned(spellings, is_own) {
            Bearing::About(_) => Bearing::Unclear,
            found => found,
        }
    }

    /// The bearing of jobs that a message names; `None` if it names none.
    fn judged(&self, jobs: &[NamedJob], is_own: &dyn Fn(&ErasureReach) -> bool) -> Option<Bearing> {
        let matches: Vec<Match> = jobs.iter().map(|job| self.matching(job, is_own)).collect();
        let all = matches.iter().all(|found| *found == Match::About);
        Some(match matches.iter().max()? {
            Match::About if all => Bearing::About(Vec::new()),
            Match::About => Bearing::Several,
            Match::Unclear => Bearing::Unclear,
            Match::Other => Bearing::Other,
        })
    }

    /// The bearing of a text by the keys that it names anywhere.
    fn mentioned(&self, spellings: &Spellings, is_own: &dyn Fn(&ErasureReach) -> bool) -> Bearing {
        let mut found = if spellings.opaque {
            Bearing::Unclear
        } else {
            Bearing::Other
        };
        for erased in self.erased {
            match spellings.mention(&erased.primary.key) {
                Mention::Both if erased.reach.as_ref().is_none_or(is_own) => {
                    return Bearing::About(Vec::new());
                }
                Mention::Both | Mention::RowKey => found = Bearing::Unclear,
                Mention::Neither => {}
            }
        }
        found
    }

    /// Whether an error of another message names an erased primary.
    pub(super) fn is_named_in(&self, error: &str) -> bool {
        self.erased
            .iter()
            .any(|erased| error.contains(&erased.primary.to_string()))
    }

    /// The jobs that a value names: one, those of a batch, those of a list of jobs.
    fn jobs(&self, value: &Value) -> Vec<NamedJob> {
        match value {
            Value::Array(values) => {
                let jobs = values.iter().map(|value| self.jobs(value));
                told(
                    jobs.flat_map(|jobs| {
                        if jobs.is_empty() {
                            vec![NamedJob::new()]
                        } else {
                            jobs
                        }
                    })
                    .collect(),
                )
            }
            Value::Object(object) => self.jobs_in(object),
            _ => Vec::new(),
        }
    }

    fn jobs_in(&self, object: &Map<String, Value>) -> Vec<NamedJob> {
        match ForeignEvent::of(object) {
            Some(event) => event
                .and_then(|event| self.events.map(&event))
                .map(|mapped| jobs_of(&mapped.job))
                .unwrap_or_default(),
            None => jobs_of(object),
        }
    }

    fn matching(&self, job: &NamedJob, is_own: &dyn Fn(&ErasureReach) -> bool) -> Match {
        let forms: Vec<Vec<Primary>> = job.iter().map(|named| self.forms_of(named)).collect();
        let of_one = |named: &NamedKey, of: &[Primary], erased: &ErasedPrimary| {
            let ErasedPrimary {
                primary:
                    Primary {
                        table,
                        key: EntityKey { pk, rk },
                    },
                reach,
                ..
            } = erased;
            if named.pk != pk.as_str() || named.rk != rk.as_str() {
                return Match::Other;
            }
            // An erasure takes archived forms along.
            let as_erased = |of: &'_ [Primary]| {
                of.iter()
                    .find(|form| form.table == *table)
                    .or_else(|| of.first())
                    .map(|form| form.table.clone())
            };
            let primary = as_erased(of);
            let known: BTreeSet<TableName> = forms.iter().filter_map(|of| as_erased(of)).collect();
            let may_reach = reach.as_ref().is_none_or(|reach| match primary {
                Some(_) => reach.tables.refuse(known.iter()).is_none(),
                None => is_own(reach),
            });
            match (primary, &named.of) {
                (Some(found), _) if found != *table => Match::Other,
                (Some(_), _) | (None, None) if may_reach => Match::About,
                (Some(_), _) => Match::Other,
                // Misspelt.
                (None, Some(of))
                    if may_reach
                        && named.field == "table"
                        && nearest(of, [table.as_str()]).is_some() =>
                {
                    Match::About
                }
                (None, _) => Match::Unclear,
            }
        };
        let each = job.iter().zip(&forms).flat_map(|(named, of)| {
            self.erased
                .iter()
                .map(move |erased| of_one(named, of, erased))
        });
        each.max().unwrap_or(Match::Other)
    }

    /// The primary of a key, its table spelled as declared; then, of an archived one, those that it was. None if no such table or archive is
    /// known.
    fn forms_of(&self, NamedKey { field, of, pk, rk }: &NamedKey) -> Vec<Primary> {
        let op = if *field == "archive" {
            "archive"
        } else {
            "sync"
        };
        let Value::Object(plain) = json!({"op": op, *field: of, "pk": pk, "rk": rk}) else {
            return Vec::new();
        };
        job::decode_job(plain)
            .map(|envelope| (self.key_of)(&envelope.job))
            .unwrap_or_default()
    }
}

/// The blobs that a valid job has staged.
fn staged(object: Map<String, Value>) -> Vec<StagedBlob> {
    let job: Option<Job> = job::decode_job(object).ok().map(|envelope| envelope.job);
    job.iter().flat_map(Job::staged).cloned().collect()
}

/// A text as JSON, if it is an object or a list and takes no more memory than a message may. Several, as in lines of JSON, are a list of
/// them, with null for what follows the first and cannot be read.
fn lenient(text: &str) -> Option<Value> {
    let text = text.trim_start_matches('\u{feff}').trim();
    let fits = Extent::of(text.as_bytes()).parsed() <= limits::PARSED_BODY_BYTES;
    if !text.starts_with(['{', '[']) || !fits {
        return None;
    }
    let mut values = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        match value {
            Ok(value) => values.push(value),
            Err(_) if values.is_empty() => return None,
            Err(_) => {
                values.push(Value::Null);
                break;
            }
        }
    }
    if values.len() == 1 {
        values.pop()
    } else {
        Some(Value::Array(values))
    }
}

/// Whether nothing is kept of a body but its size.
fn is_withheld(object: &Map<String, Value>) -> bool {
    object.contains_key(WITHHELD) && !object.contains_key("op")
}

/// A key as it stands there, or what was meant by it.
fn text(object: &Map<String, Value>, name: &str) -> Option<String> {
    match object.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The jobs of a list, as far as one of them tells its keys.
fn told(jobs: Vec<NamedJob>) -> Vec<NamedJob> {
    if jobs.iter().all(Vec::is_empty) {
        Vec::new()
    } else {
        jobs
    }
}

/// Whether a body names an entity of this table, of any case, and key. `None` where it names nothing to judge that by.
pub(super) fn names_entity(
    kept: &str,
    table: Option<&str>,
    key: Option<&SoughtKey>,
) -> Option<bool> {
    let object = job::kept_object(kept).ok()?;
    let is_of = |of: &str| table.is_none_or(|table| table.eq_ignore_ascii_case(of));
    let jobs = jobs_of(&object);
    if jobs.is_empty() {
        return text(&object, "table")
            .filter(|_| key.is_none())
            .map(|of| is_of(&of));
    }
    let is_meant = |named: &NamedKey| {
        let of = named.of.as_deref().map_or_else(|| table.is_none(), is_of);
        of && key.is_none_or(|key| key.is(&named.pk, &named.rk))
    };
    Some(jobs.iter().flatten().any(is_meant))
}

fn jobs_of(object: &Map<String, Value>) -> Vec<NamedJob> {
    let field = if object.contains_key("archive") {
        "archive"
    } else {
        "table"
    };
    let of = text(object, field);
    let named = |pk, rk| NamedKey {
        field,
        of: of.clone(),
        pk,
        rk,
    };
    let of_entity = |entity: &Value| {
        // Some senders encode an entity twice.
        let read = entity.as_str().and_then(lenient);
        let entity = read.as_ref().unwrap_or(entity).as_object()?;
        Some(vec![named(
            text(entity, "PartitionKey")?,
            text(entity, "RowKey")?,
        )])
    };
    let list = |name: &str| object.get(name).and_then(Value::as_array);
    let each = |items: &Vec<Value>, key: &dyn Fn(&Value) -> Option<NamedJob>| {
        told(
            items
                .iter()
                .map(|item| key(item).unwrap_or_default())
                .collect(),
        )
    };
    if let Some(entities) = list("entities") {
        return each(entities, &of_entity);
    }
    if let Some((pk, rks)) = text(object, "pk").zip(list("rks")) {
        return each(rks, &|rk| {
            Some(vec![named(pk.clone(), rk.as_str()?.to_owned())])
        });
    }
    if let Some(keys) = list("keys") {
        return each(keys, &|key| {
            Some(vec![named(
                key.get(0)?.as_str()?.to_owned(),
                key.get(1)?.as_str()?.to_owned(),
            )])
        });
    }
    if let Some(rechecks) = list(job::RECHECKS) {
        return each(rechecks, &|one| {
            Some(vec![named(
                text(one.as_object()?, "pk")?,
                text(one.as_object()?, "rk")?,
            )])
        });
    }
    if let Some(job) = object.get("entity").and_then(of_entity) {
        return vec![job];
    }
    let Some((pk, rk)) = text(object, "pk").zip(text(object, "rk")) else {
        return Vec::new();
    };
    let to = text(object, "to_pk").zip(text(object, "to_rk"));
    let of_target = text(object, "to_table").or_else(|| of.clone());
    let moved = to.map(|(pk, rk)| NamedKey {
        field: "table",
        of: of_target,
        pk,
        rk,
    });
    vec![[named(pk, rk)].into_iter().chain(moved).collect()]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use evenkeel_model::ViewName;
    use evenkeel_model::allowed::AllowedTable;
    use evenkeel_model::body;
    use evenkeel_model::event::EventMapping;
    use evenkeel_model::job::JobSubject;

    /// Knows the tables Employees and Partners, and the archive `former` of the first, with its table FormerEmployees.
    fn key_of() -> KeyOf {
        Arc::new(|job| {
            let of = |name: &str, key: &EntityKey| Primary {
                table: TableName::new(name).unwrap(),
                key: key.clone(),
            };
            match job.operation().subject() {
                JobSubject::Primary(table, key)
                    if ["employees", "partners"].contains(&&*table.canonical()) =>
                {
                    vec![Primary {
                        table: table.clone(),
                        key: key.clone(),
                    }]
                }
                JobSubject::Primary(table, key) if table.canonical() == "formeremployees" => {
                    vec![of("FormerEmployees", key), of("Employees", key)]
                }
                JobSubject::Moved(from, _) => vec![from.clone()],
                JobSubject::Archived(archive, key) if archive.as_str() == "former" => {
                    vec![of("Employees", key)]
                }
                _ => Vec::new(),
            }
        })
    }

    fn events() -> EventMappings {
        let Value::Object(put) = json!({
            "op": "put", "table": "Employees", "entity": {"PartitionKey": "{data.department}", "RowKey": "{data.number}", "Email": "{data.email}"},
        }) else {
            unreachable!("it is an object")
        };
        let when = evenkeel_model::condition::Condition::parse(r#"type == "Hired""#).unwrap();
        EventMappings(vec![
            EventMapping::new(ViewName::new("hired").unwrap(), Some(when), put).unwrap(),
        ])
    }

    fn erased(table: &str, reach: Option<ErasureReach>) -> ErasedPrimary {
        let primary = Primary {
            table: TableName::new(table).unwrap(),
            key: EntityKey::new("Sales", "007").unwrap(),
        };
        ErasedPrimary {
            primary,
            sent: None,
            reach,
        }
    }

    fn bearing(kept: &str, erased: ErasedPrimary) -> Bearing {
        let (key_of, events) = (key_of(), events());
        let recheck = QueueName::new("jobs-recheck").unwrap();
        Sought {
            erased: &[erased],
            key_of: &key_of,
            events: &events,
        }
        .bearing(kept, put_at(0), &AccountName::main(), &recheck)
    }

    fn put_at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_message_that_was_put_after_the_erasure_was_sent_is_of_an_entity_put_anew_perhaps() {
        let text =
            r#"{"op":"put","table":"Employees","entity":{"PartitionKey":"Sales","RowKey":"007"}}"#;
        let (about, of) = (Bearing::About(Vec::new()), |sent| ErasedPrimary {
            sent,
            ..erased("Employees", None)
        });
        assert_eq!(bearing(text, of(None)), about);
        assert_eq!(
            (
                bearing(text, of(Some(put_at(0)))),
                bearing(text, of(Some(put_at(1))))
            ),
            (about.clone(), about)
        );
        assert_eq!(bearing(text, of(Some(put_at(-1)))), Bearing::Unclear);
        assert_eq!(
            bearing(&text.replace("007", "008"), of(Some(put_at(-1)))),
            Bearing::Other
        );
    }

    #[test]
    fn a_message_is_about_an_entity_whatever_else_is_wrong_with_it() {
        let put = |more: Value| {
            let mut put = json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "Sales", "RowKey": "007", "Email": "a@b"}});
            put.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            put.to_string()
        };
        let entities = |entities: [Value; 2]| {
            json!({"op": "put", "table": "Employees", "entities": entities}).to_string()
        };
        let hired = |department: &str| {
            let data = json!({"department": department, "number": "007", "email": "a@b"});
            json!({"specversion": "1.0", "id": "1", "source": "s", "type": "Hired", "data": data, "subject": "Sales/007"}).to_string()
        };
        let about = Bearing::About(Vec::new());
        for (text, wanted) in [
            (put(json!({})), &about),
            (put(json!({"mode": "patch"})), &about),
            (put(json!({"v": 2})), &about),
            (put(json!({"op": "explode"})), &about),
            (put(json!({"table": "Employes"})), &about),
            (put(json!({"table": "Partners"})), &Bearing::Other),
            (put(json!({"table": "Nowhere"})), &Bearing::Unclear),
            (put(json!({"entity": {"PartitionKey": "Sales", "RowKey": "007", "ek_x": 1}})), &about),
            (put(json!({"entity": {"PartitionKey": "Sales", "RowKey": "007", "N": "x", "N@odata.type": "Edm.Int32"}})), &about),
            (put(json!({"entity": {"PartitionKey": "Sales", "RowKey": "008", "Of": "007"}})), &Bearing::Other),
            (put(json!({"entity": r#"{"PartitionKey":"Sales","RowKey":"007"}"#})), &about),
            (put(json!({"entities": [{"PartitionKey": "Sales", "RowKey": "007", "A": [1]}]})), &about),
            (
                put(json!({"entities": [{"PartitionKey": "Sales", "RowKey": "007"}, {"PartitionKey": "Sales", "RowKey": "008"}]})),
                &Bearing::Several,
            ),
            (json!({"op": "sync", "table": "Employees", "pk": "Sales", "rks": ["007", "008"]}).to_string(), &Bearing::Several),
            (json!({"op": "sync", "table": "Employees", "keys": [["Sales", "007"]]}).to_string(), &about),
            (json!({"op": "delete", "table": "employees", "pk": "Sales", "rk": "007", "when": "("}).to_string(), &about),
            (json!({"op": "archive", "archive": "former", "pk": "Sales", "rk": "007", "if_match": 7}).to_string(), &about),
            (json!({"op": "sync", "table": "FormerEmployees", "pk": "Sales", "rk": "007", "v": 2}).to_string(), &about),
            (json!({"op": "archive", "archive": "nowhere", "pk": "Sales", "rk": "007"}).to_string(), &Bearing::Unclear),
            (
                json!({"op": "move", "table": "Partners", "pk": "x", "rk": "y", "to_table": "Employees", "to_pk": "Sales", "to_rk": "007"})
                    .to_string(),
                &about,
            ),
            (json!({"op": "delete_where", "table": "Employees", "range": {"pk": "Sales", "from": "007"}}).to_string(), &Bearing::Several),
            (
                json!({"op": "recheck", "v": 1, "table": "Employees", "pk": "Sales", "rk": "007", "items": []}).to_string(),
                &Bearing::Unclear,
            ),
            (hired("Sales"), &about),
            (hired("Marketing"), &Bearing::Other),
            (hired("Sales").replace("Hired", "Fired"), &about),
            (hired("Marketing").replace("Hired", "Fired").replace("Sales/", ""), &Bearing::Unclear),
            (body::encode(&format!("[{}]", put(json!({})))), &about),
            (body::encode(&format!("[{},{}]", put(json!({})), put(json!({})).replace("007", "008"))), &Bearing::Several),
            (
                entities([json!({"PartitionKey": "Sales", "RowKey": "007"}), json!({"partitionKey": "Sales", "rowKey": "008"})]),
                &Bearing::Several,
            ),
            (
                entities([json!({"PartitionKey": "Sales", "RowKey": "008"}), json!({"partitionKey": "Sales", "rowKey": "007"})]),
                &Bearing::Unclear,
            ),
            (
                entities([json!({"PartitionKey": "Sales", "RowKey": "008"}), json!({"partitionKey": "Sales", "rowKey": "009"})]),
                &Bearing::Other,
            ),
            (json!({"op": "sync", "table": "Employees", "keys": [["Sales", "007"], ["Sales"]]}).to_string(), &Bearing::Several),
            (json!({"op": "sync", "table": "Employees", "pk": "Sales", "rks": ["007", 8]}).to_string(), &Bearing::Several),
            (body::encode(&format!("[{},{{\"op\":\"delete_where\"}}]", put(json!({})))), &Bearing::Several),
            (format!("{}\n{}", put(json!({})), put(json!({})).replace("007", "008")), &Bearing::Several),
            (format!("{}\n{}", put(json!({})), &put(json!({})).replace("007", "008")[..80]), &Bearing::Several),
            (body::encode(&put(json!({}))[..80]), &about),
            (body::encode(&put(json!({})).replace("007", "008")[..80]), &Bearing::Other),
            (r#"{"withheld":"90 bytes that are not a job"}"#.to_owned(), &Bearing::Unclear),
            ("hello".to_owned(), &Bearing::Other),
        ] {
            assert_eq!(&bearing(&text, erased("Employees", None)), wanted, "{text}");
        }
    }

    /// An empty key is in every text, and one of signs alone in most: none of them tells whom a message is about.
    #[test]
    fn no_message_is_about_an_entity_whose_keys_are_in_every_text() {
        let broken = r#"{"op":"put","table":"Employees","entity":{"PartitionKey":"Sales - West","RowKey":"008","Age":1"#;
        for (pk, rk, wanted) in [
            ("", "", Bearing::Unclear),
            ("", "008", Bearing::Unclear),
            ("", "7", Bearing::Other),
            ("-", "008", Bearing::Unclear),
            ("Sales - West", "", Bearing::Unclear),
            ("1", "1", Bearing::Unclear),
            ("Sales - West", "008", Bearing::About(Vec::new())),
        ] {
            let primary = Primary {
                table: TableName::new("Employees").unwrap(),
                key: EntityKey::new(pk, rk).unwrap(),
            };
            for text in [broken.to_owned(), body::encode(broken)] {
                assert_eq!(
                    bearing(
                        &text,
                        ErasedPrimary {
                            primary: primary.clone(),
                            sent: None,
                            reach: None
                        }
                    ),
                    wanted,
                    "{pk:?} {rk:?}"
                );
            }
        }
    }

    #[test]
    fn an_erasure_of_a_queue_of_some_tables_reaches_no_message_about_others() {
        let reach = |recheck: &str| {
            let tables = AllowedTables::new(vec![AllowedTable::parse("Partners").unwrap()]);
            Some(ErasureReach {
                tables,
                account: AccountName::main(),
                recheck: QueueName::new(recheck).unwrap(),
            })
        };
        let arrives = |to: &str| {
            json!({"op": "move", "table": to, "pk": "x", "rk": "y", "to_table": "Partners", "to_pk": "Sales", "to_rk": "007"}).to_string()
        };
        let former =
            json!({"op": "sync", "table": "FormerEmployees", "pk": "Sales", "rk": "007", "v": 2})
                .to_string();
        assert_eq!(
            bearing(&former, erased("FormerEmployees", None)),
            Bearing::About(Vec::new()),
            "itself"
        );
        assert_eq!(
            bearing(&former, erased("Employees", reach("jobs-recheck"))),
            Bearing::Other,
            "another team's"
        );
        let put =
            r#"{"op":"put","table":"Partners","entity":{"PartitionKey":"Sales","RowKey":"007"#;
        let sync = |table: &str| {
            json!({"op": "sync", "table": table, "pk": "Sales", "rk": "007", "v": 2}).to_string()
        };
        let about = Bearing::About(Vec::new());
        for (text, elsewhere, here) in [
            (sync("Partners"), &about, &about),
            (sync("Employees"), &Bearing::Other, &Bearing::Other),
            (arrives("Employees"), &Bearing::Other, &Bearing::Other),
            (arrives("Partners"), &about, &about),
            (sync("Partner"), &Bearing::Unclear, &about),
            (put.to_owned(), &Bearing::Unclear, &about),
        ] {
            assert_eq!(
                &bearing(&text, erased("Partners", reach("partners-recheck"))),
                elsewhere,
                "{text}"
            );
            assert_eq!(
                &bearing(&text, erased("Partners", reach("jobs-recheck"))),
                here,
                "{text}"
            );
        }
    }
}
