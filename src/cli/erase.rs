//! `evenkeel erase`

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::output::counted;
use super::{Context, Exit, Format, Output, Tone, UsageError, args, help, whole_tables};
use crate::model::job::Primary;
use crate::model::{AccountName, EntityKey, Job, Key, QueueName, ViewName};
use crate::reconcile::{Engine, Erasure, Removed};
use crate::telemetry::AUDIT;
use crate::worker::{KeyOf, discard_about};

/// Arguments of `erase`.
#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel erase Employees Sales 000223 --yes", "the entity, every copy, its archived versions, its data key, and poison messages about it"),
    ("evenkeel erase Employees Sales 000223 --yes --json", "the report for machines"),
]))]
pub struct ErasureArgs {
    /// The table of the primary, in any case
    #[arg(value_name = "TABLE")]
    pub table: String,
    /// The PartitionKey
    #[arg(value_name = "PK", value_parser = args::key, allow_hyphen_values = true)]
    pub pk: Key,
    /// The RowKey
    #[arg(value_name = "RK", value_parser = args::key, allow_hyphen_values = true)]
    pub rk: Key,
    /// It cannot be undone
    #[arg(long)]
    pub yes: bool,
    /// The queue for second looks; where absent, the first that carries the job
    #[arg(long, value_name = "NAME")]
    pub queue: Option<QueueName>,
}

/// Result, as `--json` tells it.
#[derive(Serialize)]
struct ErasureReport<'a> {
    table: &'a str,
    pk: &'a str,
    rk: &'a str,
    removed: BTreeMap<&'a AccountName, AccountReport>,
    /// Archives that are logs, whose lines stay.
    logs: &'a BTreeSet<ViewName>,
    /// Poison messages that were held by another command, and may be about the entity.
    hidden: u64,
}

/// Things removed in one account.
#[derive(Default, Serialize)]
struct AccountReport {
    #[serde(flatten)]
    removed: Removed,
    poison: u64,
    staged: u64,
}

/// Erases an entity, with everything that is kept of it. `ready` refuses a catalog that is not the recorded one: it lacks views and
/// archives that keep something of the entity.
pub async fn erase(
    args: &ErasureArgs,
    context: &Context,
    engine: &Arc<Engine>,
    ready: impl AsyncFnOnce() -> anyhow::Result<()>,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let table = context.known_table(&args.table)?.table;
    let primary = Primary { table, key: EntityKey { pk: args.pk.clone(), rk: args.rk.clone() } };
    if !args.yes {
        return Err(UsageError::new(format!("{primary} would be removed with everything that is kept of it, for good: add --yes")).into());
    }
    ready().await?;
    let message = json!({"op": "erase", "table": primary.table, "pk": primary.key.pk, "rk": primary.key.rk});
    let delivery = whole_tables::delivery(&message, args.queue.as_ref(), context)?;
    let Erasure { removed, logs, skipped, .. } = engine.erase(&primary, &delivery).await?;
    if let Some(reason) = skipped {
        out.complain(format_args!("{primary} was left alone: {reason}"))?;
        return Ok(Exit::Failed);
    }
    let (keys, meant) = (Arc::clone(engine), BTreeSet::from([primary.clone()]));
    let key_of: KeyOf = Arc::new(move |job: &Job| keys.primary_of(job));
    let discarded = discard_about(&meant, &context.stores, &context.settings.queues, &key_of).await?;
    let mut report = ErasureReport {
        table: primary.table.as_str(),
        pk: primary.key.pk.as_str(),
        rk: primary.key.rk.as_str(),
        removed: removed
            .iter()
            .map(|(account, removed)| (account, AccountReport { removed: *removed, ..AccountReport::default() }))
            .collect(),
        logs: &logs,
        hidden: 0,
    };
    for (account, found) in &discarded {
        report.hidden += found.hidden;
        if found.messages + found.staged > 0 {
            let of = report.removed.entry(account).or_default();
            of.poison += found.messages;
            of.staged += found.staged;
        }
    }
    let ended = if report.removed.is_empty() { "nothing was left of the entity to erase" } else { "entity erased" };
    tracing::warn!(target: AUDIT, entity = %primary, "audit: {ended}");
    tell(&report, out)?;
    Ok(if report.hidden > 0 { Exit::Failed } else { Exit::Done })
}

fn tell(report: &ErasureReport<'_>, out: &mut Output) -> anyhow::Result<()> {
    if out.format() == Format::Json {
        return Ok(out.value(report)?);
    }
    for (account, AccountReport { removed: Removed { entities, items, data_keys }, poison, staged }) in &report.removed {
        let removed = [
            counted(u64::from(*entities), "entity"),
            counted(u64::from(*items), "derived item"),
            counted(u64::from(*data_keys), "data key"),
            counted(*poison, "poison message"),
            counted(*staged, "staged blob"),
        ];
        out.line(format_args!("{account}: {} removed", removed.join(", ")))?;
    }
    if report.removed.is_empty() {
        out.line("Nothing was left to remove.")?;
    }
    for archive in report.logs {
        out.say(format_args!("Lines in the log {archive} stay; what is encrypted in them cannot be read any more."))?;
    }
    if report.hidden > 0 {
        let line = out.aside_tone(
            Tone::Bad,
            format_args!("About {} poison messages are held by another command: run it again in two minutes.", report.hidden),
        );
        out.complain(line)?;
    }
    Ok(())
}
