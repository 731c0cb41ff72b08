//! The dead letters, and the question before something is done to them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use axum::Extension;
use axum::extract::{Query, RawQuery, State};
use axum::response::Response;
use serde::Deserialize;

use super::html::{Query as Part, Text};
use super::layout::{self, Page};
use super::words;
use crate::ops::api::poison::{Poison, Poisoned, Shown, front, off_the_runtime};
use crate::ops::api::{Api, Problem};
use crate::ops::guard::Visitor;
use crate::worker::poison::ShownBody;

const REASONS: [&str; 5] = ["exhausted", "permanent", "undecodable", "expired", "foreign"];

/// The selection shown, and the action before.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Asked {
    #[serde(default)]
    queue: String,
    #[serde(default)]
    reason: String,
    requeued: Option<u64>,
    discarded: Option<u64>,
    failed: Option<u64>,
    going_on: Option<u8>,
}

/// The requested action and its messages: a form's fields, in which `id` may come more than once.
#[derive(Debug, Default)]
pub(super) struct Meant {
    pub(super) what: String,
    pub(super) queue: String,
    pub(super) reason: String,
    pub(super) ids: BTreeSet<String>,
    pub(super) all: bool,
}

impl Meant {
    /// Reads a form, or a query.
    pub(super) fn read(form: &[u8]) -> Self {
        let mut meant = Self::default();
        for (name, value) in url::form_urlencoded::parse(form) {
            let value = value.into_owned();
            match &*name {
                "what" => meant.what = value,
                "queue" => meant.queue = value,
                "reason" => meant.reason = value,
                "id" if !value.is_empty() => {
                    meant.ids.insert(value);
                }
                "all" => meant.all = value == "true",
                _ => {}
            }
        }
        meant
    }
}

pub(super) async fn page(State(api): State<Api>, Query(asked): Query<Asked>, Extension(visitor): Extension<Visitor>) -> Response {
    let shown = Shown { queue: Some(asked.queue.clone()), reason: Some(asked.reason.clone()) };
    match drawn(&api, &shown, asked, visitor).await {
        Err(problem) => layout::problem("/poison", &problem, visitor),
        Ok(body) => Page { title: "Poison".to_owned(), place: "/poison", body }.answer(visitor),
    }
}

async fn drawn(api: &Api, shown: &Shown, asked: Asked, visitor: Visitor) -> Result<String, Problem> {
    let poison = front(api, shown).await?;
    let head = format!("<h1>Poison</h1>{}{}", said(&asked), form(api, &asked));
    let list = off_the_runtime(move || list(&poison, &asked, visitor)).await?;
    Ok(head + &list)
}

fn said(asked: &Asked) -> String {
    let mut text = String::new();
    for (count, verb) in [(asked.requeued, "requeued"), (asked.discarded, "discarded")] {
        if let Some(count) = count {
            let _ = write!(text, "<p class=\"note good\" role=\"status\">{} {verb}.</p>", words::grouped(count));
        }
    }
    if let Some(failed) = asked.failed.filter(|failed| *failed > 0) {
        let _ = write!(text, "<p class=\"note bad\" role=\"alert\">{} could not be handled: the log says why.</p>", words::grouped(failed));
    }
    if asked.going_on.is_some() {
        text.push_str("<p class=\"note\" role=\"status\">There are many: it goes on. Reload to see how far it is.</p>");
    }
    text
}

fn options(names: impl Iterator<Item = String>, selected: &str) -> String {
    let option = |name: String| format!("<option{}>{}</option>", if name == selected { " selected" } else { "" }, Text(&name));
    names.map(option).collect()
}

fn form(api: &Api, asked: &Asked) -> String {
    format!(
        "<form class=\"search\" method=\"get\" action=\"/poison\"><label>Queue <select name=\"queue\"><option value=\"\">every</option>{}</select></label>\
         <label>Reason <select name=\"reason\"><option value=\"\">any</option>{}</select></label><button>Show</button></form>",
        options(api.board.configured().iter().map(|queue| queue.name.to_string()), &asked.queue),
        options(REASONS.iter().map(|reason| (*reason).to_owned()), &asked.reason)
    )
}

fn list(poison: &Poison, asked: &Asked, visitor: Visitor) -> String {
    let mut html = String::new();
    if poison.messages.is_empty() {
        html.push_str(if poison.complete { "<p>Nothing is poisoned.</p>" } else { "<p>Nothing at the front fits.</p>" });
    }
    if !poison.complete {
        let _ = write!(
            html,
            "<p class=\"hint\">{} in all. A storage queue shows its first 32 messages only: when these are handled, the next come forward.</p>",
            words::grouped(poison.total)
        );
    }
    if poison.messages.is_empty() && poison.complete {
        return html;
    }
    let fields = format!(
        "<input type=\"hidden\" name=\"queue\" value=\"{}\"><input type=\"hidden\" name=\"reason\" value=\"{}\">",
        Text(&asked.queue),
        Text(&asked.reason)
    );
    if visitor.signed_in {
        let all = if asked.queue.is_empty() && asked.reason.is_empty() { "all" } else { "all that fit" };
        let ask = |what: &str, name: &str, class: &str| {
            format!(
                "<a class=\"button {class}\" href=\"/poison/ask?what={what}&amp;queue={}&amp;reason={}\">{name} {all}…</a>",
                Part(&asked.queue),
                Part(&asked.reason)
            )
        };
        // Requeuing is done at once; discarding leads to a question first.
        let _ = write!(
            html,
            "<form id=\"chosen\" class=\"actions bar\" method=\"post\" action=\"/poison/requeue\">{fields}<span data-chosen hidden></span>\
             <button>Requeue selected</button> <button class=\"danger\" formmethod=\"get\" formaction=\"/poison/ask\" name=\"what\" value=\"discard\">Discard selected…</button> \
             <span class=\"spread\"></span>{} {}</form>",
            ask("requeue", "Requeue", "quiet"),
            ask("discard", "Discard", "danger quiet")
        );
    } else if visitor.can_sign_in {
        html.push_str("<p class=\"hint\"><a href=\"/login\">Sign in</a> to requeue or discard.</p>");
    } else {
        html.push_str("<p class=\"hint\">To requeue or discard here, set http.token_env; <code>evenkeel poison</code> does it on the command line.</p>");
    }
    let messages: String = poison.messages.iter().map(|message| card(message, visitor)).collect();
    let _ = write!(html, "<ul class=\"cards\">{messages}</ul>");
    html
}

fn card(message: &Poisoned, visitor: Visitor) -> String {
    let body = match (&message.body, &message.body_blob) {
        (_, Some(blob)) => format!("in the blob {blob}"),
        (serde_json::Value::Null, None) if message.body_cut => "left out: this page is full".to_owned(),
        (serde_json::Value::String(text), None) if message.body_cut => format!("{text}… (the rest is left out)"),
        (serde_json::Value::String(text), None) => text.clone(),
        (value, None) => ShownBody::whole(value.clone()).laid_out(),
    };
    let entity = |name: &str| message.body.get(name).and_then(serde_json::Value::as_str);
    let inner = |name: &str| message.body.get("entity").and_then(|entity| entity.get(name)).and_then(serde_json::Value::as_str);
    let (pk, rk) = (entity("pk").or_else(|| inner("PartitionKey")), entity("rk").or_else(|| inner("RowKey")));
    let about = match (entity("table").or_else(|| entity("archive")), pk, rk) {
        (Some(table), Some(pk), Some(rk)) => format!("{} / {} / {}", Text(table), Text(pk), Text(rk)),
        _ => String::new(),
    };
    let link = match (entity("table"), pk, rk) {
        (Some(table), Some(pk), Some(rk)) => {
            format!(
                "<a class=\"button quiet\" href=\"/entity?table={}&amp;pk={}&amp;rk={}\">Its entity</a>",
                Part(table),
                Part(pk),
                Part(rk)
            )
        }
        _ => String::new(),
    };
    let (tick, actions) = if visitor.signed_in {
        let id = Text(&message.message_id);
        (
            format!("<input type=\"checkbox\" form=\"chosen\" name=\"id\" value=\"{id}\" aria-label=\"Select {id}\"> "),
            format!(
                "<form method=\"post\" action=\"/poison/requeue\"><input type=\"hidden\" name=\"queue\" value=\"{queue}\">\
                 <input type=\"hidden\" name=\"id\" value=\"{id}\"><button>Requeue<span class=\"unseen\"> {id}</span></button></form>\
                 <a class=\"button danger\" href=\"/poison/ask?what=discard&amp;queue={queue_part}&amp;id={id_part}\">Discard…<span class=\"unseen\"> {id}</span></a>",
                queue = Text(&message.held_by),
                queue_part = Part(&message.held_by),
                id_part = Part(&message.message_id),
            ),
        )
    } else {
        (String::new(), String::new())
    };
    let facts = [
        ("While", Text(if message.step.is_empty() { "unknown" } else { &message.step }).to_string()),
        ("Deliveries", message.dequeue_count.to_string()),
        ("First seen", format!("{} UTC", Text(words::moment(&message.first_enqueued)))),
        ("Poisoned", format!("{} UTC", Text(words::moment(&message.at)))),
        ("By", Text(if message.worker.is_empty() { "another program" } else { &message.worker }).to_string()),
        ("Queue", Text(&message.queue).to_string()),
        ("Message", format!("<code>{}</code>", Text(&message.message_id))),
    ];
    let facts = facts.map(|(name, value)| format!("<div><dt>{name}</dt><dd>{value}</dd></div>")).concat();
    let own =
        message.id.as_ref().map_or_else(String::new, |id| format!("<div><dt>Client's id</dt><dd><code>{}</code></dd></div>", Text(id)));
    let copies = if message.copies > 1 { format!("<div><dt>Copies</dt><dd>{}</dd></div>", message.copies) } else { String::new() };
    format!(
        "<li class=\"card poisoned\"><h2>{tick}{op} {about} <span class=\"state bad\">{reason}</span></h2><p class=\"error\">{error}</p>\
         <dl class=\"facts\">{facts}{own}{copies}</dl><details><summary>Body</summary><pre tabindex=\"0\">{body}</pre></details>\
         <div class=\"actions\">{actions}{link}</div></li>",
        op = Text(message.op.as_deref().unwrap_or("unknown")),
        reason = message.reason,
        error = Text(&message.error),
        body = Text(body),
    )
}

/// Asks before something is done to many messages, or cannot be undone.
pub(super) async fn ask(State(api): State<Api>, RawQuery(query): RawQuery, Extension(visitor): Extension<Visitor>) -> Response {
    let meant = Meant::read(query.unwrap_or_default().as_bytes());
    let (verb, class, action) = match meant.what.as_str() {
        "requeue" => ("Requeue", "main", "/poison/requeue"),
        "discard" => ("Discard", "danger", "/poison/discard"),
        _ => return layout::problem("/poison", &Problem::unusable("requeue or discard?"), visitor),
    };
    let which = match (meant.ids.len(), meant.ids.first()) {
        (1, Some(id)) => format!("the message {id}"),
        (0, _) => every(&api, &meant),
        (several, _) => format!("{several} messages"),
    };
    let undone = if verb == "Discard" { "<p class=\"note bad\">This cannot be undone: their jobs will never be done.</p>" } else { "" };
    let mut ids = String::new();
    for id in &meant.ids {
        let _ = write!(ids, "<input type=\"hidden\" name=\"id\" value=\"{}\">", Text(id));
    }
    let body = format!(
        "<div class=\"narrow card\"><h1>{verb} {which}?</h1>{undone}<form method=\"post\" action=\"{action}\" class=\"actions\"><input type=\"hidden\" name=\"queue\" value=\"{}\">\
         <input type=\"hidden\" name=\"reason\" value=\"{}\">{ids}<input type=\"hidden\" name=\"all\" value=\"{}\">\
         <button class=\"{class}\">{verb}</button> <a class=\"button\" href=\"/poison\">Keep</a></form></div>",
        Text(&meant.queue),
        Text(&meant.reason),
        meant.ids.is_empty(),
        which = Text(which),
    );
    Page { title: format!("{verb}?"), place: "/poison", body }.answer(visitor)
}

/// All messages that a filter leaves, in words.
fn every(api: &Api, meant: &Meant) -> String {
    let of = if meant.queue.is_empty() { "of every queue".to_owned() } else { format!("of the queue {}", meant.queue) };
    let why = if meant.reason.is_empty() { String::new() } else { format!(", poisoned for the reason “{}”", meant.reason) };
    let queues = api.board.configured().iter().filter(|queue| meant.queue.is_empty() || queue.name.as_str() == meant.queue);
    let count: u64 = queues.filter_map(|queue| api.board.poisoned_of(&queue.name)).sum();
    let count = if meant.reason.is_empty() { format!("all {} messages", words::grouped(count)) } else { "all messages".to_owned() };
    format!("{count} {of}{why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_messages_can_be_meant_and_none_is_not_all() {
        let meant = Meant::read(b"what=discard&queue=jobs&id=a&id=b%26c&id=&reason=");
        assert_eq!((meant.what.as_str(), meant.queue.as_str(), meant.all), ("discard", "jobs", false));
        assert_eq!(meant.ids, ["a".to_owned(), "b&c".to_owned()].into());
        assert!(Meant::read(b"all=true").all && !Meant::read(b"all=").all);
    }
}
