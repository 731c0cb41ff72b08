use std::collections::BTreeSet;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::causes::cause_id;
use super::queue::PoisonCopies;
use super::relevance::names_entity;
use super::{PoisonEntry, PoisonError, PoisonMessage, Reason};
use evenkeel_model::units::parse_duration;
use evenkeel_model::{EntityKey, Key};

/// Filters for messages, in the form in which the command line, the HTTP API and the dashboard
/// receive them. An absent or empty value does not filter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PoisonCriteria {
    /// Only messages poisoned for this reason: `exhausted`, `permanent`, `undecodable`, `expired`
    /// or `foreign`.
    pub reason: Option<String>,
    /// Only messages with this cause: the id of a cause from a list.
    pub cause: Option<String>,
    /// Only messages whose job or error names this view.
    pub view: Option<String>,
    /// Only messages about entities of this table.
    pub table: Option<String>,
    /// Only messages about this entity, as `PartitionKey/RowKey`, or about entities of this
    /// PartitionKey.
    pub key: Option<String>,
    /// Only messages with this text in their error, step, ids or body; case is ignored.
    pub text: Option<String>,
    /// Only messages poisoned at or after this time: RFC 3339, or a duration before now (`2h`).
    pub since: Option<String>,
    /// Only messages poisoned before this time: RFC 3339, or a duration before now (`2h`).
    pub before: Option<String>,
}

impl PoisonCriteria {
    pub fn pairs(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let Self {
            reason,
            cause,
            view,
            table,
            key,
            text,
            since,
            before,
        } = self;
        let all = [
            ("reason", reason),
            ("cause", cause),
            ("view", view),
            ("table", table),
            ("key", key),
            ("text", text),
            ("since", since),
            ("before", before),
        ];
        all.into_iter().filter_map(|(name, value)| {
            Some((name, value.as_deref().filter(|value| !value.is_empty())?))
        })
    }

    /// The value of a criterion; empty if it is not set.
    pub fn get(&self, name: &str) -> &str {
        self.pairs()
            .find(|(known, _)| *known == name)
            .map_or("", |(_, value)| value)
    }

    /// Sets a criterion. An unknown name is ignored.
    pub fn set(&mut self, name: &str, value: String) {
        let field = match name {
            "reason" => &mut self.reason,
            "cause" => &mut self.cause,
            "view" => &mut self.view,
            "table" => &mut self.table,
            "key" => &mut self.key,
            "text" => &mut self.text,
            "since" => &mut self.since,
            "before" => &mut self.before,
            _ => return,
        };
        *field = Some(value);
    }

    pub fn filter(&self, now: Timestamp) -> Result<PoisonFilter, PoisonError> {
        let mut filter = PoisonFilter::default();
        for (name, value) in self.pairs() {
            match name {
                "reason" => filter.reason = Some(value.parse()?),
                "cause" => filter.cause = Some(value.to_lowercase()),
                "view" => filter.view = Some(value.to_owned()),
                "table" => filter.table = Some(value.to_owned()),
                "key" => filter.key = Some(PoisonKeyFilter::parse(value)?),
                "text" => filter.text = Some(value.to_lowercase()),
                "since" => filter.since = Some(moment(name, value, now)?),
                _ => filter.before = Some(moment(name, value, now)?),
            }
        }
        Ok(filter)
    }
}

fn moment(name: &str, text: &str, now: Timestamp) -> Result<Timestamp, PoisonError> {
    text.parse().or_else(|_| {
        let ago = parse_duration(text)
            .ok()
            .and_then(|ago| now.checked_sub(ago).ok());
        ago.ok_or_else(|| {
            PoisonError::new(format_args!(
                "{name} must be a time such as 2026-11-28T12:00:00Z or a duration such as 2h"
            ))
        })
    })
}

/// A key of one entity, or a PartitionKey that several entities share. Keys cannot contain a slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoisonKeyFilter {
    pub(super) pk: Key,
    /// The RowKey; `None` accepts any.
    pub(super) rk: Option<Key>,
}

impl PoisonKeyFilter {
    fn parse(text: &str) -> Result<Self, PoisonError> {
        let key = |text: &str| {
            Key::new(text).map_err(|error| {
                PoisonError::new(format_args!(
                    "key must be a PartitionKey or PartitionKey/RowKey: {error}"
                ))
            })
        };
        match text.split_once('/') {
            Some((pk, rk)) => Ok(Self {
                pk: key(pk)?,
                rk: Some(key(rk)?),
            }),
            None => Ok(Self {
                pk: key(text)?,
                rk: None,
            }),
        }
    }

    pub(super) fn is(&self, pk: &str, rk: &str) -> bool {
        self.pk.as_str() == pk && self.rk.as_ref().is_none_or(|wanted| wanted.as_str() == rk)
    }

    /// Whether an error names a matching entity. Without a table, an entity of any table matches.
    fn is_in(&self, error: &str, table: Option<&str>) -> bool {
        let table = table.unwrap_or_default();
        let key = match &self.rk {
            Some(rk) => EntityKey {
                pk: self.pk.clone(),
                rk: rk.clone(),
            }
            .to_string(),
            None => format!("({:?}, ", self.pk.as_str()),
        };
        error.contains(&format!("{table}{key}"))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoisonFilter {
    /// Selected ids, compared with [`PoisonEntry::has`]; if empty, all messages are selected.
    pub ids: BTreeSet<String>,
    pub reason: Option<Reason>,
    pub cause: Option<String>,
    pub view: Option<String>,
    pub table: Option<String>,
    pub key: Option<PoisonKeyFilter>,
    /// Text to search for, in lower case.
    pub text: Option<String>,
    /// Earliest time of poisoning, by the worker's clock.
    pub since: Option<Timestamp>,
    /// Time before which the message was poisoned, by the worker's clock.
    pub before: Option<Timestamp>,
    /// Messages that were put on the poison queue after this time, by the queue's clock, are not
    /// selected. A requeue or a discard sets this time, because later messages were not part of the
    /// list that the user confirmed.
    pub until: Option<Timestamp>,
}

impl PoisonFilter {
    pub fn matches(&self, entry: &PoisonEntry) -> bool {
        let message = &entry.message;
        (self.ids.is_empty() || self.ids.iter().any(|id| entry.has(id)))
            && self.reason.is_none_or(|reason| reason == message.reason)
            && self.since.is_none_or(|since| message.poisoned >= since)
            && self.before.is_none_or(|before| message.poisoned < before)
            && self
                .cause
                .as_ref()
                .is_none_or(|cause| *cause == cause_id(message))
            && self
                .view
                .as_ref()
                .is_none_or(|view| names_view(message, view))
            && self.text.as_ref().is_none_or(|text| has_text(entry, text))
            && self.is_about(message)
    }

    /// Whether the message is about a matching entity. If the body is in a blob or names no entity,
    /// the error text decides.
    fn is_about(&self, message: &PoisonMessage) -> bool {
        if self.table.is_none() && self.key.is_none() {
            return true;
        }
        let named = message
            .body
            .as_deref()
            .and_then(|body| names_entity(body, self.table.as_deref(), self.key.as_ref()));
        named.unwrap_or_else(|| match (&self.key, &self.table) {
            (Some(key), table) => {
                key.is_in(&message.error, table.as_deref())
                    || key.is_in(&message.step, table.as_deref())
            }
            (None, Some(table)) => [&message.error, &message.step]
                .into_iter()
                .any(|text| text.contains(&format!("{table}("))),
            (None, None) => true,
        })
    }

    /// Returns an error text if it is unclear whether the user has requested this message. This is
    /// so if several messages have a requested id, and at least one of them has it as the id of its
    /// original message. If the user requested the message by its id on the poison queue, there is
    /// no doubt.
    pub(super) fn ambiguity(&self, one: &PoisonCopies, all: &[PoisonCopies]) -> Option<String> {
        let (one, all) = (&one.entry, || all.iter().map(|held| &held.entry));
        let claimed = |id: &&String| {
            let claimants = || all().filter(|entry| entry.has(id));
            one.has(id)
                && claimants().count() > 1
                && claimants().any(|entry| entry.message.message_id == **id)
        };
        let named = one.ids.iter().any(|id| self.ids.contains(id));
        let id = self.ids.iter().find(claimed).filter(|_| !named)?;
        Some(format!(
            "several messages have the id {id}. Use the id of this one on the poison queue: {}",
            one.ids.join(" or ")
        ))
    }
}

fn names_view(message: &PoisonMessage, view: &str) -> bool {
    let is_word = |text: &str| {
        text.split(|char: char| !(char.is_alphanumeric() || "_-".contains(char)))
            .any(|word| word == view)
    };
    let in_job = || {
        message
            .body
            .as_deref()
            .is_some_and(|body| body.contains(&format!("\"{view}\"")))
    };
    is_word(&message.error) || is_word(&message.step) || in_job()
}

fn has_text(entry: &PoisonEntry, text: &str) -> bool {
    let PoisonMessage {
        error,
        step,
        message_id,
        id,
        op,
        worker,
        body,
        ..
    } = &entry.message;
    let texts = [
        Some(error),
        Some(step),
        Some(message_id),
        id.as_ref(),
        op.as_ref(),
        Some(worker),
        body.as_ref(),
    ];
    texts
        .into_iter()
        .flatten()
        .chain(&entry.ids)
        .any(|one| one.to_lowercase().contains(text))
}

#[cfg(test)]
mod tests {
    use super::super::tests::poisoned;
    use super::*;

    fn entry(body: &str, error: &str) -> PoisonEntry {
        let message = PoisonMessage {
            error: error.to_owned(),
            ..poisoned("m1", body)
        };
        PoisonEntry {
            inserted: message.poisoned,
            message,
            ids: vec!["p1".to_owned()],
        }
    }

    fn criteria(name: &str, value: &str) -> PoisonCriteria {
        serde_json::from_value(serde_json::json!({ name: value })).unwrap()
    }

    fn matches(name: &str, value: &str, entry: &PoisonEntry) -> bool {
        criteria(name, value)
            .filter("2026-11-20T16:00:00Z".parse().unwrap())
            .unwrap()
            .matches(entry)
    }

    #[test]
    fn each_criterion_narrows_and_an_empty_one_does_not() {
        let body = r#"{"op":"sync","table":"Employees","pk":"Sales","rk":"7","id":"Nightly"}"#;
        let error = r#"reconciling: ByEmail("e", "x") of view by_email is taken"#;
        let entry = entry(body, error);
        let cause = cause_id(&entry.message);
        for (name, yes, no) in [
            ("reason", "permanent", "expired"),
            ("cause", cause.as_str(), "00000000"),
            ("view", "by_email", "by"),
            ("table", "employees", "Employee"),
            ("key", "Sales/7", "Sales/77"),
            ("key", "Sales", "Sale"),
            ("text", "nightly", "daily"),
            ("text", "IS TAKEN", "is given"),
            ("since", "2026-11-20T15:00:01Z", "2026-11-20T15:00:02Z"),
            ("since", "1h", "30m"),
            ("before", "30m", "2h"),
            ("before", "2026-11-20T15:00:02Z", "2026-11-20T15:00:01Z"),
        ] {
            assert!(matches(name, yes, &entry), "{name} {yes}");
            assert!(!matches(name, no, &entry), "{name} {no}");
            assert!(matches(name, "", &entry), "{name}");
        }
        let now = Timestamp::UNIX_EPOCH;
        for (name, value) in [
            ("reason", "because"),
            ("since", "soon"),
            ("before", "-1h"),
            ("key", "a/b/c"),
        ] {
            assert!(criteria(name, value).filter(now).is_err(), "{name} {value}");
        }
    }

    #[test]
    fn a_batch_is_about_each_entity_and_a_message_without_a_body_about_those_in_its_error() {
        let many = entry(
            r#"{"op":"sync","table":"Employees","keys":[["Sales","7"],["Ops","8"]]}"#,
            "",
        );
        assert!(matches("key", "Ops/8", &many) && !matches("key", "Sales/8", &many));
        let blob = entry("{}", r#"reconciling Employees("Sales", "7"): no"#);
        assert!(
            matches("key", "Sales/7", &blob)
                && matches("key", "Sales", &blob)
                && matches("table", "Employees", &blob)
        );
        assert!(!matches("key", "Sales/8", &blob) && !matches("table", "Orders", &blob));
        let spoilt = entry("no job at all", "it is not JSON");
        assert!(!matches("table", "Employees", &spoilt) && matches("text", "at ALL", &spoilt));
    }
}
