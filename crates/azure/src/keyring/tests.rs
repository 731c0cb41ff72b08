use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use tempfile::TempDir;

use super::{KeySlot, Keyring, MakeSigner, Signer};
use evenkeel_model::settings::{ConfiguredSecret, SecretFile};
use evenkeel_storage::Clock;

#[derive(Default)]
struct TestClock(Mutex<Duration>);

impl TestClock {
    fn pass(&self, time: Duration) {
        *self.0.lock().unwrap() += time;
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn monotonic(&self) -> Duration {
        *self.0.lock().unwrap()
    }
}

struct Keys {
    folder: TempDir,
    clock: Arc<TestClock>,
    ring: Arc<Keyring>,
}

fn read(path: &Path) -> Result<SecretString, String> {
    let text = fs::read_to_string(path).map_err(|_| "the file cannot be read".to_owned())?;
    if text.is_empty() {
        Err("the file is empty".to_owned())
    } else {
        Ok(text.into())
    }
}

/// Rejects keys with spaces.
fn make(text: &SecretString) -> Result<Arc<Signer>, String> {
    let text = text.expose_secret();
    if text.contains(' ') {
        Err("it is not a key".to_owned())
    } else {
        Ok(Arc::new(Signer::ApiKey(text.into())))
    }
}

impl Keys {
    /// Creates a `key_file` with `key-1`.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(TestClock::default());
        let path = folder.path().join("key");
        fs::write(&path, "key-1").unwrap();
        let secret = ConfiguredSecret {
            text: read(&path).unwrap(),
            setting: "key_file",
            file: Some(SecretFile { path, read }),
        };
        let slot = KeySlot::new(&secret, Arc::new(make) as MakeSigner).unwrap();
        let ring = Keyring::by("[accounts.main]".to_owned(), slot, clock.clone());
        Self {
            folder,
            clock,
            ring,
        }
    }

    fn write(&self, text: &str) {
        fs::write(self.folder.path().join("key"), text).unwrap();
    }

    async fn in_use(&self) -> String {
        let signer = self.ring.signer().await;
        secret(&signer)
    }
}

fn secret(signer: &Signer) -> String {
    signer.secrets()[0].expose_secret().to_owned()
}

#[tokio::test]
async fn a_changed_file_is_used_within_ten_seconds() {
    let keys = Keys::new();
    keys.write("key-2, which is longer".replace([',', ' '], "").as_str());
    assert_eq!(
        keys.in_use().await,
        "key-1",
        "the file is not checked at every request"
    );
    keys.clock.pass(Duration::from_secs(10));
    assert_eq!(keys.in_use().await, "key-2whichislonger");
    assert!(
        keys.ring.occurs_in("a text with key-1 in it"),
        "requests in flight may still use it"
    );
    keys.write("key-3");
    keys.clock.pass(Duration::from_secs(10));
    assert_eq!(keys.in_use().await, "key-3");
}

#[tokio::test]
async fn a_missing_empty_or_invalid_file_keeps_the_last_secret() {
    let keys = Keys::new();
    for bad in [Some(""), Some("no key"), None] {
        match bad {
            Some(text) => keys.write(text),
            None => fs::remove_file(keys.folder.path().join("key")).unwrap(),
        }
        keys.clock.pass(Duration::from_secs(10));
        assert_eq!(keys.in_use().await, "key-1", "{bad:?}");
        keys.ring.read_again().await;
        assert_eq!(keys.in_use().await, "key-1", "{bad:?}");
    }
    keys.write("key-2");
    keys.clock.pass(Duration::from_secs(10));
    assert_eq!(keys.in_use().await, "key-2");
}

#[tokio::test]
async fn a_rejection_reads_the_file_at_once_and_offers_a_new_secret_once() {
    let keys = Keys::new();
    let old = keys.ring.signer().await;
    keys.clock.pass(Duration::from_secs(1));
    assert!(
        keys.ring.replacement_for(&old).await.is_none(),
        "the file still has the rejected key"
    );
    keys.write("key-2");
    keys.clock.pass(Duration::from_secs(1));
    let new = keys.ring.replacement_for(&old).await.unwrap();
    assert_eq!(secret(&new), "key-2");
    assert!(keys.ring.replacement_for(&new).await.is_none());
    assert_eq!(keys.in_use().await, "key-2");
}

#[tokio::test]
async fn a_storm_of_refusals_reads_the_file_once_a_second() {
    let keys = Keys::new();
    let old = keys.ring.signer().await;
    keys.write("key-2");
    assert!(keys.ring.replacement_for(&old).await.is_none());
    keys.clock.pass(Duration::from_secs(1));
    assert_eq!(
        secret(&keys.ring.replacement_for(&old).await.unwrap()),
        "key-2"
    );
}

#[test]
fn a_folder_that_hangs_takes_one_thread() {
    static HANGS: Mutex<()> = Mutex::new(());
    static HUNG: AtomicBool = AtomicBool::new(false);
    fn read_late(path: &Path) -> Result<SecretString, String> {
        HUNG.store(true, Ordering::SeqCst);
        drop(HANGS.lock());
        read(path)
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("first");
    fs::write(&path, "key-2").unwrap();
    let file = Some(SecretFile {
        path,
        read: read_late,
    });
    let slot = KeySlot::new(
        &ConfiguredSecret {
            text: "key-1".into(),
            setting: "first",
            file,
        },
        Arc::new(make) as MakeSigner,
    )
    .unwrap();
    let look = || slot.check("[accounts.main]", true);
    let hangs = HANGS.lock().unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(look);
        while !HUNG.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let (sender, receiver) = mpsc::channel();
        scope.spawn(move || {
            let _: () = look();
            sender.send(())
        });
        let second = receiver.recv_timeout(Duration::from_secs(10));
        drop(hangs);
        first.join().unwrap();
        assert_eq!(second, Ok(()), "the second does not wait for the first");
    });
    assert_eq!(secret(&slot.signer()), "key-2");
}

#[tokio::test]
async fn a_signal_reads_the_file_even_if_it_looks_unchanged() {
    let keys = Keys::new();
    keys.write("key-2");
    keys.ring.read_again().await;
    assert_eq!(keys.in_use().await, "key-2");
    assert!(
        !format!("{:?} {:?}", keys.ring, keys.ring.signer().await).contains("key-"),
        "no `Debug` text contains the secret"
    );
}
