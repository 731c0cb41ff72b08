//! Writes the output of commands. Results go to standard output, as text for people or as JSON for
//! machines. Other text (progress, hints, announcements) goes to standard error, and `-q`
//! suppresses it.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write};

use indicatif::HumanCount;
use serde::Serialize;
use unicode_width::UnicodeWidthStr as _;

use evenkeel_model::unprintable::{escape_bidi, escape_bidi_json, escaped, is_unprintable};

use super::args::Global;
use super::progress::ProgressDisplay;

pub struct Output {
    out: Stream,
    notes: Stream,
    format: Format,
    quiet: bool,
    verbose: bool,
    progress: ProgressDisplay,
}

struct Stream {
    writer: Box<dyn Write + Send>,
    colour: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
}

/// The meaning of a piece of text. On a terminal, the text gets a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Strong,
    Good,
    /// The text reports something that the user should check.
    Warning,
    Bad,
    /// The text is less important.
    Faint,
}

impl Output {
    /// An output to standard output and standard error, with the format that the global options
    /// choose.
    pub fn standard(global: &Global) -> Self {
        let Global {
            json,
            verbose,
            quiet,
            progress,
            ..
        } = global;
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let (format, quiet) = (if *json { Format::Json } else { Format::Text }, *quiet > 0);
        let live = io::stderr().is_terminal() && !quiet && format == Format::Text;
        Self {
            out: Stream {
                writer: Box::new(io::stdout()),
                colour: !plain && io::stdout().is_terminal(),
            },
            notes: Stream {
                writer: Box::new(io::stderr()),
                colour: !plain && io::stderr().is_terminal(),
            },
            format,
            quiet,
            verbose: *verbose > 0,
            progress: match (live, progress) {
                (true, _) => ProgressDisplay::Bar,
                (false, true) => ProgressDisplay::Lines,
                (false, false) => ProgressDisplay::Nothing,
            },
        }
    }

    pub fn to(out: Box<dyn Write + Send>, notes: Box<dyn Write + Send>, format: Format) -> Self {
        let plain = |writer| Stream {
            writer,
            colour: false,
        };
        Self {
            out: plain(out),
            notes: plain(notes),
            format,
            quiet: false,
            verbose: false,
            progress: ProgressDisplay::Nothing,
        }
    }

    #[must_use]
    pub fn showing(self, progress: ProgressDisplay) -> Self {
        Self { progress, ..self }
    }

    pub const fn format(&self) -> Format {
        self.format
    }

    pub const fn progress(&self) -> ProgressDisplay {
        self.progress
    }

    /// Whether text for people is shown in full. Otherwise it is shortened.
    pub const fn verbose(&self) -> bool {
        self.verbose
    }

    pub fn line(&mut self, text: impl Display) -> io::Result<()> {
        writeln!(self.out.writer, "{}", escape_bidi(&text.to_string()))
    }

    /// Writes text without a line end.
    pub fn text(&mut self, text: impl Display) -> io::Result<()> {
        write!(self.out.writer, "{}", escape_bidi(&text.to_string()))
    }

    /// Writes a JSON value: on one line for machines, indented for people.
    pub fn value(&mut self, value: &impl Serialize) -> io::Result<()> {
        let text = match self.format {
            Format::Json => serde_json::to_string(value)?,
            Format::Text => serde_json::to_string_pretty(value)?,
        };
        self.line(escape_bidi_json(&text))
    }

    /// Writes to standard error, unless `-q` was given.
    pub fn write_note(&mut self, text: impl Display) -> io::Result<()> {
        if self.quiet {
            Ok(())
        } else {
            writeln!(self.notes.writer, "{}", escape_bidi(&text.to_string()))
        }
    }

    /// Writes to standard error, even with `-q`.
    pub fn write_error(&mut self, text: impl Display) -> io::Result<()> {
        writeln!(self.notes.writer, "{}", escape_bidi(&text.to_string()))
    }

    pub fn tone(&self, tone: Tone, text: impl Display) -> String {
        paint(self.out.colour, tone, text)
    }

    pub fn note_tone(&self, tone: Tone, text: impl Display) -> String {
        paint(self.notes.colour, tone, text)
    }

    /// Writes rows in columns under a heading. Columns are aligned by the width that their text has
    /// on a terminal: a Korean letter is two characters wide. If there are no rows, nothing is
    /// written.
    pub fn columns<const N: usize>(
        &mut self,
        heading: [&str; N],
        rows: &[[String; N]],
    ) -> io::Result<()> {
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.to_vec()).collect();
        self.table(&heading.map(str::to_owned), &rows)
    }

    /// Like [`columns`](Self::columns), for a number of columns that is only known at run time.
    pub fn table(&mut self, heading: &[String], rows: &[Vec<String>]) -> io::Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let length = |cell: Option<&String>| cell.map_or(0, |cell| cell.width());
        let widths: Vec<usize> = (0..heading.len())
            .map(|column| {
                rows.iter()
                    .map(|row| length(row.get(column)))
                    .fold(length(heading.get(column)), usize::max)
            })
            .collect();
        let line = |cells: &[String]| {
            let mut text = String::new();
            for (cell, width) in cells.iter().zip(&widths) {
                text.push_str(cell);
                text.extend(std::iter::repeat_n(
                    ' ',
                    width.saturating_sub(cell.width()) + 2,
                ));
            }
            text.trim_end().to_owned()
        };
        let heading = self.tone(Tone::Strong, line(heading));
        self.line(heading)?;
        rows.iter().try_for_each(|row| self.line(line(row)))
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.out.writer.flush()?;
        self.notes.writer.flush()
    }
}

fn paint(colour: bool, tone: Tone, text: impl Display) -> String {
    let code = match tone {
        Tone::Strong => "1",
        Tone::Good => "32",
        Tone::Warning => "33",
        Tone::Bad => "1;31",
        Tone::Faint => "2",
    };
    if colour {
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    } else {
        text.to_string()
    }
}

/// Makes text from outside safe to print. Characters that could move the cursor, recolour the
/// terminal, reverse the text or be invisible are escaped.
pub fn printable(text: &str) -> String {
    escaped(text, is_unprintable, |safe, c| {
        safe.extend(c.escape_default());
    })
}

/// Like [`printable`], line by line. Lines after the first are indented, so that none of them looks
/// like a line of the program.
pub fn printable_lines(text: &str) -> String {
    text.lines()
        .map(printable)
        .collect::<Vec<_>>()
        .join("\n    ")
}

/// A number with its noun, such as "1 primary" or "2,000 primaries".
pub fn counted(count: u64, one: &str) -> String {
    let (stem, end) = match one.strip_suffix('y') {
        _ if count == 1 => (one, ""),
        Some(stem) if !stem.ends_with('e') => (stem, "ies"),
        _ => (one, "s"),
    };
    format!("{} {stem}{end}", HumanCount(count))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::{Arc, Mutex, PoisonError};

    /// A writer whose text can be read afterwards.
    #[derive(Clone, Default)]
    pub(crate) struct TextBuffer(Arc<Mutex<Vec<u8>>>);

    impl TextBuffer {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(
                self.0
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone(),
            )
            .unwrap()
        }
    }

    impl Write for TextBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn columns_are_aligned_and_end_without_blanks() {
        let buffer = TextBuffer::default();
        let mut out = Output::to(Box::new(buffer.clone()), Box::new(io::sink()), Format::Text);
        out.columns(
            ["a", "b"],
            &[
                ["long".to_owned(), "x".to_owned()],
                ["한글".to_owned(), "y".to_owned()],
            ],
        )
        .unwrap();
        assert_eq!(
            buffer.text(),
            "a     b\nlong  x\n한글  y\n",
            "each of these letters is as wide as two others"
        );
        assert_eq!("한글".width(), "long".width());
    }

    #[test]
    fn further_lines_of_a_message_are_indented() {
        assert_eq!(
            printable_lines("wrong:\n  a = b\n\u{1b}[2Aerror: x\n"),
            "wrong:\n      a = b\n    \\u{1b}[2Aerror: x"
        );
        assert_eq!(printable_lines("one"), "one");
    }

    #[test]
    fn number_and_noun_agree() {
        let texts = [
            (1, "primary"),
            (0, "primary"),
            (2_000, "data key"),
            (1, "row"),
            (1_001, "row"),
        ]
        .map(|(count, one)| counted(count, one));
        assert_eq!(
            texts,
            [
                "1 primary",
                "0 primaries",
                "2,000 data keys",
                "1 row",
                "1,001 rows"
            ]
        );
    }

    #[test]
    fn machines_get_one_line_per_value() {
        let buffer = TextBuffer::default();
        let mut out = Output::to(Box::new(buffer.clone()), Box::new(io::sink()), Format::Json);
        out.value(&serde_json::json!({"a": [1, 2]})).unwrap();
        assert_eq!(buffer.text(), "{\"a\":[1,2]}\n");
    }

    #[test]
    fn text_from_outside_cannot_control_the_terminal() {
        assert_eq!(printable("a\u{1b}[31m한\n"), "a\\u{1b}[31m한\\n");
        assert_eq!(
            printable("exe\u{202e}gpj.\u{200b}"),
            "exe\\u{202e}gpj.\\u{200b}"
        );
    }

    #[test]
    fn printed_text_is_escaped_and_json_keeps_its_meaning() {
        for format in [Format::Text, Format::Json] {
            let buffer = TextBuffer::default();
            let mut out = Output::to(Box::new(buffer.clone()), Box::new(buffer.clone()), format);
            let value = serde_json::json!({"k": "a\u{202e}b\u{9b}31m\u{7f}\u{e0041}한"});
            out.value(&value).unwrap();
            assert!(
                buffer
                    .text()
                    .contains("a\\u202eb\\u009b31m\\u007f\\udb40\\udc41한"),
                "{}",
                buffer.text()
            );
            assert_eq!(
                serde_json::from_str::<serde_json::Value>(&buffer.text()).unwrap(),
                value
            );
            out.line("x\u{202e}y").unwrap();
            out.write_note("\u{2066}").unwrap();
            out.write_error("\u{1b}[1m\u{200f}").unwrap();
            assert!(
                buffer
                    .text()
                    .ends_with("x\\u{202e}y\n\\u{2066}\n\u{1b}[1m\\u{200f}\n"),
                "{}",
                buffer.text()
            );
        }
    }
}
