//! `evenkeel docs` (hidden) prints the generated parts of the documentation, so that they can be checked.

use std::fmt::Write as _;

use clap::{Args, CommandFactory as _, Subcommand};

use super::{Cli, Exit, Output};

#[derive(Debug, Args)]
pub struct DocsArgs {
    #[command(subcommand)]
    pub part: DocsPart,
}

#[derive(Debug, Subcommand)]
pub enum DocsPart {
    /// The help of every command, as Markdown: the second part of docs/cli.md
    Cli,
    /// The OpenAPI document: docs/openapi.json
    Openapi,
}

/// Everything after this line of docs/cli.md is generated.
pub const MARKER: &str =
    "<!-- Generated from here on by `evenkeel docs cli`; checked by scripts/check-generated. -->";

pub fn docs(args: &DocsArgs, out: &mut Output) -> anyhow::Result<Exit> {
    match args.part {
        DocsPart::Cli => out.text(cli())?,
        DocsPart::Openapi => {
            out.text(format_args!(
                "{:#}\n",
                evenkeel_ops::api::openapi::openapi()
            ))?;
        }
    }
    Ok(Exit::Done)
}

fn cli() -> String {
    let mut text = format!("{MARKER}\n");
    let mut command = Cli::command().term_width(100);
    command.build();
    section(&mut text, &mut command, "evenkeel");
    text
}

fn section(text: &mut String, command: &mut clap::Command, path: &str) {
    if path.contains(' ') {
        // Global options are listed in the first section only.
        *command = std::mem::take(command).mut_args(|arg| {
            if arg.is_global_set() || arg.get_id() == "help" {
                arg.hide(true)
            } else {
                arg
            }
        });
    }
    let help = command.render_long_help().to_string();
    let shown = if path.contains(' ') {
        help.split("\nExit codes: ").next()
    } else {
        None
    };
    let help: Vec<&str> = shown.unwrap_or(&help).lines().map(str::trim_end).collect();
    let _ = write!(
        text,
        "\n## {path}\n\n```text\n{}\n```\n",
        help.join("\n").trim_end()
    );
    let names: Vec<String> = command
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
        .map(|sub| sub.get_name().to_owned())
        .collect();
    for name in names {
        if let Some(sub) = command.find_subcommand_mut(&name) {
            section(text, sub, &format!("{path} {name}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_visible_command_has_a_section() {
        let text = cli();
        for command in [
            "evenkeel",
            "evenkeel run",
            "evenkeel submit",
            "evenkeel migrate up",
        ] {
            assert!(text.contains(&format!("\n## {command}\n")), "{command}");
        }
        assert!(!text.contains("## evenkeel docs"));
        assert!(!text.contains('\u{1b}'));
    }
}
