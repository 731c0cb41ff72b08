//! Reading the configuration again while the program runs (SIGHUP).
//!
//! Taken over: the content of secret files; the log level; the polling, the retries and the timeouts of the worker; the
//! retries of storage requests; tables, views and archives that were added. All other changes are named, and wait for a
//! restart: queues and accounts are opened at the start, and a view that changed or went is a migration that every worker
//! has to follow. A configuration with a mistake changes nothing but secrets.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::AppParts;
use evenkeel_config::Request;
use evenkeel_ops::logging::AUDIT;
use evenkeel_rollout::{Watch, grow};
use evenkeel_worker::{Tuned, Tuning};

/// Keys that are taken over; those that end with a point with everything below them.
const TUNED: [&str; 7] = [
    "log.level",
    "worker.poll.",
    "worker.retry_delay.",
    "worker.storage_retry", // a list
    "worker.storage_retry.",
    "worker.give_up_after",
    "worker.max_dequeue_count",
];
/// Keys of the catalog: taken over where it grew.
const CATALOG: [&str; 5] = ["tables.", "views.", "archives.", "retention.", "rules."];

/// The context of a reload.
pub(super) struct Reload<'a> {
    pub(super) parts: &'a AppParts,
    pub(super) request: &'a Request,
    pub(super) tuning: &'a Tuning,
    pub(super) watch: &'a Watch<'a>,
}

impl Reload<'_> {
    /// Reads the configuration again and takes over the settings that can change.
    pub(super) async fn reload(&self) {
        self.parts.opened.read_secrets_again().await;
        let loaded = match evenkeel_config::load(self.request) {
            Ok(loaded) => loaded,
            Err(errors) => {
                tracing::error!(mistakes = %errors, "the configuration was read again and has mistakes: nothing is changed");
                return;
            }
        };
        if let Err(error) = self.parts.log.configured(&loaded.settings.log.level) {
            tracing::warn!(%error, "the log level stays as it is");
        }
        self.tuning.change(Tuned::of(&loaded.settings.worker));
        self.parts
            .opened
            .retry(loaded.settings.worker.storage_retry);
        let grown = grow(self.watch, &loaded.catalog).await;
        let shown = evenkeel_config::show_json(&loaded);
        let (merged, taken, waiting) = merge(&self.parts.config.load(), &shown, grown);
        self.parts.config.store(Arc::new(merged));
        tracing::warn!(target: AUDIT, taken = taken.join(", "), needs_a_restart = waiting.join(", "), "audit: the configuration was read again");
    }
}

/// The configuration in force after a reload, the keys that were taken over and those that wait for a restart. Pure.
fn merge(old: &Value, new: &Value, grown: bool) -> (Value, Vec<String>, Vec<String>) {
    let entries = |value: &Value| -> BTreeMap<String, Value> {
        let values = value["values"].as_array().into_iter().flatten();
        values
            .filter_map(|entry| Some((entry["key"].as_str()?.to_owned(), entry.clone())))
            .collect()
    };
    let (mut in_force, new) = (entries(old), entries(new));
    let keys: Vec<String> = in_force
        .keys()
        .chain(new.keys())
        .cloned()
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect();
    let (mut taken, mut waiting) = (Vec::new(), Vec::new());
    for key in keys {
        let value = |of: &BTreeMap<String, Value>| of.get(&key).map(|entry| entry["value"].clone());
        if value(&in_force) == value(&new) {
            continue;
        }
        let under = |names: &[&str]| {
            names.iter().any(|name| {
                if name.ends_with('.') {
                    key.starts_with(name)
                } else {
                    key == *name
                }
            })
        };
        if under(&TUNED) || (grown && under(&CATALOG)) {
            match new.get(&key) {
                Some(entry) => in_force.insert(key.clone(), entry.clone()),
                None => in_force.remove(&key),
            };
            taken.push(key);
        } else {
            waiting.push(key);
        }
    }
    (
        json!({"values": in_force.into_values().collect::<Vec<_>>()}),
        taken,
        waiting,
    )
}

#[cfg(test)]
mod tests {
    use evenkeel_config::Folder;
    use evenkeel_model::settings::WorkerSettings;

    use super::*;

    #[test]
    fn what_is_shown_as_in_force_is() {
        let config = |poll: &str, listen: &str, view: &str| {
            let entry =
                |key: &str, value: &str| json!({"key": key, "value": value, "origin": "file"});
            json!({"values": [entry("http.listen", listen), entry("views.a.table", view), entry("worker.poll.max", poll)]})
        };
        let (old, new) = (config("5s", "a", "T"), config("1s", "b", "U"));
        let (merged, taken, waiting) = merge(&old, &new, false);
        assert_eq!(
            (taken, waiting),
            (
                vec!["worker.poll.max".to_owned()],
                vec!["http.listen".to_owned(), "views.a.table".to_owned()]
            )
        );
        assert_eq!(merged, config("1s", "a", "T"));
        assert_eq!(merge(&old, &new, true).0, config("1s", "a", "U"));
    }

    #[test]
    fn a_key_of_the_worker_is_taken_over_if_the_running_worker_reads_it_and_only_then() {
        let load = |overrides: Vec<String>| {
            let request = Request {
                folder: Folder::Usual("/nonexistent/config".into()),
                overrides,
                ..Request::default()
            };
            evenkeel_config::load(&request).unwrap()
        };
        let default = load(Vec::new());
        let read = |settings: &WorkerSettings| (Tuned::of(settings), settings.storage_retry);
        let shown = evenkeel_config::show_json(&default);
        for entry in shown["values"].as_array().unwrap() {
            let key = entry["key"].as_str().unwrap();
            if !key.starts_with("worker.") {
                continue;
            }
            let other = match key {
                "worker.lease" | "worker.drain" | "worker.poll.max" => "90s",
                "worker.job_timeout" | "worker.give_up_after" => "9m",
                "worker.recheck_after" => "40m",
                "worker.max_dequeue_count" | "worker.storage_retry.attempts" => "7",
                "worker.memory" => "256MiB",
                "worker.poll.min"
                | "worker.retry_delay.min"
                | "worker.retry_delay.base"
                | "worker.storage_retry.min"
                | "worker.storage_retry.base" => "1s",
                "worker.retry_delay.max" | "worker.storage_retry.max" => "70s",
                _ => panic!("{key}: give it another value here"),
            };
            let changed = load(vec![format!("{key}={other}")]);
            let (_, taken, waiting) = merge(&shown, &evenkeel_config::show_json(&changed), false);
            let is_read = read(&changed.settings.worker) != read(&default.settings.worker);
            let (named, not) = if is_read {
                (taken, waiting)
            } else {
                (waiting, taken)
            };
            assert_eq!((named, not), (vec![key.to_owned()], vec![]));
        }
    }

    #[test]
    fn retries_by_the_formula_give_way_to_a_list() {
        let config = |key: &str, value: Value| json!({"values": [{"key": key, "value": value, "origin": "file"}]});
        let (old, new) = (
            config("worker.storage_retry.attempts", json!(6)),
            config("worker.storage_retry", json!(["2s", "4s"])),
        );
        let taken = ["worker.storage_retry", "worker.storage_retry.attempts"]
            .map(str::to_owned)
            .to_vec();
        assert_eq!(merge(&old, &new, false), (new, taken, vec![]));
    }
}
