//! The arguments.

use clap::Args;

use crate::cli::help;

/// Arguments of `demo`.
#[derive(Debug, Clone, Args)]
#[command(after_help = help::after(&[
    ("evenkeel demo --once", "tells the story and exits; 1 where a check does not hold"),
    ("evenkeel demo", "the same, then runs on with health and metrics until Ctrl-C"),
]))]
pub struct DemoArgs {
    /// Exit at the end of the story
    #[arg(long)]
    pub once: bool,
}
