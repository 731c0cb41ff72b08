//! `evenkeel stress`: the partition stress test of Azure's documentation.
//!
//! ```text
//!   sample ──▶ layouts (pure): one partition, N partitions, or each --key ──▶ a scratch table: load, GET and PUT ──▶ verdicts (pure)
//!                                                                                   └─▶ always deleted
//! ```
//!
//! Each request is sent alone. Retries, grouping and pacing are off, because they would hide the
//! limits of a partition.

mod chart;
mod layout;
mod load;
mod sample;
mod verdict;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use super::consent::{confirm, require_terminal};
use super::progress::Progress;
use super::{Context, DirectAccess, Exit, Format, Output, Tone, UsageError, help};
use chart::{StressChart, StressLine};
use evenkeel_model::catalog::TableRef;
use evenkeel_model::template::Template;
use evenkeel_model::units::{parse_duration, parse_size};
use evenkeel_model::{AccountName, TableName};
use evenkeel_ops::numbers::Measure as _;
use evenkeel_ops::state::{TARGET, grouped};
use evenkeel_telemetry::job_trace::Billed;
use evenkeel_telemetry::latency::Latencies;
use layout::StressLayout;
use load::{LoadAnswers, LoadSettings};
use verdict::{JudgedLoad, StressVerdict, comparison};

#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel stress", "one partition, then eight, with entities of 1 KiB; shows the cost and asks for confirmation"),
    ("evenkeel stress --yes --partitions 32 --get 50 --duration 60s --chart stress.svg", "half reads, half writes; also writes a chart"),
    ("evenkeel stress --table Employees --key '{Department}' --key '{Department}_{RowKey|bucket:8}' --peak 6000",
     "which of two partition keys serves 6,000 entities/s, for entities like those of Employees"),
    ("evenkeel stress --sample employees.jsonl --key '{Department}' --yes --json", "for entities that are not in a table yet, as JSON"),
]))]
pub struct StressArgs {
    /// Take copies of entities of this table as the sample; nothing is written to it
    #[arg(long, value_name = "TABLE", conflicts_with = "sample")]
    pub table: Option<String>,
    /// Take the sample from a file: an entity as JSON on each line, as `get --json` prints it
    #[arg(long, value_name = "FILE")]
    pub sample: Option<PathBuf>,
    /// A template of the PartitionKey, over the properties of the sample; give two to compare them
    #[arg(long, value_name = "TEMPLATE", value_parser = |text: &str| Template::parse(text))]
    pub key: Vec<Template>,
    /// Without --key: number of partitions in the second load
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = RangedU64ValueParser::<usize>::new().range(2..=1_000))]
    pub partitions: usize,
    /// Size of an entity without a sample, at most 64KiB
    #[arg(long, value_name = "SIZE", default_value = "1KiB", value_parser = entity_size)]
    pub size: u64,
    /// Percentage of GETs; the others are PUTs
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub get: u64,
    /// Requests in flight
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = RangedU64ValueParser::<usize>::new().range(1..=512))]
    pub concurrency: usize,
    /// Maximum duration of each load
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = load_duration)]
    pub duration: Duration,
    /// Maximum number of requests of each load
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub requests: u64,
    /// Peak load of your application in entities per second, to judge the keys by
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub peak: Option<u32>,
    /// Account for the scratch table, if no --table determines it; default `main`
    #[arg(long, value_name = "ACCOUNT", value_parser = |text: &str| AccountName::new(text), conflicts_with = "table")]
    pub account: Option<AccountName>,
    /// Write a chart of entities per second over time, as SVG
    #[arg(long, value_name = "FILE")]
    pub chart: Option<PathBuf>,
    /// Do not ask for confirmation
    #[arg(long)]
    pub yes: bool,
}

fn entity_size(text: &str) -> Result<u64, String> {
    parse_size(text).and_then(|size| {
        if (1..=65_536).contains(&size) {
            Ok(size)
        } else {
            Err("expected 1B to 64KiB".to_owned())
        }
    })
}

fn load_duration(text: &str) -> Result<Duration, String> {
    let within = Duration::from_secs(1)..=Duration::from_hours(1);
    parse_duration(text).and_then(|duration| {
        if within.contains(&duration) {
            Ok(duration)
        } else {
            Err("expected 1s to 1h".to_owned())
        }
    })
}

/// The result of a load, for `--json`.
#[derive(Debug, Serialize)]
struct StressResult {
    /// The key template, or the number of partitions.
    load: String,
    partitions: usize,
    hottest_share: f64,
    without_key: usize,
    done: u64,
    throttled: u64,
    failed: u64,
    seconds: f64,
    entities_per_second: f64,
    hottest_per_second: f64,
    hottest_by_second: Vec<u64>,
    get: Percentiles,
    put: Percentiles,
    /// Entities per second at which the hottest partition reaches its target.
    capacity: f64,
    verdict: StressVerdict,
    advice: String,
    #[serde(skip)]
    judged: JudgedLoad,
}

/// Latencies of the successful requests; null if there were none. Each value is at most a quarter
/// too high.
#[derive(Debug, Serialize)]
struct Percentiles {
    p50_seconds: Option<f64>,
    p99_seconds: Option<f64>,
}

impl Percentiles {
    fn of(latencies: &Latencies) -> Self {
        let quantile = |share| latencies.quantile(share).map(|took| took.as_secs_f64());
        Self {
            p50_seconds: quantile(0.5),
            p99_seconds: quantile(0.99),
        }
    }

    fn cell(&self) -> String {
        format!(
            "{} / {}",
            self.p50_seconds.seconds(),
            self.p99_seconds.seconds()
        )
    }
}

impl StressResult {
    fn of(layout: StressLayout, answers: LoadAnswers, peak: Option<u32>) -> Self {
        let LoadAnswers {
            done,
            hottest_by_second,
            throttled,
            failed,
            gets,
            puts,
            took,
        } = answers;
        let seconds = took.as_secs_f64().max(0.001);
        let StressLayout {
            name,
            partitions,
            hottest_share,
            without_key,
            ..
        } = layout;
        #[expect(clippy::cast_precision_loss, reason = "at most ten million requests")]
        let entities_per_second = done as f64 / seconds;
        let hottest_per_second = entities_per_second * hottest_share;
        let judged = JudgedLoad {
            hottest_share,
            entities_per_second,
            hottest_per_second,
            throttled,
            peak: peak.map(f64::from),
        };
        let (get, put) = (Percentiles::of(&gets), Percentiles::of(&puts));
        let (capacity, verdict, advice) = (judged.capacity(), judged.verdict(), judged.advice());
        Self {
            load: name,
            partitions,
            hottest_share,
            without_key,
            done,
            throttled,
            failed,
            seconds,
            entities_per_second,
            hottest_per_second,
            hottest_by_second,
            get,
            put,
            capacity,
            verdict,
            advice,
            judged,
        }
    }
}

/// The account, the number of loads and their cost. They are known before any request is sent.
struct StressPlan {
    source: Option<TableRef>,
    account: AccountName,
    loads: usize,
    /// Maximum number of requests. Retries are not included.
    cost: Billed,
}

impl StressPlan {
    fn of(args: &StressArgs, context: &Context) -> anyhow::Result<Self> {
        if args.key.len() > 2 {
            return Err(UsageError::new("at most two key templates can be compared").into());
        }
        if !args.key.is_empty() && args.table.is_none() && args.sample.is_none() {
            return Err(UsageError::new(
                "--key needs entities: add --table TABLE or --sample FILE",
            )
            .into());
        }
        let source = args
            .table
            .as_deref()
            .map(|typed| context.table(typed))
            .transpose()?;
        let account = source
            .as_ref()
            .map(|table| table.account.clone())
            .or_else(|| args.account.clone())
            .unwrap_or_else(AccountName::main);
        context.stores.account(&account).map_err(UsageError::of)?;
        let loads = if args.key.is_empty() {
            2
        } else {
            args.key.len()
        };
        let pages = if source.is_some() { sample::PAGES } else { 0 };
        // One request creates the scratch table, and one deletes it. In the worst case, each entity
        // of the sample is written by its own transaction.
        let table = 2 + pages as u64 + loads as u64 * (sample::ENTITIES as u64 + args.requests);
        Ok(Self {
            source,
            account,
            loads,
            cost: Billed {
                table,
                ..Billed::default()
            },
        })
    }
}

pub async fn stress(
    args: &StressArgs,
    context: &Context,
    direct: &DirectAccess,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let plan = StressPlan::of(args, context)?;
    let cost = format!(
        "at most {} transactions, {} at list prices",
        grouped(plan.cost.requests()),
        plan.cost.dollars().dollars()
    );
    if !args.yes {
        require_terminal(&format!(
            "this takes {cost}. Add --yes to run without a terminal"
        ))?;
        let question = format!(
            "{} loads of up to {} s in a scratch table of account {}: {cost}.",
            plan.loads,
            args.duration.as_secs(),
            plan.account
        );
        if !confirm(question, context, out).await? {
            out.write_note("Nothing was sent.")?;
            return Ok(if context.stop.is_cancelled() {
                Exit::Interrupted
            } else {
                Exit::Failed
            });
        }
    }
    let before = direct.meter.billed();
    let Some(layouts) = context
        .stop
        .run_until_cancelled(layouts(args, &plan, context))
        .await
        .transpose()?
    else {
        return Ok(Exit::Interrupted);
    };
    let table = TableName::new(format!("EvenkeelScratch{}", Uuid::new_v4().simple()))?;
    out.write_note(format_args!(
        "Loading the scratch table {table} of account {}: {cost}.",
        plan.account
    ))?;
    let tables = &context.stores.account(&plan.account)?.tables;
    // From here on, the table exists, so an interruption must delete it.
    let created = tables
        .create_table(&table)
        .await
        .context("could not create the scratch table");
    let measured = match created {
        Ok(_) => context
            .stop
            .run_until_cancelled(measure(args, layouts, &plan, &table, context, direct, out))
            .await
            .transpose(),
        Err(error) => Err(error),
    };
    let dropped = tables
        .delete_table(&table)
        .await
        .with_context(|| format!("could not delete the scratch table {table}. Delete it yourself"));
    let measured = measured?;
    dropped?;
    let Some(results) = measured else {
        out.write_error("Interrupted: there is no result. The scratch table is deleted.")?;
        return Ok(Exit::Interrupted);
    };
    report(
        args,
        &plan,
        &results,
        direct.meter.billed().since(before),
        out,
    )?;
    Ok(Exit::Done)
}

async fn layouts(
    args: &StressArgs,
    plan: &StressPlan,
    context: &Context,
) -> anyhow::Result<Vec<StressLayout>> {
    let sample = sample::sample(args, plan.source.as_ref(), context).await?;
    let layouts: Result<_, UsageError> = if args.key.is_empty() {
        [1, args.partitions]
            .into_iter()
            .enumerate()
            .map(|(number, partitions)| StressLayout::even(number, partitions, &sample))
            .collect()
    } else {
        args.key
            .iter()
            .enumerate()
            .map(|(number, key)| StressLayout::keyed(number, key, &sample))
            .collect()
    };
    Ok(layouts?)
}

async fn measure(
    args: &StressArgs,
    layouts: Vec<StressLayout>,
    plan: &StressPlan,
    table: &TableName,
    context: &Context,
    direct: &DirectAccess,
    out: &mut Output,
) -> anyhow::Result<Vec<StressResult>> {
    let (patient, tables) = (
        &context.stores.account(&plan.account)?.tables,
        &direct.stores.account(&plan.account)?.tables,
    );
    let settings = LoadSettings {
        concurrency: args.concurrency,
        get: args.get,
        requests: args.requests,
        duration: args.duration,
    };
    let mut results = Vec::new();
    let mut progress = Progress::begin(
        "stress",
        "loads",
        Some(layouts.len() as u64),
        out,
        &context.clock,
    );
    for layout in layouts {
        load::fill(patient.as_ref(), table, &layout)
            .await
            .context("could not load the scratch table")?;
        let (layout, answers) = load::run(tables, table, layout, settings, &context.clock).await?;
        results.push(StressResult::of(layout, answers, args.peak));
        progress.set(results.len() as u64, out)?;
    }
    progress.end();
    Ok(results)
}

fn report(
    args: &StressArgs,
    plan: &StressPlan,
    results: &[StressResult],
    billed: Billed,
    out: &mut Output,
) -> anyhow::Result<()> {
    if let Some(file) = &args.chart {
        let line = |result: &'_ StressResult| {
            format!(
                "{} entities/s, p99 of GET {}",
                result.entities_per_second.rate(),
                result.get.p99_seconds.seconds()
            )
        };
        let lines = results.iter().map(|result| StressLine {
            name: &result.load,
            summary: line(result),
            by_second: &result.hottest_by_second,
        });
        let chart = StressChart {
            lines: lines.collect(),
        };
        std::fs::write(file, chart.to_string())
            .with_context(|| format!("could not write {}", file.display()))?;
    }
    let compared = match results {
        [one, other] => Some(comparison(
            &one.load,
            &one.judged,
            &other.load,
            &other.judged,
        )),
        _ => None,
    };
    if out.format() == Format::Json {
        let (requests, dollars) = (billed.requests(), billed.dollars());
        out.value(&json!({
            "account": plan.account, "get_percent": args.get, "target": TARGET, "loads": results, "comparison": compared,
            "requests": requests, "dollars": dollars,
        }))?;
        return Ok(());
    }
    let row = |result: &StressResult| {
        [
            result.load.clone(),
            result.partitions.to_string(),
            result.hottest_share.percent(),
            result.entities_per_second.rate(),
            result.hottest_per_second.rate(),
            result.get.cell(),
            result.put.cell(),
            grouped(result.throttled),
            grouped(result.failed),
            result.capacity.rate(),
        ]
    };
    let heading = [
        "LOAD",
        "PARTITIONS",
        "HOTTEST",
        "ENTITIES/S",
        "IN HOTTEST",
        "GET P50/P99",
        "PUT P50/P99",
        "THROTTLED",
        "FAILED",
        "CAPACITY",
    ];
    out.columns(heading, &results.iter().map(row).collect::<Vec<_>>())?;
    for result in results {
        let tone = match result.verdict {
            StressVerdict::Throttled | StressVerdict::TooCoarse => Tone::Bad,
            StressVerdict::Fits => Tone::Good,
            StressVerdict::BelowTarget => Tone::Strong,
        };
        let name = out.tone(tone, &result.load);
        out.line(format_args!("{name}: {}", result.advice))?;
        if result.without_key > 0 {
            out.line(format_args!(
                "  {} entities of the sample lack a property of this key and were left out",
                grouped(result.without_key as u64)
            ))?;
        }
    }
    if let Some(text) = compared {
        out.line(text)?;
    }
    out.write_note(format_args!(
        "{} transactions, {} at list prices; the scratch table is deleted.",
        grouped(billed.requests()),
        billed.dollars().dollars()
    ))?;
    if let Some(file) = &args.chart {
        out.write_note(format_args!("The chart is in {}.", file.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
