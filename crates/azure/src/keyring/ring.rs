//! The secret of one account or sink.

use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use tracing::warn;

use super::{KeySlot, Signer};
use evenkeel_storage::Clock;
use evenkeel_storage::system::SystemClock;

/// How often its file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How long a look is waited for: a folder of the network may hang.
const LOOK_FOR: Duration = Duration::from_secs(5);
/// How often it is read where the service refuses what it says.
const READ_EVERY: Duration = Duration::from_secs(1);

/// The secret of one account or sink.
pub struct Keyring {
    /// Whose it is, in logs.
    of: String,
    slot: KeySlot,
    /// When the file was looked at last.
    looked: tokio::sync::Mutex<Duration>,
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
    /// The secret of `of`, `[accounts.main]` for instance.
    pub fn new(of: String, slot: KeySlot) -> Arc<Self> {
        Self::by(of, slot, Arc::new(SystemClock::new()))
    }

    /// A secret that does not change.
    pub fn fixed(signer: Signer) -> Arc<Self> {
        Self::new(
            "the account".to_owned(),
            KeySlot::fixed("the secret", Arc::new(signer)),
        )
    }

    /// The signer in use.
    pub fn in_use(&self) -> Arc<Signer> {
        self.slot.signer()
    }

    /// As [`new`](Self::new), with a clock.
    pub(super) fn by(of: String, slot: KeySlot, clock: Arc<dyn Clock>) -> Arc<Self> {
        let looked = tokio::sync::Mutex::new(clock.monotonic());
        Arc::new(Self {
            of,
            slot,
            looked,
            clock,
        })
    }

    /// Reads the file again, whatever it looks like.
    pub async fn read_again(self: &Arc<Self>) {
        let mut looked = self.looked.lock().await;
        self.look(true).await;
        *looked = self.clock.monotonic();
    }

    /// Whether a text holds the secret, or the one before it.
    pub fn is_told_by(&self, text: &str) -> bool {
        self.secrets()
            .iter()
            .any(|secret| text.contains(secret.expose_secret()))
    }

    /// The texts to hide, of the secret before it too.
    pub fn secrets(&self) -> Vec<SecretString> {
        self.slot.secrets()
    }

    /// The signer in use, after a look at the file where one is due.
    pub async fn signer(self: &Arc<Self>) -> Arc<Signer> {
        // Whoever finds the lock taken goes on with the signer that is there.
        if let Ok(mut looked) = self.looked.try_lock()
            && self.clock.monotonic().saturating_sub(*looked) >= LOOK_EVERY
        {
            *looked = self.clock.monotonic();
            self.look(false).await;
        }
        self.in_use()
    }

    /// Another signer in place of the one that the service refused, where its file has another secret by now.
    pub async fn in_place_of(self: &Arc<Self>, refused: &Arc<Signer>) -> Option<Arc<Signer>> {
        let mut looked = self.looked.lock().await;
        if self.clock.monotonic().saturating_sub(*looked) >= READ_EVERY {
            *looked = self.clock.monotonic();
            self.look(true).await;
        }
        drop(looked);
        Some(self.in_use()).filter(|present| !Arc::ptr_eq(present, refused))
    }

    /// Looks at the file, on a thread that may block.
    async fn look(self: &Arc<Self>, in_any_case: bool) {
        if !self.slot.has_file() {
            return;
        }
        let ring = Arc::clone(self);
        let looking = tokio::task::spawn_blocking(move || ring.slot.look(&ring.of, in_any_case));
        match tokio::time::timeout(LOOK_FOR, looking).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(
                "{}: the file of its secret was not looked at: {error}",
                self.of
            ),
            Err(_) => warn!(
                "{}: the file of its secret was not read in {} s; the secret stays",
                self.of,
                LOOK_FOR.as_secs()
            ),
        }
    }
}
