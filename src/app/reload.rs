//! Reads the configuration again when SIGHUP is received, and whenever a worker with another
//! catalog starts.
//!
//! The following changes take effect: contents of secret files, the log level, polling, retries and
//! timeouts of the worker, and retries of storage requests. A changed catalog takes effect with
//! another worker. All other changes are logged and need a restart, because queues, accounts and
//! encryption keys are opened at the start. If the configuration has a mistake, only secrets
//! change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::AppParts;
use super::signals::Hangups;
use evenkeel_config::{Configuration, Request};
use evenkeel_model::catalog::{Catalog, Form};
use evenkeel_ops::logging::AUDIT;
use evenkeel_rollout::encryption_changes;
use evenkeel_worker::{ReloadableSettings, Tuning};

/// Keys that take effect at once. A key that ends with a dot includes all keys below it.
const RELOADED_KEYS: [&str; 7] = [
    "log.level",
    "worker.poll.",
    "worker.retry_delay.",
    "worker.storage_retry", // a list
    "worker.storage_retry.",
    "worker.give_up_after",
    "worker.max_dequeue_count",
];
/// Keys of the catalog. They take effect when another worker starts.
const CATALOG_KEYS: [&str; 5] = ["tables.", "views.", "archives.", "retention.", "rules."];

/// The part of a reloaded configuration that took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReloadScope {
    /// The settings took effect, and the worker keeps its catalog.
    Settings,
    /// The settings and the catalog took effect: a worker starts with this catalog.
    All,
}

pub(super) struct Reload {
    /// The request with which the configuration was loaded at the start.
    request: Request,
    hangups: tokio::sync::Mutex<Hangups>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The catalog that was loaded at the start; `None` after a worker has used it.
    first: Option<Arc<Catalog>>,
    /// The last configuration that was read; `None` after the log has reported what took effect.
    read: Option<Box<Configuration>>,
    tuning: Option<Arc<Tuning>>,
}

impl Reload {
    pub(super) fn new(request: Request, hangups: Hangups, catalog: Arc<Catalog>) -> Self {
        Self {
            request,
            hangups: tokio::sync::Mutex::new(hangups),
            state: Mutex::new(State {
                first: Some(catalog),
                ..State::default()
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn requested(&self) {
        self.hangups.lock().await.next().await;
    }

    /// Reads the configuration and applies the settings that can change. Returns its catalog, or an
    /// error if the catalog needs stores that are not open.
    pub(super) async fn read(&self, parts: &AppParts) -> anyhow::Result<Arc<Catalog>> {
        if let Some(first) = self.state().first.take() {
            return Ok(first);
        }
        parts.opened.read_secrets_again().await;
        let loaded = evenkeel_config::load(&self.request)
            .context("the reloaded configuration has mistakes; the previous one stays in force")?;
        if let Err(error) = parts.log.configured(&loaded.settings.log.level) {
            tracing::warn!(%error, "could not set the log level: {error}; keeping the current one");
        }
        parts.opened.retry(loaded.settings.worker.storage_retry);
        let catalog = Arc::new(loaded.catalog.clone());
        let mut state = self.state();
        if let Some(tuning) = &state.tuning {
            tuning.change(ReloadableSettings::of(&loaded.settings.worker));
        }
        state.read = Some(Box::new(loaded));
        drop(state);
        refuse_unopened(parts, &catalog)?;
        Ok(catalog)
    }

    /// Registers the settings of a new worker, and applies the last configuration that was read.
    pub(super) fn tune(&self, tuning: Arc<Tuning>) {
        let mut state = self.state();
        if let Some(read) = &state.read {
            tuning.change(ReloadableSettings::of(&read.settings.worker));
        }
        state.tuning = Some(tuning);
    }

    /// Logs which keys of the last configuration took effect, once for each configuration.
    pub(super) fn report(&self, parts: &AppParts, scope: ReloadScope) {
        let Some(read) = self.state().read.take() else {
            return;
        };
        let shown = evenkeel_config::show_json(&read);
        let (merged, taken, waiting) =
            merge(&parts.config.load(), &shown, scope == ReloadScope::All);
        parts.config.store(Arc::new(merged));
        tracing::warn!(target: AUDIT, applied = taken.join(", "), needs_restart = waiting.join(", "), "audit: configuration reloaded");
    }
}

/// Returns an error if the catalog needs an account or sink that can be opened only at the start.
fn refuse_unopened(parts: &AppParts, catalog: &Arc<Catalog>) -> anyhow::Result<()> {
    let context = &parts.context;
    let encryption_changes = encryption_changes(&context.catalog, catalog);
    if !encryption_changes.is_empty() {
        bail!(
            "{} changed, which takes effect only after a restart",
            encryption_changes.join(", ")
        );
    }
    let migrator = context.migrator_to(Arc::clone(catalog))?;
    for account in migrator.needs().tables.keys() {
        context.stores.account(account).with_context(|| {
            format!("the catalog needs account {account}, which was not opened at the start. Restart the worker")
        })?;
    }
    for view in catalog.views.values() {
        if let Form::Documents(documents) = view.form() {
            context.stores.sink(&documents.sink).with_context(|| {
                format!("the catalog needs sink {}, which was not opened at the start. Restart the worker", documents.sink)
            })?;
        }
    }
    Ok(())
}

/// Returns the configuration in force after a reload, the keys that took effect, and the keys that
/// need a restart.
fn merge(old: &Value, new: &Value, with_catalog: bool) -> (Value, Vec<String>, Vec<String>) {
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
        if under(&RELOADED_KEYS) || (with_catalog && under(&CATALOG_KEYS)) {
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
    fn the_configuration_in_force_contains_only_applied_changes() {
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
    fn exactly_the_keys_that_a_running_worker_reads_take_effect_at_once() {
        let load = |overrides: Vec<String>| {
            let request = Request {
                folder: Folder::Default("/nonexistent/config".into()),
                overrides,
                ..Request::default()
            };
            evenkeel_config::load(&request).unwrap()
        };
        let default = load(Vec::new());
        let read =
            |settings: &WorkerSettings| (ReloadableSettings::of(settings), settings.storage_retry);
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
    fn a_list_of_retries_replaces_the_formula() {
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
