//! Handles SIGINT and SIGTERM, which end the program, and SIGHUP, which makes it read its
//! configuration again.

use tokio_util::sync::CancellationToken;

use crate::cli::Exit;

/// Listens for SIGINT and SIGTERM from the moment of its creation, so that no early signal is lost.
pub(super) struct Interrupts {
    #[cfg(unix)]
    terminate: Option<tokio::signal::unix::Signal>,
    #[cfg(unix)]
    interrupt: Option<tokio::signal::unix::Signal>,
}

impl Interrupts {
    /// Starts to listen. Must be called within the runtime. If a signal cannot be handled, it keeps
    /// its default action, which ends the process.
    pub(super) fn listen() -> Self {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Self {
                terminate: signal(SignalKind::terminate()).ok(),
                interrupt: signal(SignalKind::interrupt()).ok(),
            }
        }
        #[cfg(not(unix))]
        Self {}
    }

    /// Waits for the next signal; returns its name.
    pub(super) async fn next(&mut self) -> &'static str {
        #[cfg(unix)]
        {
            let (terminate, interrupt) = (&mut self.terminate, &mut self.interrupt);
            tokio::select! {
                () = received(terminate) => "SIGTERM",
                () = received(interrupt) => "SIGINT",
            }
        }
        #[cfg(not(unix))]
        {
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
            "SIGINT"
        }
    }
}

/// Waits for the signal. Never returns if the signal cannot be handled.
#[cfg(unix)]
async fn received(signal: &mut Option<tokio::signal::unix::Signal>) {
    if let Some(signal) = signal
        && signal.recv().await.is_some()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Cancels `shutdown` at the first signal and exits at the second, whatever the program is doing.
/// Never returns.
///
/// After an exit, the leases of jobs in progress expire, as after a crash.
pub(super) async fn obey(
    interrupts: &mut Interrupts,
    shutdown: &CancellationToken,
) -> std::convert::Infallible {
    let signal = interrupts.next().await;
    tracing::info!(
        signal,
        "{signal} received: finishing jobs in progress; a second signal exits at once"
    );
    shutdown.cancel();
    let signal = interrupts.next().await;
    tracing::warn!(
        signal,
        "{signal} received again: exiting at once; jobs in progress are redelivered when their leases expire"
    );
    std::process::exit(i32::from(Exit::Interrupted.code()))
}

/// Listens for SIGHUP from the moment of its creation.
pub(super) struct Hangups {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

impl Hangups {
    pub(super) fn listen() -> Self {
        Self {
            #[cfg(unix)]
            signal: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok(),
        }
    }

    /// Waits for the next signal. Never returns if the signal cannot be handled.
    pub(super) async fn next(&mut self) {
        #[cfg(unix)]
        received(&mut self.signal).await;
        #[cfg(not(unix))]
        std::future::pending::<()>().await;
    }
}
