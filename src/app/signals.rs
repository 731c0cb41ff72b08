//! SIGINT and SIGTERM, which end the program, and SIGHUP, which lets it read its configuration again.

use tokio_util::sync::CancellationToken;

use crate::cli::Exit;

/// SIGINT and SIGTERM, listened for from when this is made: one that comes before it is asked for is not lost.
pub(super) struct Interrupts {
    #[cfg(unix)]
    terminate: Option<tokio::signal::unix::Signal>,
    #[cfg(unix)]
    interrupt: Option<tokio::signal::unix::Signal>,
}

impl Interrupts {
    /// Begins to listen. Call it within the runtime. A signal that cannot be listened for keeps its default, which ends the process.
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

    /// Waits for the next of them; its name.
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

/// Waits for a signal; never returns if it cannot be listened for.
#[cfg(unix)]
async fn received(signal: &mut Option<tokio::signal::unix::Signal>) {
    if let Some(signal) = signal
        && signal.recv().await.is_some()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Cancels at the first signal; ends the process at the second, in any state. Never returns.
///
/// Leases of messages in work then run out by themselves, as after a crash.
pub(super) async fn obey(
    interrupts: &mut Interrupts,
    shutdown: &CancellationToken,
) -> std::convert::Infallible {
    let signal = interrupts.next().await;
    tracing::info!(
        signal,
        "told to stop: finishing what is in work; a second signal exits at once"
    );
    shutdown.cancel();
    let signal = interrupts.next().await;
    tracing::warn!(
        signal,
        "told to stop again: exiting at once; what is in work comes back when its lease is over"
    );
    std::process::exit(i32::from(Exit::Interrupted.code()))
}

/// SIGHUP, listened for from when this is made.
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

    /// The next one; never returns where none can be listened for.
    pub(super) async fn next(&mut self) {
        #[cfg(unix)]
        received(&mut self.signal).await;
        #[cfg(not(unix))]
        std::future::pending::<()>().await;
    }
}
