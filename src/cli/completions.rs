use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::{Cli, Exit, Output, help};

#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel completions bash > /etc/bash_completion.d/evenkeel", "installs it for every user of Bash"),
    ("evenkeel completions zsh > \"${fpath[1]}/_evenkeel\"", "installs it for Zsh"),
]))]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

pub fn completions(args: &CompletionsArgs, out: &mut Output) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "evenkeel", &mut script);
    out.text(String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
