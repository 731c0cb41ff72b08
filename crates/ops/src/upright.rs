//! Escapes invisible characters and those that change the direction of text in log lines for a terminal. The formatter
//! already escapes control characters, and JSON lines are for programs.

use std::io::{self, Write};

use tracing_subscriber::fmt::MakeWriter;

use evenkeel_model::unprintable::escape_bidi;

/// Wraps a writer of whole lines, or its maker.
pub(super) struct Upright<W>(pub(super) W);

impl<'writer, M: MakeWriter<'writer>> MakeWriter<'writer> for Upright<M> {
    type Writer = Upright<M::Writer>;

    fn make_writer(&'writer self) -> Self::Writer {
        Upright(self.0.make_writer())
    }
}

impl<W: Write> Write for Upright<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0
            .write_all(escape_bidi(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
