//! Exit codes, which are a contract with scripts.

use std::error::Error;
use std::fmt::Display;
use std::process::ExitCode;

use evenkeel_client::ClientError;
use evenkeel_config::ConfigErrors;
use evenkeel_engine::{Failure, FailureClass};
use evenkeel_model::AccountName;
use evenkeel_rollout::CatalogNotRecorded;
use evenkeel_rollout::migrations::MigrationError;
use evenkeel_storage::{ErrorClass, StoreError};
use evenkeel_worker::WorkerError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Exit code 0: the command did what it was asked to do.
    Done,
    /// Exit code 1: the command or a part of it failed.
    Failed,
    /// Exit code 2: the command line or the configuration is wrong, and nothing was started.
    Usage,
    /// Exit code 3: derived data differs from its expected state.
    Drift,
    /// Exit code 4: the store cannot be reached, or refuses the credentials.
    Unreachable,
    /// Exit code 5: the configured catalog is not the recorded one.
    Outdated,
    /// Exit code 6: a worker finishes the rest later.
    Unfinished,
    /// Exit code 130: the command was interrupted. Shells report SIGINT with the same code.
    Interrupted,
}

/// The end of every command's help.
pub const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 drift found, 4 store unreachable, 5 another catalog is recorded, \
                              6 a worker does the rest, 130 interrupted.";

impl Exit {
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Drift => 3,
            Self::Unreachable => 4,
            Self::Outdated => 5,
            Self::Unfinished => 6,
            Self::Interrupted => 130,
        }
    }

    /// The exit code for an error. The first error in its chain that has an exit code decides.
    pub fn of(error: &anyhow::Error) -> Self {
        for cause in error.chain() {
            if cause.is::<UsageError>() || cause.is::<AbsentStore>() || cause.is::<ConfigErrors>() {
                return Self::Usage;
            }
            if cause.is::<CatalogNotRecorded>() {
                return Self::Outdated;
            }
            if let Some(store) = store_error(cause) {
                return Self::of_store(store);
            }
            match cause.downcast_ref() {
                Some(MigrationError::SourceChanged(_) | MigrationError::SourceRespelled(_)) => {
                    return Self::Usage;
                }
                Some(
                    MigrationError::NeedsConsent(_)
                    | MigrationError::Losses(_)
                    | MigrationError::Unrecorded
                    | MigrationError::OtherDeclarations(_),
                ) => return Self::Outdated,
                Some(_) | None => {}
            }
            if let Some(Failure {
                class: FailureClass::OutdatedCatalog,
                ..
            }) = cause.downcast_ref()
            {
                return Self::Outdated;
            }
            if let Some(WorkerError::OutdatedCatalog) = cause.downcast_ref() {
                return Self::Outdated;
            }
        }
        Self::Failed
    }

    fn of_store(error: &StoreError) -> Self {
        let unreachable = error.class.is_transient() || error.class == ErrorClass::Unauthorised;
        if unreachable {
            Self::Unreachable
        } else {
            Self::Failed
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Returns the store error, boxed or not, if this cause is one.
pub(crate) fn store_error<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a StoreError> {
    cause
        .downcast_ref::<StoreError>()
        .or_else(|| cause.downcast_ref::<Box<StoreError>>().map(AsRef::as_ref))
}

/// The error for arguments that are invalid or do not fit the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

impl UsageError {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn of(error: impl Display) -> Self {
        Self(error.to_string())
    }
}

/// The error for an embedded store that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the store {path} of [accounts.{account}] does not exist; nothing was created")]
pub struct AbsentStore {
    pub account: AccountName,
    pub path: String,
}

/// Converts an error of the client. If the client was misused, the command was misused too.
pub(super) fn client_error(error: ClientError) -> anyhow::Error {
    if error.is_misuse() {
        UsageError::of(error).into()
    } else {
        error.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;
    use evenkeel_storage::{Missing, Resource, Service, Subject};

    fn store(class: ErrorClass) -> StoreError {
        let subject = Subject {
            account: AccountName::main(),
            resource: Resource::Service(Service::Table),
        };
        StoreError::new(class, "Query Tables", subject, "no answer")
    }

    #[test]
    fn the_cause_decides_at_any_depth() {
        let refused = Err::<(), _>(store(ErrorClass::Refused))
            .context("reading")
            .context("plan")
            .unwrap_err();
        assert_eq!(Exit::of(&refused), Exit::Unreachable);
        let absent = anyhow::Error::new(store(ErrorClass::NotFound(Missing::Container)));
        assert_eq!(Exit::of(&absent), Exit::Failed);
        let migration = MigrationError::Store {
            action: "list the tables".to_owned(),
            source: Box::new(store(ErrorClass::Unauthorised)),
        };
        assert_eq!(Exit::of(&migration.into()), Exit::Unreachable);
        assert_eq!(
            Exit::of(&MigrationError::NeedsConsent(Vec::new()).into()),
            Exit::Outdated
        );
        assert_eq!(
            Exit::of(&MigrationError::Losses(Vec::new()).into()),
            Exit::Outdated
        );
        assert_eq!(
            Exit::of(&WorkerError::OutdatedCatalog.into()),
            Exit::Outdated
        );
        let outdated = Failure::new(
            FailureClass::OutdatedCatalog,
            "closing a footprint",
            "another catalog is recorded",
        );
        assert_eq!(
            Exit::of(&anyhow::Error::new(outdated).context("backfill")),
            Exit::Outdated
        );
        let usage = Err::<(), _>(UsageError::new("no"))
            .context("lookup")
            .unwrap_err();
        assert_eq!(Exit::of(&usage), Exit::Usage);
        assert_eq!(Exit::of(&anyhow::anyhow!("anything else")), Exit::Failed);
    }
}
