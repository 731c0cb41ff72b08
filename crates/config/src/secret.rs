//! Secrets: from the environment, a file, or (with a warning) the configuration itself.

use std::path::{Path, PathBuf};

use secrecy::SecretString;

use super::origin::Layer;
use super::section::{Reported, Section};
use super::text_file;
use evenkeel_model::settings::{ConfiguredSecret, ConnectionString, SecretFile, SecretPair};

/// Whether a text is the connection string of the local emulator, which is public knowledge and no secret.
pub(super) fn is_development_storage(text: &str) -> bool {
    ConnectionString::parse(text).is_ok_and(|parsed| parsed.is_development())
}

/// Largest secret file, in bytes.
const MAX_FILE_BYTES: u64 = 65_536;

/// The three keys under which one secret may be given.
pub(super) struct SecretKeys {
    /// The value itself.
    pub(super) inline: &'static str,
    /// The name of an environment variable.
    pub(super) env: &'static str,
    /// The path of a file.
    pub(super) file: &'static str,
}

impl SecretKeys {
    /// Reads a secret from the first of these keys that has one: those of the latest layer first, and within one
    /// layer the environment variable, then the file, then the value itself. `None` where there is none.
    pub(super) fn read(&self, section: &Section<'_>) -> Option<SecretString> {
        self.find(section).map(|(_, secret)| secret)
    }

    /// As [`read`](Self::read), with the key that has it, to report at.
    pub(super) fn find(&self, section: &Section<'_>) -> Option<(&'static str, SecretString)> {
        section.also_known(&[self.env, self.file, self.inline]);
        let mut keys = [self.env, self.file, self.inline];
        keys.sort_by_key(|key| std::cmp::Reverse(section.rank(key)));
        keys.into_iter().filter(|key| section.has(key)).find_map(|key| Some((key, SecretString::from(self.read_key(section, key)?))))
    }

    /// The variable that is named, in words. A secret that was pasted in the place of its name is not repeated.
    pub(super) fn variable(&self, section: &Section<'_>) -> Option<String> {
        let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
        let name = section.text(self.env)?;
        Some(if is_name(name) { format!("the environment variable {name}") } else { "the environment variable named here".to_owned() })
    }

    fn read_key(&self, section: &Section<'_>, key: &'static str) -> Option<String> {
        let text = section.text(key)?;
        let value = if key == self.env {
            section.cx.environment.get(text).map(|value| text_file::secret(value).to_owned()).unwrap_or_default()
        } else if key == self.file {
            read_text(Path::new(text)).map_err(|problem| section.error(key, problem)).ok()?
        } else {
            self.warn_if_written(section, text);
            text.trim().to_owned()
        };
        (!value.is_empty()).then_some(value)
    }

    /// A value from the environment is not written down beside the code, nor shown to other users of the machine.
    fn warn_if_written(&self, section: &Section<'_>, value: &str) {
        let written = match section.origin_of(self.inline).map(|origin| origin.layer) {
            Some(Layer::File | Layer::Default) => "in a configuration file",
            Some(Layer::Flag) => "on the command line, which every user of the machine can read",
            Some(Layer::Environment) | None => return,
        };
        if !is_development_storage(value) {
            section.warning(
                self.inline,
                format!("a secret {written}; better name an environment variable with {} or a file with {}", self.env, self.file),
            );
        }
    }

    /// A secret that must be there.
    fn required(&self, section: &Section<'_>, what: &str) -> Option<ConfiguredSecret> {
        let secret = self.configured(section);
        // Problems of a file have been reported.
        if secret.is_none() && !section.has(self.file) {
            match self.variable(section) {
                Some(variable) => section.error(self.env, format!("expected {what} in {variable}, which is not set")),
                None => section.error(
                    self.inline,
                    format!("missing; expected {what}: name an environment variable with {} or a file with {}", self.env, self.file),
                ),
            }
        }
        secret
    }
}

/// The keys of a secret that may be rotated, and of its alternate.
pub(super) struct PairKeys {
    pub(super) first: SecretKeys,
    pub(super) second: SecretKeys,
}

impl PairKeys {
    /// All of them; those of the alternate stand first.
    pub(super) const fn all(&self) -> [&'static str; 6] {
        let Self { first, second } = self;
        [second.inline, second.env, second.file, first.inline, first.env, first.file]
    }

    /// Reads both secrets, of which the first must be there.
    pub(super) fn required(&self, section: &Section<'_>, what: &str) -> Option<SecretPair> {
        let (first, second) = (self.first.required(section, what), self.second.configured(section));
        Some(SecretPair { first: first?, second: second.map(Box::new) })
    }
}

impl SecretKeys {
    /// A secret that may be left out; an error where a key names one that is not there.
    pub(super) fn given(&self, section: &Section<'_>) -> Result<Option<ConfiguredSecret>, Reported> {
        let named = [self.inline, self.env, self.file].iter().any(|key| section.has(key));
        if !named {
            section.also_known(&[self.env, self.file, self.inline]);
            return Ok(None);
        }
        self.required(section, "a secret").map(Some).ok_or(Reported)
    }

    /// As [`read`](Self::read), with the file that it can be read from again.
    pub(super) fn configured(&self, section: &Section<'_>) -> Option<ConfiguredSecret> {
        let (setting, text) = self.find(section)?;
        let path = section.text(setting).filter(|_| setting == self.file).map(PathBuf::from);
        Some(ConfiguredSecret { text, setting, file: path.map(|path| SecretFile { path, read: read_file }) })
    }
}

fn read_file(path: &Path) -> Result<SecretString, String> {
    read_text(path).map(SecretString::from)
}

fn read_text(path: &Path) -> Result<String, String> {
    let shown = path.to_string_lossy();
    // A secret that was pasted in the place of its path is not repeated.
    let is_path = shown.contains(['/', '\\', '.']) && !shown.contains(['=', ';']);
    let file = if is_path { format!("the file {shown:?}") } else { "the file named here".to_owned() };
    let text = text_file::read(path, MAX_FILE_BYTES, "a secret").map_err(|problem| format!("{file} {problem}"))?;
    let text = text_file::secret(&text);
    if text.is_empty() { Err(format!("{file} is empty; expected a secret")) } else { Ok(text.to_owned()) }
}
