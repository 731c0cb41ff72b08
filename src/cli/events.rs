use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Exit, Format, Output, help};
use evenkeel_config::Request;
use evenkeel_model::event::{EventError, ForeignEvent};
use evenkeel_model::settings::Settings;
use evenkeel_model::{QueueName, cause, job, limits};

#[derive(Debug, Args)]
pub struct EventsArgs {
    #[command(subcommand)]
    pub action: EventsAction,
}

#[derive(Debug, Subcommand)]
pub enum EventsAction {
    /// Show which mapping matches an event, and the job that it becomes; sends nothing and opens no store
    #[command(after_help = help::after(&[
        ("evenkeel events try created.json", "prints the job; or, with exit code 1, why a worker would move the event to the poison queue"),
        ("evenkeel events try - --json < created.json", "the same as JSON; the event may be plain JSON or Base64, as in a queue"),
    ]))]
    Try(TryArgs),
}

#[derive(Debug, Args)]
pub struct TryArgs {
    /// The event: a file, or - for standard input
    #[arg(value_name = "FILE|-")]
    pub event: PathBuf,
}

#[derive(Serialize)]
struct EventTrial<'a> {
    /// Every mapping, and whether its `when` matches the event.
    mappings: Vec<Mapping<'a>>,
    job: Option<Map<String, Value>>,
    /// The queues that allow the job.
    queues: Vec<&'a QueueName>,
    error: Option<String>,
}

#[derive(Serialize)]
struct Mapping<'a> {
    name: &'a str,
    /// Whether the mapping's `when` matches the event. `None` if a field of `when` cannot be read.
    takes: Option<bool>,
}

pub fn events(args: &EventsArgs, request: &Request, out: &mut Output) -> anyhow::Result<Exit> {
    let EventsAction::Try(TryArgs { event }) = &args.action;
    let settings = evenkeel_config::load(request)?.settings;
    let text = read(event).with_context(|| format!("could not read {}", event.display()))?;
    let object =
        job::decode_object(text.trim()).map_err(|error| anyhow::anyhow!(cause::chain(&error)))?;
    let Some(event) = ForeignEvent::of(&object) else {
        anyhow::bail!(
            "not an event: expected \"specversion\" (CloudEvents) or \"eventType\" (Event Grid), and no \"op\""
        );
    };
    let trial = trial(event, &settings);
    match out.format() {
        Format::Json => out.value(&trial)?,
        Format::Text => {
            for Mapping { name, takes } in &trial.mappings {
                let takes = takes.map_or("may match", |takes| {
                    if takes { "matches" } else { "does not match" }
                });
                out.line(format_args!("[events.{name}] {takes}"))?;
            }
            match (&trial.job, &trial.error) {
                (Some(job), None) => {
                    out.value(job)?;
                    out.line(format_args!(
                        "queues: {}",
                        trial
                            .queues
                            .iter()
                            .map(|queue| queue.as_str())
                            .collect::<Vec<_>>()
                            .join(", ")
                    ))?;
                }
                (_, error) => out.write_error(format_args!(
                    "poisoned: {}",
                    error.as_deref().unwrap_or_default()
                ))?,
            }
        }
    }
    Ok(if trial.error.is_none() {
        Exit::Done
    } else {
        Exit::Failed
    })
}

fn trial<'s>(
    event: Result<ForeignEvent<'_>, EventError>,
    settings: &'s Settings,
) -> EventTrial<'s> {
    let takes = |event: &ForeignEvent<'_>| {
        settings
            .events
            .0
            .iter()
            .map(|mapping| Mapping {
                name: mapping.name.as_str(),
                takes: mapping.takes(event).ok(),
            })
            .collect()
    };
    let mappings = event.as_ref().map(takes).unwrap_or_default();
    let mapped = event
        .and_then(|event| settings.events.map(&event))
        .map_err(|error| error.to_string());
    let checked = mapped.and_then(|taken| match job::decode_job(taken.job.clone()) {
        Ok(envelope) => Ok((taken.job, envelope.job.op())),
        Err(error) => Err(cause::chain(&error)),
    });
    match checked {
        Ok((job, op)) => {
            let queues: Vec<&QueueName> = settings
                .queues
                .iter()
                .filter(|queue| queue.allows_op(op))
                .map(|queue| &queue.name)
                .collect();
            let error = queues
                .is_empty()
                .then(|| format!("no declared queue allows {op} jobs (`allow`)"));
            EventTrial {
                mappings,
                job: Some(job),
                queues,
                error,
            }
        }
        Err(error) => EventTrial {
            mappings,
            job: None,
            queues: Vec::new(),
            error: Some(error),
        },
    }
}

/// Reads a file, but not more than the maximum size of a message.
fn read(path: &Path) -> std::io::Result<String> {
    let most = limits::EXPANDED_BODY_BYTES as u64;
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().take(most).read_to_string(&mut text)?;
    } else {
        std::fs::File::open(path)?
            .take(most)
            .read_to_string(&mut text)?;
    }
    Ok(text)
}
