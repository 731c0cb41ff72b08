//! What the documentation shows is so: every job in `docs/jobs.md` is one, every metric is in `docs/operations.md`.

use evenkeel::model::job;
use evenkeel::telemetry::names::METRICS;

/// The fenced blocks of a language in a Markdown file.
fn blocks<'t>(text: &'t str, language: &str) -> Vec<&'t str> {
    let fence = format!("```{language}\n");
    text.split(fence.as_str()).skip(1).filter_map(|rest| rest.split("\n```").next()).collect()
}

#[test]
fn every_job_that_the_documentation_shows_is_decoded_and_valid() {
    let text = include_str!("../docs/jobs.md");
    let schema = jsonschema::validator_for(&job::schema()).unwrap();
    let mut ops = Vec::new();
    for block in blocks(text, "json") {
        let json: serde_json::Value = serde_json::from_str(block).unwrap_or_else(|error| panic!("{error}: {block}"));
        if json.get("reason").is_some() {
            continue;
        }
        let envelope = job::decode(block).unwrap_or_else(|error| panic!("{error}: {block}"));
        assert_eq!(envelope.unknown_fields, 0, "{block}");
        assert!(schema.is_valid(&json), "{block}");
        ops.push(envelope.job.op());
    }
    for op in job::OPS {
        assert!(ops.contains(&op), "docs/jobs.md shows no {op}");
    }
}

#[test]
fn the_schema_in_the_documentation_is_the_program_s_own() {
    let written: serde_json::Value = serde_json::from_str(include_str!("../docs/job.schema.json")).unwrap();
    assert_eq!(written, job::schema(), "run scripts/check-generated --write");
}

#[test]
fn every_metric_is_documented_with_its_labels() {
    let rows: Vec<&str> = include_str!("../docs/operations.md").lines().filter(|line| line.starts_with("| `evenkeel_")).collect();
    for metric in METRICS {
        let name = format!("`{}`", metric.name);
        let row = rows.iter().find(|row| row.contains(&name)).unwrap_or_else(|| panic!("{name} is not in docs/operations.md"));
        for label in metric.labels {
            assert!(row.contains(&format!("`{label}`")), "{name} lacks its label {label} in docs/operations.md");
        }
    }
}
