use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use tracing::warn;

use super::{KeySlot, Signer};
use evenkeel_storage::Clock;
use evenkeel_storage::system::SystemClock;

const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Timeout of a check, because a network folder may hang.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Minimum interval of reads while the service rejects the secret.
const MIN_READ_INTERVAL: Duration = Duration::from_secs(1);

pub struct Keyring {
    /// The account or sink, for logs.
    of: String,
    slot: KeySlot,
    checked_at: tokio::sync::Mutex<Duration>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyring")
            .field("of", &self.of)
            .finish_non_exhaustive()
    }
}

impl Keyring {
    pub fn new(of: String, slot: KeySlot) -> Arc<Self> {
        Self::by(of, slot, Arc::new(SystemClock::new()))
    }

    pub fn fixed(signer: Signer) -> Arc<Self> {
        Self::new(
            "the account".to_owned(),
            KeySlot::fixed("the secret", Arc::new(signer)),
        )
    }

    pub fn in_use(&self) -> Arc<Signer> {
        self.slot.signer()
    }

    /// Like [`new`](Self::new), with a clock.
    pub(super) fn by(of: String, slot: KeySlot, clock: Arc<dyn Clock>) -> Arc<Self> {
        let checked_at = tokio::sync::Mutex::new(clock.monotonic());
        Arc::new(Self {
            of,
            slot,
            checked_at,
            clock,
        })
    }

    /// Reads the file again even if it looks unchanged.
    pub async fn read_again(self: &Arc<Self>) {
        let mut checked_at = self.checked_at.lock().await;
        self.check(true).await;
        *checked_at = self.clock.monotonic();
    }

    /// Whether a text contains the current or the previous secret.
    pub fn occurs_in(&self, text: &str) -> bool {
        self.secrets()
            .iter()
            .any(|secret| text.contains(secret.expose_secret()))
    }

    /// The texts to hide, including those of the previous secret.
    pub fn secrets(&self) -> Vec<SecretString> {
        self.slot.secrets()
    }

    /// The current signer, after a check of the file if one is due.
    pub async fn signer(self: &Arc<Self>) -> Arc<Signer> {
        // If another caller holds the lock, that caller checks the file. This caller uses the current signer.
        if let Ok(mut checked_at) = self.checked_at.try_lock()
            && self.clock.monotonic().saturating_sub(*checked_at) >= CHECK_INTERVAL
        {
            *checked_at = self.clock.monotonic();
            self.check(false).await;
        }
        self.in_use()
    }

    /// Replaces a signer that the service rejected. Returns `None` if the file contains no other secret.
    pub async fn replacement_for(self: &Arc<Self>, refused: &Arc<Signer>) -> Option<Arc<Signer>> {
        let mut checked_at = self.checked_at.lock().await;
        if self.clock.monotonic().saturating_sub(*checked_at) >= MIN_READ_INTERVAL {
            *checked_at = self.clock.monotonic();
            self.check(true).await;
        }
        drop(checked_at);
        Some(self.in_use()).filter(|present| !Arc::ptr_eq(present, refused))
    }

    /// Checks the file on a thread that may block.
    async fn check(self: &Arc<Self>, in_any_case: bool) {
        if !self.slot.has_file() {
            return;
        }
        let ring = Arc::clone(self);
        let looking = tokio::task::spawn_blocking(move || ring.slot.check(&ring.of, in_any_case));
        match tokio::time::timeout(CHECK_TIMEOUT, looking).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(
                "{}: could not check the secret file: {error}; the current secret stays in use",
                self.of
            ),
            Err(_) => warn!(
                "{}: could not read the secret file within {} s; the current secret stays in use",
                self.of,
                CHECK_TIMEOUT.as_secs()
            ),
        }
    }
}
