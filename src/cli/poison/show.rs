//! Formats poisoned messages. Pure.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::cli::output::{printable, printable_lines};
use evenkeel_model::limits;
use evenkeel_worker::poison::{BodyPreview, PoisonCause, PoisonEntry, PoisonMessage, cause_id};

/// The fields of a message in a list, for machines. The body is left out.
pub(super) fn brief(entry: &PoisonEntry) -> Value {
    let PoisonMessage {
        reason,
        error,
        step,
        op,
        dequeue_count,
        first_enqueued,
        poisoned,
        worker,
        queue,
        message_id,
        id,
        ..
    } = &entry.message;
    json!({
        "queue": queue, "message_id": message_id, "poison_id": entry.ids.first(), "id": id, "reason": reason,
        "cause": cause_id(&entry.message), "op": op, "error": error, "step": step,
        "dequeue_count": dequeue_count, "first_enqueued": first_enqueued, "poisoned": poisoned, "worker": worker, "copies": entry.ids.len(),
    })
}

/// Like [`brief`], with an additional field that shows whether the entity is in step now.
pub(super) fn listed(entry: &PoisonEntry, in_step: Option<bool>) -> Value {
    let mut value = brief(entry);
    if let Value::Object(object) = &mut value {
        object.insert("in_step".to_owned(), json!(in_step));
    }
    value
}

/// A whole message, for machines. The body is JSON if possible, otherwise a string. A missing body
/// is null.
pub(super) fn whole_json(entry: &PoisonEntry, body: Option<&str>) -> Value {
    let mut value = brief(entry);
    if let Value::Object(object) = &mut value {
        let body = body.map(|kept| BodyPreview::of(kept, limits::EXPANDED_BODY_BYTES));
        object.insert(
            "body".to_owned(),
            body.map_or(Value::Null, BodyPreview::into_value),
        );
    }
    value
}

pub(super) fn whole_text(entry: &PoisonEntry, body: Option<&str>) -> String {
    let message = &entry.message;
    let mut text = String::new();
    let mut field = |name: &str, value: &str| {
        let line = format!("{name:<14}  {}", printable_lines(value));
        let _ = writeln!(text, "{}", line.trim_end());
    };
    field("message", &message.message_id);
    if let Some(id) = &message.id {
        field("client's id", id);
    }
    field("queue", message.queue.as_str());
    field("reason", message.reason.name());
    field("cause", &cause_id(message));
    field("error", &message.error);
    field("step", &message.step);
    field("op", message.op.as_deref().unwrap_or("unknown"));
    field("deliveries", &message.dequeue_count.to_string());
    field("enqueued", &message.first_enqueued.to_string());
    field(
        "poisoned",
        &format!("{} by {}", message.poisoned, message.worker),
    );
    field("poison id", entry.ids.first().map_or("", String::as_str));
    if entry.ids.len() > 1 {
        field(
            "copies",
            &format!(
                "{}: a worker stopped after it put the poison message and before it deleted the original",
                entry.ids.len()
            ),
        );
    }
    match body.map(|kept| BodyPreview::of(kept, limits::EXPANDED_BODY_BYTES)) {
        None => field("body", "missing: the blob with the body was deleted"),
        Some(body) => {
            field("body", "");
            for line in body.indented().lines() {
                let _ = writeln!(text, "  {}", printable(line));
            }
        }
    }
    text
}

/// Maximum number of characters of an error in a list. An error that names a row and the primary
/// that owns it fits.
const ERROR: usize = 160;

pub(super) const HEADING: [&str; 7] = [
    "QUEUE", "POISONED", "REASON", "OP", "MESSAGE", "NOW", "ERROR",
];

pub(super) fn row(entry: &PoisonEntry, in_step: Option<bool>, whole: bool) -> [String; 7] {
    let message = &entry.message;
    [
        message.queue.to_string(),
        format!("{:.0}", message.poisoned),
        message.reason.to_string(),
        printable(message.op.as_deref().unwrap_or("?")),
        printable(&message.message_id),
        if in_step == Some(true) {
            "in step"
        } else {
            "-"
        }
        .to_owned(),
        shown_error(&message.error, whole),
    ]
}

fn shown_error(error: &str, whole: bool) -> String {
    let first = if whole {
        error
    } else {
        error.lines().next().unwrap_or_default()
    };
    let first: String = first
        .chars()
        .take(if whole { usize::MAX } else { ERROR })
        .collect();
    let cut = if first.len() < error.len() { "…" } else { "" };
    format!("{}{cut}", printable(&first))
}

pub(super) const CAUSE_HEADING: [&str; 7] = [
    "CAUSE", "MESSAGES", "FIRST", "LAST", "REASON", "EXAMPLE", "ERROR",
];

pub(super) fn cause_row(
    PoisonCause {
        id,
        reason,
        error,
        count,
        first,
        last,
        sample,
    }: &PoisonCause,
    whole: bool,
) -> [String; 7] {
    [
        id.clone(),
        count.to_string(),
        format!("{first:.0}"),
        format!("{last:.0}"),
        reason.to_string(),
        printable(sample),
        shown_error(error, whole),
    ]
}

pub(super) fn cause(
    PoisonCause {
        id,
        reason,
        error,
        count,
        first,
        last,
        sample,
    }: &PoisonCause,
) -> Value {
    json!({"cause": id, "reason": reason, "error": error, "count": count, "first": first, "last": last, "sample": sample})
}
