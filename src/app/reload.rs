//! Reading the configuration again while the program runs (SIGHUP).
//!
//! Taken over: the log level; the polling, the retries and the timeouts of the worker; the retries of storage requests;
//! tables, views and archives that were added. All other changes are named, and wait for a restart: queues and
//! accounts are opened at the start, and a view that changed or went is a migration that every worker has to follow.
//! A configuration with a mistake changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::prepare::prepare;
use super::watch::Watch;
use super::{Parts, announce_view};
use crate::catalog::Catalog;
use crate::config::{self, Loaded, Request};
use crate::migrations::Migrator;
use crate::telemetry::AUDIT;
use crate::worker::{Tuned, Tuning};

/// Keys that are taken over; those that end with a point with everything below them.
const TUNED: [&str; 6] =
    ["log.level", "worker.poll.", "worker.retry_delay.", "worker.storage_retry.", "worker.give_up_after", "worker.max_dequeue_count"];
/// Keys of the catalog: taken over where it grew.
const CATALOG: [&str; 4] = ["tables.", "views.", "archives.", "retention."];

/// The context of a reload.
pub(super) struct Reload<'a> {
    pub(super) parts: &'a Parts,
    pub(super) request: &'a Request,
    pub(super) tuning: &'a Tuning,
    pub(super) watch: &'a Watch<'a>,
}

impl Reload<'_> {
    /// Reads the configuration again and takes over the settings that can change.
    pub(super) async fn reload(&self) {
        let loaded = match config::load(self.request) {
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
        self.parts.opened.retry(loaded.settings.worker.storage_retry);
        let grown = self.grow(&loaded).await;
        let shown = config::show_json(&loaded);
        let (merged, taken, waiting) = merge(&self.parts.config.load(), &shown, grown);
        self.parts.config.store(Arc::new(merged));
        tracing::warn!(target: AUDIT, taken = taken.join(", "), needs_a_restart = waiting.join(", "), "audit: the configuration was read again");
    }

    /// Takes over a catalog that grew. Whether it is in force now.
    async fn grow(&self, loaded: &Loaded) -> bool {
        let old = self.watch.current.engine();
        // Nothing runs by a catalog that is not the recorded one: any that fits the record may take its place.
        let drained = self.watch.current.lease().newer().is_some();
        let added = match growth(old.catalog(), &loaded.catalog) {
            Err(changed) if drained => changed,
            Ok(_) if drained => Vec::new(),
            Ok(added) if added.is_empty() => return true,
            Ok(added) => added,
            Err(changed) => {
                tracing::warn!(
                    changed = changed.join(", "),
                    "what is declared of these changed or is gone: run `evenkeel migrate up` and restart"
                );
                return false;
            }
        };
        match self.taken_over(loaded).await {
            Ok(generation) if drained => {
                tracing::info!(changed = added.join(", "), generation, "the catalog is the recorded one again");
                true
            }
            Ok(generation) => {
                tracing::info!(added = added.join(", "), generation, "the catalog has grown");
                true
            }
            Err(error) => {
                tracing::error!(error = %format!("{error:#}"), "the catalog stays as it is");
                false
            }
        }
    }

    async fn taken_over(&self, loaded: &Loaded) -> anyhow::Result<u32> {
        // The watch must not take this worker's own migration for another worker's.
        let _alone = self.watch.changing.lock().await;
        let context = &self.parts.context;
        let catalog = Arc::new(loaded.catalog.clone());
        let migrator = Migrator::new(context.stores.clone(), &context.settings, Arc::clone(&catalog), Arc::clone(&context.clock))?;
        let prepared = prepare(&migrator, &context.settings.migrate, context.clock.as_ref()).await?;
        for view in catalog.declared().into_keys() {
            announce_view(view.as_str());
        }
        self.watch.adopt(Catalog::clone(&catalog), &prepared.record, prepared.sent);
        Ok(prepared.record.generation)
    }
}

/// The additions of a catalog over another; the changes and removals instead, where there are any. Pure.
fn growth(old: &Catalog, new: &Catalog) -> Result<Vec<String>, Vec<String>> {
    let names = |catalog: &Catalog| -> BTreeMap<String, String> {
        let wide = |table| if catalog.wide.contains(table) { ", wide" } else { "" };
        let tables = catalog.tables.iter().map(|(name, table)| (format!("the table {name}"), format!("{table:?}{}", wide(table))));
        let views = catalog.views.iter().map(|(name, view)| (format!("the view {name}"), view.definition()));
        let dated = catalog.dated_views.iter().map(|(name, view)| (format!("the view {name}"), view.definition()));
        let retentions = catalog.retentions.iter().map(|(name, retention)| (format!("the retention {name}"), format!("{retention:?}")));
        let archives = catalog.archives.iter().map(|(name, archive)| (format!("the archive {name}"), format!("{archive:?}")));
        tables.chain(views).chain(dated).chain(retentions).chain(archives).collect()
    };
    let (old, new) = (names(old), names(new));
    let changed: Vec<String> = old.iter().filter(|(name, what)| new.get(*name) != Some(*what)).map(|(name, _)| name.clone()).collect();
    if !changed.is_empty() {
        return Err(changed);
    }
    Ok(new.into_keys().filter(|name| !old.contains_key(name)).collect())
}

/// The configuration in force after a reload, the keys that were taken over and those that wait for a restart. Pure.
fn merge(old: &Value, new: &Value, grown: bool) -> (Value, Vec<String>, Vec<String>) {
    let entries = |value: &Value| -> BTreeMap<String, Value> {
        let values = value["values"].as_array().into_iter().flatten();
        values.filter_map(|entry| Some((entry["key"].as_str()?.to_owned(), entry.clone()))).collect()
    };
    let (mut in_force, new) = (entries(old), entries(new));
    let keys: Vec<String> = in_force.keys().chain(new.keys()).cloned().collect::<std::collections::BTreeSet<_>>().into_iter().collect();
    let (mut taken, mut waiting) = (Vec::new(), Vec::new());
    for key in keys {
        let value = |of: &BTreeMap<String, Value>| of.get(&key).map(|entry| entry["value"].clone());
        if value(&in_force) == value(&new) {
            continue;
        }
        let under = |names: &[&str]| names.iter().any(|name| if name.ends_with('.') { key.starts_with(name) } else { key == *name });
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
    (json!({"values": in_force.into_values().collect::<Vec<_>>()}), taken, waiting)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog(text: &str) -> Catalog {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("default.toml"), format!("[accounts.main]\nkind = \"embedded\"\npath = \"x.db\"\n{text}"))
            .unwrap();
        let request = Request { folder: config::Folder::Named(folder.path().to_owned()), ..Request::default() };
        config::load(&request).unwrap().catalog
    }

    fn view(name: &str, key: &str) -> String {
        format!(
            "[views.{name}]\nkind = \"secondary_index\"\nsource = \"Employees\"\ntable = \"By{name}\"\npartition_key = \"{key}\"\nrow_key = \"{{RowKey}}\"\n"
        )
    }

    #[test]
    fn a_catalog_grows_by_what_was_added_and_by_nothing_else() {
        let (one, two) = (catalog(&view("a", "x")), catalog(&format!("{}{}", view("a", "x"), view("b", "y"))));
        assert_eq!(growth(&one, &one).unwrap(), Vec::<String>::new());
        assert_eq!(growth(&one, &two).unwrap(), ["the table Byb", "the view b"]);
        assert_eq!(growth(&two, &one).unwrap_err(), ["the table Byb", "the view b"]);
        assert_eq!(growth(&one, &catalog(&view("a", "z"))).unwrap_err(), ["the view a"]);
        let wide = catalog(&format!("{}[tables.Employees]\nwide = true\n", view("a", "x")));
        assert_eq!(growth(&one, &wide).unwrap_err(), ["the table Employees"]);
    }

    #[test]
    fn what_is_shown_as_in_force_is() {
        let config = |poll: &str, listen: &str, view: &str| {
            let entry = |key: &str, value: &str| json!({"key": key, "value": value, "origin": "file"});
            json!({"values": [entry("http.listen", listen), entry("views.a.table", view), entry("worker.poll.max", poll)]})
        };
        let (old, new) = (config("5s", "a", "T"), config("1s", "b", "U"));
        let (merged, taken, waiting) = merge(&old, &new, false);
        assert_eq!((taken, waiting), (vec!["worker.poll.max".to_owned()], vec!["http.listen".to_owned(), "views.a.table".to_owned()]));
        assert_eq!(merged, config("1s", "a", "T"));
        assert_eq!(merge(&old, &new, true).0, config("1s", "a", "U"));
    }
}
