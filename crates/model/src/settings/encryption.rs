//! `[encryption]`: the key-encryption keys of encrypted properties.

use std::collections::BTreeMap;

use crate::model::KeyBytes;

/// Key-encryption keys by name. `Debug` prints none of them.
#[derive(Debug, Clone, Default)]
pub struct EncryptionSettings {
    /// The name of the key that wraps new data keys; nothing where no table says `encrypt`.
    pub current: Option<String>,
    /// Those whose secrets are set here.
    pub keys: BTreeMap<String, KeyBytes>,
}

impl EncryptionSettings {
    /// The current key, where it is declared and its secret is not set here.
    pub fn missing(&self) -> Option<&str> {
        self.current.as_deref().filter(|current| !self.keys.contains_key(*current))
    }
}
