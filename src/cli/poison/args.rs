//! The arguments.

use clap::{Args, Subcommand};

use crate::cli::help;
use crate::model::QueueName;
use crate::worker::poison::Reason;

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
    ]))]
    List(Selector),
    /// Show poisoned messages whole, with every cause and the body, expanded where it is compressed
    #[command(after_help = help::after(&[
        ("evenkeel poison show 8f14e45f-ceea-467f-a3a2-1c5ab2d5c1a0", "one message, by its id or the client's own"),
        ("evenkeel poison show --all", "all of them"),
    ]))]
    Show(Selector),
    /// Put poisoned messages back on their queues; then they are delivered as new
    #[command(after_help = help::after(&[
        ("evenkeel poison requeue 8f14e45f-ceea-467f-a3a2-1c5ab2d5c1a0", "one message, once its cause is put right"),
        ("evenkeel poison requeue --all --reason exhausted", "whatever gave up during an outage"),
    ]))]
    Requeue(Selector),
    /// Delete poisoned messages
    #[command(after_help = help::after(&[
        ("evenkeel poison discard 8f14e45f-ceea-467f-a3a2-1c5ab2d5c1a0 --yes", "one message, without asking"),
        ("evenkeel poison discard --all --reason undecodable", "asks first"),
    ]))]
    Discard(Discard),
}

/// Which messages are meant.
#[derive(Debug, Clone, Args)]
pub struct Selector {
    /// Only the poison queue of this queue
    #[arg(long, value_name = "NAME")]
    pub queue: Option<QueueName>,
    /// Only messages poisoned for this reason: exhausted, permanent, undecodable, expired or foreign
    #[arg(long, value_name = "REASON")]
    pub reason: Option<Reason>,
    /// All of them, or all with the reason given
    #[arg(long, conflicts_with = "ids")]
    pub all: bool,
    /// Message ids, on their own queue or on the poison queue, or the ids that clients gave their jobs
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
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
