//! Determines which primaries a poison message is about, even if it is not a valid job. Pure.
//!
//! ```text
//!   an event with a mapping                            the job that it becomes
//!   an object with keys in the fields of a job         these keys, whatever else is wrong with it
//!   any other text that names both keys                that primary
//! ```

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::filter::PoisonKeyFilter;
use super::mention::{Mention, Spellings};
use crate::context::PrimaryResolver;
use evenkeel_model::allowed::AllowedTables;
use evenkeel_model::body::Extent;
use evenkeel_model::event::{EventMappings, ForeignEvent};
use evenkeel_model::job::{self, Primary, StagedBlob};
use evenkeel_model::nearest::nearest;
use evenkeel_model::{AccountName, EntityKey, Job, QueueName, TableName, limits};

/// Field of the object that replaces a body that must not be kept.
const WITHHELD: &str = "withheld";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasedPrimary {
    pub primary: Primary,
    /// When the erasure was sent, by the queue's clock; `None` for an erasure that is sent now. A
    /// message that was put later may be about a new entity with the same key, so it is not
    /// discarded.
    pub sent: Option<Timestamp>,
    /// Limits the erasure; `None` if it is not limited.
    pub reach: Option<ErasureReach>,
}

/// The reach of an erasure that came from a queue with limited tables. It covers the messages about
/// these tables. It also covers messages that name no table, if they are on the poison queue of the
/// erasure's own queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasureReach {
    pub tables: AllowedTables,
    pub account: AccountName,
    pub recheck: QueueName,
}

pub(crate) struct ErasureTargets<'s> {
    pub(crate) erased: &'s [ErasedPrimary],
    pub(crate) resolve_primaries: &'s PrimaryResolver,
    pub(crate) events: &'s EventMappings,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Relevance {
    /// The message is only about erased primaries. The list names the blobs that were staged for
    /// its job.
    About(Vec<StagedBlob>),
    /// The message is about an erased primary and also about other primaries.
    Several,
    Unclear,
    Other,
}

/// A key in a message, with the field that names its table.
#[derive(Debug, Clone, PartialEq)]
struct NamedKey {
    field: &'static str,
    of: Option<String>,
    pk: String,
    rk: String,
}

/// The keys of one job. There are two if the job moves an entity, and none if they cannot be read.
type NamedJob = Vec<NamedKey>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum KeyMatch {
    Other,
    Unclear,
    About,
}

impl ErasureTargets<'_> {
    /// Returns the relevance of a message that was first put at `put`. `account` and `recheck` are
    /// the account and the recheck queue of the job queue to which the poison queue belongs.
    pub(super) fn relevance(
        &self,
        kept: &str,
        put: Timestamp,
        account: &AccountName,
        recheck: &QueueName,
    ) -> Relevance {
        let of_all = self.relevance_of(kept, account, recheck);
        let is_older = |erased: &&ErasedPrimary| erased.sent.is_none_or(|sent| put <= sent);
        if !matches!(of_all, Relevance::About(_))
            || self.erased.iter().all(|erased| is_older(&erased))
        {
            return of_all;
        }
        let erased: Vec<ErasedPrimary> = self.erased.iter().filter(is_older).cloned().collect();
        match (ErasureTargets {
            erased: &erased,
            ..*self
        })
        .relevance_of(kept, account, recheck)
        {
            about @ Relevance::About(_) => about,
            _ => Relevance::Unclear,
        }
    }

    fn relevance_of(&self, kept: &str, account: &AccountName, recheck: &QueueName) -> Relevance {
        let is_own = |reach: &ErasureReach| reach.account == *account && reach.recheck == *recheck;
        let Ok(object) = job::kept_object(kept) else {
            return self.relevance_of_text(kept, &is_own);
        };
        if is_withheld(&object) {
            return Relevance::Unclear;
        }
        let jobs = self.jobs_in(&object);
        match self.judged(&jobs, &is_own) {
            // Some jobs of the message have no readable key, so the whole text is searched.
            Some(Relevance::Other) if jobs.iter().any(Vec::is_empty) => {
                self.at_most_unclear(&Spellings::of(kept), &is_own)
            }
            // A recheck names items that no footprint lists. If it were discarded, nothing would
            // find these items, so it must be requeued.
            Some(Relevance::About(_)) if object.get("op").is_some_and(|op| op == job::RECHECK) => {
                Relevance::Unclear
            }
            Some(Relevance::About(_)) => Relevance::About(staged(object)),
            Some(found) => found,
            None => {
                let mentioned = self.mentioned(&Spellings::of(kept), &is_own);
                match job::decode_request(object) {
                    // A valid job about many primaries. It may affect primaries that its message
                    // does not name.
                    Ok(_) if matches!(mentioned, Relevance::About(_)) => Relevance::Several,
                    Ok(_) => Relevance::Other,
                    Err(_) => mentioned,
                }
            }
        }
    }

    /// The relevance of a text that is not a JSON object, or has duplicate fields.
    fn relevance_of_text(&self, kept: &str, is_own: &dyn Fn(&ErasureReach) -> bool) -> Relevance {
        let spellings = Spellings::of(kept);
        let mut jobs = Vec::new();
        for value in spellings.texts().filter_map(lenient) {
            if value.as_object().is_some_and(is_withheld) {
                return Relevance::Unclear;
            }
            jobs.extend(self.jobs(&value));
        }
        match self.judged(&jobs, is_own) {
            None => self.mentioned(&spellings, is_own),
            Some(Relevance::Other) => self.at_most_unclear(&spellings, is_own),
            Some(found) => found,
        }
    }

    /// The relevance of a message whose jobs are about other primaries. If the text of the message
    /// may mention an erased primary nevertheless, the relevance is unclear.
    fn at_most_unclear(
        &self,
        spellings: &Spellings,
        is_own: &dyn Fn(&ErasureReach) -> bool,
    ) -> Relevance {
        match self.mentioned(spellings, is_own) {
            Relevance::About(_) => Relevance::Unclear,
            found => found,
        }
    }

    /// Judges the message by its jobs. Returns `None` if there are no jobs.
    fn judged(
        &self,
        jobs: &[NamedJob],
        is_own: &dyn Fn(&ErasureReach) -> bool,
    ) -> Option<Relevance> {
        let matches: Vec<KeyMatch> = jobs.iter().map(|job| self.matching(job, is_own)).collect();
        let all = matches.iter().all(|found| *found == KeyMatch::About);
        Some(match matches.iter().max()? {
            KeyMatch::About if all => Relevance::About(Vec::new()),
            KeyMatch::About => Relevance::Several,
            KeyMatch::Unclear => Relevance::Unclear,
            KeyMatch::Other => Relevance::Other,
        })
    }

    /// Searches the whole text for the keys of the erased primaries.
    fn mentioned(
        &self,
        spellings: &Spellings,
        is_own: &dyn Fn(&ErasureReach) -> bool,
    ) -> Relevance {
        let mut found = if spellings.opaque {
            Relevance::Unclear
        } else {
            Relevance::Other
        };
        for erased in self.erased {
            match spellings.mention(&erased.primary.key) {
                Mention::Both if erased.reach.as_ref().is_none_or(is_own) => {
                    return Relevance::About(Vec::new());
                }
                Mention::Both | Mention::RowKey => found = Relevance::Unclear,
                Mention::Neither => {}
            }
        }
        found
    }

    /// Whether the error of a message about other primaries names an erased primary.
    pub(super) fn is_named_in(&self, error: &str) -> bool {
        self.erased
            .iter()
            .any(|erased| error.contains(&erased.primary.to_string()))
    }

    /// The jobs in a value: a single job, a batch, or a list of jobs.
    fn jobs(&self, value: &Value) -> Vec<NamedJob> {
        match value {
            Value::Array(values) => {
                let jobs = values.iter().map(|value| self.jobs(value));
                known_or_empty(
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

    fn matching(&self, job: &NamedJob, is_own: &dyn Fn(&ErasureReach) -> bool) -> KeyMatch {
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
                return KeyMatch::Other;
            }
            // An erasure also covers the archived versions of its primary.
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
                (Some(found), _) if found != *table => KeyMatch::Other,
                (Some(_), _) | (None, None) if may_reach => KeyMatch::About,
                (Some(_), _) => KeyMatch::Other,
                // The catalog has no table of this name, so the name is probably misspelt.
                (None, Some(of))
                    if may_reach
                        && named.field == "table"
                        && nearest(of, [table.as_str()]).is_some() =>
                {
                    KeyMatch::About
                }
                (None, _) => KeyMatch::Unclear,
            }
        };
        let each = job.iter().zip(&forms).flat_map(|(named, of)| {
            self.erased
                .iter()
                .map(move |erased| of_one(named, of, erased))
        });
        each.max().unwrap_or(KeyMatch::Other)
    }

    /// Returns the primary with this key, with the table name as declared. If its table is the
    /// target of an archive, the primary with the same key in the archive's source follows, because
    /// the entity was archived from there. Empty if the table or archive is unknown.
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
            .map(|envelope| (self.resolve_primaries)(&envelope.job))
            .unwrap_or_default()
    }
}

/// The blobs that were staged for a valid job.
fn staged(object: Map<String, Value>) -> Vec<StagedBlob> {
    let job: Option<Job> = job::decode_job(object).ok().map(|envelope| envelope.job);
    job.iter().flat_map(Job::staged).cloned().collect()
}

/// Parses a text as JSON if it is an object or a list and its values fit into the memory limit.
/// Several values, as in JSON lines, become a list. If the end of the text is unreadable, the last
/// item of the list is null.
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

fn is_withheld(object: &Map<String, Value>) -> bool {
    object.contains_key(WITHHELD) && !object.contains_key("op")
}

/// Reads a key. Some senders write keys as numbers.
fn text(object: &Map<String, Value>, name: &str) -> Option<String> {
    match object.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns the jobs, or an empty list if no job has a readable key.
fn known_or_empty(jobs: Vec<NamedJob>) -> Vec<NamedJob> {
    if jobs.iter().all(Vec::is_empty) {
        Vec::new()
    } else {
        jobs
    }
}

/// Whether a body names an entity of this table (in upper or lower case) with this key. `None` if
/// the body names no entity.
pub(super) fn names_entity(
    kept: &str,
    table: Option<&str>,
    key: Option<&PoisonKeyFilter>,
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
        // Some senders encode an entity as JSON inside a JSON string.
        let read = entity.as_str().and_then(lenient);
        let entity = read.as_ref().unwrap_or(entity).as_object()?;
        Some(vec![named(
            text(entity, "PartitionKey")?,
            text(entity, "RowKey")?,
        )])
    };
    let list = |name: &str| object.get(name).and_then(Value::as_array);
    let each = |items: &Vec<Value>, key: &dyn Fn(&Value) -> Option<NamedJob>| {
        known_or_empty(
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

    /// Resolves primaries of the tables Employees and Partners, and of the archive `former` of
    /// Employees with its table FormerEmployees.
    fn resolve_primaries() -> PrimaryResolver {
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

    fn relevance(kept: &str, erased: ErasedPrimary) -> Relevance {
        let (resolve_primaries, events) = (resolve_primaries(), events());
        let recheck = QueueName::new("jobs-recheck").unwrap();
        ErasureTargets {
            erased: &[erased],
            resolve_primaries: &resolve_primaries,
            events: &events,
        }
        .relevance(kept, put_at(0), &AccountName::main(), &recheck)
    }

    fn put_at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_message_put_after_the_erasure_may_be_about_a_new_entity() {
        let text =
            r#"{"op":"put","table":"Employees","entity":{"PartitionKey":"Sales","RowKey":"007"}}"#;
        let (about, of) = (Relevance::About(Vec::new()), |sent| ErasedPrimary {
            sent,
            ..erased("Employees", None)
        });
        assert_eq!(relevance(text, of(None)), about);
        assert_eq!(
            (
                relevance(text, of(Some(put_at(0)))),
                relevance(text, of(Some(put_at(1))))
            ),
            (about.clone(), about)
        );
        assert_eq!(relevance(text, of(Some(put_at(-1)))), Relevance::Unclear);
        assert_eq!(
            relevance(&text.replace("007", "008"), of(Some(put_at(-1)))),
            Relevance::Other
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
        let about = Relevance::About(Vec::new());
        for (text, wanted) in [
            (put(json!({})), &about),
            (put(json!({"mode": "patch"})), &about),
            (put(json!({"v": 2})), &about),
            (put(json!({"op": "explode"})), &about),
            (put(json!({"table": "Employes"})), &about),
            (put(json!({"table": "Partners"})), &Relevance::Other),
            (put(json!({"table": "Nowhere"})), &Relevance::Unclear),
            (put(json!({"entity": {"PartitionKey": "Sales", "RowKey": "007", "ek_x": 1}})), &about),
            (put(json!({"entity": {"PartitionKey": "Sales", "RowKey": "007", "N": "x", "N@odata.type": "Edm.Int32"}})), &about),
            (put(json!({"entity": {"PartitionKey": "Sales", "RowKey": "008", "Of": "007"}})), &Relevance::Other),
            (put(json!({"entity": r#"{"PartitionKey":"Sales","RowKey":"007"}"#})), &about),
            (put(json!({"entities": [{"PartitionKey": "Sales", "RowKey": "007", "A": [1]}]})), &about),
            (
                put(json!({"entities": [{"PartitionKey": "Sales", "RowKey": "007"}, {"PartitionKey": "Sales", "RowKey": "008"}]})),
                &Relevance::Several,
            ),
            (json!({"op": "sync", "table": "Employees", "pk": "Sales", "rks": ["007", "008"]}).to_string(), &Relevance::Several),
            (json!({"op": "sync", "table": "Employees", "keys": [["Sales", "007"]]}).to_string(), &about),
            (json!({"op": "delete", "table": "employees", "pk": "Sales", "rk": "007", "when": "("}).to_string(), &about),
            (json!({"op": "archive", "archive": "former", "pk": "Sales", "rk": "007", "if_match": 7}).to_string(), &about),
            (json!({"op": "sync", "table": "FormerEmployees", "pk": "Sales", "rk": "007", "v": 2}).to_string(), &about),
            (json!({"op": "archive", "archive": "nowhere", "pk": "Sales", "rk": "007"}).to_string(), &Relevance::Unclear),
            (
                json!({"op": "move", "table": "Partners", "pk": "x", "rk": "y", "to_table": "Employees", "to_pk": "Sales", "to_rk": "007"})
                    .to_string(),
                &about,
            ),
            (json!({"op": "delete_where", "table": "Employees", "range": {"pk": "Sales", "from": "007"}}).to_string(), &Relevance::Several),
            (
                json!({"op": "recheck", "v": 1, "table": "Employees", "pk": "Sales", "rk": "007", "items": []}).to_string(),
                &Relevance::Unclear,
            ),
            (hired("Sales"), &about),
            (hired("Marketing"), &Relevance::Other),
            (hired("Sales").replace("Hired", "Fired"), &about),
            (hired("Marketing").replace("Hired", "Fired").replace("Sales/", ""), &Relevance::Unclear),
            (body::encode(&format!("[{}]", put(json!({})))), &about),
            (body::encode(&format!("[{},{}]", put(json!({})), put(json!({})).replace("007", "008"))), &Relevance::Several),
            (
                entities([json!({"PartitionKey": "Sales", "RowKey": "007"}), json!({"partitionKey": "Sales", "rowKey": "008"})]),
                &Relevance::Several,
            ),
            (
                entities([json!({"PartitionKey": "Sales", "RowKey": "008"}), json!({"partitionKey": "Sales", "rowKey": "007"})]),
                &Relevance::Unclear,
            ),
            (
                entities([json!({"PartitionKey": "Sales", "RowKey": "008"}), json!({"partitionKey": "Sales", "rowKey": "009"})]),
                &Relevance::Other,
            ),
            (json!({"op": "sync", "table": "Employees", "keys": [["Sales", "007"], ["Sales"]]}).to_string(), &Relevance::Several),
            (json!({"op": "sync", "table": "Employees", "pk": "Sales", "rks": ["007", 8]}).to_string(), &Relevance::Several),
            (body::encode(&format!("[{},{{\"op\":\"delete_where\"}}]", put(json!({})))), &Relevance::Several),
            (format!("{}\n{}", put(json!({})), put(json!({})).replace("007", "008")), &Relevance::Several),
            (format!("{}\n{}", put(json!({})), &put(json!({})).replace("007", "008")[..80]), &Relevance::Several),
            (body::encode(&put(json!({}))[..80]), &about),
            (body::encode(&put(json!({})).replace("007", "008")[..80]), &Relevance::Other),
            (r#"{"withheld":"90 bytes that are no job"}"#.to_owned(), &Relevance::Unclear),
            ("hello".to_owned(), &Relevance::Other),
        ] {
            assert_eq!(&relevance(&text, erased("Employees", None)), wanted, "{text}");
        }
    }

    /// An empty key is in every text, and a key of punctuation is in most texts, so such keys
    /// identify nothing.
    #[test]
    fn keys_that_are_in_every_text_identify_no_message() {
        let broken = r#"{"op":"put","table":"Employees","entity":{"PartitionKey":"Sales - West","RowKey":"008","Age":1"#;
        for (pk, rk, wanted) in [
            ("", "", Relevance::Unclear),
            ("", "008", Relevance::Unclear),
            ("", "7", Relevance::Other),
            ("-", "008", Relevance::Unclear),
            ("Sales - West", "", Relevance::Unclear),
            ("1", "1", Relevance::Unclear),
            ("Sales - West", "008", Relevance::About(Vec::new())),
        ] {
            let primary = Primary {
                table: TableName::new("Employees").unwrap(),
                key: EntityKey::new(pk, rk).unwrap(),
            };
            for text in [broken.to_owned(), body::encode(broken)] {
                assert_eq!(
                    relevance(
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
    fn an_erasure_from_a_limited_queue_reaches_no_message_about_other_tables() {
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
            relevance(&former, erased("FormerEmployees", None)),
            Relevance::About(Vec::new()),
            "itself"
        );
        assert_eq!(
            relevance(&former, erased("Employees", reach("jobs-recheck"))),
            Relevance::Other,
            "another team's"
        );
        let put =
            r#"{"op":"put","table":"Partners","entity":{"PartitionKey":"Sales","RowKey":"007"#;
        let sync = |table: &str| {
            json!({"op": "sync", "table": table, "pk": "Sales", "rk": "007", "v": 2}).to_string()
        };
        let about = Relevance::About(Vec::new());
        for (text, elsewhere, here) in [
            (sync("Partners"), &about, &about),
            (sync("Employees"), &Relevance::Other, &Relevance::Other),
            (arrives("Employees"), &Relevance::Other, &Relevance::Other),
            (arrives("Partners"), &about, &about),
            (sync("Partner"), &Relevance::Unclear, &about),
            (put.to_owned(), &Relevance::Unclear, &about),
        ] {
            assert_eq!(
                &relevance(&text, erased("Partners", reach("partners-recheck"))),
                elsewhere,
                "{text}"
            );
            assert_eq!(
                &relevance(&text, erased("Partners", reach("jobs-recheck"))),
                here,
                "{text}"
            );
        }
    }
}
