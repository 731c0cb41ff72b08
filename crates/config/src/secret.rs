//! Secrets. They come from the environment or a file, never from the configuration itself.

use std::path::{Path, PathBuf};

use secrecy::SecretString;

use super::section::{AlreadyReported, Section};
use super::text_file;
use evenkeel_model::settings::{ConfiguredSecret, SecretFile};

const MAX_FILE_BYTES: u64 = 65_536;

pub(super) struct SecretKeys {
    pub(super) env: &'static str,
    pub(super) file: &'static str,
}

impl SecretKeys {
    pub(super) const fn keys(&self) -> [&'static str; 2] {
        [self.env, self.file]
    }

    /// Reads a secret from the environment variable or the file. If the keys for both are in
    /// different layers, the key in the later layer is tried first. Within one layer, the environment variable is tried
    /// first.
    pub(super) fn read(&self, section: &Section<'_>) -> Option<SecretString> {
        self.find(section).map(|(_, secret)| secret)
    }

    /// Like [`read`](Self::read), but also returns the key of the source that was used.
    pub(super) fn find(&self, section: &Section<'_>) -> Option<(&'static str, SecretString)> {
        let mut keys = self.keys();
        section.mark_known(&keys);
        keys.sort_by_key(|key| std::cmp::Reverse(section.rank(key)));
        keys.into_iter()
            .filter(|key| section.has(key))
            .find_map(|key| Some((key, SecretString::from(self.read_key(section, key)?))))
    }

    /// Describes the environment variable. A secret that was pasted instead of a name is not repeated.
    pub(super) fn describe_variable(&self, section: &Section<'_>) -> Option<String> {
        let is_name = |text: &str| {
            text.bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
        };
        let name = section.text(self.env)?;
        Some(if is_name(name) {
            format!("the environment variable {name}")
        } else {
            "the environment variable named here".to_owned()
        })
    }

    fn read_key(&self, section: &Section<'_>, key: &'static str) -> Option<String> {
        let text = section.text(key)?;
        let value = if key == self.env {
            section
                .context
                .environment
                .get(text)
                .map(|value| text_file::trim_secret(value).to_owned())
                .unwrap_or_default()
        } else {
            read_secret(Path::new(text))
                .map_err(|problem| section.error(key, problem))
                .ok()?
        };
        (!value.is_empty()).then_some(value)
    }

    pub(super) fn required(&self, section: &Section<'_>, what: &str) -> Option<ConfiguredSecret> {
        let secret = self.configured(section);
        // Problems with the secret's file are already reported.
        if secret.is_none() && !section.has(self.file) {
            match self.describe_variable(section) {
                Some(variable) => section.error(self.env, format!("expected {what} in {variable}, which is not set")),
                None => section.error(
                    self.env,
                    format!("missing; expected {what}. Set {} to the name of an environment variable, or {} to the path of a file", self.env, self.file),
                ),
            }
        }
        secret
    }

    /// Reads an optional secret. It is an error if a key is set but the secret is missing.
    pub(super) fn optional(
        &self,
        section: &Section<'_>,
    ) -> Result<Option<ConfiguredSecret>, AlreadyReported> {
        let is_named = self.keys().iter().any(|key| section.has(key));
        if is_named {
            self.required(section, "a secret")
                .map(Some)
                .ok_or(AlreadyReported)
        } else {
            Ok(None)
        }
    }

    /// Like [`read`](Self::read), but also returns the file, if any, so that the secret can be read again.
    pub(super) fn configured(&self, section: &Section<'_>) -> Option<ConfiguredSecret> {
        let (setting, text) = self.find(section)?;
        let path = section
            .text(setting)
            .filter(|_| setting == self.file)
            .map(PathBuf::from);
        Some(ConfiguredSecret {
            text,
            setting,
            file: path.map(|path| SecretFile {
                path,
                read: read_file,
            }),
        })
    }
}

pub(super) fn from_file(section: &Section<'_>, key: &'static str) -> Option<SecretString> {
    let path = section.text(key)?;
    read_file(Path::new(path))
        .map_err(|problem| section.error(key, problem))
        .ok()
}

fn read_file(path: &Path) -> Result<SecretString, String> {
    read_secret(path).map(SecretString::from)
}

fn read_secret(path: &Path) -> Result<String, String> {
    let shown = path.to_string_lossy();
    // A secret that was pasted instead of a path is not repeated.
    let is_path = shown.contains(['/', '\\', '.']) && !shown.contains(['=', ';']);
    let file = if is_path {
        format!("the file {shown:?}")
    } else {
        "the file named here".to_owned()
    };
    let text = text_file::read(path, MAX_FILE_BYTES, "a secret")
        .map_err(|problem| format!("{file} {problem}"))?;
    let text = text_file::trim_secret(&text);
    if text.is_empty() {
        Err(format!("{file} is empty; expected a secret"))
    } else {
        Ok(text.to_owned())
    }
}
