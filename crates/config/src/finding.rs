//! Mistakes in a configuration, and warnings.

use std::fmt;

use serde::Serialize;

use super::origin::Origin;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file, environment variable or flag. `None` if the finding is about the whole configuration.
    pub file: Option<String>,
    pub line: Option<usize>,
    /// The key, such as `worker.lease`. Empty if the finding is about a whole file.
    pub key: String,
    /// The problem and the expected input. The text has several lines if it shows a template or condition with carets
    /// under it.
    pub message: String,
}

impl Finding {
    pub(super) fn new(
        origin: Option<&Origin>,
        key: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            file: origin.map(|origin| {
                Origin {
                    line: None,
                    ..origin.clone()
                }
                .to_string()
            }),
            line: origin.and_then(|origin| origin.line),
            key: key.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    /// `config/default.toml:12: worker.lease: expected …`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{file}:{line}: ")?,
            (Some(file), None) => write!(f, "{file}: ")?,
            (None, _) => {}
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message.replace('\n', "\n    "))
    }
}

/// All mistakes in a configuration, in the order of files and lines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the configuration has {} mistake{}:{}", errors.len(), if errors.len() == 1 { "" } else { "s" }, FindingList(errors))]
pub struct ConfigErrors {
    pub errors: Vec<Finding>,
    pub warnings: Vec<Finding>,
}

struct FindingList<'a>(&'a [Finding]);

impl fmt::Display for FindingList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|finding| write!(f, "\n  {finding}"))
    }
}
