//! Time charts as SVG. Pure.
//!
//! Each chart has its values beside it (`data-values`), so that the script can tell the one under the pointer, and a
//! page with all of them as a table.

use std::fmt::Write as _;

use super::html::Text;
use super::words;
use crate::ops::board::SLOTS;

/// Inner size, in the units of the view box.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 90.0;

/// A chart of the last hour.
pub(super) struct Chart<'a> {
    /// What it shows.
    pub(super) title: &'a str,
    /// The unit of its values.
    pub(super) unit: &'a str,
    /// Its lines: name, class of colour, and a value for each slot, oldest first; nothing where it was not measured.
    pub(super) lines: Vec<(&'a str, &'a str, Vec<Option<f64>>)>,
}

impl Chart<'_> {
    /// The chart as HTML.
    pub(super) fn html(&self) -> String {
        let values = || self.lines.iter().flat_map(|(_, _, values)| values.iter().flatten().copied());
        let top = ceiling(values().fold(0.0, f64::max));
        let (mut paths, mut keys, mut data) = (String::new(), String::new(), Vec::new());
        for (name, class, values) in &self.lines {
            let _ = write!(paths, "<path class=\"line {class}\" d=\"{}\"/>", path(values, top));
            let last = values.iter().rev().find_map(|value| *value);
            let _ = write!(
                keys,
                "<li><span class=\"key {class}\"></span>{} <b data-last>{}</b></li>",
                Text(name),
                words::or_dash(last, |value| self.shown(value))
            );
            let rounded: Vec<_> = values.iter().map(|value| value.map(|value| (value * 1_000.0).round() / 1_000.0)).collect();
            data.push(serde_json::json!({"name": name, "values": rounded}));
        }
        let summary: Vec<String> = self
            .lines
            .iter()
            .map(|(name, _, values)| format!("{name} {}", words::or_dash(values.iter().rev().find_map(|v| *v), |value| self.shown(value))))
            .collect();
        format!(
            "<figure class=\"chart\" tabindex=\"0\" data-unit=\"{unit}\" data-values=\"{data}\">\
             <figcaption>{title} <small>{unit}</small></figcaption>\
             <svg viewBox=\"0 0 400 112\" role=\"img\" aria-label=\"{title}, last hour, in {unit}; now {summary}\">\
             <g class=\"grid\"><path d=\"M40 8H400M40 53H400M40 98H400\"/></g>\
             <text x=\"36\" y=\"12\" class=\"end\">{top}</text><text x=\"36\" y=\"101\" class=\"end\">0</text>\
             <text x=\"40\" y=\"111\">1 h ago</text><text x=\"220\" y=\"111\" class=\"mid\">30 min</text><text x=\"400\" y=\"111\" class=\"end\">now</text>\
             {paths}<path class=\"cursor\" d=\"M0 8V98\" visibility=\"hidden\"/></svg><ul class=\"keys\">{keys}</ul><output></output></figure>",
            unit = Text(self.unit),
            title = Text(self.title),
            data = Text(serde_json::Value::from(data)),
            summary = Text(summary.join(", ")),
            top = Text(self.shown(top)),
        )
    }

    fn shown(&self, value: f64) -> String {
        match self.unit {
            "seconds" => words::seconds(value),
            _ => words::rate(value),
        }
    }
}

/// The line through the values, which end at the right; broken where something was not measured.
fn path(values: &[Option<f64>], top: f64) -> String {
    let mut path = String::new();
    let mut pen_down = false;
    let missing = SLOTS.saturating_sub(values.len());
    for (position, value) in values.iter().enumerate() {
        let Some(value) = value else {
            pen_down = false;
            continue;
        };
        #[expect(clippy::cast_precision_loss, reason = "360 slots")]
        let x = 40.0 + WIDTH * (missing + position) as f64 / (SLOTS - 1) as f64;
        let y = 8.0 + HEIGHT * (1.0 - value / top);
        let _ = write!(path, "{}{x:.1} {y:.1}", if pen_down { 'L' } else { 'M' });
        if !pen_down {
            // A single value is a dot.
            path.push_str("h0.1");
        }
        pen_down = true;
    }
    path
}

/// The next round number: 1, 2 or 5 times a power of ten, and at least a hundredth.
fn ceiling(value: f64) -> f64 {
    let mut step = 0.01;
    loop {
        for times in [1.0, 2.0, 5.0] {
            if step * times >= value || step > 1e12 {
                return step * times;
            }
        }
        step *= 10.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_now_and_breaks_where_nothing_was_measured() {
        assert_eq!(path(&[Some(1.0), None, Some(0.0), Some(0.5)], 1.0), "M397.0 8.0h0.1M399.0 98.0h0.1L400.0 53.0");
        assert_eq!(path(&[], 1.0), "");
    }

    #[test]
    fn scales_are_round_numbers() {
        for (value, top) in [(0.0, 0.01), (0.3, 0.5), (12.0, 20.0), (50.0, 50.0), (51.0, 100.0)] {
            assert!((ceiling(value) - top).abs() < 1e-9, "{value}");
        }
    }

    #[test]
    fn its_values_and_its_summary_are_text() {
        let chart = Chart { title: "a<b", unit: "jobs/s", lines: vec![("\"x", "good", vec![Some(0.25)])] };
        let html = chart.html();
        assert!(html.contains("a&lt;b") && !html.contains("a<b") && html.contains("&quot;values&quot;:[0.25]"), "{html}");
    }
}
