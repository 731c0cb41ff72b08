//! A catalog that grew while its worker runs, or that fits the record again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::prepare::prepare;
use super::watch::Watch;
use crate::migrations::Migrator;
use evenkeel_model::catalog::Catalog;
use evenkeel_telemetry::announce_view;

/// Takes over a catalog that grew. Whether it is in force now.
pub async fn grow(watch: &Watch<'_>, catalog: &Catalog) -> bool {
    let old = watch.current.engine();
    // Nothing runs by a catalog that is not the recorded one: any that fits the record may take its place.
    let drained = watch.current.lease().newer().is_some();
    let waiting = resealed(old.catalog(), catalog);
    if !waiting.is_empty() {
        tracing::warn!(
            changed = waiting.join(", "),
            "catalog: keys are opened at the start, and what is encrypted changed; restart for it"
        );
        return false;
    }
    let added = match growth(old.catalog(), catalog) {
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
    match taken_over(watch, catalog).await {
        Ok(generation) if drained => {
            tracing::info!(
                changed = added.join(", "),
                generation,
                "the catalog is the recorded one again"
            );
            true
        }
        Ok(generation) => {
            tracing::info!(
                added = added.join(", "),
                generation,
                "the catalog has grown"
            );
            true
        }
        Err(error) => {
            tracing::error!(error = %format!("{error:#}"), "the catalog stays as it is");
            false
        }
    }
}

async fn taken_over(watch: &Watch<'_>, catalog: &Catalog) -> anyhow::Result<u32> {
    // The watch must not take this worker's own migration for another worker's.
    let _alone = watch.changing.lock().await;
    let means = &watch.means;
    let catalog = Arc::new(catalog.clone());
    let migrator = Migrator::new(
        means.stores.clone(),
        means.settings,
        Arc::clone(&catalog),
        Arc::clone(means.clock),
    )?;
    let prepared = prepare(&migrator, &means.settings.migrate, means.clock.as_ref()).await?;
    for view in catalog.declared().into_keys() {
        announce_view(view.as_str());
    }
    watch.adopt(Catalog::clone(&catalog), &prepared.record, prepared.sent);
    Ok(prepared.record.generation)
}

/// The additions of a catalog over another; the changes and removals instead, where there are any. Pure.
fn growth(old: &Catalog, new: &Catalog) -> Result<Vec<String>, Vec<String>> {
    let names = |catalog: &Catalog| -> BTreeMap<String, String> {
        let wide = |table| {
            if catalog.wide.contains(table) {
                ", wide"
            } else {
                ""
            }
        };
        let tables = catalog.tables.iter().map(|(name, table)| {
            (
                format!("the table {name}"),
                format!("{table:?}{}", wide(table)),
            )
        });
        let views = catalog
            .views
            .iter()
            .map(|(name, view)| (format!("the view {name}"), view.definition().to_string()));
        let dated = catalog
            .dated_views
            .iter()
            .map(|(name, view)| (format!("the view {name}"), view.definition().to_string()));
        let retentions = catalog
            .retentions
            .iter()
            .map(|(name, retention)| (format!("the retention {name}"), format!("{retention:?}")));
        let archives = catalog
            .archives
            .iter()
            .map(|(name, archive)| (format!("the archive {name}"), format!("{archive:?}")));
        let rules = catalog
            .rules
            .iter()
            .map(|(name, rule)| (format!("the rule {name}"), format!("{rule:?}")));
        let spread = catalog
            .spread
            .iter()
            .map(|(name, table)| (format!("the table {name}"), format!("{table:?}")));
        tables
            .chain(spread)
            .chain(views)
            .chain(dated)
            .chain(retentions)
            .chain(archives)
            .chain(rules)
            .collect()
    };
    let (old, new) = (names(old), names(new));
    let changed: Vec<String> = old
        .iter()
        .filter(|(name, what)| new.get(*name) != Some(*what))
        .map(|(name, _)| name.clone())
        .collect();
    if !changed.is_empty() {
        return Err(changed);
    }
    Ok(new
        .into_keys()
        .filter(|name| !old.contains_key(name))
        .collect())
}

/// The tables whose properties are encrypted otherwise, or were not or are not any more. Pure.
fn resealed(old: &Catalog, new: &Catalog) -> Vec<String> {
    let sealed = |catalog: &Catalog| -> BTreeMap<String, String> {
        let declared = |table| {
            (
                catalog.encrypted.get(table),
                catalog.encrypted_when.get(table),
                catalog.hashed.get(table),
            )
        };
        catalog
            .encrypted
            .keys()
            .map(|table| {
                (
                    format!("the encryption of {table}"),
                    format!("{:?}", declared(table)),
                )
            })
            .collect()
    };
    let (old, new) = (sealed(old), sealed(new));
    let tables: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    tables
        .into_iter()
        .filter(|table| old.get(*table) != new.get(*table))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_config::Request;

    fn catalog(text: &str) -> Catalog {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(
            folder.path().join("default.toml"),
            format!("[accounts.main]\nkind = \"embedded\"\npath = \"x.db\"\n{text}"),
        )
        .unwrap();
        let request = Request {
            folder: evenkeel_config::Folder::Named(folder.path().to_owned()),
            ..Request::default()
        };
        evenkeel_config::load(&request).unwrap().catalog
    }

    fn view(name: &str, key: &str) -> String {
        format!(
            "[views.{name}]\nkind = \"secondary_index\"\nsource = \"Employees\"\ntable = \"By{name}\"\npartition_key = \"{key}\"\nrow_key = \"{{RowKey}}\"\n"
        )
    }

    #[test]
    fn a_catalog_grows_by_what_was_added_and_by_nothing_else() {
        let (one, two) = (
            catalog(&view("a", "x")),
            catalog(&format!("{}{}", view("a", "x"), view("b", "y"))),
        );
        assert_eq!(growth(&one, &one).unwrap(), Vec::<String>::new());
        assert_eq!(growth(&one, &two).unwrap(), ["the table Byb", "the view b"]);
        assert_eq!(
            growth(&two, &one).unwrap_err(),
            ["the table Byb", "the view b"]
        );
        assert_eq!(
            growth(&one, &catalog(&view("a", "z"))).unwrap_err(),
            ["the view a"]
        );
        let wide = catalog(&format!(
            "{}[tables.Employees]\nwide = true\n",
            view("a", "x")
        ));
        assert_eq!(growth(&one, &wide).unwrap_err(), ["the table Employees"]);
    }

    #[test]
    fn what_is_encrypted_otherwise_waits_for_a_restart() {
        const KEYS: &str =
            "[encryption]\ncurrent = \"k\"\n[encryption.keys.k]\nkey_env = \"NOT_SET\"\n";
        let of = |encrypted: &str| {
            catalog(&format!(
                "{}[tables.Employees]\n{encrypted}{KEYS}",
                view("a", "x")
            ))
        };
        let (plain, one, two) = (
            of(""),
            of("encrypt = [\"Ssn\"]\n"),
            of("encrypt = [\"Ssn\", \"Salary\"]\n"),
        );
        for (old, new) in [(&plain, &one), (&one, &two), (&one, &plain)] {
            assert_eq!(resealed(old, new), ["the encryption of Employees"]);
        }
        let another = catalog(&format!(
            "{}[tables.Employees]\n[tables.Staff]\nencrypt = [\"Ssn\"]\n{KEYS}",
            view("a", "x")
        ));
        assert_eq!(resealed(&plain, &another), ["the encryption of Staff"]);
        assert!(resealed(&one, &one).is_empty());
    }
}
