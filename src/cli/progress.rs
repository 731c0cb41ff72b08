//! Shows the progress of a command: as a bar on a terminal, or as lines on standard error if
//! requested.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};

use super::Output;
use evenkeel_storage::Clock;

const REDRAW_INTERVAL: Duration = Duration::from_millis(200);
/// Minimum time between two lines.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time between two lines. A long command prints at least this often.
const MAX_INTERVAL: Duration = Duration::from_secs(10);

/// If a step takes longer than this, its name is printed.
const SLOW_AFTER: Duration = Duration::from_secs(3);

/// Awaits a step that is usually quick, and prints its name if it takes long.
pub(super) async fn announce_if_slow<T>(
    what: &str,
    doing: impl Future<Output = T>,
    out: &mut Output,
) -> T {
    tokio::pin!(doing);
    tokio::select! {
        biased;
        done = &mut doing => return done,
        () = tokio::time::sleep(SLOW_AFTER) => {}
    }
    // If the output is closed, the step is awaited without a message.
    let _ = out.write_note(what);
    let _ = out.flush();
    doing.await
}

/// The note that is printed while samples are read.
pub(super) const SAMPLING: &str = "Reading samples of the tables: up to 60 requests for each ...";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgressDisplay {
    Bar,
    Lines,
    Nothing,
}

pub(super) struct Progress {
    bar: ProgressBar,
    lines: Option<ProgressLines>,
}

struct ProgressLines {
    clock: Arc<dyn Clock>,
    label: String,
    things: &'static str,
    total: Option<u64>,
    began: Duration,
    due: Duration,
}

impl Progress {
    /// Begins to show progress. `total` is the approximate number of things, if it is known.
    pub(super) fn begin(
        label: impl fmt::Display,
        things: &'static str,
        total: Option<u64>,
        out: &Output,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        match out.progress() {
            ProgressDisplay::Nothing => Self {
                bar: ProgressBar::hidden(),
                lines: None,
            },
            ProgressDisplay::Lines => {
                let began = clock.monotonic();
                let lines = ProgressLines {
                    clock: Arc::clone(clock),
                    label: label.to_string(),
                    things,
                    total,
                    began,
                    due: began + MIN_INTERVAL,
                };
                Self {
                    bar: ProgressBar::hidden(),
                    lines: Some(lines),
                }
            }
            ProgressDisplay::Bar => {
                let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
                let template = format!(
                    "{{spinner}} {{msg}}: {{human_pos}}{{of}} {things}, {{rate}}, {{elapsed}}"
                );
                if let Ok(style) = ProgressStyle::with_template(&template) {
                    // If a text cannot be written to the bar, it is left out.
                    let style =
                        style.with_key("of", |state: &ProgressState, text: &mut dyn fmt::Write| {
                            let _ = text.write_str(&of_about(state.len(), state.pos()));
                        });
                    bar.set_style(style.with_key(
                        "rate",
                        |state: &ProgressState, text: &mut dyn fmt::Write| {
                            let _ = write!(text, "{:.0}/s", state.per_sec());
                        },
                    ));
                }
                bar.set_message(label.to_string());
                bar.enable_steady_tick(REDRAW_INTERVAL);
                Self { bar, lines: None }
            }
        }
    }

    pub(super) fn set(&mut self, done: u64, out: &mut Output) -> io::Result<()> {
        self.bar.set_position(done);
        match self.lines.as_mut().and_then(|lines| lines.line(done)) {
            Some(line) => {
                out.write_error(line)?;
                out.flush()
            }
            None => Ok(()),
        }
    }

    /// Hides the bar, writes something, and shows the bar again.
    pub(super) fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }

    pub(super) fn end(self) {
        self.bar.finish_and_clear();
    }
}

impl ProgressLines {
    /// The next line of progress; `None` if it is not due yet.
    fn line(&mut self, done: u64) -> Option<String> {
        let now = self.clock.monotonic();
        if now < self.due {
            return None;
        }
        let passed = now.saturating_sub(self.began);
        self.due = now + (passed / 10).clamp(MIN_INTERVAL, MAX_INTERVAL);
        let of = of_about(self.total, done);
        Some(format!(
            "{}: {}{of} {}, {} s",
            self.label,
            HumanCount(done),
            self.things,
            passed.as_secs()
        ))
    }
}

/// The total as a text. The text is empty if the total is unknown. It is also empty if more than
/// the total is done: the total comes from an earlier count and may be too low.
fn of_about(total: Option<u64>, done: u64) -> String {
    total
        .filter(|total| done <= *total)
        .map(|total| format!(" of about {}", HumanCount(total)))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Format;
    use crate::cli::output::tests::TextBuffer;
    use evenkeel_storage::system::SystemClock;

    #[tokio::test(start_paused = true)]
    async fn a_progress_line_appears_within_a_second_and_then_less_and_less_often() {
        let (clock, buffer) = (
            Arc::new(SystemClock::new()) as Arc<dyn Clock>,
            TextBuffer::default(),
        );
        let mut out = Output::to(Box::new(io::sink()), Box::new(buffer.clone()), Format::Text)
            .showing(ProgressDisplay::Lines);
        let mut progress = Progress::begin("Employees", "primaries", Some(2_000), &out, &clock);
        for tenth in 1..=600_u64 {
            tokio::time::advance(Duration::from_millis(100)).await;
            progress.set(tenth * 10, &mut out).unwrap();
        }
        let text = buffer.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Employees: 100 of about 2,000 primaries, 1 s");
        assert!(
            !lines[lines.len() - 1].contains(" of about "),
            "a total that was passed is left out: {text}"
        );
        assert!((15..40).contains(&lines.len()), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn no_progress_is_printed_unless_requested() {
        let (clock, buffer) = (
            Arc::new(SystemClock::new()) as Arc<dyn Clock>,
            TextBuffer::default(),
        );
        let mut out = Output::to(Box::new(io::sink()), Box::new(buffer.clone()), Format::Text);
        let mut progress = Progress::begin("Employees", "primaries", None, &out, &clock);
        tokio::time::advance(Duration::from_mins(1)).await;
        progress.set(10, &mut out).unwrap();
        assert_eq!(buffer.text(), "");
    }
}
