use std::fmt::Display;
use std::time::Duration;

use super::{DeclarationChange, ViewChange};
use evenkeel_model::ViewName;
use evenkeel_model::catalog::Source;
use evenkeel_model::patterns::sample::ViewSample;
use evenkeel_model::stored::FormatError;
use evenkeel_storage::stores::{UnknownAccount, UnknownSink};
use evenkeel_storage::{ErrorClass, StoreError};

#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    #[error("could not {action}")]
    Store {
        action: String,
        #[source]
        source: Box<StoreError>,
    },
    #[error("the catalog needs an account that is not configured")]
    Account(#[from] UnknownAccount),
    #[error("the catalog needs a sink that is not configured")]
    Sink(#[from] UnknownSink),
    /// A migration file cannot be read. The files are compiled in and a test reads them all, so
    /// this is a bug.
    #[error("could not read the migration {file}: {problem}")]
    File { file: String, problem: String },
    /// A row of EvenkeelMigrations has a format version that this program does not know.
    #[error(transparent)]
    Version(FormatError),
    #[error("could not read row {row} of EvenkeelMigrations in account {account}: {problem}")]
    Record {
        account: String,
        row: String,
        problem: String,
    },
    #[error(transparent)]
    SourceChanged(Box<SourceChanged>),
    #[error(transparent)]
    SourceRespelled(Box<SourceRespelled>),
    #[error(
        "recording the configured catalog would retire or replace views:{}\n\
         If that is intended, run `evenkeel migrate up --retire`. If the configuration is outdated or another application's ([migrate] owner), \
         use the right one.",
        listed(.0)
    )]
    NeedsConsent(Vec<ViewChange>),
    #[error(
        "recording the configured catalog would lose items of views:{}\n\
         Nothing was recorded. Check for a misspelt name or an outdated configuration. If the loss is intended, run \
         `evenkeel migrate up --retire{}`.",
        listed(.0),
        acceptance(.0)
    )]
    Losses(Vec<ViewSample>),
    #[error(
        "views have items in accounts that are no longer configured, and jobs about these items would fail for good:{}\n\
         Nothing was recorded. If a storage account no longer exists, configure an empty one under its name.",
        listed(.0)
    )]
    LeftBehind(Vec<ViewChange>),
    #[error("the configured catalog is not recorded. Run `evenkeel migrate up` first")]
    Unrecorded,
    #[error(
        "archives, retentions or rules differ from the recorded ones, so the wrong entities could be removed:{}\n\
         If this configuration is outdated or another application's ([migrate] owner), use the right one. If it is newer, run \
         `evenkeel migrate up` first.",
        listed(.0)
    )]
    OtherDeclarations(Vec<DeclarationChange>),
    #[error(
        "other processes kept changing the migration record (attempts: {0}). Try again when they are done"
    )]
    Contended(u32),
}

/// The command-line options that accept the losses of these views.
pub fn acceptance<'s>(losses: impl IntoIterator<Item = &'s ViewSample>) -> String {
    losses.into_iter().fold(String::new(), |text, sample| {
        text + " --accept-loss " + sample.view.as_str()
    })
}

fn listed(changes: &[impl Display]) -> String {
    changes
        .iter()
        .fold(String::new(), |text, change| format!("{text}\n  {change}"))
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "view {view} had the source {recorded} and now has {declared}. A view cannot change its source: give it another name, and the old view is retired"
)]
pub struct SourceChanged {
    pub view: ViewName,
    pub recorded: Source,
    pub declared: Source,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the table {recorded} is now spelled {declared}, but its footprints and range overlays are stored under {recorded}. Write {recorded} in the configuration"
)]
pub struct SourceRespelled {
    pub recorded: Source,
    pub declared: Source,
}

impl MigrationError {
    pub(super) fn store(action: impl Into<String>) -> impl FnOnce(StoreError) -> Self {
        let action = action.into();
        move |source| Self::Store {
            action,
            source: Box::new(source),
        }
    }

    /// How long the store asks to wait, usually because it is still deleting a resource of the same
    /// name; `None` for any other error.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Store { source, .. } => source.class.slow_subject_wait(),
            Self::Contended(_)
            | Self::Account(_)
            | Self::Sink(_)
            | Self::File { .. }
            | Self::Version(_)
            | Self::Record { .. }
            | Self::SourceChanged(_)
            | Self::NeedsConsent(_)
            | Self::Losses(_)
            | Self::LeftBehind(_)
            | Self::Unrecorded
            | Self::OtherDeclarations(_)
            | Self::SourceRespelled(_) => None,
        }
    }

    /// Whether the store could not be reached or does not work yet. It may still be starting.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Store { source, .. } if matches!(source.class, ErrorClass::Refused | ErrorClass::Transient { .. } | ErrorClass::Ambiguous))
    }

    pub fn is_transient(&self) -> bool {
        match self {
            Self::Store { source, .. } => source.class.is_transient(),
            Self::Contended(_) => true,
            Self::Account(_)
            | Self::Sink(_)
            | Self::File { .. }
            | Self::Version(_)
            | Self::Record { .. }
            | Self::SourceChanged(_)
            | Self::SourceRespelled(_)
            | Self::Unrecorded
            | Self::OtherDeclarations(_)
            | Self::NeedsConsent(_)
            | Self::Losses(_)
            | Self::LeftBehind(_) => false,
        }
    }
}
