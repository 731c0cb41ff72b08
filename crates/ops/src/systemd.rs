//! Notifies systemd (sd_notify(3)) for units of `Type=notify`. Nothing is sent if `NOTIFY_SOCKET` is not set.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// Reports that the program is working. `systemctl status` shows `status`.
pub fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

pub fn stopping(status: &str) {
    notify(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

/// Notifies the watchdog twice per watchdog period while `alive` returns true, until `stop` is cancelled. Returns at
/// once if the unit has no `WatchdogSec`.
pub async fn watchdog(alive: impl Fn() -> bool + Send, stop: CancellationToken) {
    if let Some(period) = sd_notify::watchdog_enabled() {
        feed(period, alive, || notify(&[NotifyState::Watchdog]), stop).await;
    }
}

async fn feed(
    period: Duration,
    alive: impl Fn() -> bool + Send,
    ping: impl Fn() + Send,
    stop: CancellationToken,
) {
    // `WATCHDOG_USEC=0` would give an interval of zero, which panics.
    let mut times = tokio::time::interval((period / 2).max(Duration::from_millis(1)));
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = times.tick() => if alive() { ping() },
        }
    }
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "could not notify systemd: {error}; it may restart the unit");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_watchdog_is_notified_twice_per_period_while_the_program_is_alive() {
        let (alive, pings, stop) = (
            AtomicBool::new(true),
            AtomicU32::new(0),
            CancellationToken::new(),
        );
        let fed = || {
            pings.fetch_add(1, Ordering::Relaxed);
        };
        let feeding = feed(
            Duration::from_secs(30),
            || alive.load(Ordering::Relaxed),
            fed,
            stop.clone(),
        );
        let watching = async {
            tokio::time::sleep(Duration::from_secs(61)).await;
            assert_eq!(pings.load(Ordering::Relaxed), 5);
            alive.store(false, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_mins(1)).await;
            assert_eq!(pings.load(Ordering::Relaxed), 5);
            stop.cancel();
        };
        futures::future::join(feeding, watching).await;
    }

    /// Not a test by itself: the test below runs it in another process, with an environment of its own.
    #[tokio::test]
    async fn in_a_unit_of_its_own() {
        if std::env::var_os("NOTIFY_SOCKET").is_some() {
            ready("polling 1 queue");
            stopping("draining");
        }
    }

    #[test]
    fn systemd_is_notified_of_start_and_stop() {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let test = "systemd::tests::in_a_unit_of_its_own";
        let unit = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test])
            .env("NOTIFY_SOCKET", folder.path().join("notify"))
            .output()
            .unwrap();
        assert!(unit.status.success());
        let mut received = [0; 256];
        for expected in [
            "READY=1\nSTATUS=polling 1 queue\n",
            "STOPPING=1\nSTATUS=draining\n",
        ] {
            let length = socket.recv(&mut received).unwrap();
            assert_eq!(std::str::from_utf8(&received[..length]).unwrap(), expected);
        }
    }
}
