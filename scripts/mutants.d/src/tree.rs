//! A copy of the tracked files, in which sources are rewritten.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

pub fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent()
        .and_then(Path::parent)
        .map(Path::to_owned)
        .context("no folder above scripts/mutants.d")
}

pub fn folder(root: &Path) -> PathBuf {
    root.join("target/mutants/tree")
}

/// The folder with the planted bugs.
pub fn folder_of_planted(root: &Path) -> PathBuf {
    root.join("target/mutants/planted/tree")
}

/// Copies the tracked files that are wanted. Deletes sources of an earlier run that no longer exist.
pub fn copy(root: &Path, tree: &Path, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let listed = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root)
        .output()
        .context("git ls-files")?;
    ensure!(listed.status.success(), "git ls-files failed");
    let listed = String::from_utf8(listed.stdout)?;
    let tracked: HashSet<&str> = listed
        .split('\0')
        .filter(|path| root.join(path).is_file())
        .collect();
    for folder in ["src", "crates", "tests", "benches"] {
        remove_untracked(tree, &tree.join(folder), &|path| {
            wanted(path) && !tracked.contains(path)
        })?;
    }
    for path in listed
        .split('\0')
        .filter(|path| !path.is_empty() && wanted(path))
    {
        let from = root.join(path);
        if from.is_file() {
            write(
                &tree.join(path),
                &std::fs::read(&from).with_context(|| path.to_owned())?,
            )?;
        }
    }
    Ok(())
}

fn remove_untracked(tree: &Path, folder: &Path, untracked: &impl Fn(&str) -> bool) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Ok(());
    };
    for entry in entries {
        let path = entry?.path();
        let name = path.strip_prefix(tree)?.to_string_lossy().into_owned();
        if path.is_dir() {
            remove_untracked(tree, &path, untracked)?;
        } else if untracked(&name) {
            std::fs::remove_file(&path).with_context(|| name)?;
        }
    }
    Ok(())
}

/// Writes a file unless it has this content already, because cargo detects changes by the modification time.
pub fn write(path: &Path, content: &[u8]) -> Result<()> {
    if std::fs::read(path).is_ok_and(|held| held == content) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, content).with_context(|| path.display().to_string())
}
