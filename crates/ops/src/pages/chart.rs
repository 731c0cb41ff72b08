//! Time charts as SVG. Pure.
//!
//! Each chart contains its values in `data-values`, so that the script can show the value at the pointer. Another page
//! shows all values as a table. Text around the chart is HTML and not SVG, so that its size does not depend on the
//! screen.

use std::fmt::Write as _;

use askama::Template;
use serde_json::{Value, json};

use crate::numbers::{Measure as _, ceiling};
use crate::state::{SLOT, SLOTS};

/// Width of the view box, which is stretched to the available space.
const WIDTH: f64 = 1_000.0;
const HEIGHT: f64 = 100.0;
/// Time spans of charts, in slots. The shortest one that contains all values is used.
const SPANS: [usize; 5] = [30, 60, 90, 180, SLOTS];

/// One value per slot, oldest first; `None` if not measured.
pub(super) type Values = Vec<Option<f64>>;

#[derive(Template)]
#[template(path = "chart.html")]
pub(super) struct Chart<'a> {
    pub(super) title: &'a str,
    pub(super) unit: &'a str,
    /// Name, CSS class of the colour, and values of each line.
    pub(super) lines: Vec<(&'a str, &'a str, Values)>,
}

impl Chart<'_> {
    fn top(&self) -> f64 {
        ceiling(
            self.lines
                .iter()
                .flat_map(|(_, _, values)| values.iter().flatten().copied())
                .fold(0.0, f64::max),
        )
    }

    fn span(&self) -> usize {
        span(
            self.lines
                .iter()
                .map(|(_, _, values)| values.len())
                .max()
                .unwrap_or(0),
        )
    }

    fn data(&self) -> Value {
        let rounded = |values: &Values| -> Values {
            values
                .iter()
                .map(|value| value.map(|value| (value * 1_000.0).round() / 1_000.0))
                .collect()
        };
        self.lines
            .iter()
            .map(|(name, _, values)| json!({"name": name, "values": rounded(values)}))
            .collect()
    }

    fn shown(&self, value: Option<f64>) -> String {
        match self.unit {
            "seconds" => value.seconds(),
            _ => value.rate(),
        }
    }
}

fn last(values: &[Option<f64>]) -> Option<f64> {
    values.iter().rev().find_map(|value| *value)
}

/// Whether a line is zero everywhere. Such a line would only cover other lines at the bottom of the chart.
fn flat(values: &[Option<f64>]) -> bool {
    values.iter().flatten().all(|value| *value <= 0.0)
}

fn minutes(slots: usize) -> u64 {
    slots as u64 * SLOT.as_secs() / 60
}

/// A small line without axes, shown next to the latest value.
#[derive(Template)]
#[template(path = "spark.html")]
pub(super) struct Spark(pub(super) Values);

impl Spark {
    fn path(&self, shape: ChartShape) -> String {
        let top = ceiling(self.0.iter().flatten().copied().fold(0.0, f64::max));
        path(&self.0, top, self.0.len().max(2), shape)
    }
}

fn span(slots: usize) -> usize {
    SPANS
        .into_iter()
        .find(|span| *span >= slots)
        .unwrap_or(SLOTS)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ChartShape {
    Line,
    /// A line, with the area between the line and zero filled.
    Area,
}

/// Returns the path of the line through the values. The last value is at the right edge. The line is interrupted at
/// slots without a value. A point with the same height as both of its neighbours is left out.
fn path(values: &[Option<f64>], top: f64, span: usize, shape: ChartShape) -> String {
    let mut path = String::new();
    let missing = span.saturating_sub(values.len());
    #[expect(clippy::cast_precision_loss, reason = "360 slots")]
    let x = |position: usize| WIDTH * (missing + position) as f64 / (span - 1).max(1) as f64;
    let y = |value: f64| HEIGHT * (1.0 - value / top);
    let mut position = 0;
    for piece in values.split(Option::is_none) {
        if !piece.is_empty() {
            let first = x(position);
            let _ = write!(path, "M{first:.0} {:.1}", y(piece[0].unwrap_or(0.0)));
            for (at, value) in piece.iter().enumerate().skip(1) {
                let flat =
                    at + 1 < piece.len() && piece[at - 1] == *value && piece[at + 1] == *value;
                if !flat {
                    let _ = write!(
                        path,
                        "L{:.0} {:.1}",
                        x(position + at),
                        y(value.unwrap_or(0.0))
                    );
                }
            }
            match shape {
                // A single value is drawn as a dot.
                ChartShape::Line if piece.len() == 1 => path.push_str("h0.1"),
                ChartShape::Line => {}
                ChartShape::Area => {
                    let _ = write!(path, "V{HEIGHT:.0}H{first:.0}Z");
                }
            }
        }
        position += piece.len() + 1;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_at_the_right_and_breaks_at_missing_values() {
        let values = [Some(1.0), None, Some(0.0), Some(0.5)];
        assert_eq!(
            path(&values, 1.0, 11, ChartShape::Line),
            "M700 0.0h0.1M900 100.0L1000 50.0"
        );
        assert_eq!(
            path(&values[2..], 1.0, 11, ChartShape::Area),
            "M900 100.0L1000 50.0V100H900Z"
        );
        assert_eq!(path(&[], 1.0, 30, ChartShape::Line), "");
    }

    #[test]
    fn a_constant_line_has_two_points() {
        assert_eq!(
            path(&[Some(0.0); 361], 1.0, 361, ChartShape::Line),
            "M0 100.0L1000 100.0"
        );
    }

    #[test]
    fn scales_are_round_and_spans_contain_all_values() {
        for (value, top) in [
            (0.0, 0.01),
            (0.3, 0.5),
            (12.0, 20.0),
            (50.0, 50.0),
            (51.0, 100.0),
        ] {
            assert!((ceiling(value) - top).abs() < 1e-9, "{value}");
        }
        assert_eq!([0, 30, 31, 200, 360].map(span), [30, 30, 60, 360, 360]);
    }

    #[test]
    fn chart_values_and_labels_are_escaped() {
        let chart = Chart {
            title: "a<b",
            unit: "jobs/s",
            lines: vec![("\"x", "good", vec![Some(0.25)])],
        };
        let html = chart.to_string();
        assert!(
            html.contains("a&#60;b")
                && !html.contains("a<b")
                && html.contains("&#34;values&#34;:[0.25]"),
            "{html}"
        );
    }
}
