//! The arguments.

use clap::{Args, Subcommand};

use crate::cli::help;
use evenkeel_model::QueueName;
use evenkeel_worker::poison::PoisonCriteria;

/// Arguments of `poison`.
#[derive(Debug, Args)]
pub struct PoisonArgs {
    /// The subcommand
    #[command(subcommand)]
    pub action: PoisonAction,
}

/// The subcommands of `poison`.
#[derive(Debug, Subcommand)]
pub enum PoisonAction {
    /// List poisoned messages: time, reason, and subject
    #[command(after_help = help::after(&[
        ("evenkeel poison list", "of every queue, oldest first"),
        ("evenkeel poison list --queue evenkeel-jobs --reason exhausted --json", "one JSON value per message"),
        ("evenkeel poison list --group", "a line per cause: how many, since when, and one of its messages"),
        ("evenkeel poison list --table Employees --key Sales/000223 --since 2h", "messages about one entity in the last two hours"),
    ]))]
    List(PoisonList),
    /// Show poisoned messages in full, with causes and the expanded body
    #[command(after_help = help::after(&[
        ("evenkeel poison show 8f14e45f-ceea-467f-a3a2-1c5ab2d5c1a0", "one message, by its id or the client's own"),
        ("evenkeel poison show --all", "all of them"),
    ]))]
    Show(Selector),
    /// Put poisoned messages back on their queues, as new messages
    #[command(after_help = help::after(&[
        ("evenkeel poison requeue 8f14e45f-ceea-467f-a3a2-1c5ab2d5c1a0", "one message, after its cause was fixed"),
        ("evenkeel poison requeue --all --reason exhausted", "what was given up during an outage"),
        ("evenkeel poison requeue --all --cause 1f0c9a3b", "all messages of one cause, by its id in `list --group`"),
    ]))]
    Requeue(Selector),
    /// Delete poisoned messages
    #[command(after_help = help::after(&[
        ("evenkeel poison discard 8f14e45f-ceea-467f-a3a2-1c5ab2d5c1a0 --yes", "one message, without asking"),
        ("evenkeel poison discard --all --reason undecodable", "asks first"),
    ]))]
    Discard(Discard),
}

/// Arguments of `poison list`.
#[derive(Debug, Clone, Args)]
pub struct PoisonList {
    /// Which messages
    #[command(flatten)]
    pub selection: Selector,
    /// Show a line per cause: an error without its keys and values
    #[arg(long)]
    pub group: bool,
}

/// Which messages are meant.
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
    /// Message ids (of the queue or the poison queue) or the clients' own job ids
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
}

impl Selector {
    /// What narrows the messages, but for their queue and ids.
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

    /// Whether some messages are meant and others are not.
    pub(super) fn is_narrowed(&self) -> bool {
        self.queue.is_some() || self.criteria().pairs().next().is_some()
    }
}

/// Arguments of `poison discard`.
#[derive(Debug, Clone, Args)]
pub struct Discard {
    /// Which messages
    #[command(flatten)]
    pub selection: Selector,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}
