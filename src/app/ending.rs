//! The report of a command that ends with an error, and its exit code.

use std::io;

use super::stores::StoreOpenError;
use crate::cli::advice::advice;
use crate::cli::output::printable;
use crate::cli::{Exit, Output, Tone};
use crate::telemetry::LoggingError;

/// Reports on standard error the failure, its causes, and the remedy.
pub(super) fn report(error: &anyhow::Error, out: &mut Output) -> Exit {
    if closed_pipe(error) {
        // The reader of the results has read enough (`| head`).
        return Exit::Done;
    }
    // Where standard error is closed as well there is no reader.
    let _ = say(error, out);
    exit(error)
}

fn say(error: &anyhow::Error, out: &mut Output) -> io::Result<()> {
    let label = out.aside_tone(Tone::Bad, "error");
    // Messages may span lines of our own making; text from outside was escaped where it was taken in.
    out.complain(format_args!("{label}: {error}"))?;
    for cause in error.chain().skip(1) {
        out.complain(format_args!("  caused by: {}", printable(&cause.to_string())))?;
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
            | StoreOpenError::Search { .. }
            | StoreOpenError::Webhook { .. }
            | StoreOpenError::Encryption(_),
        ) => Exit::Usage,
        Some(StoreOpenError::Embedded { .. } | StoreOpenError::Connect { .. }) => Exit::Unreachable,
        None => Exit::of(error),
    }
}

fn closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let json = cause.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
        kind.or(json) == Some(io::ErrorKind::BrokenPipe)
    })
}
