//! The command line.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};

#[cfg(feature = "certify")]
use super::certify;
use super::exit::EXIT_CODES;
use super::migrate::MigrateAction;
use super::poison::PoisonAction;
use super::{
    audit, backfill, completions, config, demo, docs, doctor, erase, events, find, get, keys, logs,
    lookup, migrate, plan, poison, retention, run, sas, schema, stress, submit, sweep, wait,
};
use evenkeel_model::Key;

/// Keeps derived data in Azure Storage eventually consistent.
///
/// You declare archives, secondary indexes and copies in config/default.toml, and put a small message on a
/// queue when an entity changed. `evenkeel run` brings every copy back in step with its primary.
#[derive(Debug, Parser)]
#[command(name = "evenkeel", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Configuration folder (default.toml, PROFILE.toml, catalog/*.toml); default `config`, or built-in defaults if it is missing
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "EVENKEEL_CONFIG",
        hide_env_values = true
    )]
    pub config: Option<PathBuf>,
    /// Profile: NAME.toml overrides default.toml
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "EVENKEEL_PROFILE",
        hide_env_values = true
    )]
    pub profile: Option<String>,
    /// Override a setting, for example worker.lease=90s; repeatable
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Write results for machines: one JSON value, or one per line
    #[arg(long, global = true)]
    pub json: bool,
    /// Print progress lines even if standard error is not a terminal
    #[arg(long, global = true)]
    pub progress: bool,
    /// Log more (repeatable)
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Log less (repeatable)
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub quiet: u8,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Process the queues until stopped
    Run(run::RunArgs),
    /// Run a demo of evenkeel on a temporary store
    Demo(demo::DemoArgs),
    /// Check jobs and put them on a queue
    Submit(submit::SubmitArgs),
    /// Print one entity as JSON, with its EDM types
    Get(get::GetArgs),
    /// Wait until everything derived from an entity is in step with it
    Wait(wait::WaitArgs),
    /// Find an entity in its table or in its archive
    Find(find::FindArgs),
    /// Find entities by the values in the keys of a view
    Lookup(lookup::LookupArgs),
    /// Print the lines of a log archive in a time range
    Logs(logs::LogsArgs),
    /// Show what a sync of an entity would do now, without doing it
    Plan(plan::PlanArgs),
    /// Compare every item with its expected state; exit code 3 on drift
    Audit(audit::AuditArgs),
    /// Bring all items in step with their primaries
    Backfill(backfill::BackfillArgs),
    /// Delete the entities of a table by key range, condition or age, as a job
    DeleteWhere(sweep::DeleteWhereArgs),
    /// Archive entities by key range, condition or age, as a job
    ArchiveWhere(sweep::ArchiveWhereArgs),
    /// Remove an entity with its copies, archived versions, data key and messages
    Erase(erase::ErasureArgs),
    /// Create and drop dated tables and apply rules now, or show the effect
    Retention(retention::RetentionArgs),
    /// List, show, requeue and discard poisoned messages
    Poison(poison::PoisonArgs),
    /// Create missing tables, queues and containers, and record the catalog
    Migrate(migrate::MigrateArgs),
    /// Sign a shared access signature for an application
    Sas(sas::SasArgs),
    /// Count, rewrap and erase the data keys of encrypted properties, and encrypt plain values
    Keys(keys::KeysArgs),
    /// Check accounts, queues, catalog and workers; print problems and their remedies
    Doctor(doctor::DoctorArgs),
    /// Put load on one partition, then on several; compare with the target of a partition
    Stress(stress::StressArgs),
    /// Show which job an event becomes
    Events(events::EventsArgs),
    /// Test an account against the storage contract and under chaos, within a budget
    #[cfg(feature = "certify")]
    Certify(certify::CertifyArgs),
    /// Check the configuration, or show the values in force
    Config(config::ConfigArgs),
    /// Print the JSON Schema of a job
    Schema(schema::SchemaArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
    /// Print generated parts of the documentation
    #[command(hide = true)]
    Docs(docs::DocsArgs),
}

/// Properties of a command that determine how the program runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CommandTraits {
    /// Whether the command creates an embedded store that does not exist. Other commands do not,
    /// because they would find nothing in a new store. Even `submit` would lack its queue.
    pub(crate) creates_stores: bool,
    /// Whether the command only shows something, so that nothing is left undone if the reader
    /// closes the output.
    pub(crate) only_shows: bool,
    /// Whether an interrupted command ends by itself and reports what it has done so far.
    pub(crate) ends_in_order: bool,
    /// Whether warnings about the configuration are printed before the command begins.
    pub(crate) warnings: Warnings,
    /// Whether the log lines of the command's workers are shown.
    pub(crate) logs: WorkerLogs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Warnings {
    /// Warnings are printed, because the command puts a catalog into force.
    Printed,
    /// Warnings are not printed. The commands that put a catalog into force print them.
    #[default]
    Omitted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum WorkerLogs {
    /// Log lines are shown, as for every other command.
    #[default]
    Shown,
    /// Log lines are shown only with `-v`, because the command prints its own progress, or because
    /// the chaos causes many failures.
    IfVerbose,
}

impl Command {
    pub(crate) fn traits(&self) -> CommandTraits {
        let plain = CommandTraits::default();
        let shows = |only_shows| CommandTraits {
            only_shows,
            ..plain
        };
        let reports = CommandTraits {
            ends_in_order: true,
            ..plain
        };
        match self {
            Self::Run(_) => CommandTraits {
                creates_stores: true,
                ..plain
            },
            Self::Demo(args) => CommandTraits {
                creates_stores: true,
                logs: WorkerLogs::IfVerbose,
                ..shows(matches!(args.guide, Some(None)))
            },
            Self::Migrate(args) => CommandTraits {
                creates_stores: matches!(args.action, MigrateAction::Up(_)),
                warnings: Warnings::Printed,
                ..shows(matches!(args.action, MigrateAction::Status))
            },
            Self::Get(_)
            | Self::Find(_)
            | Self::Lookup(_)
            | Self::Logs(_)
            | Self::Plan(_)
            | Self::Schema(_)
            | Self::Completions(_)
            | Self::Docs(_)
            | Self::Sas(_) => shows(true),
            Self::Config(args) => shows(matches!(args.action, config::ConfigAction::Show)),
            Self::Keys(args) => shows(matches!(args.action, keys::KeysAction::List)),
            Self::DeleteWhere(args) => shows(args.which.dry_run),
            Self::ArchiveWhere(args) => shows(args.which.dry_run),
            Self::Retention(args) => shows(args.dry_run),
            Self::Poison(args) => CommandTraits {
                ends_in_order: true,
                ..shows(match args.action {
                    PoisonAction::List(_) | PoisonAction::Show(_) => true,
                    PoisonAction::Requeue(_) | PoisonAction::Discard(_) => false,
                })
            },
            Self::Backfill(_)
            | Self::Audit(_)
            | Self::Submit(_)
            | Self::Erase(_)
            | Self::Stress(_) => reports,
            #[cfg(feature = "certify")]
            Self::Certify(_) => CommandTraits {
                logs: WorkerLogs::IfVerbose,
                ..reports
            },
            Self::Wait(_) | Self::Doctor(_) | Self::Events(_) => plain,
        }
    }
}

pub(super) fn key(text: &str) -> Result<Key, String> {
    Key::new(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_dry_run_only_shows_what_the_command_would_change() {
        for command in [
            "delete-where Sessions --all",
            "archive-where past_bookings --all",
            "retention",
        ] {
            let shows = |more: &str| {
                Cli::try_parse_from(format!("evenkeel {command}{more}").split(' '))
                    .unwrap()
                    .command
                    .traits()
                    .only_shows
            };
            assert_eq!([shows(""), shows(" --dry-run")], [false, true], "{command}");
        }
    }

    #[test]
    fn a_command_that_removes_step_by_step_reports_its_progress_when_interrupted() {
        for command in [
            "erase Employees Sales 7 --yes",
            "poison discard --all --yes",
            "submit -",
        ] {
            assert!(
                Cli::try_parse_from(format!("evenkeel {command}").split(' '))
                    .unwrap()
                    .command
                    .traits()
                    .ends_in_order,
                "{command}"
            );
        }
    }

    #[test]
    fn the_help_of_every_command_has_examples_and_the_exit_codes() {
        fn visit(command: &clap::Command, path: &str) {
            for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
                let path = format!("{path} {}", sub.get_name());
                if sub.get_subcommands().next().is_none() {
                    let help = sub
                        .get_after_help()
                        .map(ToString::to_string)
                        .unwrap_or_default();
                    assert!(
                        help.contains("Examples:") && help.contains(EXIT_CODES),
                        "{path}"
                    );
                    assert!(
                        help.contains(&format!("{path} ")) || help.contains(&format!("{path}\n")),
                        "{path}: {help}"
                    );
                }
                visit(sub, &path);
            }
        }
        visit(&Cli::command(), "evenkeel");
    }
}
