//! A copy of the tracked files, in which sources are rewritten.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// The repository's root.
pub fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().and_then(Path::parent).map(Path::to_owned).context("no folder above scripts/mutants.d")
}

/// The folder that sources are rewritten in.
pub fn folder(root: &Path) -> PathBuf {
    root.join("target/mutants/tree")
}

/// Copies those of the tracked files that are wanted.
pub fn copy(root: &Path, tree: &Path, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output().context("git ls-files")?;
    ensure!(listed.status.success(), "git ls-files failed");
    for path in String::from_utf8(listed.stdout)?.split('\0').filter(|path| !path.is_empty() && wanted(path)) {
        let from = root.join(path);
        if from.is_file() {
            write(&tree.join(path), &std::fs::read(&from).with_context(|| path.to_owned())?)?;
        }
    }
    Ok(())
}

/// Writes a file unless it holds that already: its time tells cargo what has changed.
pub fn write(path: &Path, content: &[u8]) -> Result<()> {
    if std::fs::read(path).is_ok_and(|held| held == content) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, content).with_context(|| path.display().to_string())
}
