use clap::Args;
use indicatif::HumanCount;
use serde::Serialize;
use serde_json::json;

use super::lookup::rows_table;
use super::output::counted;
use super::progress::Progress;
use super::row::RowJson;
use super::{Context, Exit, Format, Output, UsageError, args, help, whole_tables};
use evenkeel_engine::Engine;
use evenkeel_model::condition::TimedCondition;
use evenkeel_model::sweep::{PER_SECOND, RangeFields, Sweep, SweepAction};
use evenkeel_model::{Key, QueueName, Row, ViewName};

/// Number of rows that a dry run shows.
pub(super) const SAMPLE: usize = 10;

#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel delete-where Sessions --where 'Ended < now - 90d' --dry-run", "counts them, shows some, and deletes none"),
    ("evenkeel delete-where Sessions --where 'Ended < now - 90d'", "puts the job on a queue; workers delete a hundred at a time"),
    ("evenkeel delete-where Sessions --pk web1 --from 2024 --before 2025", "deletes the rows of one partition with these keys"),
    ("evenkeel delete-where Sessions --where 'Timestamp < now - 1d and State == \"draft\"' --per-second 50", "deletes drafts that were not written for a day, slowly"),
    ("evenkeel delete-where Sessions --all", "deletes every entity of the table, with its derived data"),
]))]
pub struct DeleteWhereArgs {
    /// The table (case-insensitive)
    #[arg(value_name = "TABLE")]
    pub table: String,
    #[command(flatten)]
    pub which: SweepSelection,
}

#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel archive-where past_bookings --where 'At < now - 90d' --dry-run", "counts them, shows some, and archives none"),
    ("evenkeel archive-where past_bookings --where 'At < now - 90d'", "puts the job on a queue; workers do it"),
    ("evenkeel archive-where former_employees --pk Sales", "archives a whole partition"),
]))]
pub struct ArchiveWhereArgs {
    /// The archive, as the catalog names it
    #[arg(value_name = "ARCHIVE")]
    pub archive: ViewName,
    #[command(flatten)]
    pub which: SweepSelection,
}

#[derive(Debug, Args)]
pub struct SweepSelection {
    /// Only this partition
    #[arg(long, value_name = "KEY", value_parser = args::key, allow_hyphen_values = true)]
    pub pk: Option<Key>,
    /// Only from this key on: a RowKey with --pk, else a PartitionKey
    #[arg(long, value_name = "KEY", value_parser = args::key, allow_hyphen_values = true)]
    pub from: Option<Key>,
    /// Only before this key
    #[arg(long, value_name = "KEY", value_parser = args::key, allow_hyphen_values = true)]
    pub before: Option<Key>,
    /// Only entities that satisfy this condition; it may use `now - 90d` and `Timestamp` (the last write)
    #[arg(long = "where", value_name = "CONDITION", value_parser = TimedCondition::parse)]
    pub condition: Option<TimedCondition>,
    /// Every entity of the table
    #[arg(long)]
    pub all: bool,
    /// Maximum number of entities per second
    #[arg(long, value_name = "N", default_value_t = PER_SECOND)]
    pub per_second: u32,
    /// Only count them and show some (reads as much as the job would)
    #[arg(long)]
    pub dry_run: bool,
    /// Queue for the job; default the first that allows it
    #[arg(long, value_name = "NAME")]
    pub queue: Option<QueueName>,
}

/// Findings of a dry run, for `--json`.
#[derive(Serialize)]
struct DryRun<'a> {
    op: &'a str,
    of: &'a str,
    /// Number of entities on which the job would act now.
    matching: u64,
    seen: u64,
    sample: Vec<RowJson>,
    /// Reasons why the condition may never match, found in a sample of the table.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

pub(super) struct Survey {
    matching: u64,
    seen: u64,
    sample: Vec<Row>,
    warnings: Vec<String>,
}

pub async fn delete_where(
    args: &DeleteWhereArgs,
    context: &Context,
    engine: &Engine,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let table = context.known_table(&args.table)?.table;
    args.which
        .carry_out(SweepAction::Delete(table), context, engine, out)
        .await
}

pub async fn archive_where(
    args: &ArchiveWhereArgs,
    context: &Context,
    engine: &Engine,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    args.which
        .carry_out(
            SweepAction::Archive(args.archive.clone()),
            context,
            engine,
            out,
        )
        .await
}

impl SweepSelection {
    async fn carry_out(
        &self,
        action: SweepAction,
        context: &Context,
        engine: &Engine,
        out: &mut Output,
    ) -> anyhow::Result<Exit> {
        let text = |key: &Option<Key>| key.as_ref().map(ToString::to_string);
        let range = RangeFields {
            pk: text(&self.pk),
            from: text(&self.from),
            before: text(&self.before),
        };
        let named = [&range.pk, &range.from, &range.before]
            .iter()
            .any(|end| end.is_some());
        if !self.all && !named && self.condition.is_none() {
            return Err(
                UsageError::new("choose the entities with --where, --pk, --from or --before, or all of the table with --all").into()
            );
        }
        let sweep = Sweep::new(
            action,
            named.then_some(range),
            self.condition.clone(),
            self.all,
            self.per_second,
        )
        .map_err(UsageError::new)?;
        if self.dry_run {
            let found = survey(&sweep, context, engine, out).await?;
            report_sweep(&sweep, &found, out)?;
        } else {
            submit(&sweep, self.queue.as_ref(), context, out).await?;
        }
        Ok(Exit::Done)
    }
}

/// Reads all entities that the sweep would read, and counts those on which it would act.
pub(super) async fn survey(
    sweep: &Sweep,
    context: &Context,
    engine: &Engine,
    out: &mut Output,
) -> anyhow::Result<Survey> {
    let mut progress = Progress::begin(&sweep.action, "entities", None, out, &context.clock);
    let mut found = Survey {
        matching: 0,
        seen: 0,
        sample: Vec::new(),
        warnings: engine.sweep_unmet(sweep).await?,
    };
    let mut next = (None, None);
    loop {
        let page = engine.would_sweep(sweep, &next).await?;
        found.seen += page.seen;
        found.matching += page.rows.len() as u64;
        let room = SAMPLE.saturating_sub(found.sample.len());
        found.sample.extend(page.rows.into_iter().take(room));
        progress.set(found.seen, out)?;
        next = page.next;
        if next.0.is_none() {
            progress.end();
            return Ok(found);
        }
    }
}

pub(super) fn report_sweep(sweep: &Sweep, found: &Survey, out: &mut Output) -> anyhow::Result<()> {
    let Survey {
        matching,
        seen,
        sample,
        warnings,
    } = found;
    let (of, done) = match &sweep.action {
        SweepAction::Delete(table) => (table.as_str(), "deleted"),
        SweepAction::Archive(archive) => (archive.as_str(), "archived"),
    };
    if out.format() == Format::Json {
        let sample = sample.iter().map(RowJson::of).collect();
        return Ok(out.value(&DryRun {
            op: sweep.action.op(),
            of,
            matching: *matching,
            seen: *seen,
            sample,
            warnings,
        })?);
    }
    for warning in warnings {
        out.write_note(format_args!("warning: {warning}"))?;
    }
    if *seen == 0 {
        return Ok(out.line(format_args!(
            "{of}: no entity matches, nothing would be {done}"
        ))?);
    }
    out.line(format_args!(
        "{of}: {} of {} would be {done}",
        HumanCount(*matching),
        counted(*seen, "entity")
    ))?;
    let (heading, rows) = rows_table(sample);
    Ok(out.table(&heading, &rows)?)
}

pub(super) async fn submit(
    sweep: &Sweep,
    queue: Option<&QueueName>,
    context: &Context,
    out: &mut Output,
) -> anyhow::Result<()> {
    let prepared = whole_tables::prepared(&sweep.message(), queue, context)?;
    let sent = context.client().send(&prepared).await?;
    submitted(sweep, &sent.queue, &sent.message_id, out)
}

pub(super) fn submitted(
    sweep: &Sweep,
    queue: &QueueName,
    message_id: &str,
    out: &mut Output,
) -> anyhow::Result<()> {
    let op = sweep.action.op();
    match out.format() {
        Format::Json => out.value(&json!({"queue": queue, "message_id": message_id, "op": op}))?,
        Format::Text => out.line(format_args!(
            "sent {op} of {} to {queue} as {message_id}",
            sweep.action
        ))?,
    }
    Ok(())
}
