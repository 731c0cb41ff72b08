//! Account keys, shared access signatures and admin keys of a search service, rotated without a restart.
//!
//! ```text
//!  request ── Exchange ──▶ Keyring ──▶ Signer in use: signs at the moment of sending
//!                │            ├── every 10 s: a secret file with another time or length is read again
//!                └─ 401, 403 ─┴── at once: the file is read again; then the request is sent again where it has another secret
//! ```
//!
//! - `ring`: the secret of one account or sink. `slot`: the secret and its file.
//! - `signer`: how a request carries a secret; `shared_key`: the signature by an account key.
//!
//! Invariants: a secret that cannot be read, or that is of another account, replaces no other; no secret gets into an error, a `Debug` text or a log line.

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
