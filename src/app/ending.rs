//! Reports the error with which a command ended, and determines its exit code.

use std::io;

use super::stores::StoreOpenError;
use crate::cli::advice::advice;
use crate::cli::exit::store_error;
use crate::cli::output::printable_lines;
use crate::cli::{Exit, Output, Tone};
use evenkeel_ops::logging::LoggingError;

/// Reports a failure, its causes and the remedy on standard error.
///
/// If the reader closes the output early (`| head`), a command that only shows something succeeds.
/// Any other command fails, because its remaining work was not done, and because some commands
/// report drift only by the exit code.
pub(super) fn report(mut error: anyhow::Error, only_shows: bool, out: &mut Output) -> Exit {
    if closed_pipe(&error) {
        if only_shows {
            return Exit::Done;
        }
        error = error.context("the reader closed the output, so the command ended early or printed only a part of the result");
    }
    // If standard error is closed too, nobody reads the report.
    let _ = write_failure(&error, out);
    exit(&error)
}

fn write_failure(error: &anyhow::Error, out: &mut Output) -> io::Result<()> {
    let label = out.note_tone(Tone::Bad, "error");
    // The error is printed as it is. If it has several lines, the program wrote them: text from
    // outside was escaped when it was read.
    out.write_error(format_args!("{label}: {error}"))?;
    for cause in error.chain().skip(1) {
        out.write_error(format_args!(
            "  caused by: {}",
            printable_lines(&cause.to_string())
        ))?;
    }
    if let Some(advice) = advice(error) {
        let label = out.note_tone(Tone::Warning, "hint");
        out.write_error(format_args!("{label}: {advice}"))?;
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

/// Whether the output could not be written because its reader closed it. A broken connection to a
/// store has the same `io::ErrorKind`, so causes of a store error are skipped.
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
    use crate::cli::output::tests::TextBuffer;
    use evenkeel_model::AccountName;
    use evenkeel_storage::{ErrorClass, Resource, Service, StoreError, Subject};

    fn reported(error: impl Into<anyhow::Error>, only_shows: bool) -> (Exit, String) {
        let buffer = TextBuffer::default();
        let exit = report(
            error.into(),
            only_shows,
            &mut Output::to(Box::new(io::sink()), Box::new(buffer.clone()), Format::Text),
        );
        (exit, buffer.text())
    }

    fn closed() -> io::Error {
        io::ErrorKind::BrokenPipe.into()
    }

    #[test]
    fn a_closed_pipe_ends_a_command_that_only_shows_and_fails_any_other() {
        assert_eq!(reported(closed(), true), (Exit::Done, String::new()));
        let (exit, text) = reported(
            anyhow::Error::new(closed()).context("3 jobs sent before this"),
            false,
        );
        assert_eq!(exit, Exit::Failed);
        assert!(
            text.starts_with("error: the reader closed the output")
                && text.contains("3 jobs sent before this"),
            "{text}"
        );
    }

    #[test]
    fn a_broken_connection_to_a_store_is_not_a_closed_pipe() {
        let subject = Subject {
            account: AccountName::main(),
            resource: Resource::Service(Service::Table),
        };
        let store = StoreError::new(ErrorClass::Ambiguous, "Query Tables", subject, "no answer");
        let (exit, text) = reported(
            StoreError {
                cause: Some(closed().into()),
                ..store
            },
            true,
        );
        assert_eq!(exit, Exit::Unreachable);
        assert!(text.starts_with("error: Query Tables"), "{text}");
    }
}
