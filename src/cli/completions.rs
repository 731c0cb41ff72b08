//! `evenkeel completions`

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::{Cli, Exit, Output, help};

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel completions bash > /etc/bash_completion.d/evenkeel", "for every user of Bash"),
    ("evenkeel completions zsh > \"${fpath[1]}/_evenkeel\"", "for Zsh"),
]))]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Prints the completion script of a shell.
pub fn completions(args: &CompletionsArgs, out: &mut Output) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "evenkeel", &mut script);
    out.text(String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
