//! The secrets of one account or sink, and the one in use.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use tracing::warn;

use super::{KeySlot, Signer};
use crate::system::SystemClock;
use evenkeel_model::ports::Clock;

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How long a look is waited for: a folder of the network may hang.
const LOOK_FOR: Duration = Duration::from_secs(5);
/// How often they are read where the service refuses what they say.
const READ_EVERY: Duration = Duration::from_secs(1);

/// The secrets of one account or sink.
pub struct Keyring {
    /// Whose they are, in logs.
    of: String,
    /// One or two.
    slots: Vec<KeySlot>,
    /// The place of the one in use.
    in_use: AtomicUsize,
    /// When the files were looked at last.
    looked: tokio::sync::Mutex<Duration>,
    clock: Arc<dyn Clock>,
    listener: OnceLock<ReloadListener>,
}

/// Told of each secret file with another content than before: whether that was taken over.
pub(crate) type ReloadListener = Box<dyn Fn(bool) + Send + Sync>;

/// A signer, and its place on the keyring.
#[derive(Debug, Clone)]
pub(crate) struct PresentSigner {
    place: usize,
    pub(crate) signer: Arc<Signer>,
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyring").field("of", &self.of).finish_non_exhaustive()
    }
}

impl Keyring {
    /// The secrets of `of`, `[accounts.main]` for instance. The first is in use.
    pub(crate) fn new(of: String, slots: Vec<KeySlot>) -> Arc<Self> {
        Self::by(of, slots, Arc::new(SystemClock::new()))
    }

    /// One secret, which does not change.
    pub(crate) fn fixed(signer: Signer) -> Arc<Self> {
        Self::new("the account".to_owned(), vec![KeySlot::fixed("the secret", Arc::new(signer))])
    }

    /// The signer in use.
    pub(crate) fn in_use(&self) -> Arc<Signer> {
        self.present(self.in_use.load(Ordering::Relaxed)).signer
    }

    /// As [`new`](Self::new), with a clock.
    pub(super) fn by(of: String, slots: Vec<KeySlot>, clock: Arc<dyn Clock>) -> Arc<Self> {
        let looked = tokio::sync::Mutex::new(clock.monotonic());
        Arc::new(Self { of, slots, in_use: AtomicUsize::new(0), looked, clock, listener: OnceLock::new() })
    }

    /// Reads all files again, whatever they look like.
    pub async fn read_again(self: &Arc<Self>) {
        let mut looked = self.looked.lock().await;
        self.look(true).await;
        *looked = self.clock.monotonic();
    }

    /// The account or sink, as the configuration names it: `accounts.main`.
    pub fn owner(&self) -> &str {
        self.of.trim_matches(['[', ']'])
    }

    /// Tells of reloads from now on; the first listener stays.
    pub fn listen(&self, listener: ReloadListener) {
        let _ = self.listener.set(listener);
    }

    /// Whether a text holds one of the secrets.
    pub(crate) fn is_told_by(&self, text: &str) -> bool {
        self.secrets().iter().any(|secret| text.contains(secret.expose_secret()))
    }

    /// The texts to hide, of secrets replaced lately too.
    pub(crate) fn secrets(&self) -> Vec<SecretString> {
        self.slots.iter().flat_map(KeySlot::secrets).collect()
    }

    /// The signer in use, after a look at the files where one is due.
    pub(crate) async fn signer(self: &Arc<Self>) -> PresentSigner {
        // Whoever finds the lock taken goes on with the signer that is there.
        if let Ok(mut looked) = self.looked.try_lock()
            && self.clock.monotonic().saturating_sub(*looked) >= LOOK_EVERY
        {
            *looked = self.clock.monotonic();
            self.look(false).await;
        }
        self.present(self.in_use.load(Ordering::Relaxed))
    }

    /// Another signer in place of those that the service refused, where there is one.
    pub(crate) async fn in_place_of(self: &Arc<Self>, refused: &[PresentSigner]) -> Option<PresentSigner> {
        let mut looked = self.looked.lock().await;
        if self.clock.monotonic().saturating_sub(*looked) >= READ_EVERY {
            *looked = self.clock.monotonic();
            self.look(true).await;
        }
        drop(looked);
        let first = self.in_use.load(Ordering::Relaxed);
        let places = (0..self.slots.len()).map(|place| (first + place) % self.slots.len());
        let mut others = places.map(|place| self.present(place));
        others.find(|other| !refused.iter().any(|refused| Arc::ptr_eq(&refused.signer, &other.signer)))
    }

    /// The service accepted this one, after it had refused another.
    pub(crate) fn accepted(&self, accepted: &PresentSigner) {
        let before = self.in_use.swap(accepted.place, Ordering::Relaxed);
        if before != accepted.place {
            let [refused, taken] = [before, accepted.place].map(|place| self.slots[place].setting);
            warn!("{}: {refused} is refused by the service; requests carry {taken} from now on", self.of);
        }
    }

    fn present(&self, place: usize) -> PresentSigner {
        PresentSigner { place, signer: self.slots[place].signer() }
    }

    /// Looks at the files, on a thread that may block.
    async fn look(self: &Arc<Self>, in_any_case: bool) {
        if !self.slots.iter().any(KeySlot::has_file) {
            return;
        }
        let ring = Arc::clone(self);
        let looking = tokio::task::spawn_blocking(move || {
            let news = ring.slots.iter().filter_map(|slot| slot.look(&ring.of, in_any_case));
            news.for_each(|taken| ring.listener.get().into_iter().for_each(|listener| listener(taken)));
        });
        match tokio::time::timeout(LOOK_FOR, looking).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!("{}: the files of its secrets were not looked at: {error}", self.of),
            Err(_) => warn!("{}: the files of its secrets were not read in {} s; the secrets stay", self.of, LOOK_FOR.as_secs()),
        }
    }
}
