use clap::{Args, Subcommand};

use super::{Exit, Format, Output, help};
use evenkeel_config::Request;

#[derive(Debug, Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub action: ConfigAction,
}

#[derive(Debug, Subcommand)]
pub enum ConfigAction {
    /// Report every mistake at once, each with file, line, key and the expected input; opens no store
    #[command(after_help = help::after(&[
        ("evenkeel config check", "exit code 2 if anything is wrong"),
        ("evenkeel --profile production config check --json", "the same as JSON, for another profile"),
    ]))]
    Check,
    /// Print every effective value and its source; secrets are hidden
    #[command(after_help = help::after(&[
        ("evenkeel config show", "as TOML, with the origin of each value as a comment"),
        ("evenkeel --set worker.lease=90s config show --json", "what a flag would change, as JSON"),
    ]))]
    Show,
}

pub fn config(args: &ConfigArgs, request: &Request, out: &mut Output) -> anyhow::Result<Exit> {
    let loaded = evenkeel_config::load(request);
    match (&args.action, out.format()) {
        (ConfigAction::Check, Format::Text) => out.line(evenkeel_config::check_text(&loaded))?,
        (ConfigAction::Check, Format::Json) => out.value(&evenkeel_config::check_json(&loaded))?,
        (ConfigAction::Show, format) => {
            let loaded = loaded?;
            match format {
                Format::Text => out.line(evenkeel_config::show_text(&loaded))?,
                Format::Json => out.value(&evenkeel_config::show_json(&loaded))?,
            }
            return Ok(Exit::Done);
        }
    }
    Ok(if loaded.is_ok() {
        Exit::Done
    } else {
        Exit::Usage
    })
}
