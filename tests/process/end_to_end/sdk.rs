//! The official SDKs, as clients of Azurite.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::azurite::Ports;

/// Runs a script of `tests/sdk` with the SDK for Python. Returns the script's output.
pub(crate) fn python(ports: Ports, script: &str, arguments: &[&str]) -> String {
    python_with(ports, script, arguments, "")
}

pub(crate) fn python_with(ports: Ports, script: &str, arguments: &[&str], input: &str) -> String {
    let python = root().join("target/sdk-venv/bin/python");
    installed(&root().join("target/sdk-venv/installed.txt"), "Python");
    run(
        Command::new(python).arg(script).args(arguments),
        ports,
        input,
    )
}

pub(crate) fn node(ports: Ports, script: &str, arguments: &[&str]) -> String {
    node_with(ports, script, arguments, "")
}

pub(crate) fn node_with(ports: Ports, script: &str, arguments: &[&str], input: &str) -> String {
    installed(
        &root().join("tests/sdk/node_modules/@azure/storage-queue/package.json"),
        "JavaScript",
    );
    run(
        Command::new("node").arg(script).args(arguments),
        ports,
        input,
    )
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn installed(file: &Path, language: &str) {
    let missing: Option<PathBuf> = (!file.exists()).then(|| file.to_path_buf());
    assert!(
        missing.is_none(),
        "the Azure SDK for {language} is not installed (no {}): run scripts/test, which installs it",
        file.display()
    );
}

fn run(command: &mut Command, ports: Ports, input: &str) -> String {
    command
        .current_dir(root().join("tests/sdk"))
        .env("AZURE_STORAGE_CONNECTION_STRING", ports.connection_string());
    command
        .env("PYTHONIOENCODING", "utf-8")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}
