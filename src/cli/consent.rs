//! Asking before something that costs, or cannot be undone.

use std::fmt::Display;
use std::io::{self, BufRead as _, IsTerminal as _};

use super::{Context, Output, UsageError};

/// Fails with this text where standard input is no terminal.
pub(super) fn somebody_to_ask(refusal: &str) -> Result<(), UsageError> {
    if io::stdin().is_terminal() {
        Ok(())
    } else {
        Err(UsageError::new(refusal))
    }
}

/// Asks on the terminal: only `yes` is consent. An interruption is none.
pub(super) async fn consents(
    question: impl Display,
    context: &Context,
    out: &mut Output,
) -> anyhow::Result<bool> {
    out.complain(format_args!("{question} Type yes to go on:"))?;
    // On a thread of its own, so that Ctrl-C is an answer as well.
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
