//! Checks the documentation against the program. Every job in `docs/jobs.md` is valid. Every metric is in
//! `docs/metrics.md`, and rules and dashboards use no others. Every key and condition in `docs/catalog.md` has the
//! described effect. The catalogs and jobs of the quick start and the tour are valid.

#![expect(clippy::unwrap_used, reason = "an unreadable page fails the test")]

mod crates;
mod guide;
mod security;

use evenkeel_config::{Folder, Request};
use evenkeel_model::condition::TimedCondition;
use evenkeel_model::job::JobRequest;
use evenkeel_model::template::{Escaping, Template};
use evenkeel_model::{EdmDateTime, EdmValue, job};
use evenkeel_telemetry::names::METRICS;
use evenkeel_worker::poison::PoisonMessage;

fn blocks<'t>(text: &'t str, language: &str) -> Vec<&'t str> {
    let fence = format!("```{language}\n");
    text.split(fence.as_str())
        .skip(1)
        .filter_map(|rest| rest.split("\n```").next())
        .collect()
}

/// The page must show the code that the end-to-end tests run.
#[test]
fn the_sample_of_reading_ones_own_writes_is_the_one_that_is_tested() {
    let page = include_str!("../../../docs/client.md");
    let sample = include_str!("../../sdk/in_step.py");
    let shown = sample.split("# ---\n").nth(1).unwrap();
    assert!(
        page.contains(shown.trim()),
        "docs/client.md does not show {shown}"
    );
}

#[test]
fn every_job_that_the_documentation_shows_is_decoded_and_valid() {
    let text = include_str!("../../../docs/jobs.md");
    let schema = jsonschema::validator_for(&job::schema()).unwrap();
    let mut ops = Vec::new();
    for block in blocks(text, "json") {
        let json: serde_json::Value =
            serde_json::from_str(block).unwrap_or_else(|error| panic!("{error}: {block}"));
        if json.get("reason").is_some() {
            continue;
        }
        let request = job::decode_object(block)
            .and_then(job::decode_request)
            .unwrap_or_else(|error| panic!("{error}: {block}"));
        let envelope = match request {
            JobRequest::Job(envelope) => envelope,
            JobRequest::Batch(batch) => batch.job(0).unwrap(),
        };
        assert_eq!(envelope.unknown_fields, [""; 0], "{block}");
        assert!(schema.is_valid(&json), "{block}");
        ops.push(envelope.job.op());
    }
    for op in job::OPS.iter().filter(|op| !is_sample(op)) {
        assert!(ops.contains(op), "docs/jobs.md has no example of {op}");
        let listed = SHIPPED.split("operations this queue accepts:").nth(1);
        let listed = listed
            .and_then(|rest| rest.split("Default").next())
            .unwrap();
        let mut words = listed.split(|c: char| !c.is_ascii_lowercase() && c != '_');
        assert!(
            words.any(|word| word == *op),
            "config/default.toml does not list {op} beside allow"
        );
    }
}

#[test]
fn the_poison_message_that_the_documentation_shows_has_every_field() {
    let shown = blocks(include_str!("../../../docs/jobs.md"), "json");
    let shown = shown
        .into_iter()
        .find(|block| block.contains("\"reason\""))
        .unwrap();
    // A new field causes a compile error here.
    let PoisonMessage {
        v: _,
        reason: _,
        error: _,
        step: _,
        op,
        dequeue_count: _,
        first_enqueued: _,
        poisoned: _,
        worker: _,
        queue: _,
        message_id: _,
        id,
        body,
        body_blob,
    } = serde_json::from_str(shown).unwrap();
    assert!(op.is_some() && id.is_some() && body.is_some(), "{shown}");
    assert_eq!(body_blob, None, "instead of the body");
}

const SHIPPED: &str = include_str!("../../../config/default.toml");

#[test]
fn every_key_of_the_program_s_own_sections_is_documented() {
    let page = include_str!("../../../docs/configuration.md");
    let shipped: toml::Table = SHIPPED.parse().unwrap();
    for section in ["worker", "http", "migrate", "pace", "log", "traces"] {
        for key in shipped[section].as_table().unwrap().keys() {
            assert!(
                page.contains(&format!("`{key}`")) || page.contains(&format!("`{section}.{key}`")),
                "docs/configuration.md has no row for {section}.{key}"
            );
        }
    }
}

#[test]
fn every_kind_of_view_has_an_example_a_section_and_a_page() {
    let patterns: String = pages()
        .unwrap()
        .into_iter()
        .filter(|(path, _)| path.to_string_lossy().contains("docs/patterns"))
        .map(|(_, text)| text)
        .collect();
    let catalog = include_str!("../../../docs/catalog.md");
    for kind in evenkeel_model::catalog::kind_names() {
        for (place, text) in [
            ("config/default.toml", SHIPPED),
            ("docs/catalog.md", catalog),
            ("docs/patterns", &patterns),
        ] {
            assert!(
                text.contains(&format!("kind = \"{kind}\"")),
                "{place} has no view of kind {kind}"
            );
        }
        assert!(
            include_str!("../../../docs/choose.md").contains(&format!("`{kind}`")),
            "docs/choose.md does not mention views of kind {kind}"
        );
    }
}

#[test]
fn the_schema_in_the_documentation_is_the_program_s_own() {
    let written: serde_json::Value =
        serde_json::from_str(include_str!("../../../docs/job.schema.json")).unwrap();
    assert_eq!(
        written,
        job::schema(),
        "run scripts/check-generated --write"
    );
}

fn is_sample(op: &str) -> bool {
    op.starts_with("sample_")
}

#[test]
fn every_metric_is_documented_with_its_labels() {
    let rows: Vec<&str> = include_str!("../../../docs/metrics.md")
        .lines()
        .filter(|line| line.starts_with("| `evenkeel_"))
        .collect();
    for metric in METRICS {
        let name = format!("`{}`", metric.name);
        let row = rows
            .iter()
            .find(|row| row.contains(&name))
            .unwrap_or_else(|| panic!("{name} is not in docs/metrics.md"));
        for label in metric.labels {
            assert!(
                row.contains(&format!("`{label}`")),
                "{name} lacks its label {label} in docs/metrics.md"
            );
        }
    }
}

/// The names of metrics in a text, without the suffixes of histograms.
fn metrics_in(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|end: char| !end.is_ascii_alphanumeric() && end != '_' && end != ':');
    let named = words.filter(|word| word.starts_with("evenkeel_") || word.starts_with("evenkeel:"));
    named.map(|name| {
        ["_bucket", "_count", "_sum"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .unwrap_or(name)
    })
}

#[test]
fn rules_and_dashboard_use_only_metrics_that_there_are_and_every_alert_is_documented() {
    let rules = include_str!("../../../deploy/prometheus/evenkeel.rules.yml");
    let dashboard = include_str!("../../../deploy/grafana/evenkeel.json");
    let recorded: Vec<&str> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- record: "))
        .collect();
    let mut seen = 0;
    for name in metrics_in(rules).chain(metrics_in(dashboard)) {
        assert!(
            METRICS.iter().any(|metric| metric.name == name) || recorded.contains(&name),
            "there is no metric {name}"
        );
        seen += 1;
    }
    assert!(seen > 40, "found only {seen} names");
    let documented = include_str!("../../../docs/metrics.md");
    let tests = [
        include_str!("../../../deploy/prometheus/evenkeel.tests.yml"),
        include_str!("../../../deploy/prometheus/evenkeel.days.tests.yml"),
    ];
    for alert in rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
    {
        assert!(
            documented.contains(&format!("| `{alert}` |")),
            "{alert} is not in docs/metrics.md"
        );
        assert!(
            tests.iter().any(|tests| tests.contains(alert)),
            "alert {alert} has no test"
        );
    }
    serde_json::from_str::<serde_json::Value>(dashboard).unwrap();
}

/// A page whose first TOML block is a catalog, followed by jobs for that catalog.
struct Walkthrough {
    path: &'static str,
    text: &'static str,
    declares: (usize, usize),
    jobs: usize,
}

const WALKTHROUGHS: [Walkthrough; 3] = [
    Walkthrough {
        path: "README.md",
        text: include_str!("../../../README.md"),
        declares: (1, 0),
        jobs: 2,
    },
    Walkthrough {
        path: "README.ko.md",
        text: include_str!("../../../README.ko.md"),
        declares: (1, 0),
        jobs: 2,
    },
    Walkthrough {
        path: "docs/start.md",
        text: include_str!("../../../docs/start.md"),
        declares: (3, 1),
        jobs: 7,
    },
];

#[test]
fn the_catalog_of_every_walkthrough_is_valid_and_warns_of_nothing() {
    for Walkthrough {
        path,
        text,
        declares,
        ..
    } in WALKTHROUGHS
    {
        let folder = tempfile::tempdir().unwrap();
        let catalog = blocks(text, "toml")
            .into_iter()
            .next()
            .unwrap_or_else(|| panic!("{path} has no catalog"));
        std::fs::write(folder.path().join("default.toml"), catalog).unwrap();
        let request = Request {
            folder: Folder::Named(folder.path().to_owned()),
            ..Request::default()
        };
        let loaded =
            evenkeel_config::load(&request).unwrap_or_else(|errors| panic!("{path}: {errors}"));
        assert_eq!(loaded.warnings.len(), 0, "{path}");
        assert_eq!(
            (loaded.catalog.views.len(), loaded.catalog.archives.len()),
            declares,
            "{path}"
        );
    }
}

#[test]
fn every_job_that_a_walkthrough_submits_is_valid() {
    for Walkthrough {
        path, text, jobs, ..
    } in WALKTHROUGHS
    {
        let submitted: Vec<&str> = text
            .split("evenkeel submit '")
            .skip(1)
            .filter_map(|rest| rest.split('\'').next())
            .collect();
        assert_eq!(submitted.len(), jobs, "{path}");
        for body in submitted {
            let envelope =
                job::decode(body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"));
            assert_eq!(envelope.unknown_fields, [""; 0], "{path}: {body}");
        }
    }
}

#[test]
fn the_readme_is_short() {
    let lines = include_str!("../../../README.md").lines().count();
    assert!(
        lines <= 120,
        "README.md has {lines} lines. Move long sections to a page in docs/"
    );
}

#[test]
fn every_key_filter_makes_what_the_catalog_s_table_says() {
    let mut seen = 0;
    for line in include_str!("../../../docs/catalog.md")
        .lines()
        .filter(|line| line.contains(r"`{"))
    {
        // In a Markdown table, the bar between two filters of an expression is escaped.
        let cells: Vec<String> = line
            .replace(r"\|", "\u{1}")
            .split('|')
            .map(|cell| cell.trim().replace('\u{1}', "|"))
            .collect();
        let [.., template, value, key, _] = cells.as_slice() else {
            continue;
        };
        let Some(template) = template
            .strip_prefix('`')
            .and_then(|text| text.strip_suffix('`'))
        else {
            continue;
        };
        let quoted = |text: &str| {
            text.strip_prefix('`')
                .and_then(|text| text.strip_suffix('`'))
                .map(str::to_owned)
        };
        let value = match (quoted(value), value.parse::<i32>()) {
            (Some(text), _) => EdmValue::String(text),
            (None, Ok(number)) => EdmValue::Int32(number),
            (None, Err(_)) => EdmValue::DateTime(EdmDateTime::parse(value).unwrap()),
        };
        let rendered = Template::parse(template)
            .unwrap()
            .render_with(Escaping::Always, |_| Some(value.clone()))
            .unwrap()
            .unwrap();
        assert_eq!(Some(rendered.to_string()), quoted(key), "{line}");
        seen += 1;
    }
    assert_eq!(seen, 13, "a row of the table of filters was not recognized");
    let page = include_str!("../../../docs/catalog.md");
    for name in evenkeel_model::template::filter_names() {
        assert!(
            page.contains(&format!("`{name}`")) || page.contains(&format!("`{name}:")),
            "docs/catalog.md does not document the filter {name}"
        );
    }
}

#[test]
fn every_condition_in_the_catalog_s_documentation_is_one() {
    let mut seen = 0;
    for line in include_str!("../../../docs/catalog.md")
        .lines()
        .filter(|line| line.starts_with("when = "))
    {
        let table: toml::Table = toml::from_str(line).unwrap();
        let condition = table["when"].as_str().unwrap();
        // Conditions of rules may contain `now`.
        TimedCondition::parse(condition).unwrap_or_else(|error| panic!("{error}"));
        seen += 1;
    }
    assert_eq!(seen, 5);
}

fn pages() -> std::io::Result<Vec<(std::path::PathBuf, String)>> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("docs"), root.join("deploy")];
    let mut files: Vec<_> = [
        "README.md",
        "README.ko.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ]
    .iter()
    .map(|name| root.join(name))
    .collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            match entry?.path() {
                path if path.is_dir() => folders.push(path),
                path if path.extension().is_some_and(|extension| extension == "md") => {
                    files.push(path);
                }
                _ => {}
            }
        }
    }
    files
        .into_iter()
        .map(|path| Ok((path.clone(), std::fs::read_to_string(path)?)))
        .collect()
}

/// The anchor of a heading: lower case, words joined by dashes, other characters removed.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn every_link_between_the_pages_leads_to_a_file_and_a_heading() {
    let mut followed = 0;
    for (path, text) in pages().unwrap() {
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                path.clone()
            } else {
                path.parent().unwrap().join(file)
            };
            assert!(target.exists(), "{}: broken link {link}", path.display());
            if !heading.is_empty() {
                let text = std::fs::read_to_string(&target).unwrap();
                let found = text
                    .lines()
                    .filter(|line| line.starts_with('#'))
                    .any(|line| anchor(line.trim_start_matches('#')) == heading);
                assert!(found, "{}: no heading {link}", path.display());
            }
            followed += 1;
        }
    }
    assert!(followed > 50, "checked only {followed} links");
}

#[test]
fn every_catalog_in_the_pages_of_patterns_keys_events_and_choices_is_valid() {
    const OTHERS: [&str; 3] = ["events.md", "keys.md", "choose.md"];
    let has_catalogs = |path: &std::path::Path| {
        path.parent()
            .is_some_and(|folder| folder.ends_with("patterns"))
            || OTHERS.iter().any(|name| path.ends_with(name))
    };
    let environment: std::collections::BTreeMap<String, String> = [
        ("SEARCH_ADMIN_KEY", "key"),
        ("REPORTING_PASSWORD", "secret"),
        ("WEBHOOK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let mut seen = 0;
    for (path, text) in pages()
        .unwrap()
        .into_iter()
        .filter(|(path, _)| has_catalogs(path))
    {
        for block in blocks(&text, "toml") {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("default.toml"), block).unwrap();
            let environment = environment.clone().into_iter().collect();
            let request = Request {
                folder: Folder::Named(folder.path().to_owned()),
                environment,
                ..Request::default()
            };
            let loaded = evenkeel_config::load(&request)
                .unwrap_or_else(|errors| panic!("{}: {errors}\n{block}", path.display()));
            let meeting = loaded.warnings.iter().find(|warning| {
                warning
                    .to_string()
                    .contains("two different events can get the same key")
            });
            assert_eq!(meeting, None, "{}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 20, "read only {seen} catalogs");
}
