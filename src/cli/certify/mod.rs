//! `evenkeel certify`: tests a user's account against the storage contract and under some minutes of chaos, within a budget.
//!
//! ```text
//!   rules of crates/conformance ─▶ budget (counts, refuses, remembers new names) ─▶ the account
//!   chaos ─▶ names with a prefix ─┘   └─▶ everything created is deleted again
//! ```

mod chaos;
mod company;

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use evenkeel_conformance::{Rule, World, rules};
use futures::FutureExt as _;
use futures::stream::{StreamExt as _, iter};
use serde::Serialize;

use chaos::ChaosReport;

use super::consent::{confirm, require_terminal};
use super::output::printable;
use super::progress::Progress;
use super::{Context, Exit, Format, Output, Tone, UsageError, help};
use evenkeel_model::units::{duration_text, parse_duration};
use evenkeel_model::{AccountName, ContainerName, QueueName, TableName};
use evenkeel_ops::numbers::{Counted as _, Measure as _};
use evenkeel_ops::state::grouped;
use evenkeel_storage::{Account, Service};
use evenkeel_telemetry::job_trace::Billed;

pub use chaos::{CHAOS_CONFIGURATION, ChaosStage, RequestFaults};

/// Number of rules that run concurrently. Most rules spend their time waiting for the service's clock.
const PARALLEL: usize = 8;
/// Number of attempts before a rule counts as broken. The service may be busy, or may be moving a
/// partition, during an attempt.
const ATTEMPTS: u32 = 3;
/// Maximum duration of a rule. The longest rule waits half a minute for messages to expire.
const PATIENCE: Duration = Duration::from_mins(5);
/// Estimated requests of all rules. The numbers are somewhat higher than the counts in
/// `tests/process/end_to_end/certifying.rs`.
const USUAL: Billed = Billed {
    table: 1_950,
    queue: 300,
    blob_writes: 370,
    blob_reads: 180,
};

#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel certify --budget 0.05", "all rules and ten minutes of chaos on the account main; shows the cost and asks for confirmation"),
    ("evenkeel certify --budget 0.05 --chaos 0s", "the rules alone: a minute or two"),
    ("evenkeel certify --budget 0.05 --account second --report second.json --yes", "on another account, without asking"),
]))]
pub struct CertifyArgs {
    /// Budget in US dollars at list prices; no request exceeds it
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    pub budget: f64,
    /// The account
    #[arg(long, value_name = "ACCOUNT", default_value = "main", value_parser = |text: &str| AccountName::new(text))]
    pub account: AccountName,
    /// Duration of the chaos after the rules, at most 1h: an application's changes, killed workers, failing requests.
    /// 0s skips it
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = chaos_duration)]
    pub chaos: Duration,
    /// File for the report, as JSON
    #[arg(long, value_name = "FILE", default_value = "evenkeel-certificate.json")]
    pub report: PathBuf,
    /// Do not ask for confirmation
    #[arg(long)]
    pub yes: bool,
}

fn dollars(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|dollars: &f64| *dollars > 0.0 && *dollars <= 1_000.0)
        .ok_or_else(|| format!("expected 0.0001 to 1000, found {text:?}"))
}

fn chaos_duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).and_then(|duration| {
        if duration <= Duration::from_hours(1) {
            Ok(duration)
        } else {
            Err("expected 0s to 1h".to_owned())
        }
    })
}

pub trait BudgetedAccount {
    /// The account. It refuses requests once the budget is spent.
    fn account(&self) -> Account;
    /// Number of requests so far, including the deletions at the end.
    fn billed(&self) -> Billed;
    /// Whether a request was refused because the budget was spent.
    fn is_spent(&self) -> bool;
    fn created(&self) -> Vec<(Service, String)>;
    /// Creates a namespace in the account for the chaos.
    fn chaos(&self) -> anyhow::Result<Box<dyn ChaosStage>>;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum RuleOutcome {
    Holds,
    Broken {
        /// Why the rule is broken.
        found: String,
    },
    /// The rule was not completed, because the budget was spent.
    NotRun,
}

#[derive(Debug, Clone, Serialize)]
struct CertifiedRule {
    group: &'static str,
    rule: &'static str,
    #[serde(flatten)]
    outcome: RuleOutcome,
    attempts: u32,
    seconds: f64,
}

#[derive(Debug, Serialize)]
struct Certificate<'a> {
    evenkeel: &'static str,
    at: String,
    /// Location of the account, without secrets.
    place: &'a str,
    budget: f64,
    dollars: f64,
    requests: u64,
    seconds: f64,
    holds: u64,
    broken: u64,
    not_run: u64,
    /// Tables, queues and containers that could not be deleted.
    left: Vec<String>,
    /// A sentence with the counts.
    summary: String,
    rules: &'a [CertifiedRule],
    /// The result of the chaos; `None` if the chaos was skipped.
    chaos: Option<ChaosReport>,
}

/// Runs the rules and the chaos. `within` limits the account to the budget; `place` describes its location.
pub async fn certify(
    args: &CertifyArgs,
    context: &Context,
    place: &str,
    within: impl FnOnce(f64) -> anyhow::Result<Box<dyn BudgetedAccount>>,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let patient = context
        .stores
        .account(&args.account)
        .map_err(UsageError::of)?
        .clone();
    let rules = rules();
    let (chaos_text, usual) = if args.chaos.is_zero() {
        (String::new(), USUAL)
    } else {
        (
            format!(" and {} of chaos", duration_text(args.chaos)),
            USUAL.plus(chaos::cost(args.chaos)),
        )
    };
    let cost = format!(
        "{} rules{chaos_text} take about {} requests, {} at list prices; the budget is {}",
        rules.len(),
        grouped(usual.requests()),
        usual.dollars().dollars(),
        args.budget.dollars()
    );
    if !args.yes {
        require_terminal(&format!("{cost}. Add --yes to run without a terminal"))?;
        if !confirm(format_args!("On {place}, {cost}."), context, out).await? {
            out.write_note("Nothing was sent.")?;
            return Ok(if context.stop.is_cancelled() {
                Exit::Interrupted
            } else {
                Exit::Failed
            });
        }
    }
    out.write_note(format_args!(
        "On {place}: {cost}. Everything is created under new names and deleted again."
    ))?;
    let began = context.clock.monotonic();
    let budgeted = within(args.budget)?;
    let run = async {
        let results = all(&rules, budgeted.as_ref(), context, out).await?;
        if args.chaos.is_zero() {
            return anyhow::Ok((results, None));
        }
        let chaos = chaos::chaos(args.chaos, budgeted.as_ref(), context, out).await?;
        Ok((results, Some(chaos)))
    };
    let run = context.stop.run_until_cancelled(run).await;
    let left = clean(&patient, budgeted.created()).await;
    let Some((mut results, chaos)) = run.transpose()? else {
        left.iter()
            .try_for_each(|name| out.write_error(format_args!("not deleted: {name}")))?;
        out.write_error(if left.is_empty() {
            "Interrupted: nothing was certified. Everything that was created is deleted."
        } else {
            "Interrupted: nothing was certified. Delete what is listed above."
        })?;
        return Ok(Exit::Interrupted);
    };
    results.sort_by_key(|result| (result.group, result.rule));
    let count = |of: fn(&RuleOutcome) -> bool| {
        results.iter().filter(|result| of(&result.outcome)).count() as u64
    };
    let (holds, broken, not_run) = (
        count(|outcome| *outcome == RuleOutcome::Holds),
        count(|outcome| matches!(outcome, RuleOutcome::Broken { .. })),
        count(|outcome| *outcome == RuleOutcome::NotRun),
    );
    let certificate = Certificate {
        evenkeel: env!("CARGO_PKG_VERSION"),
        at: context.clock.now().to_string(),
        place,
        budget: args.budget,
        dollars: budgeted.billed().dollars(),
        requests: budgeted.billed().requests(),
        seconds: context
            .clock
            .monotonic()
            .saturating_sub(began)
            .as_secs_f64(),
        holds,
        broken,
        not_run,
        summary: format!(
            "{} hold, {broken} broken, {not_run} not run{}",
            holds.of("rule"),
            chaos
                .as_ref()
                .map(|chaos| format!("; {}", chaos.summary()))
                .unwrap_or_default()
        ),
        left,
        rules: &results,
        chaos,
    };
    report(args, &certificate, out)
}

async fn all(
    rules: &[Rule],
    budgeted: &dyn BudgetedAccount,
    context: &Context,
    out: &mut Output,
) -> anyhow::Result<Vec<CertifiedRule>> {
    let _silence = SilencedPanics::begin();
    let mut progress = Progress::begin(
        "certify",
        "rules",
        Some(rules.len() as u64),
        out,
        &context.clock,
    );
    let mut running = iter(rules)
        .map(|rule| one(rule, budgeted, context))
        .buffer_unordered(PARALLEL);
    let mut results = Vec::new();
    while let Some(result) = running.next().await {
        results.push(result);
        progress.set(results.len() as u64, out)?;
    }
    progress.end();
    Ok(results)
}

type PanicHook = Box<dyn Fn(&panic::PanicHookInfo<'_>) + Sync + Send>;

/// Suppresses panic messages until it is dropped. A broken rule panics, and its panic is reported
/// separately.
struct SilencedPanics(Option<PanicHook>);

impl SilencedPanics {
    fn begin() -> Self {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(|_| {}));
        Self(Some(hook))
    }
}

impl Drop for SilencedPanics {
    fn drop(&mut self) {
        if let Some(hook) = self.0.take() {
            panic::set_hook(hook);
        }
    }
}

async fn one(rule: &Rule, budgeted: &dyn BudgetedAccount, context: &Context) -> CertifiedRule {
    let began = context.clock.monotonic();
    let (mut attempts, mut outcome) = (0, RuleOutcome::NotRun);
    while attempts < ATTEMPTS && !budgeted.is_spent() {
        attempts += 1;
        let world = World::new(
            budgeted.account(),
            |time| Box::pin(tokio::time::sleep(time)),
            (),
        );
        let run = AssertUnwindSafe((rule.run)(&world)).catch_unwind();
        outcome = match tokio::time::timeout(PATIENCE, run).await {
            Ok(Ok(())) => RuleOutcome::Holds,
            Ok(Err(panic)) => RuleOutcome::Broken {
                found: printable(&panic_message(panic.as_ref())),
            },
            Err(_) => RuleOutcome::Broken {
                found: format!("not finished within {} s", PATIENCE.as_secs()),
            },
        };
        if outcome == RuleOutcome::Holds {
            break;
        }
        if budgeted.is_spent() {
            outcome = RuleOutcome::NotRun;
        }
    }
    let seconds = context
        .clock
        .monotonic()
        .saturating_sub(began)
        .as_secs_f64();
    CertifiedRule {
        group: rule.group,
        rule: rule.name,
        outcome,
        attempts,
        seconds,
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("panic without a message").to_owned()
}

/// Deletes everything that was created. Returns what could not be deleted.
async fn clean(account: &Account, created: Vec<(Service, String)>) -> Vec<String> {
    let delete = async |(service, name): (Service, String)| {
        let gone = match service {
            Service::Table => match TableName::new(&name) {
                Ok(table) => account.tables.delete_table(&table).await.is_ok(),
                Err(_) => true,
            },
            Service::Queue => match QueueName::new(&name) {
                Ok(queue) => account.queues.delete_queue(&queue).await.is_ok(),
                Err(_) => true,
            },
            Service::Blob => match ContainerName::new(&name) {
                Ok(container) => account.blobs.delete_container(&container).await.is_ok(),
                Err(_) => true,
            },
            Service::Search => true,
        };
        (!gone).then(|| format!("{} {name}", service.name()))
    };
    iter(created)
        .map(delete)
        .buffer_unordered(PARALLEL)
        .filter_map(async |left| left)
        .collect()
        .await
}

fn report(
    args: &CertifyArgs,
    certificate: &Certificate<'_>,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let Certificate {
        dollars,
        requests,
        left,
        summary,
        rules,
        chaos,
        ..
    } = certificate;
    let file = args.report.display();
    std::fs::write(&args.report, serde_json::to_string_pretty(certificate)?)
        .with_context(|| format!("could not write {file}"))?;
    let outcomes = || {
        rules
            .iter()
            .map(|rule| &rule.outcome)
            .chain(chaos.iter().map(|chaos| &chaos.outcome))
    };
    let [is_broken, is_open] = [
        outcomes().any(|outcome| matches!(outcome, RuleOutcome::Broken { .. })),
        outcomes().any(|outcome| *outcome == RuleOutcome::NotRun),
    ];
    if out.format() == Format::Json {
        out.value(certificate)?;
    } else {
        let chaotic = chaos
            .iter()
            .map(|chaos| ("chaos".to_owned(), &chaos.outcome));
        let names = rules.iter().map(|rule| {
            (
                format!("{}: {}", rule.group, rule.rule.replace('_', " ")),
                &rule.outcome,
            )
        });
        for (name, outcome) in names.chain(chaotic) {
            if let RuleOutcome::Broken { found } = outcome {
                let word = out.tone(Tone::Bad, "broken");
                out.line(format_args!("{word}  {name}"))?;
                out.line(format_args!("        {found}"))?;
            }
        }
        let tone = match (is_broken, is_open) {
            (true, _) => Tone::Bad,
            (false, true) => Tone::Warning,
            (false, false) => Tone::Good,
        };
        let text = out.tone(tone, summary);
        out.line(text)?;
    }
    for name in left {
        out.write_error(format_args!("not deleted: {name}"))?;
    }
    if is_open {
        out.write_note("The budget was spent before the end.")?;
    }
    out.write_note(format_args!(
        "{} requests, {} at list prices. The report is in {file}. Send it to the project with a note about the kind of account.",
        grouped(*requests),
        dollars.dollars()
    ))?;
    Ok(if is_broken || is_open || !left.is_empty() {
        Exit::Failed
    } else {
        Exit::Done
    })
}
