use std::time::Duration;

use clap::{Args, Subcommand};

use super::progress::{SAMPLING, announce_if_slow};
use super::{Context, Exit, Format, Output, Tone, UsageError, help};
use evenkeel_model::nearest::meant_or_known;
use evenkeel_model::{ViewName, cause};
use evenkeel_rollout::migrations::{
    AcceptedLosses, Consent, MigrationError, Migrator, PlannedChange, ProblemKind, ViewAction,
    ViewSurvey, acceptance,
};

/// Maximum wait for a store that does not answer.
const WAIT: Duration = Duration::from_mins(1);
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub struct MigrateArgs {
    #[command(subcommand)]
    pub action: MigrateAction,
}

#[derive(Debug, Subcommand)]
pub enum MigrateAction {
    /// Show applied and pending migrations; changes nothing
    #[command(after_help = help::after(&[
        ("evenkeel migrate status", "applied migrations, and what `migrate up` would do, with changed keys and findings in a sample of the data"),
        ("evenkeel migrate status --json | jq '.pending | length'", "how much is pending, for a script"),
    ]))]
    Status,
    /// Create control tables, declared tables and queues, and record the catalog; safe to repeat
    #[command(after_help = help::after(&[
        ("evenkeel migrate up", "brings every account up to date; two at once are safe"),
        ("evenkeel migrate up --retire", "the same, including changed and removed views"),
        ("evenkeel migrate up --retire --accept-loss orders_by_status", "the same, if a changed view may lose items"),
        ("evenkeel migrate up --json", "the same, one JSON value per change"),
    ]))]
    Up(UpArgs),
}

#[derive(Debug, Clone, Args)]
pub struct UpArgs {
    /// Also retire removed views and replace changed ones; without it, nothing is done if such a change is pending
    #[arg(long)]
    pub retire: bool,
    /// Allow this changed view to lose items; without it, nothing is done if a sample shows a loss; repeatable
    #[arg(long, value_name = "VIEW")]
    pub accept_loss: Vec<ViewName>,
}

pub async fn migrate(
    args: &MigrateArgs,
    context: &Context,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let migrator = context.migrator()?;
    match &args.action {
        MigrateAction::Status => status(&migrator, out).await,
        MigrateAction::Up(args) => {
            if let Some(view) = args
                .accept_loss
                .iter()
                .find(|view| !context.catalog.declares(view))
            {
                let known = context.catalog.declared();
                let known: Vec<&str> = known.into_keys().map(ViewName::as_str).collect();
                return Err(UsageError::new(format!(
                    "--accept-loss: the catalog has no view {view}; {}",
                    meant_or_known(view.as_str(), &known)
                ))
                .into());
            }
            let migrator = migrator.accepting(AcceptedLosses::Of(
                args.accept_loss.iter().cloned().collect(),
            ));
            up(args, &migrator, context, out).await
        }
    }
}

async fn status(migrator: &Migrator, out: &mut Output) -> anyhow::Result<Exit> {
    let mut status = migrator.status().await?;
    status.indexes = migrator.indexes().await;
    status.surveys = announce_if_slow(SAMPLING, migrator.survey(&status.pending), out).await?;
    if out.format() == Format::Json {
        out.value(&status)?;
        return Ok(Exit::Done);
    }
    let applied: Vec<[String; 4]> = status
        .applied
        .iter()
        .map(|one| {
            [
                one.account.to_string(),
                one.number.clone(),
                one.name.clone(),
                one.applied_at.clone().unwrap_or_default(),
            ]
        })
        .collect();
    out.columns(["ACCOUNT", "NUMBER", "APPLIED", "AT"], &applied)?;
    let views: Vec<[String; 4]> = status
        .views
        .iter()
        .map(|(name, view)| {
            let state = if view.retired { "retired" } else { "declared" };
            [
                name.to_string(),
                view.source.to_string(),
                view.generation.to_string(),
                state.to_owned(),
            ]
        })
        .collect();
    out.columns(["VIEW", "SOURCE", "GENERATION", "STATE"], &views)?;
    if status.pending.is_empty() {
        let text = out.tone(
            Tone::Good,
            format!(
                "up to date: generation {} of the catalog is recorded",
                status.generation
            ),
        );
        out.line(text)?;
    } else {
        let text = out.tone(Tone::Warning, format!("{} pending:", status.pending.len()));
        out.line(text)?;
        for change in &status.pending {
            out.line(format_args!("  {change}"))?;
            let PlannedChange::RecordView(view) = change else {
                continue;
            };
            for key in &view.keys {
                out.line(format_args!("    {key}"))?;
            }
            for survey in status
                .surveys
                .iter()
                .filter(|survey| survey.sample.view == view.view)
            {
                // If the sample shows a loss, the numbers of the sample are part of its warning.
                if let Some(numbers) = survey.sample.numbers().filter(|_| !survey.sample.loss) {
                    out.line(format_args!("    {numbers}"))?;
                }
                for warning in survey.warnings() {
                    let text = out.tone(Tone::Warning, format_args!("    {warning}"));
                    out.line(text)?;
                }
            }
        }
        let replaces = status
            .pending
            .iter()
            .any(|change| change.needs() == Consent::Replacement);
        let losses = acceptance(
            status
                .surveys
                .iter()
                .map(|survey| &survey.sample)
                .filter(|sample| sample.loss),
        );
        out.write_note(match (replaces, losses.as_str()) {
            (true, "") => "`evenkeel migrate up --retire` does this.".to_owned(),
            (true, _) => format!("Existing items would be lost. If that is intended, run `evenkeel migrate up --retire{losses}`."),
            (false, _) => "`evenkeel migrate up` does this.".to_owned(),
        })?;
    }
    for index in &status.indexes {
        let text = out.tone(Tone::Warning, index.to_string());
        out.line(text)?;
    }
    Ok(Exit::Done)
}

/// Migrates as soon as the store answers. Returns the changes that were made.
async fn patiently(
    args: &UpArgs,
    migrator: &Migrator,
    context: &Context,
    out: &mut Output,
) -> (Vec<PlannedChange>, Result<(), MigrationError>) {
    let consent = if args.retire {
        Consent::Replacement
    } else {
        Consent::Recovery
    };
    let started = context.clock.monotonic();
    let mut done = Vec::new();
    let mut announced = false;
    loop {
        let ended = migrator
            .up(consent, |change| done.push(change.clone()))
            .await;
        let Err(error) = &ended else {
            return (done, ended);
        };
        let waited = context.clock.monotonic().saturating_sub(started);
        if !error.is_unavailable() || waited >= WAIT {
            return (done, ended);
        }
        if !announced {
            announced = true;
            // If the output is closed, the command waits without a message.
            let _ = out.write_note(format_args!(
                "The store does not answer; waiting up to {} s. {}",
                WAIT.as_secs(),
                cause::chain(error)
            ));
            let _ = out.flush();
        }
        tokio::time::sleep(AGAIN.min(WAIT.saturating_sub(waited))).await;
    }
}

async fn up(
    args: &UpArgs,
    migrator: &Migrator,
    context: &Context,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let (done, ended) = patiently(args, migrator, context, out).await;
    for change in &done {
        match out.format() {
            Format::Json => out.value(change)?,
            Format::Text => out.line(change)?,
        }
    }
    ended?;
    let (unknown, broken): (Vec<_>, Vec<_>) = migrator
        .indexes()
        .await
        .into_iter()
        .partition(|index| matches!(index.problem, ProblemKind::Unknown { .. }));
    for index in broken.iter().chain(&unknown) {
        out.write_error(index)?;
    }
    if done.is_empty() && broken.is_empty() {
        out.write_note(if unknown.is_empty() {
            "Nothing to do: everything is up to date."
        } else {
            "Nothing else to do. The indexes above could not be checked."
        })?;
    }
    // The catalog is already recorded, so the command does not fail if the survey fails.
    let surveys = announce_if_slow(SAMPLING, migrator.survey(&done), out)
        .await
        .map_err(|error| cause::chain(&error));
    if let Err(error) = &surveys {
        out.write_error(format_args!(
            "Could not sample the data of the views: {error}"
        ))?;
    }
    for survey in surveys.iter().flatten() {
        report_survey(survey, out)?;
    }
    for change in &done {
        let PlannedChange::RecordView(view) = change else {
            continue;
        };
        match view.action {
            ViewAction::New => {}
            ViewAction::Retired => out.write_note(format_args!(
                "View {0} is retired. `evenkeel backfill --view {0}` removes its items; its table stays.",
                view.view
            ))?,
            ViewAction::Changed | ViewAction::Restored | ViewAction::Claimed | ViewAction::Overtaken => out.write_note(format_args!(
                "View {0}: existing items stay as they are until their primary is synced. `evenkeel backfill --view {0}` updates all.",
                view.view
            ))?,
        }
    }
    Ok(Exit::Done)
}

/// Prints what an operator should check in the data of a view.
fn report_survey(survey: &ViewSurvey, out: &mut Output) -> anyhow::Result<()> {
    if out.format() == Format::Json {
        return if survey.warnings().is_empty() {
            Ok(())
        } else {
            Ok(out.value(survey)?)
        };
    }
    for warning in survey.warnings() {
        out.write_note(format_args!("warning: {warning}"))?;
    }
    match survey.sample.numbers() {
        Some(numbers) => {
            Ok(out.write_note(format_args!("View {}: {numbers}.", survey.sample.view))?)
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;

    use super::*;
    use crate::cli::output::tests::TextBuffer;
    use evenkeel_account::{FaultDecision, FaultPolicy, OperationInfo};
    use evenkeel_rollout::migrations::testing::{catalog, migrator, world};
    use evenkeel_storage::system::SystemClock;
    use evenkeel_storage::{Clock as _, ErrorClass, Stores};

    /// Simulates a store that refuses connections until it has started.
    struct Starting {
        clock: SystemClock,
        takes: Duration,
    }

    #[async_trait]
    impl FaultPolicy for Starting {
        async fn before(&self, _operation: &OperationInfo) -> FaultDecision {
            if self.clock.monotonic() < self.takes {
                FaultDecision::Fail(ErrorClass::Refused)
            } else {
                FaultDecision::Execute
            }
        }
    }

    /// Migrates a store that refuses connections for this time. Returns whether the migration
    /// succeeded, and the output.
    async fn migrated(takes: Duration) -> (bool, String) {
        let clock = SystemClock::new();
        let world = world(Arc::new(Starting { clock, takes }));
        let catalog = catalog(&[("name", "{Name}")]);
        let stores = Stores::new([(evenkeel_model::AccountName::main(), world.account())].into());
        let context = Context {
            settings: Arc::default(),
            catalog: Arc::clone(&catalog),
            stores,
            clock: Arc::new(clock),
            stop: tokio_util::sync::CancellationToken::new(),
        };
        let buffer = TextBuffer::default();
        let mut out = Output::to(
            Box::new(std::io::sink()),
            Box::new(buffer.clone()),
            Format::Text,
        );
        let (done, ended) = patiently(
            &UpArgs {
                retire: false,
                accept_loss: Vec::new(),
            },
            &migrator(&world, &catalog),
            &context,
            &mut out,
        )
        .await;
        assert_eq!(ended.is_ok(), !done.is_empty());
        (ended.is_ok(), buffer.text())
    }

    #[tokio::test(start_paused = true)]
    async fn a_migration_waits_a_minute_for_a_store_that_is_starting() {
        let (done, output) = migrated(Duration::from_secs(20)).await;
        assert!(done && output.contains("waiting up to 60 s"), "{output}");
        assert_eq!(output.lines().count(), 1, "once: {output}");
        assert!(!migrated(Duration::from_secs(70)).await.0);
        assert_eq!(migrated(Duration::ZERO).await, (true, String::new()));
    }
}
