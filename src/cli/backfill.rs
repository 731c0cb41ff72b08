use std::collections::BTreeMap;

use anyhow::Context as _;
use clap::Args;
use indicatif::HumanCount;
use serde::Serialize;
use serde_json::{Value, json};

use super::output::counted;
use super::progress::{SAMPLING, announce_if_slow};
use super::whole_tables::{WalkStart, WholeTables};
use super::{Context, Exit, Format, Output, Tone, help, whole_tables};
use evenkeel_engine::Engine;
use evenkeel_model::backfill::{Backfill, BackfillCursor, BackfillScope, TakenKeys};
use evenkeel_model::catalog::Source;
use evenkeel_model::{QueueName, TableName, ViewName};

#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel backfill", "the primaries of every table with views; shows the progress"),
    ("evenkeel backfill --table Employees", "the primaries of one table"),
    ("evenkeel backfill --view employees_by_email --submit", "as a job for the workers, for the source of one view"),
]))]
pub struct BackfillArgs {
    /// The table of the primaries (case-insensitive)
    #[arg(long, value_name = "TABLE", conflicts_with = "view")]
    pub table: Option<String>,
    /// Only the primaries of this view's source
    #[arg(long, value_name = "VIEW")]
    pub view: Option<ViewName>,
    /// Put jobs on a queue for the workers
    #[arg(long)]
    pub submit: bool,
    /// Queue for the jobs, and for the sync jobs of primaries that fail; default the first that allows them
    #[arg(long, value_name = "NAME")]
    pub queue: Option<QueueName>,
}

#[derive(Debug, Serialize)]
struct TableResult<'a> {
    table: &'a TableName,
    primaries: u64,
    created: u64,
    updated: u64,
    deleted: u64,
    failed: u64,
    /// Items that were not written because another row or blob already has their key, by view.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    taken: BTreeMap<String, TakenKeys>,
    /// Whether the command was interrupted. The counts are then incomplete.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    interrupted: bool,
}

/// Reconciles every primary of the tables, either in this process or by jobs. `ready` must first
/// confirm that no worker writes with an older catalog.
pub async fn backfill(
    args: &BackfillArgs,
    context: &Context,
    engine: &Engine,
    ready: impl AsyncFnOnce(&mut Output) -> anyhow::Result<()>,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    print_warnings(args, context, out).await?;
    let whole = WholeTables {
        table: args.table.as_ref(),
        view: args.view.as_ref(),
        submit: args.submit,
        queue: args.queue.as_ref(),
    };
    let (tables, mut exit) = match whole_tables::begin(&whole, job, context, ready, out).await? {
        WalkStart::Here(tables, exit) => (tables, exit),
        WalkStart::Ended(exit) => return Ok(exit),
    };
    for (at, table) in tables.iter().enumerate() {
        let done = backfill_table(table, args.queue.as_ref(), context, engine, out).await?;
        if done.failed > 0 {
            exit = Exit::Failed;
        } else if !done.taken.is_empty() && exit == Exit::Done {
            exit = Exit::Drift;
        }
        report(&done, out)?;
        if done.interrupted {
            whole_tables::report_remaining("backfill", table, &tables[at + 1..], out)?;
            return Ok(Exit::Interrupted);
        }
    }
    Ok(exit)
}

/// Prints warnings about the views before anything is written.
async fn print_warnings(
    args: &BackfillArgs,
    context: &Context,
    out: &mut Output,
) -> anyhow::Result<()> {
    let of_table = match &args.table {
        Some(typed) => match context.known_table(typed) {
            Ok(table) => Some(table),
            // The command itself reports this error later.
            Err(_) => return Ok(()),
        },
        None => None,
    };
    let of_view = args.view.as_ref().and_then(|view| {
        context
            .catalog
            .declared()
            .get(view)
            .map(|(_, source)| source.clone())
    });
    let is_selected = |source: &Source| match (&of_table, &of_view) {
        (Some(table), _) => source.has(table),
        (None, Some(view)) => source == view,
        (None, None) => args.view.is_none(),
    };
    let migrator = context.migrator()?;
    for survey in announce_if_slow(SAMPLING, migrator.survey_views(is_selected), out).await? {
        for warning in survey.warnings() {
            out.write_error(format_args!("warning: {warning}"))?;
        }
    }
    Ok(())
}

fn job(table: &TableName) -> Value {
    json!({"op": "backfill", "table": table})
}

async fn backfill_table<'a>(
    table: &'a TableName,
    queue: Option<&QueueName>,
    context: &Context,
    engine: &Engine,
    out: &mut Output,
) -> anyhow::Result<TableResult<'a>> {
    let delivery = whole_tables::delivery(&job(table), queue, context)?;
    let mut progress = whole_tables::progress(table, context, out).await;
    let mut cursor = BackfillCursor::default();
    let mut interrupted = false;
    loop {
        if context.stop.is_cancelled() {
            interrupted = true;
            break;
        }
        let done = cursor.done;
        let backfill = Backfill {
            scope: BackfillScope::Table(table.clone()),
            cursor: cursor.clone(),
        };
        let part = match engine
            .refuse_replaced(|| format!("continuing with {table}"))
            .await
        {
            Ok(()) => engine.backfill(&backfill, &delivery).await,
            Err(replaced) => Err(replaced),
        };
        let part = part.with_context(|| {
            format!(
                "the backfill of {table} stopped after {}. It can be repeated",
                counted(done, "primary")
            )
        })?;
        let Some(part) = part else { break };
        cursor = part.cursor;
        progress.set(cursor.done, out)?;
        if part.ended {
            let kept = engine.backfilled(&backfill, &cursor, &delivery).await;
            kept.with_context(|| format!("the primaries of {table} are in step, but the findings of the last audit could not be updated"))?;
            break;
        }
    }
    progress.end();
    let BackfillCursor {
        done: primaries,
        created,
        updated,
        deleted,
        failed,
        taken,
        ..
    } = cursor;
    Ok(TableResult {
        table,
        primaries,
        created,
        updated,
        deleted,
        failed,
        taken,
        interrupted,
    })
}

fn report(done: &TableResult<'_>, out: &mut Output) -> anyhow::Result<()> {
    if out.format() == Format::Json {
        return Ok(out.value(done)?);
    }
    let TableResult {
        table,
        primaries,
        created,
        updated,
        deleted,
        failed,
        taken,
        interrupted,
    } = done;
    let so_far = if *interrupted {
        out.tone(Tone::Warning, ", then interrupted")
    } else {
        String::new()
    };
    out.line(format_args!(
        "{table}: {} in step, {} created, {} updated, {} deleted{so_far}",
        counted(*primaries, "primary"),
        counted(*created, "item"),
        HumanCount(*updated),
        HumanCount(*deleted)
    ))?;
    for (view, TakenKeys { items, example }) in taken {
        let text = format!(
            "{table}: {} of view {view} not written, because rows or blobs that evenkeel did not write have their keys, for example: {example}",
            counted(*items, "item")
        );
        let text = out.tone(Tone::Bad, text);
        out.line(text)?;
    }
    if !taken.is_empty() {
        out.write_note("`evenkeel audit` lists each of them as taken. Free the keys or change the keys of the view, then run the backfill again.")?;
    }
    if *failed > 0 {
        let text = out.tone(
            Tone::Bad,
            format_args!(
                "{table}: {} could not be brought in step",
                counted(*failed, "primary")
            ),
        );
        out.line(text)?;
        out.write_note(
            "A sync job was queued for each. If that fails too, `evenkeel poison list` shows why.",
        )?;
    }
    Ok(())
}
