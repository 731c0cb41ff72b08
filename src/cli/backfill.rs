//! `evenkeel backfill`

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::json;

use super::{Context, Exit, Format, Output, Tone, UsageError, help};
use crate::model::backfill::{Backfill, BackfillCursor, BackfillScope};
use crate::model::job::Stamp;
use crate::model::{QueueName, TableName, ViewName};
use crate::ops::submission::{Prepared, prepare};
use crate::ports::Ttl;
use crate::reconcile::{Delivery, Engine};

/// Arguments of `backfill`.
#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel backfill", "brings every primary of every table with views in step, with progress"),
    ("evenkeel backfill --table Employees", "those of one table"),
    ("evenkeel backfill --view employees_by_email --submit", "as a job for the workers, for the source of one view"),
]))]
pub struct BackfillArgs {
    /// The table of the primaries, in any case
    #[arg(long, value_name = "TABLE", conflicts_with = "view")]
    pub table: Option<String>,
    /// The view whose source's primaries are meant
    #[arg(long, value_name = "VIEW")]
    pub view: Option<ViewName>,
    /// Put jobs on a queue, for the workers, instead of doing it here
    #[arg(long)]
    pub submit: bool,
    /// The queue for these jobs, and for those of primaries that cannot be brought in step; where absent, the first that
    /// carries them
    #[arg(long, value_name = "NAME")]
    pub queue: Option<QueueName>,
}

/// What became of one table.
#[derive(Debug, Serialize)]
struct Done<'a> {
    table: &'a TableName,
    /// Primaries brought in step.
    primaries: u64,
    /// Items written or deleted.
    items: usize,
    /// Primaries that could not be brought in step.
    failed: u64,
}

/// Brings every primary of some tables in step, here or as jobs.
pub async fn backfill(args: &BackfillArgs, context: &Context, engine: &Engine, out: &mut Output) -> anyhow::Result<Exit> {
    let tables = tables(args, context)?;
    if args.submit {
        return submit(&tables, args.queue.as_ref(), context, out).await;
    }
    let mut exit = Exit::Done;
    for table in &tables {
        let done = one(table, args.queue.as_ref(), context, engine, out).await?;
        if done.failed > 0 {
            exit = Exit::Failed;
        }
        tell(&done, out)?;
    }
    Ok(exit)
}

/// The tables whose primaries are meant.
fn tables(args: &BackfillArgs, context: &Context) -> anyhow::Result<Vec<TableName>> {
    if let Some(table) = &args.table {
        return Ok(vec![context.known_table(table)?.table]);
    }
    if let Some(name) = &args.view {
        return Ok(vec![context.known_view(name)?.source.table.clone()]);
    }
    let sources: BTreeSet<TableName> = context.catalog.views.values().map(|view| view.source.table.clone()).collect();
    Ok(sources.into_iter().collect())
}

/// A job of one table, checked.
fn job(table: &TableName, queue: Option<&QueueName>, context: &Context) -> Result<Prepared, UsageError> {
    let text = json!({"op": "backfill", "table": table}).to_string();
    prepare(&text, queue, &context.settings, &context.catalog).map_err(UsageError::new)
}

async fn submit(tables: &[TableName], queue: Option<&QueueName>, context: &Context, out: &mut Output) -> anyhow::Result<Exit> {
    for table in tables {
        let job = job(table, queue, context)?;
        let queues = &context.stores.account(&job.account)?.queues;
        let sent = queues.put(&job.queue, &job.text, Duration::ZERO, Ttl::Never).await;
        let sent = sent.with_context(|| format!("sending the job to the queue {}", job.queue))?;
        match out.format() {
            Format::Json => out.value(&json!({"table": table, "queue": job.queue, "message_id": sent.id, "op": job.op}))?,
            Format::Text => out.line(format_args!("sent backfill of {table} to {} as {}", job.queue, sent.id))?,
        }
    }
    Ok(Exit::Done)
}

async fn one<'a>(
    table: &'a TableName,
    queue: Option<&QueueName>,
    context: &Context,
    engine: &Engine,
    out: &Output,
) -> anyhow::Result<Done<'a>> {
    let carrier = job(table, queue, context)?;
    let declared = context.settings.queues.iter().find(|queue| queue.shard_names().contains(&carrier.queue));
    let recheck_queue = declared.ok_or_else(|| anyhow!("no queue {} is declared", carrier.queue))?.name.with_suffix("-recheck")?;
    let now = context.clock.now();
    let delivery = Delivery {
        stamp: Stamp { message_id: format!("backfill-{}", now.as_millisecond()), enqueued: now },
        dequeue_count: 1,
        account: carrier.account,
        queue: carrier.queue,
        recheck_queue,
    };
    let bar = progress(table, out);
    let mut cursor = BackfillCursor::default();
    let mut items = 0;
    loop {
        let done = cursor.done;
        let part = engine.backfill(&Backfill { scope: BackfillScope::Table(table.clone()), cursor: cursor.clone() }, &delivery).await;
        let part = part
            .with_context(|| format!("bringing the primaries of {table} in step: {done} were, and may be again: nothing is done twice"))?;
        let Some(part) = part else { break };
        items += part.summary.changes.len();
        cursor = part.cursor;
        bar.set_position(cursor.done);
        if part.ended {
            break;
        }
    }
    bar.finish_and_clear();
    Ok(Done { table, primaries: cursor.done, items, failed: cursor.failed })
}

fn tell(done: &Done<'_>, out: &mut Output) -> anyhow::Result<()> {
    if out.format() == Format::Json {
        return Ok(out.value(done)?);
    }
    let Done { table, primaries, items, failed } = done;
    out.line(format_args!(
        "{table}: {} primaries in step, {} items written or deleted",
        HumanCount(*primaries),
        HumanCount(*items as u64)
    ))?;
    if *failed > 0 {
        let text = out.tone(Tone::Bad, format_args!("{table}: {} could not be brought in step", HumanCount(*failed)));
        out.line(text)?;
        out.say("A sync job of each is queued: a worker will do it, or `evenkeel poison list` will say why it cannot be done.")?;
    }
    Ok(())
}

fn progress(table: &TableName, out: &Output) -> ProgressBar {
    if !out.live() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner().with_message(table.to_string());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}: {human_pos} primaries, {per_sec}, {elapsed}") {
        bar.set_style(style);
    }
    bar
}
