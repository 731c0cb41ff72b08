use clap::Args;

use crate::cli::help;

#[derive(Debug, Clone, Args)]
#[command(after_help = help::after(&[
    ("evenkeel demo --once", "runs every step and exits, with 1 if a check fails"),
    ("evenkeel demo", "the same, then serves the dashboard, health and metrics until Ctrl-C"),
    ("evenkeel demo --guide", "lists the worked examples of the table design guide"),
    ("evenkeel demo --guide employees-by-email", "runs one, and prints its catalog and each command with its output"),
]))]
pub struct DemoArgs {
    /// Exit after the last step
    #[arg(long)]
    pub once: bool,
    /// Run a worked example of Azure's table design guide, on an embedded store in a temporary folder; without a name, list them
    #[arg(long, value_name = "EXAMPLE", num_args = 0..=1, conflicts_with = "once")]
    pub guide: Option<Option<String>>,
}
