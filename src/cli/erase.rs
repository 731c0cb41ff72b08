use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use super::output::counted;
use super::{Context, Exit, Format, Output, Tone, UsageError, args, help, whole_tables};
use evenkeel_engine::{Engine, Erasure, Removed, ValuesLeft};
use evenkeel_model::job::Primary;
use evenkeel_model::{AccountName, EntityKey, Job, Key, QueueName, ViewName};
use evenkeel_ops::logging::AUDIT;
use evenkeel_worker::poison::{ErasedPrimary, ErasureDiscards, RemainingMessages};
use evenkeel_worker::{PoisonScope, PrimaryResolver, QueueDiscards, discard_about};

#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel erase Employees Sales 000223 --yes", "removes the entity, every copy, its archived versions, its data key, and poison messages about it"),
    ("evenkeel erase Employees Sales 000223 --yes --json", "the report for machines"),
]))]
pub struct ErasureArgs {
    /// The table of the primary (case-insensitive)
    #[arg(value_name = "TABLE")]
    pub table: String,
    /// The PartitionKey
    #[arg(value_name = "PK", value_parser = args::key, allow_hyphen_values = true)]
    pub pk: Key,
    /// The RowKey
    #[arg(value_name = "RK", value_parser = args::key, allow_hyphen_values = true)]
    pub rk: Key,
    /// Confirm that this cannot be undone
    #[arg(long)]
    pub yes: bool,
    /// Queue for rechecks; default the first that allows the job
    #[arg(long, value_name = "NAME")]
    pub queue: Option<QueueName>,
}

/// The report of `--json`.
#[derive(Serialize)]
struct ErasureReport<'a> {
    table: &'a str,
    pk: &'a str,
    rk: &'a str,
    removed: BTreeMap<AccountName, AccountReport>,
    /// Log archives. Their lines cannot be removed.
    logs: &'a BTreeSet<ViewName>,
    /// Number of poison messages that another command held and that may be about the entity.
    hidden: u64,
    /// Poison messages that were kept although they contain, or may contain, data of the entity.
    left: RemainingMessages,
    /// Large values that stay until a recheck.
    #[serde(skip_serializing_if = "Option::is_none")]
    erasing: Option<PendingValues>,
    /// Until this time, queued rechecks contain the key of the entity and the keys that views made
    /// of its values.
    #[serde(skip_serializing_if = "Option::is_none")]
    rechecks_until: Option<Timestamp>,
    /// Why data of the entity may be left; `None` if nothing is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<String>,
}

/// The part of an erasure that a worker finishes later.
#[derive(Serialize)]
struct PendingValues {
    /// Time at which the erasure is finished, if a worker runs then.
    until: Timestamp,
    /// Number of large values; `None` if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<u64>,
}

impl PendingValues {
    fn of(left: &BTreeMap<Primary, ValuesLeft>) -> Option<Self> {
        let until = left.values().map(|left| left.until).max()?;
        Some(Self {
            until,
            values: left.values().map(|left| left.values).sum(),
        })
    }
}

enum Unfinished {
    /// The entity was not touched.
    Skipped(String),
    Failed(anyhow::Error),
    Interrupted,
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skipped(reason) => f.write_str(reason),
            Self::Failed(error) => write!(f, "{error:#}"),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

#[derive(Default, Serialize)]
struct AccountReport {
    #[serde(flatten)]
    removed: Removed,
    poison: u64,
    staged: u64,
}

/// Erases an entity with everything that was derived from it, and its archived versions. `ready`
/// must refuse a catalog that is not the recorded one, because it may lack views and archives with
/// data of the entity.
pub async fn erase(
    args: &ErasureArgs,
    context: &Context,
    engine: &Arc<Engine>,
    ready: impl AsyncFnOnce() -> anyhow::Result<()>,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let table = context.known_table(&args.table)?.table;
    let primary = Primary {
        table,
        key: EntityKey {
            pk: args.pk.clone(),
            rk: args.rk.clone(),
        },
    };
    if !args.yes {
        return Err(UsageError::new(format!(
            "{primary} would be removed for good, with everything derived or archived from it. Add --yes to confirm"
        ))
        .into());
    }
    ready().await?;
    let message =
        json!({"op": "erase", "table": primary.table, "pk": primary.key.pk, "rk": primary.key.rk});
    let delivery = whole_tables::delivery(&message, args.queue.as_ref(), context)?;
    let mut erasure = Erasure::default();
    let ended = tokio::select! {
        biased;
        () = context.stop.cancelled() => None,
        ended = engine.erase(&primary, &delivery, &mut erasure) => Some(ended),
    };
    let Erasure {
        removed,
        logs,
        skipped,
        left,
        rechecks_until,
        ..
    } = erasure;
    let mut rest = match (ended, skipped) {
        (None, _) => Some(Unfinished::Interrupted),
        (Some(Err(failure)), _) => Some(Unfinished::Failed(failure.into())),
        (Some(Ok(())), reason) => reason.map(Unfinished::Skipped),
    };
    // The removals are logged at once, so that they are also logged if a later step fails.
    let erasing = PendingValues::of(&left);
    log_removals(&primary, &removed, rest.is_none(), erasing.as_ref());
    let mut report = ErasureReport {
        table: primary.table.as_str(),
        pk: primary.key.pk.as_str(),
        rk: primary.key.rk.as_str(),
        removed: removed
            .into_iter()
            .map(|(account, removed)| {
                (
                    account,
                    AccountReport {
                        removed,
                        ..AccountReport::default()
                    },
                )
            })
            .collect(),
        logs: &logs,
        hidden: 0,
        left: RemainingMessages::default(),
        erasing,
        rechecks_until,
        incomplete: None,
    };
    if rest.is_none() {
        rest = discard(&primary, context, engine, &mut report, out).await?;
    }
    report.incomplete = rest.as_ref().map(ToString::to_string);
    if rest.is_none() || !report.removed.is_empty() {
        report_erasure(&report, out)?;
    }
    match rest {
        None if report.hidden > 0 => Ok(Exit::Failed),
        None => Ok(if report.erasing.is_some() {
            Exit::Unfinished
        } else {
            Exit::Done
        }),
        Some(Unfinished::Failed(error)) => Err(error),
        Some(Unfinished::Skipped(reason)) => {
            out.write_error(format_args!("{primary} was not erased: {reason}"))?;
            Ok(Exit::Failed)
        }
        Some(Unfinished::Interrupted) => {
            out.write_error(format_args!(
                "Interrupted: parts of {primary} may be left. Run the command again."
            ))?;
            Ok(Exit::Interrupted)
        }
    }
}

/// Discards the poison messages about a primary from every queue. Returns the reason if more such
/// messages may remain.
async fn discard(
    primary: &Primary,
    context: &Context,
    engine: &Arc<Engine>,
    report: &mut ErasureReport<'_>,
    out: &mut Output,
) -> anyhow::Result<Option<Unfinished>> {
    let (keys, primaries) = (
        Arc::clone(engine),
        [ErasedPrimary {
            primary: primary.clone(),
            sent: None,
            reach: None,
        }],
    );
    let resolve_primaries: PrimaryResolver = Arc::new(move |job: &Job| keys.forms_of(job));
    let reach = PoisonScope {
        stores: &context.stores,
        queues: &context.settings.queues,
        resolve_primaries: &resolve_primaries,
        events: &context.settings.events,
    };
    let mut rest = None;
    for QueueDiscards {
        queue,
        account,
        discarded:
            ErasureDiscards {
                messages,
                staged,
                hidden,
                left,
            },
        error,
    } in discard_about(&primaries, &reach, &context.stop).await
    {
        report.left += left;
        if messages + staged > 0 {
            tracing::warn!(target: AUDIT, entity = %primary, %queue, messages, staged, "audit: discarded poison messages about an erased entity");
            let of = report.removed.entry(account).or_default();
            of.poison += messages;
            of.staged += staged;
        }
        let Some(error) = error else {
            report.hidden += if context.stop.is_cancelled() {
                0
            } else {
                hidden
            };
            continue;
        };
        let error = anyhow::Error::new(error).context(format!(
            "could not discard poison messages about it from {queue}-poison"
        ));
        if rest.is_none() {
            rest = Some(Unfinished::Failed(error));
        } else {
            out.write_error(format_args!("{error:#}"))?;
        }
    }
    Ok(rest.or_else(|| {
        context
            .stop
            .is_cancelled()
            .then_some(Unfinished::Interrupted)
    }))
}

fn log_removals(
    primary: &Primary,
    removed: &BTreeMap<AccountName, Removed>,
    whole: bool,
    erasing: Option<&PendingValues>,
) {
    if let Some(PendingValues { until, values }) = erasing {
        tracing::warn!(target: AUDIT, entity = %primary, %until, values, "audit: entity is being erased: large values may stay until a recheck");
    }
    let whole = whole && erasing.is_none();
    if removed.is_empty() && whole {
        tracing::warn!(target: AUDIT, entity = %primary, "audit: nothing of the entity was left to erase");
    }
    let outcome = if whole {
        "entity erased"
    } else {
        "entity erased in part"
    };
    for (
        account,
        Removed {
            entities,
            items,
            data_keys,
        },
    ) in removed
    {
        tracing::warn!(target: AUDIT, entity = %primary, %account, entities, items, data_keys, "audit: {outcome}");
    }
}

fn report_erasure(report: &ErasureReport<'_>, out: &mut Output) -> anyhow::Result<()> {
    if out.format() == Format::Json {
        return Ok(out.value(report)?);
    }
    for (
        account,
        AccountReport {
            removed:
                Removed {
                    entities,
                    items,
                    data_keys,
                },
            poison,
            staged,
        },
    ) in &report.removed
    {
        let removed = [
            counted(u64::from(*entities), "entity"),
            counted(u64::from(*items), "derived item"),
            counted(u64::from(*data_keys), "data key"),
            counted(*poison, "poison message"),
            counted(*staged, "staged blob"),
        ];
        out.line(format_args!("{account}: {} removed", removed.join(", ")))?;
    }
    let whole = report.incomplete.is_none();
    if report.removed.is_empty() && whole && report.erasing.is_none() {
        out.line("Nothing was left to remove.")?;
    }
    if let Some(PendingValues { until, values }) = &report.erasing {
        let values = values.map_or_else(
            || "Large values".to_owned(),
            |values| counted(values, "large value"),
        );
        out.write_error(out.note_tone(
            Tone::Bad,
            format_args!("Not finished: {values} may stay until {until:.0}, because an earlier job was interrupted. A worker deletes them; run this command again then."),
        ))?;
    }
    let RemainingMessages {
        about_many,
        unclear,
        in_errors,
    } = report.left;
    for (count, what) in [
        (about_many, "are about it and about others"),
        (
            unclear,
            "may be about it, but their text or table is unknown",
        ),
        (
            in_errors,
            "are about others, but have its key in their errors",
        ),
    ] {
        if count > 0 {
            out.write_error(format_args!(
                "Not discarded: {} that {what}. See `evenkeel poison list`.",
                counted(count, "poison message")
            ))?;
        }
    }
    for archive in report.logs.iter().filter(|_| whole) {
        out.write_note(format_args!(
            "Lines in the log {archive} stay; their encrypted values can no longer be decrypted."
        ))?;
    }
    if let Some(until) = report.rechecks_until.filter(|_| whole) {
        out.write_note(format_args!("Queued rechecks contain its key, and keys that views made of its values, until about {until:.0}."))?;
    }
    if report.hidden > 0 {
        let line = out.note_tone(
            Tone::Bad,
            format_args!("About {} poison messages are hidden: another command or operator holds them. Run this command again in two minutes.", report.hidden),
        );
        out.write_error(line)?;
    }
    Ok(())
}
