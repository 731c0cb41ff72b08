//! Why a migration cannot be read, planned or carried out.

use std::fmt::Display;
use std::time::Duration;

use super::{DeclarationChange, ViewChange};
use evenkeel_model::ViewName;
use evenkeel_model::catalog::Source;
use evenkeel_model::patterns::sample::ViewSample;
use evenkeel_model::stored::FormatError;
use evenkeel_storage::stores::{UnknownAccount, UnknownSink};
use evenkeel_storage::{ErrorClass, StoreError};

/// Why a migration cannot be read, planned or carried out.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// The store did not do its part.
    #[error("{doing}")]
    Store {
        /// The step that failed, in words.
        doing: String,
        /// Why it failed.
        #[source]
        source: Box<StoreError>,
    },
    /// The catalog names an account that is not configured.
    #[error("an account cannot be found")]
    Account(#[from] UnknownAccount),
    /// The catalog names a sink that is not configured.
    #[error("a sink cannot be found")]
    Sink(#[from] UnknownSink),
    /// A numbered file that was compiled in cannot be read. A bug: a test reads them all.
    #[error("the migration {file} cannot be read: {problem}")]
    File {
        /// The file.
        file: String,
        /// The problem.
        problem: String,
    },
    /// A row of EvenkeelMigrations of another version.
    #[error(transparent)]
    Version(FormatError),
    /// A row of EvenkeelMigrations in a form that this program does not write.
    #[error("the row {row} of EvenkeelMigrations in account {account} cannot be read: {problem}")]
    Record {
        /// The account.
        account: String,
        /// The row's key.
        row: String,
        /// The problem.
        problem: String,
    },
    /// A view kept its name and got another source.
    #[error(transparent)]
    SourceChanged(Box<SourceChanged>),
    /// A source, or a table of a range, is spelled otherwise than it was.
    #[error(transparent)]
    SourceRespelled(Box<SourceRespelled>),
    /// Views would be retired or replaced, without consent.
    #[error(
        "the recorded catalog is not the configured one, and to record this one would retire or replace views:{}\n\
         `evenkeel migrate up --retire` does so; where the configuration is an old one, or another application's ([migrate] owner), \
         mend that instead",
        listed(.0)
    )]
    NeedsConsent(Vec<ViewChange>),
    /// Items of changed views would be lost, which was not accepted.
    #[error(
        "to record the catalog as it is configured would lose items of views:{}\n\
         Nothing was recorded. Where a name is misspelt, or the configuration is an old one, mend that; where the loss is meant, `evenkeel migrate up --retire{}` does it",
        listed(.0),
        acceptance(.0)
    )]
    Losses(Vec<ViewSample>),
    /// Items of views would be left in accounts that are not configured.
    #[error(
        "items of views lie in accounts that are not configured any more, and jobs that meet one there fail for good:{}\n\
         Nothing was recorded. Where a storage account itself is gone, configure an empty one under its name",
        listed(.0)
    )]
    LeftBehind(Vec<ViewChange>),
    /// Another catalog was recorded while a worker ran.
    #[error(
        "generation {recorded} of the catalog was recorded meanwhile, and the configuration of this worker is another one: give it the newer \
         configuration, or run `evenkeel migrate up --retire` where the recorded one is the mistake"
    )]
    Outdated {
        /// The generation that is recorded.
        recorded: u32,
    },
    /// Views of the configured catalog are not recorded yet.
    #[error("the catalog is not recorded as it is configured: run `evenkeel migrate up` before")]
    Unrecorded,
    /// Archives, retentions or rules are recorded otherwise than they are configured.
    #[error(
        "archives, retentions or rules are not the recorded ones, and what is removed by others is gone, or left behind:{}\n\
         Where this configuration is an old one, or another application's ([migrate] owner), take the right one; where it is the newer one, run \
         `evenkeel migrate up` before",
        listed(.0)
    )]
    OtherDeclarations(Vec<DeclarationChange>),
    /// Other processes kept changing the record.
    #[error(
        "other processes changed the record of migrations {0} times while this one was at it: try again when they are done"
    )]
    Contended(u32),
}

/// The options that accept these losses.
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

/// A view kept its name and got another source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the view {view} had the source {recorded} and now has {declared}: what was derived from {recorded} could no longer be told apart; \
     give the view another name, and the old one is retired"
)]
pub struct SourceChanged {
    /// The view.
    pub view: ViewName,
    /// The recorded source.
    pub recorded: Source,
    /// The source that the catalog declares now.
    pub declared: Source,
}

/// A source, or a table of a range, is spelled otherwise than it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the table {recorded} is now spelled {declared}: what its entities own, or are told by others, is recorded under {recorded}, and would \
     not be found under another spelling; write {recorded} in the configuration"
)]
pub struct SourceRespelled {
    /// As it was recorded.
    pub recorded: Source,
    /// As the catalog spells it now.
    pub declared: Source,
}

impl MigrationError {
    /// For `map_err`: a store's failure while doing something.
    pub(super) fn store(doing: impl Into<String>) -> impl FnOnce(StoreError) -> Self {
        let doing = doing.into();
        move |source| Self::Store {
            doing,
            source: Box::new(source),
        }
    }

    /// How long to wait for a deletion in progress on the service; `None` for any other error.
    pub(super) fn asks_to_wait(&self) -> Option<Duration> {
        match self {
            Self::Store { source, .. } => source.class.takes_its_time(),
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
            | Self::Outdated { .. }
            | Self::Unrecorded
            | Self::OtherDeclarations(_)
            | Self::SourceRespelled(_) => None,
        }
    }

    /// Whether the store was not reached, or was as a whole not at work: it may only be starting.
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Self::Store { source, .. } if matches!(source.class, ErrorClass::Refused | ErrorClass::Transient { .. } | ErrorClass::Ambiguous))
    }

    /// Whether the store is at fault, and a later try may succeed.
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
            | Self::Outdated { .. }
            | Self::Unrecorded
            | Self::OtherDeclarations(_)
            | Self::NeedsConsent(_)
            | Self::Losses(_)
            | Self::LeftBehind(_) => false,
        }
    }
}
