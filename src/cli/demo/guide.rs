//! `evenkeel demo --guide`: the worked examples of the table design guide, each with a catalog and a user's commands.
//!
//! An example is a folder in `examples/guide` with `catalog.toml` and `steps.sh`. The script also
//! runs in any shell. Here it runs on an embedded store in a temporary folder, and each command is
//! a separate process.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde::Serialize;
use serde_json::json;

use super::steps::{self, GuideStep};
use crate::cli::output::printable;
use crate::cli::{Exit, Format, Output, Tone, UsageError};

#[derive(Debug, Clone, Copy)]
pub struct GuideExample {
    pub name: &'static str,
    pub catalog: &'static str,
    pub script: &'static str,
}

macro_rules! examples {
    ($($name:literal)+) => {
        &[$(GuideExample {
            name: $name,
            catalog: include_str!(concat!("../../../examples/guide/", $name, "/catalog.toml")),
            script: include_str!(concat!("../../../examples/guide/", $name, "/steps.sh")),
        }),+]
    };
}

/// The examples, in the order of the guide.
pub const GUIDE_EXAMPLES: &[GuideExample] = examples! {
    "employees-and-departments"
    "people"
    "employees-by-email"
    "employees-by-email-elsewhere"
    "race-registrations"
    "debit-and-credit"
    "orders"
    "former-employees"
    "employees-into-blobs"
    "change-of-department"
    "index-entities-in-blobs"
    "index-entities-in-the-partition"
    "index-entities-in-a-table"
    "department-manager"
    "department-on-employees"
    "department-among-its-employees"
    "department-page"
    "employee-reviews"
    "expense-claims"
    "logins-by-day"
    "message-counts"
    "survey-answers"
    "employee-resume"
    "spread-events"
    "web-log"
};

const ACCOUNT: &str = "[accounts.main]\nkind = \"embedded\"\npath = \"store.db\"\n";
/// Maximum number of characters of a command that is shown in full.
const SHOWN: usize = 400;

impl GuideExample {
    /// The title of the example, which is the first comment of its script.
    pub fn title(&self) -> &'static str {
        self.script
            .lines()
            .find_map(|line| line.strip_prefix("# "))
            .unwrap_or_default()
    }

    /// The commands of the example. `day` (`%Y%m%d`) replaces `$DAY`.
    pub fn steps(&self, day: &str) -> anyhow::Result<Vec<GuideStep>> {
        steps::parse(self.script, day)
            .with_context(|| format!("could not read the steps of {}", self.name))
    }
}

#[derive(Debug, Serialize)]
struct StepRun<'a> {
    command: &'a str,
    exit_code: i32,
    stdout: String,
    stderr: String,
}

pub fn list_examples(out: &mut Output) -> anyhow::Result<Exit> {
    if out.format() == Format::Json {
        for example in GUIDE_EXAMPLES {
            out.value(&json!({"example": example.name, "title": example.title()}))?;
        }
        return Ok(Exit::Done);
    }
    let rows: Vec<[String; 2]> = GUIDE_EXAMPLES
        .iter()
        .map(|example| [example.name.to_owned(), example.title().to_owned()])
        .collect();
    out.columns(["EXAMPLE", "SHOWS"], &rows)?;
    out.write_note("\nevenkeel demo --guide EXAMPLE runs one")?;
    Ok(Exit::Done)
}

/// Runs an example in an empty folder. `day` (`%Y%m%d`) replaces `$DAY`. Returns an error if a
/// command fails.
pub fn run_example(name: &str, folder: &Path, day: &str, out: &mut Output) -> anyhow::Result<Exit> {
    let Some(example) = GUIDE_EXAMPLES.iter().find(|example| example.name == name) else {
        return Err(UsageError::new(format!(
            "there is no example {name:?}; `evenkeel demo --guide` lists them"
        ))
        .into());
    };
    prepare(example, folder)?;
    let program = std::env::current_exe().context("could not find this program")?;
    if out.format() == Format::Text {
        let title = out.tone(Tone::Strong, example.title());
        out.line(title)?;
        out.line(format_args!("\n{}", example.catalog))?;
    }
    let steps = example.steps(day)?;
    for step in &steps {
        let ended = command(&program, folder, step)?;
        let failed = ended.exit_code != 0;
        show(step, &ended, out)?;
        if failed {
            bail!(
                "the command ended with exit code {}: {}",
                ended.exit_code,
                cut(&step.text)
            );
        }
    }
    if out.format() == Format::Json {
        out.value(&json!({"example": name, "steps": steps.len()}))?;
    }
    Ok(Exit::Done)
}

/// Writes the configuration of an example in the same way as a user would.
fn prepare(example: &GuideExample, folder: &Path) -> anyhow::Result<()> {
    let catalog = folder.join("config/catalog");
    std::fs::create_dir_all(&catalog)
        .with_context(|| format!("could not create {}", catalog.display()))?;
    for (file, text) in [
        (folder.join("config/default.toml"), ACCOUNT),
        (catalog.join("guide.toml"), example.catalog),
    ] {
        std::fs::write(&file, text)
            .with_context(|| format!("could not write {}", file.display()))?;
    }
    Ok(())
}

/// Runs one command. Its environment has none of evenkeel's variables, because these may name real
/// stores.
fn command<'s>(program: &Path, folder: &Path, step: &'s GuideStep) -> anyhow::Result<StepRun<'s>> {
    let mut command = Command::new(program);
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("EVENKEEL"))
    {
        command.env_remove(name);
    }
    command
        .args(&step.arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut process = command
        .spawn()
        .with_context(|| format!("could not start {}", program.display()))?;
    if let Some(mut input) = process.stdin.take() {
        // If a command reads no input and has ended, this write fails. That is not an error.
        let _ = input.write_all(step.input.as_bytes());
    }
    let ended = process
        .wait_with_output()
        .context("could not wait for the command")?;
    Ok(StepRun {
        command: &step.text,
        exit_code: ended.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&ended.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&ended.stderr).into_owned(),
    })
}

fn show(step: &GuideStep, ended: &StepRun<'_>, out: &mut Output) -> anyhow::Result<()> {
    if out.format() == Format::Json {
        out.value(ended)?;
        return Ok(());
    }
    let mut comments = String::new();
    for comment in &step.comments {
        let _ = writeln!(
            comments,
            "{}",
            out.tone(Tone::Faint, format_args!("# {comment}"))
        );
    }
    let prompt = out.tone(Tone::Strong, format_args!("$ {}", cut(&step.text)));
    out.line(format_args!("{comments}{prompt}"))?;
    for line in step.input.lines() {
        let line = out.tone(Tone::Faint, cut(line));
        out.line(line)?;
    }
    for line in ended.stdout.lines().chain(ended.stderr.lines()) {
        out.line(printable(line))?;
    }
    out.line("")?;
    Ok(())
}

fn cut(text: &str) -> String {
    if text.chars().count() <= SHOWN {
        text.to_owned()
    } else {
        text.chars().take(SHOWN).chain(['…']).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_has_a_title_and_commands_of_this_program() {
        for example in GUIDE_EXAMPLES {
            assert!(!example.title().is_empty(), "{}", example.name);
            let steps = example.steps("20261120").unwrap();
            assert!(steps.len() >= 4, "{}: {} steps", example.name, steps.len());
            for step in steps {
                assert!(
                    !step.arguments.is_empty(),
                    "{}: {}",
                    example.name,
                    step.text
                );
            }
        }
    }
}
