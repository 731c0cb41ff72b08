//! Prometheus itself: `promtool` checks the rules, and a server scrapes a daemon.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::cli::api::Api;
use crate::cli::daemon::until;

fn rules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/prometheus")
}

/// The rules of all groups in an answer of Prometheus. Empty if Prometheus is not ready yet.
fn rules_of(answer: &Value) -> Vec<&Value> {
    let groups = answer["data"]["groups"].as_array().into_iter().flatten();
    groups
        .filter_map(|group| group["rules"].as_array())
        .flatten()
        .collect()
}

fn promtool(args: &[&str]) {
    let checked = Command::new("promtool")
        .args(args)
        .current_dir(rules())
        .output()
        .unwrap_or_else(|error| panic!("promtool, which scripts/test installs: {error}"));
    assert!(
        checked.status.success(),
        "{}{}",
        String::from_utf8_lossy(&checked.stdout),
        String::from_utf8_lossy(&checked.stderr)
    );
}

#[test]
fn rules_and_scrape_configuration_are_valid_and_alerts_fire_when_they_should() {
    promtool(&["check", "rules", "evenkeel.rules.yml"]);
    promtool(&["check", "config", "prometheus.yml"]);
    promtool(&[
        "test",
        "rules",
        "evenkeel.tests.yml",
        "evenkeel.days.tests.yml",
    ]);
}

struct Prometheus {
    child: Child,
    address: String,
}

impl Prometheus {
    /// Starts Prometheus with the shipped configuration, but scrapes this daemon every second.
    fn start(api: &Api) -> Self {
        let shipped = std::fs::read_to_string(rules().join("prometheus.yml")).unwrap();
        let config = shipped
            .replace("127.0.0.1:9464", &api.address)
            .replace("15s", "1s")
            .replace(
                "- evenkeel.rules.yml",
                &format!("- {}", rules().join("evenkeel.rules.yml").display()),
            );
        assert!(config.contains(&api.address) && config.contains("scrape_interval: 1s"));
        let folder = api.place.folder();
        std::fs::write(folder.join("prometheus.yml"), config).unwrap();
        let mut child = Command::new("prometheus")
            .arg(format!(
                "--config.file={}",
                folder.join("prometheus.yml").display()
            ))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.join("prometheus").display()
            ))
            .args(["--web.listen-address=127.0.0.1:0", "--log.format=json"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("prometheus, which scripts/test installs: {error}"));
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = log.by_ref().map(Result::unwrap).find_map(|line| {
            let line: Value = serde_json::from_str(&line).ok()?;
            let address = line["address"]
                .as_str()
                .filter(|address| !address.ends_with(":0"))?;
            Some(address.to_owned())
        });
        // The log is read continuously, so that the process never blocks on a full pipe.
        std::thread::spawn(move || log.for_each(drop));
        Self {
            child,
            address: address.unwrap(),
        }
    }

    fn get(&self, path: &str) -> Value {
        // An answer to HTTP 1.0 is never chunked. Until Prometheus is ready, it answers 503.
        let answer = crate::cli::api::ask_at("1.0", &self.address, "GET", path, "", "");
        if answer.status == 200 {
            answer.json()
        } else {
            Value::Null
        }
    }

    fn query(&self, expression: &str) -> Vec<Value> {
        let encoded: String = url::form_urlencoded::byte_serialize(expression.as_bytes()).collect();
        let found = self.get(&format!("/api/v1/query?query={encoded}"));
        found["data"]["result"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_real_prometheus_scrapes_the_daemon_and_evaluates_the_rules() {
    let api = Api::start();
    let prometheus = Prometheus::start(&api);
    api.place.put("jobs", "no job at all");
    let put = r#"{"op":"put","table":"Employees","entity":{"PartitionKey":"Sales","RowKey":"7","Email":"a@b.c"}}"#;
    api.place.run(&["submit", put]).success();
    until("the target is up", || {
        prometheus.query("up == 1").len() == 1
    });
    until("it is ready", || {
        prometheus.query("evenkeel_ready == 1").len() == 1
    });
    until("the job is counted", || {
        prometheus
            .query(r#"evenkeel_jobs_total{outcome="done"} == 1"#)
            .len()
            == 1
    });
    until("its lag is", || {
        prometheus
            .query(r#"evenkeel_lag_seconds_bucket{le="+Inf"} == 1"#)
            .len()
            == 1
    });
    until("poison is", || {
        prometheus.query("evenkeel_poison_messages == 1").len() == 1
    });
    until("a rule recorded it", || {
        prometheus.query("evenkeel:poison_messages:max == 1").len() == 1
    });
    let mut rules = Value::Null;
    // The health of a rule is "unknown" until its group was evaluated.
    until("every rule was evaluated", || {
        rules = prometheus.get("/api/v1/rules");
        let told = rules_of(&rules);
        !told.is_empty() && told.iter().all(|rule| rule["health"] != "unknown")
    });
    for rule in rules_of(&rules) {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
}
