//! The report of a command that ends with an error, and its exit code.

use std::io;

use super::stores::StoreOpenError;
use crate::cli::advice::advice;
use crate::cli::exit::store_error;
use crate::cli::output::printable_lines;
use crate::cli::{Exit, Output, Tone};
use evenkeel_ops::logging::LoggingError;

/// Reports on standard error the failure, its causes, and the remedy.
///
/// A reader that has read enough (`| head`) is no failure of a command that only shows something. One that changes or judges something ends
/// with it: the rest was not done, and drift that was found may be told by the exit code alone.
pub(super) fn report(mut error: anyhow::Error, only_shows: bool, out: &mut Output) -> Exit {
    if closed_pipe(&error) {
        if only_shows {
            return Exit::Done;
        }
        error = error.context("the reader of the output has ended, and so did the command: it was not done, or not told, in full");
    }
    // Where standard error is closed as well there is no reader.
    let _ = say(&error, out);
    exit(&error)
}

fn say(error: &anyhow::Error, out: &mut Output) -> io::Result<()> {
    let label = out.aside_tone(Tone::Bad, "error");
    // Messages may span lines of our own making; text from outside was escaped where it was taken in.
    out.complain(format_args!("{label}: {error}"))?;
    for cause in error.chain().skip(1) {
        out.complain(format_args!(
            "  caused by: {}",
            printable_lines(&cause.to_string())
        ))?;
    }
    if let Some(advice) = advice(error) {
        let label = out.aside_tone(Tone::Warning, "hint");
        out.complain(format_args!("{label}: {advice}"))?;
    }
    out.flush()
}

fn exit(error: &anyhow::Error) -> Exit {
    if let Some(LoggingError::Filter { .. } | LoggingError::Own(_)) = error.downcast_ref() {
        return Exit::Usage;
    }
    match error.downcast_ref::<StoreOpenError>() {
        Some(
            StoreOpenError::Settings { .. }
            | StoreOpenError::Sink { .. }
            | StoreOpenError::Encryption(_),
        ) => Exit::Usage,
        #[cfg(not(feature = "sqlite"))]
        Some(StoreOpenError::NoEmbedded(_)) => Exit::Usage,
        #[cfg(feature = "sqlite")]
        Some(StoreOpenError::Embedded { .. }) => Exit::Unreachable,
        Some(StoreOpenError::Connect { .. }) => Exit::Unreachable,
        None => Exit::of(error),
    }
}

/// Whether the output could not be written. A connection to a store breaks in the same words.
fn closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .take_while(|&cause| store_error(cause).is_none())
        .any(|cause| {
            let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
            let json = cause
                .downcast_ref::<serde_json::Error>()
                .and_then(serde_json::Error::io_error_kind);
            kind.or(json) == Some(io::ErrorKind::BrokenPipe)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Format;
    use crate::cli::output::tests::Paper;
    use evenkeel_model::AccountName;
    use evenkeel_storage::{ErrorClass, Service, StoreError, Subject, What};

    fn reported(error: impl Into<anyhow::Error>, only_shows: bool) -> (Exit, String) {
        let paper = Paper::default();
        let exit = report(
            error.into(),
            only_shows,
            &mut Output::to(Box::new(io::sink()), Box::new(paper.clone()), Format::Text),
        );
        (exit, paper.text())
    }

    fn closed() -> io::Error {
        io::ErrorKind::BrokenPipe.into()
    }

    #[test]
    fn a_reader_that_has_read_enough_ends_a_command_that_only_shows_and_fails_any_other() {
        assert_eq!(reported(closed(), true), (Exit::Done, String::new()));
        let (exit, said) = reported(
            anyhow::Error::new(closed()).context("3 jobs sent before this"),
            false,
        );
        assert_eq!(exit, Exit::Failed);
        assert!(
            said.starts_with("error: the reader of the output has ended")
                && said.contains("3 jobs sent before this"),
            "{said}"
        );
    }

    #[test]
    fn a_connection_to_a_store_that_broke_is_no_reader_that_has_read_enough() {
        let subject = Subject {
            account: AccountName::main(),
            what: What::Service(Service::Table),
        };
        let store = StoreError::new(ErrorClass::Ambiguous, "Query Tables", subject, "no answer");
        let (exit, said) = reported(
            StoreError {
                cause: Some(closed().into()),
                ..store
            },
            true,
        );
        assert_eq!(exit, Exit::Unreachable);
        assert!(said.starts_with("error: Query Tables"), "{said}");
    }
}
