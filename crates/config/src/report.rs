//! Output of `config check` and `config show`.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::finding::{ConfigErrors, Finding};
use super::load::Configuration;
use evenkeel_model::prices;
use evenkeel_model::settings::QueueSettings;
use evenkeel_model::units::{duration_text, size_text};

/// Formats mistakes and warnings as text, without a line break at the end.
pub fn check_text(result: &Result<Configuration, ConfigErrors>) -> String {
    let (errors, warnings) = findings(result);
    let mut text = String::new();
    for (label, findings) in [("error", errors), ("warning", warnings)] {
        for finding in findings {
            let _ = writeln!(text, "{label}: {finding}");
        }
    }
    match result {
        Ok(loaded) => {
            let _ = writeln!(
                text,
                "jobs in flight use at most {} of memory in total (worker.memory)",
                size_text(loaded.settings.worker.memory)
            );
            let (dollars, slowest) = idle_cost(loaded);
            let _ = writeln!(
                text,
                "an idle worker polls each queue every {}: about ${dollars:.2} a month (worker.poll)",
                duration_text(slowest)
            );
            let count = |number: usize, what: &str| {
                format!("{number} {what}{}", if number == 1 { "" } else { "s" })
            };
            let _ = write!(
                text,
                "the configuration is valid: {}, {}, {}, {}, {}, {}",
                count(loaded.settings.accounts.len(), "account"),
                count(loaded.settings.queues.len(), "queue"),
                count(loaded.catalog.targets().count(), "table"),
                count(loaded.catalog.views.len(), "view"),
                count(loaded.catalog.archives.len(), "archive"),
                count(warnings.len(), "warning")
            );
        }
        Err(errors) => {
            let _ = write!(
                text,
                "the configuration has {} mistake{}",
                errors.errors.len(),
                if errors.errors.len() == 1 { "" } else { "s" }
            );
        }
    }
    text
}

pub fn check_json(result: &Result<Configuration, ConfigErrors>) -> Value {
    let (errors, warnings) = findings(result);
    let memory = result
        .as_ref()
        .ok()
        .map(|loaded| loaded.settings.worker.memory);
    let polling = result
        .as_ref()
        .ok()
        .map(|loaded| (idle_cost(loaded).0 * 100.0).round() / 100.0);
    json!({"valid": result.is_ok(), "errors": errors, "warnings": warnings, "memory_bytes": memory, "idle_dollars_a_month": polling})
}

/// Returns the cost of polling for an idle worker in US dollars a month, and its poll interval.
fn idle_cost(loaded: &Configuration) -> (f64, Duration) {
    let slowest = loaded.settings.worker.poll.max;
    let queues: f64 = loaded
        .settings
        .queues
        .iter()
        .map(QueueSettings::idle_polls)
        .sum();
    (prices::polling(slowest) * queues, slowest)
}

/// Formats the effective values as TOML, with their origins as comments, without a line break at the end.
pub fn show_text(loaded: &Configuration) -> String {
    let lines: Vec<String> = loaded
        .origins
        .iter()
        .map(|value| format!("{} = {}", value.key, value.value))
        .collect();
    // The width of the column ignores long values, so that the comments stay visible.
    let width = lines
        .iter()
        .map(|line| line.chars().count())
        .filter(|width| *width <= 60)
        .max()
        .unwrap_or(0);
    let lines = lines
        .iter()
        .zip(&loaded.origins)
        .map(|(line, value)| format!("{line:width$}  # {}", value.origin));
    lines.collect::<Vec<_>>().join("\n")
}

pub fn show_json(loaded: &Configuration) -> Value {
    json!({"values": loaded.origins})
}

const fn findings(result: &Result<Configuration, ConfigErrors>) -> (&[Finding], &[Finding]) {
    match result {
        Ok(loaded) => (&[], loaded.warnings.as_slice()),
        Err(errors) => (errors.errors.as_slice(), errors.warnings.as_slice()),
    }
}
