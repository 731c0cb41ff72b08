//! Account keys, shared access signatures and admin keys of a search service, which can be rotated without a restart.
//!
//! ```text
//!  request ── Exchange ──▶ Keyring ──▶ current Signer: signs when the request is sent
//!                │            ├── every 10 s: a secret file with a new time or length is read again
//!                └─ 401, 403 ─┴── at once: the file is read again, and the request is sent again with a new secret
//! ```
//!
//! - `ring`: the secret of one account or sink. `slot`: the secret and its file.
//! - `signer`: adds a secret to a request; `shared_key`: the signature with an account key.
//!
//! Invariants: an unreadable secret, or one of another account, never replaces the current one. No secret appears in an error, a `Debug` text or a log line.

mod ring;
mod shared_key;
mod signer;
mod slot;
#[cfg(test)]
mod tests;

pub use ring::Keyring;
pub use shared_key::AccountKey;
pub use signer::{Outgoing, Signer};
pub use slot::{KeySlot, MakeSigner};
