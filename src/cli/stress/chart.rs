//! The chart of a stress test, as an SVG file. Pure.

use std::fmt::Write as _;

use askama::Template;

use evenkeel_ops::numbers::ceiling;
use evenkeel_ops::state::{TARGET, grouped};

const TITLE: &str = "Entities per second of the hottest partition";
/// Left, top and size of the plot area, in units of the picture.
const LEFT: f64 = 60.0;
const WIDTH: f64 = 810.0;
const TOP: f64 = 50.0;
const HEIGHT: f64 = 250.0;
/// Colours that differ from each other on white, also for readers who cannot distinguish red and
/// green.
const COLOURS: [&str; 3] = ["#0969da", "#e36209", "#6639ba"];

/// Measured loads over time, with the target of a partition.
#[derive(Template)]
#[template(path = "chart.svg", escape = "html")]
pub(super) struct StressChart<'a> {
    pub(super) lines: Vec<StressLine<'a>>,
}

pub(super) struct StressLine<'a> {
    pub(super) name: &'a str,
    /// The text that follows the name of the load.
    pub(super) summary: String,
    /// Entities per second of the load's hottest partition, for each second.
    pub(super) by_second: &'a [u64],
}

#[expect(clippy::cast_precision_loss, reason = "figures of an hour")]
impl StressChart<'_> {
    fn top(&self) -> f64 {
        let most = self
            .lines
            .iter()
            .flat_map(|line| line.by_second)
            .max()
            .copied()
            .unwrap_or(0);
        ceiling((most as f64).max(TARGET * 1.2))
    }

    fn y(&self, value: f64) -> f64 {
        TOP + HEIGHT * (1.0 - value / self.top())
    }

    fn grid(&self) -> Vec<(f64, String)> {
        [0.0, 0.25, 0.5, 0.75, 1.0]
            .map(|share| (self.y(share * self.top()), whole(share * self.top())))
            .to_vec()
    }

    fn target(&self) -> f64 {
        self.y(TARGET)
    }

    fn seconds(&self) -> usize {
        self.lines
            .iter()
            .map(|line| line.by_second.len())
            .max()
            .unwrap_or(1)
    }

    fn height(&self) -> f64 {
        key_y(self.lines.len())
    }

    /// The line of a load, with one step for each second.
    fn path(&self, line: &StressLine<'_>) -> String {
        let x = |second: usize| LEFT + WIDTH * second as f64 / self.seconds() as f64;
        let mut path = String::new();
        for (second, entities) in line.by_second.iter().enumerate() {
            let letter = if second == 0 { 'M' } else { 'L' };
            let _ = write!(
                path,
                "{letter}{:.1} {:.1}H{:.1}",
                x(second),
                self.y(*entities as f64),
                x(second + 1)
            );
        }
        path
    }
}

/// Vertical position of the text that describes a load.
#[expect(clippy::cast_precision_loss, reason = "three loads")]
fn key_y(number: usize) -> f64 {
    352.0 + 24.0 * number as f64
}

fn colour(number: usize) -> &'static str {
    COLOURS[number % COLOURS.len()]
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate on an axis"
)]
fn whole(value: f64) -> String {
    grouped(value.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_drawn_against_the_target_and_their_names_are_text() {
        let line = |name, by_second| StressLine {
            name,
            summary: "p99 3 ms".to_owned(),
            by_second,
        };
        let chart = StressChart {
            lines: vec![
                line("{Department}<b>", &[2_000, 1_000]),
                line("{RowKey}", &[500]),
            ],
        };
        let svg = chart.to_string();
        assert!(
            svg.contains("{Department}&#60;b&#62;: p99 3 ms") && !svg.contains("<b>"),
            "{svg}"
        );
        assert!(svg.contains("M60.0 200.0H465.0L465.0 250.0H870.0"), "{svg}");
        assert!(
            svg.contains("M60 200H870") && svg.contains("2,000 entities/s"),
            "the target: {svg}"
        );
        assert_eq!(svg.matches("stroke-width=\"2.5\"").count(), 2);
    }
}
