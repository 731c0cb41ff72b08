//! Writes a file of the lines that were not sent. The file can be the input of another `submit`.
//!
//! The file is written under another name and renamed at the end, so that one command can read and
//! write the same file. If the command dies, an existing file stays unchanged.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use anyhow::Context as _;
use tokio::fs::{self, File, OpenOptions};
use tokio::io::{AsyncBufRead, AsyncWriteExt as _, BufWriter};

use super::lines::InputLines;

/// The lines that were not sent or may not have been sent.
pub(super) struct UnsentLines {
    path: PathBuf,
    part: PathBuf,
    file: BufWriter<File>,
    /// Lines whose result is not known yet.
    pending: BTreeMap<u64, String>,
    bytes: u64,
}

impl UnsentLines {
    /// Creates the file, under its temporary name.
    pub(super) async fn begin(path: PathBuf) -> anyhow::Result<Self> {
        let mut part = path.clone().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&part)
            .await;
        let file =
            file.with_context(|| format!("could not create {} for unsent lines", part.display()))?;
        Ok(Self {
            path,
            part,
            file: BufWriter::new(file),
            pending: BTreeMap::new(),
            bytes: 0,
        })
    }

    pub(super) fn read(&mut self, number: u64, text: &str) {
        self.pending.insert(number, text.to_owned());
    }

    /// Records whether `lines` lines were sent, beginning with line `first`.
    pub(super) async fn settle(
        &mut self,
        first: u64,
        lines: usize,
        is_sent: bool,
    ) -> io::Result<()> {
        let numbers: Vec<u64> = self
            .pending
            .range(first..)
            .map(|(number, _)| *number)
            .take(lines)
            .collect();
        for number in numbers {
            if let Some(line) = self.pending.remove(&number).filter(|_| !is_sent) {
                self.write(&line).await?;
            }
        }
        Ok(())
    }

    async fn write(&mut self, line: &str) -> io::Result<()> {
        let line = line.trim_end_matches(['\r', '\n']);
        self.bytes += line.len() as u64 + 1;
        self.file.write_all(line.as_bytes()).await?;
        self.file.write_all(b"\n").await
    }

    /// Adds the input that was not read, and renames the file. Returns whether the file has any
    /// content.
    pub(super) async fn end(
        mut self,
        input: InputLines<impl AsyncBufRead + Unpin>,
    ) -> anyhow::Result<bool> {
        let ended = async {
            for line in std::mem::take(&mut self.pending).into_values() {
                self.write(&line).await?;
            }
            self.bytes += input.copy_rest(&mut self.file).await?;
            self.file.flush().await?;
            self.file.get_ref().sync_all().await?;
            fs::rename(&self.part, &self.path).await
        };
        ended
            .await
            .with_context(|| format!("could not write unsent lines to {}", self.path.display()))?;
        Ok(self.bytes > 0)
    }
}
