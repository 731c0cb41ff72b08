use clap::Args;
use serde::Serialize;

use super::sweep::{report_sweep, submitted, survey};
use super::{Context, Exit, Format, Output, Tone, UsageError, help};
use evenkeel_engine::Engine;
use evenkeel_engine::retention::{ExistingTables, RetentionPlan, TurnTime};
use evenkeel_model::catalog::Retention;
use evenkeel_model::nearest::meant_or_known;
use evenkeel_model::{TableName, ViewName};

#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel retention --dry-run", "which tables would be created and dropped, and how many entities rules would remove"),
    ("evenkeel retention --dry-run old_bookings", "the same for one rule"),
    ("evenkeel retention", "does what workers do every hour, and also sends the jobs of drops and rules that are not due yet"),
]))]
pub struct RetentionArgs {
    /// Retentions and rules; default all
    #[arg(value_name = "NAME")]
    pub names: Vec<ViewName>,
    /// Only show the effect (reads as much as the jobs would)
    #[arg(long)]
    pub dry_run: bool,
}

/// The plan of a retention, for `--json`.
#[derive(Serialize)]
struct RetentionLine<'a> {
    retention: &'a ViewName,
    create: Vec<&'a TableName>,
    /// Tables to drop, including the tables of views that are dropped together with their source.
    drop: Vec<&'a TableName>,
}

/// Maintains the dated tables and sends the jobs of rules, or only shows the effect. `ready` must
/// refuse a catalog that is not the recorded one before anything changes, because its rules and
/// retentions may be outdated.
pub async fn retention(
    args: &RetentionArgs,
    context: &Context,
    engine: &Engine,
    ready: impl AsyncFnOnce() -> anyhow::Result<()>,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let catalog = engine.catalog();
    let is_meant = |name: &ViewName| args.names.is_empty() || args.names.contains(name);
    let known = || catalog.retentions.keys().chain(catalog.rules.keys());
    if let Some(unknown) = args
        .names
        .iter()
        .find(|name| !known().any(|known| known == *name))
    {
        let known: Vec<&str> = known().map(ViewName::as_str).collect();
        return Err(UsageError::new(format!(
            "there is no [retention.{unknown}] or [rules.{unknown}]; {}",
            meant_or_known(unknown.as_str(), &known)
        ))
        .into());
    }
    if known().next().is_none() {
        out.write_note("Nothing to do: the catalog has no [retention] and no [rules].")?;
    }
    if !args.dry_run {
        ready().await?;
    }
    let keeper = context.keeper(catalog);
    let (mut existing, mut first) = (ExistingTables::new(), Ok(()));
    for retention in catalog
        .retentions
        .values()
        .filter(|retention| is_meant(&retention.name))
    {
        let plan = keeper.planned(retention, &mut existing).await?;
        if !args.dry_run
            && let Err(error) = keeper.carry_out(retention, &plan, TurnTime::Now).await
        {
            // If one retention fails, the remaining retentions are still applied.
            first = first.and(Err(error));
            continue;
        }
        report_plan(retention, &plan, args.dry_run, out)?;
    }
    for rule in catalog.rules.values().filter(|rule| is_meant(&rule.name)) {
        if args.dry_run {
            let found = survey(&rule.sweep, context, engine, out).await?;
            report_sweep(&rule.sweep, &found, out)?;
        } else if let Some(sent) = keeper.send_rule(rule, TurnTime::Now).await? {
            submitted(&rule.sweep, &sent.queue, &sent.message_id, out)?;
        }
    }
    first?;
    Ok(Exit::Done)
}

fn report_plan(
    retention: &Retention,
    plan: &RetentionPlan,
    dry_run: bool,
    out: &mut Output,
) -> anyhow::Result<()> {
    let create: Vec<&TableName> = plan
        .create
        .iter()
        .flatten()
        .map(|table| &table.table)
        .collect();
    let drop: Vec<&TableName> = plan.drop.iter().collect();
    if out.format() == Format::Json {
        return Ok(out.value(&RetentionLine {
            retention: &retention.name,
            create,
            drop,
        })?);
    }
    let (created, dropped) = if dry_run {
        ("would be created", "would be dropped")
    } else {
        ("created", "dropped by a queued job")
    };
    let archived = if retention.archive_to.is_some() {
        ", after it is archived"
    } else {
        ""
    };
    create
        .iter()
        .try_for_each(|table| out.line(format_args!("{}: {table} {created}", retention.name)))?;
    for table in &drop {
        let line = out.tone(
            Tone::Warning,
            format_args!("{}: {table} {dropped}{archived}", retention.name),
        );
        out.line(line)?;
    }
    if create.is_empty() && drop.is_empty() {
        out.line(format_args!("{}: nothing to do", retention.name))?;
    }
    Ok(())
}
