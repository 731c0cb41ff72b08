//! Differences between two catalogs. Pure.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_model::catalog::Catalog;

pub(super) fn changes(old: &Catalog, new: &Catalog) -> Vec<String> {
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
    differences(&names(old), &names(new))
}

fn differences(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Vec<String> {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    names
        .into_iter()
        .filter(|name| old.get(*name) != new.get(*name))
        .cloned()
        .collect()
}

pub fn encryption_changes(old: &Catalog, new: &Catalog) -> Vec<String> {
    let encrypted_properties = |catalog: &Catalog| -> BTreeMap<String, String> {
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
    differences(&encrypted_properties(old), &encrypted_properties(new))
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
    fn added_changed_and_removed_declarations_are_named() {
        let (one, two) = (
            catalog(&view("a", "x")),
            catalog(&format!("{}{}", view("a", "x"), view("b", "y"))),
        );
        assert_eq!(changes(&one, &one), Vec::<String>::new());
        assert_eq!(changes(&one, &two), ["the table Byb", "the view b"]);
        assert_eq!(changes(&two, &one), ["the table Byb", "the view b"]);
        assert_eq!(changes(&one, &catalog(&view("a", "z"))), ["the view a"]);
        let wide = catalog(&format!(
            "{}[tables.Employees]\nwide = true\n",
            view("a", "x")
        ));
        assert_eq!(changes(&one, &wide), ["the table Employees"]);
    }

    #[test]
    fn a_change_of_the_encryption_needs_a_restart() {
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
            assert_eq!(
                encryption_changes(old, new),
                ["the encryption of Employees"]
            );
        }
        let another = catalog(&format!(
            "{}[tables.Employees]\n[tables.Staff]\nencrypt = [\"Ssn\"]\n{KEYS}",
            view("a", "x")
        ));
        assert_eq!(
            encryption_changes(&plain, &another),
            ["the encryption of Staff"]
        );
        assert!(encryption_changes(&one, &one).is_empty());
    }
}
