//! The dead letters, and the question before something is done to them.

use std::fmt::Write as _;

use axum::Extension;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;

use super::html::{Query as Part, Text};
use super::layout::{self, Page};
use super::words;
use crate::ops::api::poison::{Poison, Poisoned, Shown, front};
use crate::ops::api::{Api, Problem};
use crate::ops::guard::Visitor;

const REASONS: [&str; 5] = ["exhausted", "permanent", "undecodable", "expired", "foreign"];

/// What is shown, and what was done before.
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

/// What is meant to be done, and to what.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Meant {
    what: String,
    #[serde(default)]
    queue: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    id: String,
}

pub(super) async fn page(State(api): State<Api>, Query(asked): Query<Asked>, Extension(visitor): Extension<Visitor>) -> Response {
    let shown = Shown { queue: Some(asked.queue.clone()), reason: Some(asked.reason.clone()) };
    match front(&api, &shown).await {
        Err(problem) => layout::problem("/poison", &problem, visitor),
        Ok(poison) => {
            let body = format!("<h1>Poison</h1>{}{}{}", said(&asked), form(&api, &asked), list(&poison, &asked, visitor));
            Page { title: "Poison".to_owned(), place: "/poison", body }.answer(visitor)
        }
    }
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
    if visitor.signed_in {
        let ask = |what: &str, name: &str, class: &str| {
            format!(
                "<a class=\"button {class}\" href=\"/poison/ask?what={what}&amp;queue={}&amp;reason={}\">{name}</a>",
                Part(&asked.queue),
                Part(&asked.reason)
            )
        };
        let all = if asked.queue.is_empty() && asked.reason.is_empty() { "all" } else { "all that fit" };
        let _ = write!(
            html,
            "<p class=\"actions\">{} {}</p>",
            ask("requeue", &format!("Requeue {all}…"), ""),
            ask("discard", &format!("Discard {all}…"), "danger")
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
        (serde_json::Value::String(text), None) => text.clone(),
        (value, None) => format!("{value:#}"),
    };
    let entity = |name: &str| message.body.get(name).and_then(serde_json::Value::as_str);
    let link = match (entity("table"), entity("pk"), entity("rk")) {
        (Some(table), Some(pk), Some(rk)) => {
            format!(" · <a href=\"/entity?table={}&amp;pk={}&amp;rk={}\">its entity</a>", Part(table), Part(pk), Part(rk))
        }
        _ => String::new(),
    };
    let actions = if visitor.signed_in {
        format!(
            "<div class=\"actions\"><form method=\"post\" action=\"/poison/requeue\"><input type=\"hidden\" name=\"queue\" value=\"{queue}\">\
             <input type=\"hidden\" name=\"id\" value=\"{id}\"><button>Requeue<span class=\"unseen\"> {id}</span></button></form>\
             <a class=\"button danger\" href=\"/poison/ask?what=discard&amp;queue={queue_part}&amp;id={id_part}\">Discard…<span class=\"unseen\"> {id}</span></a></div>",
            queue = Text(&message.held_by),
            id = Text(&message.message_id),
            queue_part = Part(&message.held_by),
            id_part = Part(&message.message_id),
        )
    } else {
        String::new()
    };
    format!(
        "<li class=\"card\"><h2>{op} <span class=\"bad\">{reason}</span></h2><p class=\"error\">{error}</p>\
         <p class=\"hint\">While {step} · {count} deliveries · first sent {first} · poisoned {at} UTC by {worker}{copies}{link}</p>\
         <p class=\"hint\">{queue} · {id}{own}</p><details><summary>Body</summary><pre>{body}</pre></details>{actions}</li>",
        op = Text(message.op.as_deref().unwrap_or("unknown")),
        reason = message.reason,
        error = Text(&message.error),
        step = Text(if message.step.is_empty() { "unknown" } else { &message.step }),
        count = message.dequeue_count,
        first = Text(words::moment(&message.first_enqueued)),
        at = Text(words::moment(&message.at)),
        worker = Text(if message.worker.is_empty() { "another program" } else { &message.worker }),
        copies = if message.copies > 1 { format!(" · {} copies", message.copies) } else { String::new() },
        queue = Text(&message.queue),
        id = Text(&message.message_id),
        own = message.id.as_ref().map_or_else(String::new, |id| format!(" · {}", Text(id))),
        body = Text(body),
    )
}

/// Asks before something is done to many messages, or cannot be undone.
pub(super) async fn ask(State(api): State<Api>, Query(meant): Query<Meant>, Extension(visitor): Extension<Visitor>) -> Response {
    let (verb, class, action) = match meant.what.as_str() {
        "requeue" => ("Requeue", "", "/poison/requeue"),
        "discard" => ("Discard", "danger", "/poison/discard"),
        _ => return layout::problem("/poison", &Problem::unusable("requeue or discard?"), visitor),
    };
    let which = if meant.id.is_empty() {
        let of = if meant.queue.is_empty() { "of every queue".to_owned() } else { format!("of the queue {}", meant.queue) };
        let why = if meant.reason.is_empty() { String::new() } else { format!(", poisoned for the reason “{}”", meant.reason) };
        let queues: Vec<_> =
            api.board.configured().iter().filter(|queue| meant.queue.is_empty() || queue.name.as_str() == meant.queue).collect();
        let count: u64 = queues.iter().filter_map(|queue| api.board.poisoned_of(&queue.name)).sum();
        let count = if meant.reason.is_empty() { format!("all {} messages", words::grouped(count)) } else { "all messages".to_owned() };
        format!("{count} {of}{why}")
    } else {
        format!("the message {}", meant.id)
    };
    let undone = if verb == "Discard" { "<p class=\"note bad\">This cannot be undone: their jobs will never be done.</p>" } else { "" };
    let body = format!(
        "<h1>{verb} {which}?</h1>{undone}<form method=\"post\" action=\"{action}\" class=\"actions\"><input type=\"hidden\" name=\"queue\" value=\"{}\">\
         <input type=\"hidden\" name=\"reason\" value=\"{}\"><input type=\"hidden\" name=\"id\" value=\"{}\"><input type=\"hidden\" name=\"all\" value=\"{}\">\
         <button class=\"{class}\">{verb}</button> <a class=\"button\" href=\"/poison\">Keep</a></form>",
        Text(&meant.queue),
        Text(&meant.reason),
        Text(&meant.id),
        meant.id.is_empty(),
        which = Text(which),
    );
    Page { title: format!("{verb}?"), place: "/poison", body }.answer(visitor)
}
