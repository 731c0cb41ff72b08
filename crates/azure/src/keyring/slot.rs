//! A secret, and the file that it is read from again.

use std::sync::{Arc, Mutex, TryLockError};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use secrecy::{ExposeSecret as _, SecretString};
use tracing::{info, warn};

use super::Signer;
use evenkeel_model::settings::{ConfiguredSecret, SecretFile};

/// Makes a signer of a secret. The error says why it is none, without it.
pub type MakeSigner<E = String> =
    Arc<dyn Fn(&SecretString) -> Result<Arc<Signer>, E> + Send + Sync>;

/// The secret of a keyring.
pub struct KeySlot {
    /// The key of the configuration, for logs.
    pub(super) setting: &'static str,
    signer: ArcSwap<Signer>,
    /// The one before, which requests under way may still carry.
    former: ArcSwap<Signer>,
    watched: Option<Mutex<WatchedSecret>>,
}

/// A secret file, as it was read last.
struct WatchedSecret {
    file: SecretFile,
    make: MakeSigner,
    /// Its content.
    text: SecretString,
    /// `None` where it is to be read at the next look.
    mark: Option<FileMark>,
    /// Whether the log says that it is of no use.
    reported: bool,
}

/// What changes with a file, as far as can be told without reading it.
type FileMark = (Option<SystemTime>, u64);

impl KeySlot {
    /// A secret of the configuration.
    pub fn new<E: ToString + 'static>(
        secret: &ConfiguredSecret,
        make: MakeSigner<E>,
    ) -> Result<Self, E> {
        let slot = Self::fixed(secret.setting, make(&secret.text)?);
        let make = move |text: &SecretString| make(text).map_err(|error| error.to_string());
        // Without a mark, so that a change since it was read is seen at the first look.
        let watch = |file| {
            Mutex::new(WatchedSecret {
                file,
                text: secret.text.clone(),
                make: Arc::new(make),
                mark: None,
                reported: false,
            })
        };
        Ok(Self {
            watched: secret.file.clone().map(watch),
            ..slot
        })
    }

    /// A secret of no file.
    pub(super) fn fixed(setting: &'static str, signer: Arc<Signer>) -> Self {
        Self {
            setting,
            former: ArcSwap::new(Arc::clone(&signer)),
            signer: ArcSwap::new(signer),
            watched: None,
        }
    }

    pub(super) fn signer(&self) -> Arc<Signer> {
        self.signer.load_full()
    }

    pub(super) const fn has_file(&self) -> bool {
        self.watched.is_some()
    }

    /// The texts to hide.
    pub(super) fn secrets(&self) -> Vec<SecretString> {
        [self.signer.load(), self.former.load()]
            .iter()
            .flat_map(|signer| signer.secrets())
            .collect()
    }

    /// Reads the file again where it looks changed, or in any case. Blocks for the disk. `of` is the owner, in logs.
    pub(super) fn look(&self, of: &str, in_any_case: bool) {
        let Some(watched) = &self.watched else { return };
        let mut watched = match watched.try_lock() {
            Ok(watched) => watched,
            Err(TryLockError::Poisoned(watched)) => watched.into_inner(),
            // An earlier look hangs in its folder: each that waits for it would take a thread.
            Err(TryLockError::WouldBlock) => return,
        };
        let mark = file_mark(&watched.file);
        if mark.is_some() && mark == watched.mark && !in_any_case {
            return;
        }
        watched.mark = mark;
        let setting = self.setting;
        match watched.read() {
            Ok(None) => {
                if std::mem::take(&mut watched.reported) {
                    info!("{of}: {setting} can be read again, and is unchanged");
                }
            }
            Ok(Some((text, signer))) => {
                self.former.store(self.signer.swap(signer));
                (watched.text, watched.reported) = (text, false);
                info!("{of}: {setting} has changed; requests carry its secret from now on");
            }
            Err(why) => {
                if !std::mem::replace(&mut watched.reported, true) {
                    warn!(
                        "{of}: {setting} is not taken over: {why}; requests carry the secret that was read before"
                    );
                }
            }
        }
    }
}

impl WatchedSecret {
    /// The secret of the file with its signer, where it is another one.
    fn read(&self) -> Result<Option<(SecretString, Arc<Signer>)>, String> {
        let text = (self.file.read)(&self.file.path)?;
        if text.expose_secret() == self.text.expose_secret() {
            return Ok(None);
        }
        let signer = (self.make)(&text)?;
        Ok(Some((text, signer)))
    }
}

fn file_mark(file: &SecretFile) -> Option<FileMark> {
    let metadata = std::fs::metadata(&file.path).ok()?;
    Some((metadata.modified().ok(), metadata.len()))
}
