//! Escapes invisible characters and characters that change the direction of text, in log lines for a terminal. Control
//! characters are already escaped by the formatter. JSON lines are not escaped, because programs read them.

use std::io::{self, Write};

use tracing_subscriber::fmt::MakeWriter;

use evenkeel_model::unprintable::escape_bidi;

/// Wraps a writer of whole lines, or the `MakeWriter` that makes such writers.
pub(super) struct BidiEscaper<W>(pub(super) W);

impl<'writer, M: MakeWriter<'writer>> MakeWriter<'writer> for BidiEscaper<M> {
    type Writer = BidiEscaper<M::Writer>;

    fn make_writer(&'writer self) -> Self::Writer {
        BidiEscaper(self.0.make_writer())
    }
}

impl<W: Write> Write for BidiEscaper<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0
            .write_all(escape_bidi(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
