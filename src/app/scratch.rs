//! A temporary folder with a configuration for one run.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use evenkeel_config::{Configuration, Folder, Request};

/// A temporary folder, which is removed when this value is dropped.
pub(super) struct ScratchFolder {
    path: PathBuf,
}

impl ScratchFolder {
    pub(super) fn fresh() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("evenkeel-{}", uuid::Uuid::new_v4().simple()));
        std::fs::create_dir_all(&path)
            .with_context(|| format!("could not create the folder {}", path.display()))?;
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a configuration and loads it. The environment variables of the process are ignored,
    /// because they may name real stores.
    pub(super) fn load(&self, text: &str, overrides: &[String]) -> anyhow::Result<Configuration> {
        let file = self.path.join("default.toml");
        std::fs::write(&file, text)
            .with_context(|| format!("could not write {}", file.display()))?;
        let folder = Folder::Named(self.path.clone());
        Ok(evenkeel_config::load(&Request {
            folder,
            overrides: overrides.to_vec(),
            ..Request::default()
        })?)
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // If the folder cannot be removed, the system's cleanup of temporary files removes it.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
