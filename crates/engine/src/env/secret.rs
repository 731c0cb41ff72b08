//! The signing secret, and when to read it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use aws_lc_rs::hmac::{self, HMAC_SHA256};
use tokio::sync::OnceCell;

/// Length of the secret in bytes. It is stored as twice as many hexadecimal digits.
pub(crate) const SECRET: usize = 32;
/// Milliseconds during which footprints are written without signatures after the secret could not be read.
const RETRY_MS: u64 = 60_000;

#[derive(Clone, Copy)]
pub struct Secret(pub(crate) [u8; SECRET]);

impl Secret {
    #[cfg(test)]
    pub(crate) const ZEROS: Self = Self([0; SECRET]);

    pub(crate) fn mac(&self, text: &[&str]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&hmac::Key::new(HMAC_SHA256, &self.0));
        for part in text {
            context.update(part.as_bytes());
        }
        let mut mac = [0; 32];
        mac.copy_from_slice(context.sign().as_ref());
        mac
    }
}

#[derive(Default)]
pub struct SigningSecret {
    pub(crate) read: OnceCell<Secret>,
    /// Until this time (monotonic, in milliseconds), no run tries to read the secret for a footprint.
    not_before: AtomicU64,
}

impl SigningSecret {
    pub(crate) fn get(&self) -> Option<&Secret> {
        self.read.get()
    }

    pub(crate) fn is_to_be_read(&self, now: Duration) -> bool {
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let due = |not_before| (now >= not_before).then(|| now.saturating_add(RETRY_MS));
        self.get().is_none() && self.not_before.fetch_update(Relaxed, Relaxed, due).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_hmac_sha256() {
        // RFC 4231, test case 1: a key of 20 bytes, padded with zeros.
        let mut key = [0; SECRET];
        key[..20].fill(0x0b);
        let expected = "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7";
        assert_eq!(hex::encode(Secret(key).mac(&["Hi There"])), expected);
        assert_eq!(hex::encode(Secret(key).mac(&["Hi", " There"])), expected);
    }

    #[test]
    fn an_unreadable_secret_is_requested_once_a_minute() {
        let (secret, at) = (SigningSecret::default(), Duration::from_secs);
        let requested = [0, 0, 59, 60, 61, 120].map(|second| secret.is_to_be_read(at(second)));
        assert_eq!(requested, [true, false, false, true, false, true]);
        secret.read.set(Secret::ZEROS).ok().unwrap();
        assert!(!secret.is_to_be_read(at(600)));
    }
}
