use clap::{Args, Subcommand};

use crate::cli::help;
use evenkeel_model::QueueName;
use evenkeel_worker::poison::PoisonCriteria;

#[derive(Debug, Args)]
pub struct PoisonArgs {
    #[command(subcommand)]
    pub action: PoisonAction,
}

#[derive(Debug, Subcommand)]
pub enum PoisonAction {
    /// List poisoned messages: time, reason, and subject
    #[command(after_help = help::after(&[
        ("evenkeel poison list", "of every queue, oldest first"),
        ("evenkeel poison list --queue evenkeel-jobs --reason exhausted --json", "one JSON value per message"),
        ("evenkeel poison list --group", "one line per cause: how many messages, since when, and one of them"),
        ("evenkeel poison list --table Employees --key Sales/000223 --since 2h", "messages about one entity in the last two hours"),
    ]))]
    List(PoisonList),
    /// Show poisoned messages in full, with causes and the expanded body
    #[command(after_help = help::after(&[
        ("evenkeel poison show 8f14e45f-ceea-467f-a3a2-1c5ab2d5c1a0", "one message, by its id or by the job's id"),
        ("evenkeel poison show --all", "all of them"),
    ]))]
    Show(Selector),
    /// Put poisoned messages back on their queues, as new messages
    #[command(after_help = help::after(&[
        ("evenkeel poison requeue 8f14e45f-ceea-467f-a3a2-1c5ab2d5c1a0", "one message, after its cause was fixed"),
        ("evenkeel poison requeue --all --reason exhausted", "messages that were given up during an outage"),
        ("evenkeel poison requeue --all --cause 1f0c9a3b", "all messages of one cause, by its id in `list --group`"),
    ]))]
    Requeue(Selector),
    /// Delete poisoned messages
    #[command(after_help = help::after(&[
        ("evenkeel poison discard 8f14e45f-ceea-467f-a3a2-1c5ab2d5c1a0 --yes", "one message, without asking"),
        ("evenkeel poison discard --all --reason undecodable", "asks for confirmation"),
    ]))]
    Discard(Discard),
}

#[derive(Debug, Clone, Args)]
pub struct PoisonList {
    #[command(flatten)]
    pub selection: Selector,
    /// Show one line per cause: messages with the same error, apart from keys and values
    #[arg(long)]
    pub group: bool,
}

#[derive(Debug, Clone, Args)]
pub struct Selector {
    /// Only the poison queue of this queue
    #[arg(long, value_name = "NAME")]
    pub queue: Option<QueueName>,
    /// Only this reason: exhausted, permanent, undecodable, expired or foreign
    #[arg(long, value_name = "REASON")]
    pub reason: Option<String>,
    /// Only this cause, an id of `poison list --group`
    #[arg(long, value_name = "CAUSE")]
    pub cause: Option<String>,
    /// Only messages that name this view
    #[arg(long, value_name = "VIEW")]
    pub view: Option<String>,
    /// Only messages about entities of this table
    #[arg(long, value_name = "TABLE")]
    pub table: Option<String>,
    /// Only messages about this entity or PartitionKey
    #[arg(long, value_name = "PK[/RK]")]
    pub key: Option<String>,
    /// Only messages with this text in error, step, ids or body (case-insensitive)
    #[arg(long, value_name = "TEXT")]
    pub text: Option<String>,
    /// Only messages poisoned since a time (2026-11-28T12:00:00Z) or in the last hours (2h)
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only messages poisoned before a time, or longer ago than a duration
    #[arg(long, value_name = "TIME")]
    pub before: Option<String>,
    /// All messages, or all that match
    #[arg(long, conflicts_with = "ids")]
    pub all: bool,
    /// Message ids (of the queue or the poison queue) or ids of jobs
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
}

impl Selector {
    /// The filters of the selection, except for the queue and the ids.
    pub(super) fn criteria(&self) -> PoisonCriteria {
        let Self {
            reason,
            cause,
            view,
            table,
            key,
            text,
            since,
            before,
            ..
        } = self.clone();
        PoisonCriteria {
            reason,
            cause,
            view,
            table,
            key,
            text,
            since,
            before,
        }
    }

    /// Whether the selection has a filter.
    pub(super) fn is_narrowed(&self) -> bool {
        self.queue.is_some() || self.criteria().pairs().next().is_some()
    }
}

#[derive(Debug, Clone, Args)]
pub struct Discard {
    #[command(flatten)]
    pub selection: Selector,
    /// Do not ask for confirmation
    #[arg(long)]
    pub yes: bool,
}
