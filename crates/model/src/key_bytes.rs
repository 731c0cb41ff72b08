use std::fmt;

/// A key of 256 bits for AES-256-GCM. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyBytes(pub [u8; 32]);

impl fmt::Debug for KeyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyBytes(…)")
    }
}
