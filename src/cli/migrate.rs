//! `evenkeel migrate`

use clap::{Args, Subcommand};

use super::{Context, Exit, Format, Output, Tone, help};
use crate::migrations::{Change, Migrator, ViewAction};

/// Arguments of `migrate`.
#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// What to do
    #[command(subcommand)]
    pub action: MigrateAction,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum MigrateAction {
    /// Show what was applied and what is pending; changes nothing
    #[command(after_help = help::after(&[
        ("evenkeel migrate status", "what was applied, and what `migrate up` would do"),
        ("evenkeel migrate status --json | jq '.pending | length'", "how much is pending, for a script"),
    ]))]
    Status,
    /// Create control tables, declared tables and queues, and record the catalog; safe to repeat
    #[command(after_help = help::after(&[
        ("evenkeel migrate up", "brings every account up to date; two at once are safe"),
        ("evenkeel migrate up --json", "the same, one JSON value per change"),
    ]))]
    Up,
}

/// Shows or applies migrations.
pub async fn migrate(args: &MigrateArgs, context: &Context, out: &mut Output) -> anyhow::Result<Exit> {
    let migrator =
        Migrator::new(context.stores.clone(), &context.settings, std::sync::Arc::clone(&context.catalog), context.clock.clone())?;
    match args.action {
        MigrateAction::Status => status(&migrator, out).await,
        MigrateAction::Up => up(&migrator, out).await,
    }
}

async fn status(migrator: &Migrator, out: &mut Output) -> anyhow::Result<Exit> {
    let mut status = migrator.status().await?;
    status.indexes = migrator.indexes().await;
    if out.format() == Format::Json {
        out.value(&status)?;
        return Ok(Exit::Done);
    }
    let applied: Vec<[String; 4]> = status
        .applied
        .iter()
        .map(|one| [one.account.to_string(), one.number.clone(), one.name.clone(), one.applied_at.clone().unwrap_or_default()])
        .collect();
    out.columns(["ACCOUNT", "NUMBER", "APPLIED", "AT"], &applied)?;
    let views: Vec<[String; 4]> = status
        .views
        .iter()
        .map(|(name, view)| {
            let state = if view.retired { "retired" } else { "declared" };
            [name.to_string(), view.source.to_string(), view.generation.to_string(), state.to_owned()]
        })
        .collect();
    out.columns(["VIEW", "SOURCE", "GENERATION", "STATE"], &views)?;
    if status.pending.is_empty() {
        let text = out.tone(Tone::Good, format!("up to date: generation {} of the catalog is recorded", status.generation));
        out.line(text)?;
    } else {
        let text = out.tone(Tone::Warning, format!("{} pending:", status.pending.len()));
        out.line(text)?;
        for change in &status.pending {
            out.line(format_args!("  {change}"))?;
        }
        out.say("`evenkeel migrate up` does this.")?;
    }
    for lack in &status.indexes {
        let text = out.tone(Tone::Warning, lack.to_string());
        out.line(text)?;
    }
    Ok(Exit::Done)
}

async fn up(migrator: &Migrator, out: &mut Output) -> anyhow::Result<Exit> {
    let mut done = Vec::new();
    let ended = migrator.up(|change| done.push(change.clone())).await;
    for change in &done {
        match out.format() {
            Format::Json => out.value(change)?,
            Format::Text => out.line(change)?,
        }
    }
    ended?;
    if done.is_empty() {
        out.say("Nothing to do: everything is up to date.")?;
    }
    for change in &done {
        if let Change::RecordView(view) = change
            && view.action != ViewAction::Retired
            && view.generation > 1
        {
            out.say(format_args!(
                "View {}: items of primaries that nobody touches keep their old form until a sync job names them.",
                view.view
            ))?;
        }
    }
    Ok(Exit::Done)
}
