use std::collections::BTreeMap;

use anyhow::Context as _;
use jiff::Timestamp;

use super::args::{Discard, PoisonAction, PoisonArgs, PoisonList, Selector};
use super::show;
use crate::cli::consent::{confirm, require_terminal};
use crate::cli::output::{counted, printable};
use crate::cli::{Context, Exit, Format, Output, Tone, UsageError};
use evenkeel_model::QueueName;
use evenkeel_ops::in_step::in_step_now;
use evenkeel_storage::StoreError;
use evenkeel_worker::poison::{HandledMessages, PoisonEntry, PoisonFilter, PoisonQueue, causes};

pub async fn poison(
    args: &PoisonArgs,
    context: &Context,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    match &args.action {
        PoisonAction::List(selection) => list(selection, context, out).await,
        PoisonAction::Show(selection) => show(selection, context, out).await,
        PoisonAction::Requeue(selection) => requeue(selection, context, out).await,
        PoisonAction::Discard(discard) => self::discard(discard, context, out).await,
    }
}

async fn list(
    PoisonList { selection, group }: &PoisonList,
    context: &Context,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let FoundMessages {
        entries: found,
        hidden,
        interrupted,
        ..
    } = find(selection, context).await?;
    let causes = if *group {
        causes(found.iter().map(|(_, entry)| entry))
    } else {
        Vec::new()
    };
    let entries = || found.iter().map(|(_, entry)| entry);
    let in_step = if *group {
        Vec::new()
    } else {
        in_step_now(&context.client(), &context.catalog, entries()).await
    };
    match out.format() {
        Format::Json if *group => causes
            .iter()
            .try_for_each(|cause| out.value(&show::cause(cause)))?,
        Format::Json => entries()
            .zip(&in_step)
            .try_for_each(|(entry, in_step)| out.value(&show::listed(entry, *in_step)))?,
        Format::Text => {
            if *group {
                let rows: Vec<_> = causes
                    .iter()
                    .map(|cause| show::cause_row(cause, out.verbose()))
                    .collect();
                out.columns(show::CAUSE_HEADING, &rows)?;
            } else {
                let rows: Vec<_> = entries()
                    .zip(&in_step)
                    .map(|(entry, in_step)| show::row(entry, *in_step, out.verbose()))
                    .collect();
                out.columns(show::HEADING, &rows)?;
            }
            // Ids without a message are reported one by one, so no general notice is needed.
            if found.is_empty() && hidden == 0 && !interrupted && selection.ids.is_empty() {
                out.write_note(if selection.is_narrowed() {
                    "No poisoned message matches."
                } else {
                    "No poisoned messages."
                })?;
            }
        }
    }
    ended(selection, &found, hidden, interrupted, out)
}

/// Ends a command that only reads. Reports the messages that it could not see.
fn ended<Q>(
    selection: &Selector,
    found: &[(Q, PoisonEntry)],
    hidden: u64,
    interrupted: bool,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    report_hidden(hidden, "shown", out)?;
    if interrupted {
        out.write_error(format_args!(
            "Interrupted after {}; there are more.",
            counted(found.len() as u64, "message")
        ))?;
        return Ok(Exit::Interrupted);
    }
    Ok(missing(selection, found, out)?.unwrap_or(Exit::Done))
}

fn report_hidden(hidden: u64, done: &str, out: &mut Output) -> anyhow::Result<()> {
    if hidden > 0 {
        out.write_error(format_args!(
            "{hidden} more {} hidden and {} not {done}: another command or operator holds them for up to two minutes",
            if hidden == 1 { "is" } else { "are" },
            if hidden == 1 { "was" } else { "were" },
        ))?;
    }
    Ok(())
}

async fn show(selection: &Selector, context: &Context, out: &mut Output) -> anyhow::Result<Exit> {
    require_selection(selection, "show")?;
    let FoundMessages {
        entries: found,
        hidden,
        interrupted,
        ..
    } = find(selection, context).await?;
    for (position, (queue, entry)) in found.iter().enumerate() {
        let body = queue
            .body(&entry.message)
            .await
            .context("could not read the body of a poisoned message")?;
        match out.format() {
            Format::Json => out.value(&show::whole_json(entry, body.as_deref()))?,
            Format::Text => {
                let between = if position > 0 { "\n" } else { "" };
                out.text(format_args!(
                    "{between}{}",
                    show::whole_text(entry, body.as_deref())
                ))?;
            }
        }
    }
    ended(selection, &found, hidden, interrupted, out)
}

async fn requeue(
    selection: &Selector,
    context: &Context,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    require_selection(selection, "requeue")?;
    let filter = filter(selection, context)?;
    each_queue(
        selection,
        "requeue",
        "requeued",
        async |_, queue| queue.requeue(&filter).await,
        context,
        out,
    )
    .await
}

async fn discard(discard: &Discard, context: &Context, out: &mut Output) -> anyhow::Result<Exit> {
    let selection = &discard.selection;
    require_selection(selection, "discard")?;
    let filter = filter(selection, context)?;
    let bounds = if discard.yes {
        None
    } else {
        confirmed(selection, context, out).await?
    };
    if bounds.is_none() && !discard.yes {
        out.write_note("Nothing was discarded.")?;
        return Ok(if context.stop.is_cancelled() {
            Exit::Interrupted
        } else {
            Exit::Failed
        });
    }
    // If no message of a queue matched, the question did not mention the queue, so none of its
    // messages may be discarded.
    let last = |name: &QueueName| {
        bounds
            .as_ref()
            .map(|bounds| bounds.get(name).copied().unwrap_or(Timestamp::MIN))
    };
    let filter_of = |name: &QueueName| PoisonFilter {
        until: last(name),
        ..filter.clone()
    };
    each_queue(
        selection,
        "discard",
        "discarded",
        async |name, queue| queue.discard(&filter_of(name)).await,
        context,
        out,
    )
    .await
}

/// Handles the queues one after the other until one fails. The results of the earlier queues are
/// still reported.
async fn each_queue(
    selection: &Selector,
    action: &str,
    verb: &str,
    handle: impl AsyncFn(&QueueName, &PoisonQueue) -> Result<HandledMessages, StoreError>,
    context: &Context,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let (mut handled, mut error) = (Vec::new(), None);
    for (name, queue) in queues(selection.queue.as_ref(), context)? {
        if context.stop.is_cancelled() || error.is_some() {
            break;
        }
        match handle(&name, &queue)
            .await
            .with_context(|| format!("could not {action} messages from {name}-poison"))
        {
            Ok(one) => handled.push(one),
            Err(failed) => error = Some(failed),
        }
    }
    report(selection, &handled, error, verb, context, out)
}

/// Asks for confirmation, unless no message matches. Returns `None` if the answer is no. Otherwise
/// returns, for each queue, the time at which the last counted message was put. Fails without a
/// terminal.
async fn confirmed(
    selection: &Selector,
    context: &Context,
    out: &mut Output,
) -> anyhow::Result<Option<BTreeMap<QueueName, Timestamp>>> {
    require_terminal("discarding cannot be undone. Add --yes to run without a terminal")?;
    let FoundMessages { entries, reach, .. } = find(selection, context).await?;
    let agreed = entries.is_empty()
        || confirm(question(entries.len() as u64, reach.hidden), context, out).await?;
    Ok(agreed.then_some(reach.last))
}

/// The confirmation question. It does not count hidden messages, but warns about them, because they
/// may be visible again before the answer.
fn question(seen: u64, hidden: u64) -> String {
    let seen = counted(seen, "poisoned message");
    let more = match hidden {
        0 => String::new(),
        1 => " 1 more is hidden and not counted (another command or operator holds it for up to two minutes). \
         If it matches, it may be deleted too once it is visible again."
            .to_owned(),
        _ => format!(
            " {hidden} more are hidden and not counted (another command or operator holds them for up to two minutes). \
         Those that match may be deleted too once they are visible again."
        ),
    };
    format!("{seen} will be deleted.{more} This cannot be undone.")
}

/// Reports the handled messages, then the error that ended the command.
fn report(
    selection: &Selector,
    handled: &[HandledMessages],
    error: Option<anyhow::Error>,
    verb: &str,
    context: &Context,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let mut done = 0;
    let mut failed = 0;
    for (entry, reason) in handled.iter().flat_map(|handled| &handled.failed) {
        failed += 1;
        let message = format!(
            "{}: {}",
            printable(&entry.message.message_id),
            printable(reason)
        );
        let start = out.note_tone(Tone::Bad, format_args!("not {verb}"));
        out.write_error(format_args!("{start} {message}"))?;
        if out.format() == Format::Json {
            out.value(&serde_json::json!({"message_id": entry.message.message_id, "queue": entry.message.queue, "error": reason}))?;
        }
    }
    for entry in handled.iter().flat_map(|handled| &handled.done) {
        done += 1;
        let message = &entry.message;
        match out.format() {
            Format::Json => out.value(&serde_json::json!({"message_id": message.message_id, "queue": message.queue, "done": verb}))?,
            Format::Text => out.line(format_args!("{verb} {} ({})", printable(&message.message_id), message.queue))?,
        }
    }
    let hidden: u64 = handled.iter().map(|handled| handled.hidden).sum();
    report_hidden(hidden, verb, out)?;
    if hidden > 0 && out.format() == Format::Json {
        out.value(&serde_json::json!({"hidden": hidden}))?;
    }
    let since: u64 = handled.iter().map(|handled| handled.since).sum();
    if since > 0 {
        let came = counted(since, "message");
        out.write_error(format_args!(
            "{came} that also match arrived after the confirmation question and {was} not {verb}",
            was = if since == 1 { "was" } else { "were" }
        ))?;
        if out.format() == Format::Json {
            out.value(&serde_json::json!({"since": since}))?;
        }
    }
    for reason in handled
        .iter()
        .filter_map(|handled| handled.cut_short.as_ref())
        .filter(|_| !context.stop.is_cancelled())
    {
        failed += 1;
        out.write_error(format_args!(
            "the rest of the queue was not read: {}",
            printable(reason)
        ))?;
    }
    if let Some(error) = error {
        return Err(error);
    }
    if context.stop.is_cancelled() {
        out.write_error(format_args!(
            "Interrupted: {} {verb}, the others are unchanged. The command can be repeated.",
            counted(done, "message")
        ))?;
        return Ok(Exit::Interrupted);
    }
    if done + failed == 0 && since == 0 && selection.ids.is_empty() {
        let seen = if hidden > 0 { " that is visible" } else { "" };
        out.write_note(format_args!(
            "Nothing was {verb}: no poisoned message{seen} matches."
        ))?;
    }
    let entries: Vec<&PoisonEntry> = handled
        .iter()
        .flat_map(|one| {
            one.done
                .iter()
                .chain(one.failed.iter().map(|(entry, _)| entry))
        })
        .collect();
    let absent = unknown(selection, &entries);
    report_absent(&absent, out)?;
    Ok(if failed > 0 || hidden > 0 || !absent.is_empty() {
        Exit::Failed
    } else {
        Exit::Done
    })
}

#[derive(Default)]
struct FoundMessages {
    /// Each message, with the queue from which its body is read.
    entries: Vec<(std::sync::Arc<PoisonQueue>, PoisonEntry)>,
    hidden: u64,
    /// Whether the search was interrupted, so that some messages were not read.
    interrupted: bool,
    /// What a confirmed discard may delete.
    reach: DiscardReach,
}

/// The messages that a confirmed discard may delete. In each queue, these are the messages that
/// were put no later than the last matching message that the question counted.
#[derive(Default)]
struct DiscardReach {
    /// When the last matching message of each queue was put, by the queue's clock.
    last: BTreeMap<QueueName, Timestamp>,
    /// Approximate number of hidden messages in these queues.
    hidden: u64,
}

impl DiscardReach {
    /// Adds a queue, with the times at which its matching messages were put. If no message matches,
    /// the queue is left out, so that none of its hidden messages can be deleted.
    fn add(&mut self, queue: QueueName, found: impl Iterator<Item = Timestamp>, hidden: u64) {
        if let Some(last) = found.max() {
            self.last.insert(queue, last);
            self.hidden += hidden;
        }
    }
}

async fn find(selection: &Selector, context: &Context) -> anyhow::Result<FoundMessages> {
    let (mut found, filter) = (FoundMessages::default(), filter(selection, context)?);
    for (name, queue) in queues(selection.queue.as_ref(), context)? {
        let queue = std::sync::Arc::new(queue);
        let listed = queue
            .list(&filter)
            .await
            .with_context(|| format!("could not read the queue {name}-poison"))?;
        found.reach.add(
            name,
            listed.entries.iter().map(|entry| entry.inserted),
            listed.hidden,
        );
        found.entries.extend(
            listed
                .entries
                .into_iter()
                .map(|entry| (std::sync::Arc::clone(&queue), entry)),
        );
        found.hidden += listed.hidden;
        found.interrupted |= listed.interrupted;
    }
    Ok(found)
}

fn queues(
    named: Option<&QueueName>,
    context: &Context,
) -> anyhow::Result<Vec<(QueueName, PoisonQueue)>> {
    context.check_queue(named)?;
    let mut queues = Vec::new();
    for queue in context
        .settings
        .queues
        .iter()
        .filter(|queue| named.is_none_or(|named| queue.name == *named))
    {
        let account = context.stores.account(&queue.account)?;
        queues.push((
            queue.name.clone(),
            PoisonQueue::new(account, queue)?.until(&context.stop),
        ));
    }
    Ok(queues)
}

fn filter(selection: &Selector, context: &Context) -> Result<PoisonFilter, UsageError> {
    let filter = selection
        .criteria()
        .filter(context.clock.now())
        .map_err(|error| UsageError::new(error.to_string()))?;
    Ok(PoisonFilter {
        ids: selection.ids.iter().cloned().collect(),
        ..filter
    })
}

/// Returns an error if neither ids nor `--all` are given, because an empty selection must not mean
/// all messages.
fn require_selection(selection: &Selector, verb: &str) -> Result<(), UsageError> {
    if selection.ids.is_empty() && !selection.all {
        return Err(UsageError::new(format!(
            "choose the messages to {verb}: give their ids, or --all (limited by --cause, --table, --since and others)"
        )));
    }
    Ok(())
}

fn missing<Q>(
    selection: &Selector,
    found: &[(Q, PoisonEntry)],
    out: &mut Output,
) -> anyhow::Result<Option<Exit>> {
    let entries: Vec<&PoisonEntry> = found.iter().map(|(_, entry)| entry).collect();
    let absent = unknown(selection, &entries);
    report_absent(&absent, out)?;
    Ok((!absent.is_empty()).then_some(Exit::Failed))
}

fn unknown<'a>(selection: &'a Selector, entries: &[&PoisonEntry]) -> Vec<&'a str> {
    selection
        .ids
        .iter()
        .filter(|id| !entries.iter().any(|entry| entry.has(id)))
        .map(String::as_str)
        .collect()
}

fn report_absent(absent: &[&str], out: &mut Output) -> anyhow::Result<()> {
    for id in absent {
        out.write_error(format_args!(
            "no poisoned message has the id {}",
            printable(id)
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_mentions_hidden_messages() {
        assert_eq!(
            question(2, 0),
            "2 poisoned messages will be deleted. This cannot be undone."
        );
        let one = question(1, 1);
        assert!(
            one.starts_with(
                "1 poisoned message will be deleted. 1 more is hidden and not counted ("
            ),
            "{one}"
        );
        let many = question(2, 3);
        assert!(
            many.contains(" 3 more are hidden ")
                && many.contains(
                    "Those that match may be deleted too once they are visible again. This "
                ),
            "{many}"
        );
    }

    #[test]
    fn hidden_messages_count_if_a_message_of_their_queue_matches() {
        let mut reach = DiscardReach::default();
        let put = |second| Timestamp::from_second(second).unwrap();
        let queue = |name: &str| QueueName::new(name).unwrap();
        reach.add(queue("jobs"), [put(2), put(3), put(1)].into_iter(), 2);
        reach.add(queue("far"), std::iter::empty(), 5);
        reach.add(queue("late"), std::iter::once(put(9)), 1);
        assert_eq!(
            reach.last,
            [(queue("jobs"), put(3)), (queue("late"), put(9))].into()
        );
        assert_eq!(reach.hidden, 3);
    }
}
