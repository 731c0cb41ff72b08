//! Log lines for people: characters that turn the direction of writing, or are not seen, are shown as escapes. (The formatter escapes
//! control characters itself, and JSON is for machines.)

use std::io::{self, Write};

use tracing_subscriber::fmt::MakeWriter;

use evenkeel_model::unprintable::upright;

/// A writer of whole lines, or its maker.
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
            .write_all(upright(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
