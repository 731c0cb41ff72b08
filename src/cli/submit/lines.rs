//! Reads numbered lines of limited length. The first line has the number 1.

use std::io;

use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_buf,
};

use evenkeel_model::limits;

/// Maximum length of a line in bytes. Every job that fits into a message is shorter. The rest of a
/// longer line is skipped and not kept in memory.
const LONGEST: u64 = 2 * limits::EXPANDED_BODY_BYTES as u64;

pub(super) struct InputLines<R> {
    input: R,
    number: u64,
    /// The beginning of a line that was not read completely yet.
    begun: Vec<u8>,
    /// Whether the rest of a line that is too long is being skipped.
    skipping: bool,
}

pub(super) struct InputLine {
    pub(super) number: u64,
    /// The text of the line, or why it cannot be used.
    pub(super) text: Result<String, String>,
}

impl<R: AsyncBufRead + Unpin> InputLines<R> {
    pub(super) const fn new(input: R) -> Self {
        Self {
            input,
            number: 0,
            begun: Vec::new(),
            skipping: false,
        }
    }

    /// Reads the next line. Returns `None` at the end of the input.
    pub(super) async fn next(&mut self) -> io::Result<Option<InputLine>> {
        self.skip_line().await?;
        let room = LONGEST.saturating_sub(self.begun.len() as u64);
        // If this future is dropped while it waits, `begun` keeps what was read, and the next call
        // continues with it.
        if (&mut self.input)
            .take(room)
            .read_until(b'\n', &mut self.begun)
            .await?
            == 0
            && self.begun.is_empty()
        {
            return Ok(None);
        }
        let bytes = std::mem::take(&mut self.begun);
        self.number += 1;
        let text = if bytes.len() as u64 == LONGEST && bytes.last() != Some(&b'\n') {
            self.skipping = true;
            Err(format!("the line has more than {LONGEST} bytes"))
        } else {
            String::from_utf8(bytes).map_err(|error| {
                format!(
                    "the line is not UTF-8 (byte {})",
                    error.utf8_error().valid_up_to()
                )
            })
        };
        Ok(Some(InputLine {
            number: self.number,
            text,
        }))
    }

    /// Copies the rest of the input. Returns its size in bytes.
    pub(super) async fn copy_rest(mut self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<u64> {
        self.skip_line().await?;
        to.write_all(&self.begun).await?;
        Ok(self.begun.len() as u64 + copy_buf(&mut self.input, to).await?)
    }

    async fn skip_line(&mut self) -> io::Result<()> {
        while self.skipping {
            let mut rest = Vec::new();
            let read = (&mut self.input)
                .take(LONGEST)
                .read_until(b'\n', &mut rest)
                .await?;
            self.skipping = read > 0 && rest.last() != Some(&b'\n');
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(input: &[u8]) -> Vec<(u64, Result<String, String>)> {
        let mut lines = InputLines::new(input);
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            found.push((line.number, line.text));
        }
        found
    }

    #[tokio::test]
    async fn lines_are_numbered_from_one_and_the_last_may_lack_its_end() {
        assert_eq!(
            read(b"a\n\nb").await,
            [
                (1, Ok("a\n".to_owned())),
                (2, Ok("\n".to_owned())),
                (3, Ok("b".to_owned()))
            ]
        );
        assert_eq!(read(b"").await, []);
    }

    #[tokio::test]
    async fn the_next_line_is_read_after_one_that_is_not_text_or_too_long() {
        let mut input = vec![0xff, b'\n'];
        input.extend(std::iter::repeat_n(b'x', 5_000_000));
        input.extend(b"\nend\n");
        let found = read(&input).await;
        assert!(found[0].1.is_err() && found[1].1.is_err());
        assert_eq!(found[2], (3, Ok("end\n".to_owned())));
    }

    #[tokio::test]
    async fn the_rest_begins_after_the_last_complete_line() {
        let (mut writer, reader) = tokio::io::duplex(64);
        writer.write_all(b"one\ntw").await.unwrap();
        let mut lines = InputLines::new(tokio::io::BufReader::new(reader));
        assert!(lines.next().await.unwrap().unwrap().text.unwrap() == "one\n");
        assert!(futures::poll!(Box::pin(lines.next())).is_pending());
        writer.write_all(b"o\nthree").await.unwrap();
        drop(writer);
        let mut rest = Vec::new();
        assert_eq!(lines.copy_rest(&mut rest).await.unwrap(), 9);
        assert_eq!(rest, b"two\nthree");
    }
}
