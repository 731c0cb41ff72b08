//! `evenkeel doctor`: checks everything that the configuration names, and prints problems with their remedies.
//!
//! ```text
//!   probes (reads, each once) ──▶ measurements ──▶ findings (pure): severity, text, remedy ──▶ exit code
//!   writes (--write): temporary names, deleted again ────────┘
//! ```

mod diagnosis;
mod probes;
mod writes;

use std::collections::BTreeSet;

use clap::Args;
use serde_json::json;

use super::{Context, DirectAccess, Exit, Format, Output, Tone, help};
use diagnosis::{Diagnosis, Severity};
use evenkeel_model::AccountName;
use evenkeel_model::settings::QueueSettings;
use evenkeel_ops::numbers::Counted as _;
use evenkeel_ops::state::SilentWorker;
use evenkeel_rollout::migrations::Migrator;
use evenkeel_storage::AccountFacts;

#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel doctor", "reads only; exit code 1 if something fails or needs an operator"),
    ("evenkeel doctor --write", "also tries writes, in a temporary table, queue and container"),
    ("evenkeel doctor --json | jq 'select(.severity == \"error\")'", "for a script"),
]))]
pub struct DoctorArgs {
    /// Also try writes, in a temporary table, queue and container
    #[arg(long)]
    pub write: bool,
    /// Also show checks that found no problem
    #[arg(long)]
    pub all: bool,
}

/// The workers of a store, according to their rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerOverview {
    pub running: usize,
    /// Workers whose row is not recent.
    pub silent: Vec<SilentWorker>,
}

/// Checks accounts, queues, sinks and catalog. `facts` reads the kinds of the accounts, and
/// `workers` reads the rows of the workers.
pub async fn doctor(
    args: &DoctorArgs,
    context: &Context,
    direct: &DirectAccess,
    facts: impl AsyncFnOnce() -> Vec<(AccountName, AccountFacts)>,
    workers: impl AsyncFnOnce() -> anyhow::Result<WorkerOverview>,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let migrator = Migrator::new(
        direct.stores.clone(),
        &context.settings,
        context.catalog.clone(),
        context.clock.clone(),
    )?;
    let (mut findings, mut main_answers) = (Vec::new(), false);
    for (name, _) in direct.stores.iter() {
        let (found, answers) = probes::account(name, migrator.needs(), context, direct).await?;
        findings.extend(found);
        main_answers |= answers && *name == AccountName::main();
        let queues: Vec<&QueueSettings> = context
            .settings
            .queues
            .iter()
            .filter(|queue| queue.account == *name)
            .collect();
        findings.extend(diagnosis::limits(name, &queues));
    }
    findings.extend(
        facts()
            .await
            .iter()
            .map(|(name, facts)| diagnosis::kind(name, facts)),
    );
    // If the account `main` does not answer, neither the recorded catalog nor the workers' rows are read.
    let mut running = None;
    if main_answers {
        findings.extend(probes::catalog(&migrator, context).await);
        match workers().await {
            Ok(seen) => {
                running = Some(seen.running);
                findings.extend(diagnosis::workers(seen.running, &seen.silent));
            }
            Err(error) => {
                let finding = format!("{error:#}");
                findings.push(Diagnosis::error(
                    "workers",
                    &AccountName::main(),
                    finding,
                    "check that this account may read the table EvenkeelMigrations",
                ));
            }
        }
    }
    let mut unanswered: BTreeSet<&AccountName> = BTreeSet::new();
    for queue in &context.settings.queues {
        if !unanswered.contains(&queue.account) {
            let (found, answers) = probes::queue(queue, running, context, direct).await?;
            findings.extend(found);
            if !answers {
                unanswered.insert(&queue.account);
            }
        }
    }
    if args.write {
        for (name, _) in direct.stores.iter() {
            findings.extend(writes::account(name, direct).await?);
        }
    }
    for (name, _) in direct.stores.iter() {
        let tallies: Vec<_> = direct
            .meter
            .tallies()
            .into_iter()
            .filter(|tally| tally.account == *name)
            .collect();
        let throttled = tallies.iter().map(|tally| tally.throttled).sum();
        let requests = tallies
            .iter()
            .map(|tally| tally.ok + tally.refused + tally.throttled + tally.failed)
            .sum();
        findings.push(diagnosis::throttling(name, throttled, requests));
    }
    report(args, findings, out)
}

fn report(
    args: &DoctorArgs,
    mut findings: Vec<Diagnosis>,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    // The most severe findings come first. Findings of equal severity keep their order.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let count = |severity| {
        findings
            .iter()
            .filter(|finding| finding.severity == severity)
            .count() as u64
    };
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    if out.format() == Format::Json {
        findings.iter().try_for_each(|finding| out.value(finding))?;
        out.value(&json!({"errors": errors, "warnings": warnings, "checks": findings.len()}))?;
    } else {
        for finding in findings
            .iter()
            .filter(|finding| args.all || finding.severity > Severity::Ok)
        {
            let (tone, word) = match finding.severity {
                Severity::Ok => (Tone::Good, "ok     "),
                Severity::Warning => (Tone::Warning, "warning"),
                Severity::Error => (Tone::Bad, "error  "),
            };
            let word = out.tone(tone, word);
            out.line(format_args!(
                "{word}  {} of {}: {}",
                finding.check, finding.subject, finding.finding
            ))?;
            if let Some(remedy) = &finding.remedy {
                out.line(format_args!("         {remedy}"))?;
            }
        }
        let tone = if errors > 0 {
            Tone::Bad
        } else if warnings > 0 {
            Tone::Warning
        } else {
            Tone::Good
        };
        let text = out.tone(
            tone,
            format_args!(
                "{}, {}, {}",
                errors.of("error"),
                warnings.of("warning"),
                (findings.len() as u64).of("check")
            ),
        );
        out.line(text)?;
    }
    Ok(if errors > 0 { Exit::Failed } else { Exit::Done })
}
