//! SIGINT and SIGTERM, which end the program, and SIGHUP, which lets it read its configuration again.

use tokio_util::sync::CancellationToken;

use crate::cli::Exit;

/// Waits for the first SIGINT or SIGTERM; its name.
pub(super) async fn interrupted() -> &'static str {
    let terminated = async {
        #[cfg(unix)]
        if let Ok(mut signal) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            signal.recv().await;
            return "SIGTERM";
        }
        std::future::pending::<&'static str>().await
    };
    tokio::select! {
        name = terminated => name,
        interrupted = tokio::signal::ctrl_c() => {
            if interrupted.is_err() {
                // No signal can be listened for: the process's default, which ends it, is still in place.
                std::future::pending::<()>().await;
            }
            "SIGINT"
        }
    }
}

/// Cancels at the first signal; ends the process at the second, in any state. Never returns.
///
/// Leases of messages in work then run out by themselves, as after a crash.
pub(super) async fn obey(shutdown: &CancellationToken) -> std::convert::Infallible {
    let signal = interrupted().await;
    tracing::info!(signal, "told to stop: finishing what is in work; a second signal exits at once");
    shutdown.cancel();
    let signal = interrupted().await;
    tracing::warn!(signal, "told to stop again: exiting at once; what is in work comes back when its lease is over");
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
        if let Some(signal) = &mut self.signal
            && signal.recv().await.is_some()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}
