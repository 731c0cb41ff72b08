//! The page of poison messages, and the page that asks for confirmation before a change.

use std::collections::BTreeSet;

use askama::Template;
use axum::Extension;
use axum::extract::{Query, RawQuery, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;

use super::layout::{self, NavEntry, PageContext};
use crate::api::poison::{FilterQuery, PoisonList, PoisonedMessage, as_of, front, off_the_runtime};
use crate::api::{Api, Problem};
use crate::guard::Visitor;
use crate::numbers::{self, Counted as _};
use evenkeel_worker::poison::{BodyPreview, PoisonCriteria};

/// Search fields: name, label and example.
const FIELDS: [(&str, &str, &str); 7] = [
    ("table", "Table", "Employees"),
    ("key", "Entity", "PartitionKey/RowKey"),
    ("view", "View", ""),
    ("text", "Text", ""),
    ("cause", "Cause", ""),
    ("since", "Since", "2h"),
    ("before", "Before", "30m"),
];
const REASONS: [&str; 5] = [
    "exhausted",
    "permanent",
    "undecodable",
    "expired",
    "foreign",
];

/// The search criteria, and the result of the last change.
#[derive(Debug, Default, Deserialize)]
pub(super) struct PoisonQuery {
    #[serde(default)]
    queue: String,
    #[serde(flatten)]
    criteria: PoisonCriteria,
    requeued: Option<u64>,
    discarded: Option<u64>,
    failed: Option<u64>,
    hidden: Option<u64>,
    absent: Option<u64>,
    /// Number of matching messages that came after the confirmation page was opened.
    came: Option<u64>,
    going_on: Option<u8>,
}

/// The requested action and the selected messages, as form fields. The field `id` may occur several times.
#[derive(Debug, Default)]
pub(super) struct MessageSelection {
    pub(super) what: String,
    pub(super) queue: String,
    pub(super) criteria: PoisonCriteria,
    pub(super) ids: BTreeSet<String>,
    pub(super) all: bool,
    /// Time at which the confirmation page was opened, by the clocks of the queues; empty if ids select the messages.
    pub(super) until: String,
}

impl MessageSelection {
    /// Parses the fields of a form or a query.
    pub(super) fn read(form: &[u8]) -> Self {
        let mut meant = Self::default();
        for (name, value) in url::form_urlencoded::parse(form) {
            let value = value.into_owned();
            match &*name {
                "what" => meant.what = value,
                "queue" => meant.queue = value,
                "id" if !value.is_empty() => {
                    meant.ids.insert(value);
                }
                "all" => meant.all = value == "true",
                "until" => meant.until = value,
                criterion => meant.criteria.set(criterion, value),
            }
        }
        meant
    }
}

impl PoisonQuery {
    fn is_narrowed(&self) -> bool {
        !self.queue.is_empty() || self.criteria.pairs().next().is_some()
    }
}

#[derive(Template)]
#[template(path = "poison.html")]
struct PoisonPage {
    query: PoisonQuery,
    queues: Vec<String>,
    poison: PoisonList,
    /// Value that acknowledges the new messages.
    news: Option<String>,
    visitor: Visitor,
}

pub(super) async fn page(
    State(api): State<Api>,
    Query(query): Query<PoisonQuery>,
    Extension(context): Extension<PageContext>,
) -> Response {
    let shown = FilterQuery {
        queue: Some(query.queue.clone()),
        criteria: query.criteria.clone(),
    };
    let queues = api
        .ops_state
        .job_queues()
        .iter()
        .map(|queue| queue.name.to_string())
        .collect();
    let framed = context.clone();
    let drawn = async {
        let poison = front(&api, &shown, context.visitor).await?;
        let body = PoisonPage {
            query,
            queues,
            poison,
            news: api.ops_state.poison_news(),
            visitor: context.visitor,
        };
        off_the_runtime(move || layout::page("Poison", Some(NavEntry::Poison), &body, &framed))
            .await
    };
    drawn
        .await
        .unwrap_or_else(|problem| layout::problem(NavEntry::Poison, &problem, &context))
}

impl PoisonedMessage {
    fn laid_out(&self) -> String {
        match (&self.body, &self.body_blob) {
            (_, Some(blob)) => format!("in the blob {blob}"),
            (Value::Null, None) if self.body_withheld => {
                "hidden; shown with a token with contents = true".to_owned()
            }
            (Value::Null, None) if self.body_cut => {
                "left out: this page has reached its maximum size".to_owned()
            }
            (Value::String(text), None) if self.body_cut => {
                format!("{text}… (truncated)")
            }
            (Value::String(text), None) => text.clone(),
            (value, None) => BodyPreview::whole(value.clone()).indented(),
        }
    }

    fn holds_now(&self) -> bool {
        self.in_step == Some(true)
    }

    /// Returns three fields of the body: the one that `of` names (the table or archive), the PartitionKey and the
    /// RowKey. `None` if one is missing.
    fn key(&self, of: &str) -> Option<[&str; 3]> {
        let text = |name: &str| self.body.get(name)?.as_str();
        let inner = |name: &str| self.body.get("entity")?.get(name)?.as_str();
        Some([
            text(of)?,
            text("pk").or_else(|| inner("PartitionKey"))?,
            text("rk").or_else(|| inner("RowKey"))?,
        ])
    }
}

#[derive(Template)]
#[template(path = "confirm.html")]
struct Confirmation {
    meant: MessageSelection,
    verb: &'static str,
    class: &'static str,
    action: &'static str,
    /// Describes the messages to change.
    which: String,
}

/// Shows a page that asks for confirmation. It is needed before a change of many messages and before one that cannot be
/// undone.
pub(super) async fn confirm(
    State(api): State<Api>,
    RawQuery(query): RawQuery,
    Extension(context): Extension<PageContext>,
) -> Response {
    let mut meant = MessageSelection::read(query.unwrap_or_default().as_bytes());
    meant.until = if meant.ids.is_empty() {
        as_of(&api, Some(&meant.queue)).to_string()
    } else {
        String::new()
    };
    let (verb, class, action) = match meant.what.as_str() {
        "requeue" => ("Requeue", "main", "poison/requeue"),
        "discard" => ("Discard", "danger", "poison/discard"),
        _ => {
            return layout::problem(
                NavEntry::Poison,
                &Problem::unusable("what: expected requeue or discard"),
                &context,
            );
        }
    };
    let which = match (meant.ids.len(), meant.ids.first()) {
        (1, Some(id)) => format!("the message {id}"),
        (0, _) => every(&api, &meant),
        (several, _) => format!("{several} messages"),
    };
    let title = format!("{verb}?");
    layout::page(
        &title,
        Some(NavEntry::Poison),
        &Confirmation {
            meant,
            verb,
            class,
            action,
            which,
        },
        &context,
    )
}

/// Describes all messages that match the filter of a selection.
fn every(api: &Api, meant: &MessageSelection) -> String {
    let of = if meant.queue.is_empty() {
        "of every queue".to_owned()
    } else {
        format!("of the queue {}", meant.queue)
    };
    let why = meant
        .criteria
        .pairs()
        .map(|(name, value)| format!(", {name} “{value}”"))
        .collect::<Vec<_>>()
        .concat();
    let queues = api
        .ops_state
        .job_queues()
        .iter()
        .filter(|queue| meant.queue.is_empty() || queue.name.as_str() == meant.queue);
    // The number of messages is unknown until every queue has been counted.
    let count: Option<u64> = queues
        .map(|queue| api.ops_state.poisoned_of(&queue.name))
        .sum();
    let count = count
        .filter(|_| why.is_empty())
        .map_or_else(String::new, |count| format!("{} ", count.grouped()));
    format!("all {count}messages {of}{why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_messages_can_be_selected_and_no_id_does_not_mean_all() {
        let meant = MessageSelection::read(b"what=discard&queue=jobs&id=a&id=b%26c&id=&reason=");
        assert_eq!(
            (meant.what.as_str(), meant.queue.as_str(), meant.all),
            ("discard", "jobs", false)
        );
        assert_eq!(meant.ids, ["a".to_owned(), "b&c".to_owned()].into());
        assert!(MessageSelection::read(b"all=true").all && !MessageSelection::read(b"all=").all);
        assert_eq!(
            MessageSelection::read(b"key=a%2Fb&reason=")
                .criteria
                .pairs()
                .collect::<Vec<_>>(),
            [("key", "a/b")]
        );
    }
}
