//! Asks for confirmation before something costs money or cannot be undone.

use std::fmt::Display;
use std::io::{self, BufRead as _, IsTerminal as _};

use super::{Context, Output, UsageError};

/// Returns an error with this text if standard input is not a terminal.
pub(super) fn require_terminal(refusal: &str) -> Result<(), UsageError> {
    if io::stdin().is_terminal() {
        Ok(())
    } else {
        Err(UsageError::new(refusal))
    }
}

/// Asks on the terminal. Only the answer `yes` is consent; an interruption is not.
pub(super) async fn confirm(
    question: impl Display,
    context: &Context,
    out: &mut Output,
) -> anyhow::Result<bool> {
    out.write_error(format_args!("{question} Type yes to continue:"))?;
    // The answer is read on a separate thread, so that Ctrl-C works while the command waits.
    let answer = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer).map(|_| answer)
    });
    tokio::select! {
        biased;
        () = context.stop.cancelled() => Ok(false),
        answer = answer => Ok(answer??.trim().eq_ignore_ascii_case("yes")),
    }
}
