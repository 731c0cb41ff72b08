//! A secret and its file.

use std::sync::{Arc, Mutex, TryLockError};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use secrecy::{ExposeSecret as _, SecretString};
use tracing::{info, warn};

use super::Signer;
use evenkeel_model::settings::{ConfiguredSecret, SecretFile};

/// Makes a signer from a secret. The error says why the secret is invalid, without quoting it.
pub type MakeSigner<E = String> =
    Arc<dyn Fn(&SecretString) -> Result<Arc<Signer>, E> + Send + Sync>;

pub struct KeySlot {
    /// The configuration key, for logs.
    pub(super) setting: &'static str,
    signer: ArcSwap<Signer>,
    former: ArcSwap<Signer>,
    watched: Option<Mutex<WatchedSecret>>,
}

struct WatchedSecret {
    file: SecretFile,
    make: MakeSigner,
    text: SecretString,
    /// `None` if the next check must read the file.
    mark: Option<FileMark>,
    /// Whether the current problem has been logged.
    reported: bool,
}

/// Modification time and length, which show a change without reading the file.
type FileMark = (Option<SystemTime>, u64);

impl KeySlot {
    pub fn new<E: ToString + 'static>(
        secret: &ConfiguredSecret,
        make: MakeSigner<E>,
    ) -> Result<Self, E> {
        let slot = Self::fixed(secret.setting, make(&secret.text)?);
        let make = move |text: &SecretString| make(text).map_err(|error| error.to_string());
        // The file may have changed since the secret was read. Without a mark, the first check reads it again.
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

    pub(super) fn secrets(&self) -> Vec<SecretString> {
        [self.signer.load(), self.former.load()]
            .iter()
            .flat_map(|signer| signer.secrets())
            .collect()
    }

    /// Reads the file if it looks changed or if `in_any_case` is set. This blocks the thread until the disk answers. `of`
    /// names the owner in logs.
    pub(super) fn check(&self, of: &str, in_any_case: bool) {
        let Some(watched) = &self.watched else { return };
        let mut watched = match watched.try_lock() {
            Ok(watched) => watched,
            Err(TryLockError::Poisoned(watched)) => watched.into_inner(),
            // An earlier check hangs in this folder. If later checks waited for it, each would occupy a thread.
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
                    info!("{of}: {setting} can be read again and is unchanged");
                }
            }
            Ok(Some((text, signer))) => {
                self.former.store(self.signer.swap(signer));
                (watched.text, watched.reported) = (text, false);
                info!("{of}: {setting} has changed; requests use the new secret from now on");
            }
            Err(why) => {
                if !std::mem::replace(&mut watched.reported, true) {
                    warn!(
                        "{of}: could not apply the new {setting}: {why}; requests still use the previous secret"
                    );
                }
            }
        }
    }
}

impl WatchedSecret {
    /// Reads the file. Returns its secret with a new signer, or `None` if the secret is unchanged.
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
