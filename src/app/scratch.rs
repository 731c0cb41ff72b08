//! A folder with a configuration for one run.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use evenkeel_config::{Folder, Loaded, Request};

/// A folder of its own for temporary files; removed at the end.
pub(super) struct ScratchFolder {
    path: PathBuf,
}

impl ScratchFolder {
    pub(super) fn fresh() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("evenkeel-{}", uuid::Uuid::new_v4().simple()));
        std::fs::create_dir_all(&path)
            .with_context(|| format!("creating the folder {}", path.display()))?;
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a configuration, and loads it. The process's environment is left out: it may name real stores.
    pub(super) fn load(&self, text: &str, overrides: &[String]) -> anyhow::Result<Loaded> {
        let file = self.path.join("default.toml");
        std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
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
        // The remainder lies in the folder for temporary files, which the system empties.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
