//! Secrets that may be rotated while the program runs.

use std::path::{Path, PathBuf};

use secrecy::SecretString;

/// Reads the secret in a file, without surrounding blanks. The error names the file and the reason,
/// never the content.
pub type ReadSecret = fn(&Path) -> Result<SecretString, String>;

/// A secret as the configuration gave it. `Debug` prints no secret.
#[derive(Debug, Clone)]
pub struct ConfiguredSecret {
    /// The value at startup.
    pub text: SecretString,
    /// The key of the configuration, such as `key_file`, for logs.
    pub setting: &'static str,
    /// The file that contains the secret, if any.
    pub file: Option<SecretFile>,
}

/// A file with a secret.
#[derive(Debug, Clone)]
pub struct SecretFile {
    /// The path of the file.
    pub path: PathBuf,
    /// How the file is read, at startup and later.
    pub read: ReadSecret,
}

impl ConfiguredSecret {
    /// Creates a secret without a file.
    pub const fn fixed(setting: &'static str, text: SecretString) -> Self {
        Self {
            text,
            setting,
            file: None,
        }
    }

    /// Returns the secret that its file contains now, or the configured secret if there is no file.
    /// The error names the file and the reason.
    pub fn current(&self) -> Result<SecretString, String> {
        self.file
            .as_ref()
            .map_or_else(|| Ok(self.text.clone()), |file| (file.read)(&file.path))
    }
}

impl From<SecretString> for ConfiguredSecret {
    fn from(text: SecretString) -> Self {
        Self::fixed("the secret", text)
    }
}
