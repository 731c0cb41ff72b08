//! Common parts of the commands that walk over whole tables: they select the tables, send jobs to
//! workers, and create the delivery of a job that this process runs itself.

use std::collections::BTreeSet;

use anyhow::anyhow;
use serde_json::{Value, json};

use super::output::counted;
use super::progress::Progress;
use super::{Context, Exit, Format, Output, ProgressDisplay, UsageError};
use evenkeel_client::PreparedMessage;
use evenkeel_engine::{Delivery, audited_primaries};
use evenkeel_model::catalog::{Catalog, DatedRef, Source, TableRef, View};
use evenkeel_model::job::Stamp;
use evenkeel_model::{QueueName, TableName, ViewName};
use evenkeel_storage::all_tables;

/// Arguments that these commands have in common.
pub(super) struct WholeTables<'a> {
    pub(super) table: Option<&'a String>,
    /// The view whose primaries are processed. If neither a table nor a view is named, all views are processed.
    pub(super) view: Option<&'a ViewName>,
    /// Whether jobs are sent to the workers. Otherwise the command itself walks over the tables.
    pub(super) submit: bool,
    /// The queue for the jobs; `None` for the default.
    pub(super) queue: Option<&'a QueueName>,
}

/// How a command continues after its tables were selected.
pub(super) enum WalkStart {
    /// The command walks over these tables. It ends with this exit code if the walk has no other
    /// result.
    Here(Vec<TableName>, Exit),
    /// The command has nothing more to do, because jobs were sent or it was interrupted.
    Ended(Exit),
}

/// Selects the tables. Sends a job for each of them, or waits until the command may walk over them.
pub(super) async fn begin(
    args: &WholeTables<'_>,
    job: impl Fn(&TableName) -> Value,
    context: &Context,
    ready: impl AsyncFnOnce(&mut Output) -> anyhow::Result<()>,
    out: &mut Output,
) -> anyhow::Result<WalkStart> {
    let selection = select(args.table, args.view, context).await?;
    selection.report_problems(out)?;
    if args.submit {
        return Ok(WalkStart::Ended(
            submit(&selection, job, args.queue, context, out).await?,
        ));
    }
    let tables = selection.tables();
    let may_begin = may_begin(&tables, context, ready, out).await?;
    Ok(if may_begin {
        WalkStart::Here(tables, selection.exit())
    } else {
        WalkStart::Ended(Exit::Interrupted)
    })
}

#[derive(Debug, Default)]
struct TableSelection {
    tables: BTreeSet<TableName>,
    /// A message for each source of retired views that cannot be walked over.
    unknown: Vec<String>,
}

impl TableSelection {
    fn tables(&self) -> Vec<TableName> {
        self.tables.iter().cloned().collect()
    }

    /// The exit code if the walk has no other result. The command fails if it selected only tables
    /// that cannot be walked over.
    fn exit(&self) -> Exit {
        if self.tables.is_empty() && !self.unknown.is_empty() {
            Exit::Failed
        } else {
            Exit::Done
        }
    }

    fn report_problems(&self, out: &mut Output) -> anyhow::Result<()> {
        for unknown in &self.unknown {
            out.write_error(unknown)?;
        }
        if self.tables.is_empty() && self.unknown.is_empty() {
            out.write_note(
                "Nothing to do: no table has views, and no retired view has left items.",
            )?;
        }
        Ok(())
    }

    /// Adds the existing tables of a retired view's source.
    async fn add_retired(&mut self, source: &Source, context: &Context) -> anyhow::Result<()> {
        let unknown =
            |reason: &str| format!("Retired views of {source} may have left items: {reason}.");
        let Ok(account) = context.stores.account(source.account()) else {
            self.unknown.push(unknown(&format!(
                "[accounts.{}] is not configured",
                source.account()
            )));
            return Ok(());
        };
        match source {
            Source::Table(table) => {
                let tables = all_tables(account.tables.as_ref()).await?;
                self.tables
                    .extend(tables.contains(&table.table).then(|| table.table.clone()));
            }
            Source::Dated(dated) => {
                let tables = existing_tables(dated, context).await?;
                if tables.is_empty()
                    || context
                        .catalog
                        .retentions
                        .values()
                        .any(|retention| retention.source() == *dated)
                {
                    self.tables.extend(tables);
                } else {
                    self.unknown.push(unknown(
                        "this source has no [retention], so its footprint tables cannot be found",
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Selects the tables: a single one, those of a view, or all tables with views. A view over a range has two
/// source tables: the table of the entity that sets values, and the table of the entities that get them. For a
/// view of dated tables, all existing tables are selected. Retired views are included, because their items
/// must be removed.
async fn select(
    table: Option<&String>,
    view: Option<&ViewName>,
    context: &Context,
) -> anyhow::Result<TableSelection> {
    let (catalog, mut selection) = (&context.catalog, TableSelection::default());
    if let Some(table) = table {
        let table = context.known_table(table)?;
        if !catalog.derives_from(&table) {
            return Err(no_source(&table, catalog).into());
        }
        selection.tables.insert(table.table);
        return Ok(selection);
    }
    if let Some(view) = view {
        match (
            catalog.dated_views.get(view),
            catalog.generations.retired.get(view),
        ) {
            (Some(dated), _) => selection
                .tables
                .extend(existing_tables(&dated.source, context).await?),
            (None, Some((_, source))) if !catalog.declares(view) => {
                selection.add_retired(source, context).await?;
            }
            (None, _) => selection
                .tables
                .extend(tables_of(context.known_view(view)?)),
        }
        return Ok(selection);
    }
    selection
        .tables
        .extend(catalog.views.values().flat_map(|view| tables_of(view)));
    for source in catalog
        .dated_views
        .values()
        .map(|view| &view.source)
        .collect::<BTreeSet<_>>()
    {
        selection
            .tables
            .extend(existing_tables(source, context).await?);
    }
    for source in catalog
        .generations
        .retired
        .values()
        .map(|(_, source)| source)
        .collect::<BTreeSet<_>>()
    {
        selection.add_retired(source, context).await?;
    }
    Ok(selection)
}

/// Waits until a walk may begin. Returns `false` after an interruption.
async fn may_begin(
    tables: &[TableName],
    context: &Context,
    ready: impl AsyncFnOnce(&mut Output) -> anyhow::Result<()>,
    out: &mut Output,
) -> anyhow::Result<bool> {
    if !tables
        .iter()
        .filter_map(|table| context.catalog.table(table))
        .any(|table| context.catalog.derives_from(table))
    {
        return Ok(true);
    }
    tokio::select! {
        biased;
        () = context.stop.cancelled() => {
            out.write_error("Interrupted before anything was done.")?;
            Ok(false)
        }
        ended = ready(&mut *out) => ended.map(|()| true),
    }
}

/// The error for a table that has no derived data. It names the view or archive that writes to the
/// table.
fn no_source(table: &TableRef, catalog: &Catalog) -> UsageError {
    let declared = catalog.declared();
    let view = declared.iter().find_map(|(name, (_, source))| {
        let writes = catalog
            .view_in(name, &table.table)?
            .form()
            .target()?
            .has(table);
        writes.then(|| format!("it is written by view {name}, from {source}"))
    });
    let archive = || {
        let archive = catalog
            .archives
            .values()
            .find(|archive| archive.target.table() == Some(table))?;
        Some(format!(
            "it is written by archive {}, from {}",
            archive.name, archive.source
        ))
    };
    let hint = view.or_else(archive).unwrap_or_else(|| {
        let sources: BTreeSet<String> = declared
            .values()
            .map(|(_, source)| source.to_string())
            .collect();
        let sources: Vec<String> = sources.into_iter().collect();
        if sources.is_empty() {
            "the catalog has no views".to_owned()
        } else {
            format!("sources are {}", sources.join(", "))
        }
    });
    UsageError::new(format!(
        "no view has the table {table} as its source; {hint}"
    ))
}

async fn existing_tables(
    source: &DatedRef,
    context: &Context,
) -> anyhow::Result<BTreeSet<TableName>> {
    let tables = all_tables(context.stores.account(&source.account)?.tables.as_ref()).await?;
    Ok(tables
        .iter()
        .filter_map(|table| Some(source.table(table)?.table))
        .collect())
}

fn tables_of(view: &View) -> impl Iterator<Item = TableName> {
    let many = view
        .range()
        .map(|range| &range.target.table)
        .filter(|many| **many != view.source.table);
    [Some(&view.source.table), many]
        .into_iter()
        .flatten()
        .cloned()
}

pub(super) fn prepared(
    job: &Value,
    queue: Option<&QueueName>,
    context: &Context,
) -> Result<PreparedMessage, UsageError> {
    context
        .client()
        .prepare(&job.to_string(), queue)
        .map_err(UsageError::of)
}

async fn submit(
    selection: &TableSelection,
    job: impl Fn(&TableName) -> Value,
    queue: Option<&QueueName>,
    context: &Context,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let tables = selection.tables();
    for (at, table) in tables.iter().enumerate() {
        if context.stop.is_cancelled() {
            let left: Vec<&str> = tables[at..].iter().map(TableName::as_str).collect();
            out.write_error(format_args!(
                "Interrupted after {at} of {}; not sent: {}",
                counted(tables.len() as u64, "job"),
                left.join(", ")
            ))?;
            return Ok(Exit::Interrupted);
        }
        let job = prepared(&job(table), queue, context)?;
        let sent = context.client().send(&job).await?;
        match out.format() {
            Format::Json => out.value(&json!({"table": table, "queue": sent.queue, "message_id": sent.message_id, "op": sent.op}))?,
            Format::Text => out.line(format_args!("sent {} of {table} to {} as {}", sent.op, sent.queue, sent.message_id))?,
        }
    }
    Ok(selection.exit())
}

/// The delivery of a job that this process runs itself. Follow-up jobs go to the same queues as if
/// a worker had received the job from the queue that allows it.
pub(super) fn delivery(
    job: &Value,
    queue: Option<&QueueName>,
    context: &Context,
) -> anyhow::Result<Delivery> {
    let carrier = prepared(job, queue, context)?;
    let declared = context
        .settings
        .queues
        .iter()
        .find(|queue| queue.shard_names().contains(&carrier.queue));
    let declared = declared.ok_or_else(|| anyhow!("queue {} is not declared", carrier.queue))?;
    let recheck_queue = declared.name.with_suffix("-recheck")?;
    let now = context.clock.now();
    Ok(Delivery {
        stamp: Stamp {
            message_id: format!("{}-{}", carrier.op, now.as_millisecond()),
            enqueued: now,
            job: None,
        },
        dequeue_count: 1,
        account: carrier.account,
        propagation_queue: declared
            .follow_up_queue("propagate", &carrier.queue, &recheck_queue)
            .clone(),
        sync_queue: declared
            .follow_up_queue("sync", &carrier.queue, &recheck_queue)
            .clone(),
        recheck_queue,
        tables: None,
    })
}

/// Shows the progress over a table. The total is the number of primaries from the last audit of the
/// table, if there was one.
pub(super) async fn progress(table: &TableName, context: &Context, out: &Output) -> Progress {
    let total = if out.progress() == ProgressDisplay::Nothing {
        None
    } else {
        last_audit_total(table, context).await
    };
    Progress::begin(table, "primaries", total, out, &context.clock)
}

async fn last_audit_total(table: &TableName, context: &Context) -> Option<u64> {
    let account = context
        .stores
        .account(&context.catalog.table(table)?.account)
        .ok()?;
    // If this read fails, the total stays unknown. The command itself reports the error.
    audited_primaries(account.tables.as_ref(), table)
        .await
        .ok()?
        .filter(|total| *total > 0)
}

/// Prints how to continue after an interruption.
pub(super) fn report_remaining(
    verb: &str,
    table: &TableName,
    later: &[TableName],
    out: &mut Output,
) -> anyhow::Result<()> {
    let later: Vec<&str> = later.iter().map(TableName::as_str).collect();
    let later = if later.is_empty() {
        String::new()
    } else {
        format!("; not started: {}", later.join(", "))
    };
    Ok(out.write_error(format_args!(
        "To continue: `evenkeel {verb} --table {table}`, which starts over{later}"
    ))?)
}

#[cfg(test)]
mod tests;
