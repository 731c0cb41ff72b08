//! Hides partition keys of derived rows from visitors without the right to see contents, because these keys contain
//! properties.

use sha2::{Digest as _, Sha256};

use evenkeel_model::catalog::{Catalog, TableRef};
use evenkeel_model::names::is_own_table;
use evenkeel_model::template::Template;
use evenkeel_model::{AccountName, TableName};

/// Number of digits of a hash that are shown. They are enough to distinguish busy partitions.
const DIGITS: usize = 8;

/// Determines which PartitionKeys a visitor may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionNames {
    Whole,
    /// Shows the PartitionKeys of primaries, and a hash instead of any other PartitionKey. For visitors without the
    /// right to see contents.
    OfPrimaries,
}

impl PartitionNames {
    /// Returns the hash to show instead of a PartitionKey; `None` if the key may be shown.
    pub(super) fn instead_of(
        self,
        partition: &str,
        table: &str,
        account: &AccountName,
        catalog: &Catalog,
    ) -> Option<String> {
        let shown = self == Self::Whole || names_primaries(partition, table, account, catalog);
        (!shown).then(|| format!("#{}", &hex::encode(Sha256::digest(partition))[..DIGITS]))
    }
}

fn names_primaries(partition: &str, table: &str, account: &AccountName, catalog: &Catalog) -> bool {
    let known = |name: &str| {
        TableName::new(name)
            .ok()
            .and_then(|name| catalog.table(&name))
    };
    match (known(table), partition.split_once('~')) {
        (Some(table), _) => table.account == *account && has_primaries(table, catalog),
        // In evenkeel's own tables, the name of a partition that is about primaries begins with the name of their
        // table.
        (None, Some((source, _))) => {
            is_own_table(table)
                && known(source).is_some_and(|source| has_primaries(source, catalog))
        }
        (None, None) => is_own_table(table),
    }
}

/// Whether the PartitionKeys in a table contain no properties of entities. This is the case if views write no rows
/// there, or only rows with the PartitionKeys of their primaries.
fn has_primaries(table: &TableRef, catalog: &Catalog) -> bool {
    let of_properties =
        |key: &Template| key.properties().iter().any(|name| *name != "PartitionKey");
    let made = catalog
        .views
        .values()
        .filter(|view| view.set_properties().is_none())
        .any(|view| {
            let rows = view.rows().filter(|rows| rows.target.has(table));
            rows.is_some_and(|rows| view.source != *table || of_properties(rows.partition_key))
        });
    let made_by_date = catalog.dated_views.values().any(|view| {
        let rows = view.rows().filter(|rows| {
            rows.target.account == table.account
                && rows.target.tables.period(&table.table).is_some()
        });
        rows.is_some_and(|rows| *rows.target != view.source || of_properties(rows.partition_key))
    });
    !made && !made_by_date
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::state::LimitedScope;
    use evenkeel_model::ViewName;
    use evenkeel_model::catalog::{OnConflict, SecondaryIndex, View, ViewKind};

    fn table(name: &str) -> TableRef {
        TableRef {
            account: AccountName::main(),
            table: TableName::new(name).unwrap(),
        }
    }

    /// A catalog with two indexes of employees: one by e-mail address in another table, and one by name in the
    /// employees' own partitions.
    fn catalog() -> Catalog {
        let mut catalog = Catalog::default();
        for (name, target, key) in [
            ("by_email", "ByEmail", "{Email|lower}"),
            ("by_name", "Employees", "{PartitionKey}"),
        ] {
            let template = |text: &str| Template::parse(text).unwrap();
            let index = SecondaryIndex {
                target: table(target).into(),
                partition_key: template(key),
                row_key: template("by_{LastName}"),
                select: None,
            };
            let name = ViewName::new(name).unwrap();
            let kind = ViewKind::SecondaryIndex(index);
            let view = View {
                name: name.clone(),
                source: table("Employees"),
                when: None,
                kind,
                on_conflict: OnConflict::Reject,
            };
            catalog.views.insert(name, Arc::new(view));
            catalog.tables.insert(table(target).table, table(target));
        }
        catalog
    }

    #[test]
    fn partition_keys_of_derived_rows_need_the_right_to_see_contents() {
        let catalog = catalog();
        let seen = |names: PartitionNames, table: &str, partition: &str| {
            names
                .instead_of(partition, table, &AccountName::main(), &catalog)
                .unwrap_or_else(|| partition.to_owned())
        };
        for (table, partition, is_primarys) in [
            ("Employees", "Sales", true),
            ("EvenkeelFootprints", "Employees~Sales", true),
            ("EvenkeelMigrations", "catalog", true),
            ("ByEmail", "jun@contoso.com", false),
            ("EvenkeelFootprints", "ByEmail~jun@contoso.com", false),
            ("EvenkeelRangeOverlays", "by_email~Employees~Sales", false),
            ("Unknown", "x", false),
        ] {
            assert_eq!(seen(PartitionNames::Whole, table, partition), partition);
            let withheld = seen(PartitionNames::OfPrimaries, table, partition);
            assert_eq!(withheld == partition, is_primarys, "{table}: {withheld}");
            assert!(is_primarys || withheld.len() == 1 + DIGITS, "{withheld}");
        }
        let other = AccountName::new("other").unwrap();
        assert!(
            PartitionNames::OfPrimaries
                .instead_of("Sales", "Employees", &other, &catalog)
                .is_some()
        );
    }

    #[test]
    fn a_limited_scope_hides_the_partition_key_of_derived_rows() {
        let what = "the partition \"jun@contoso.com\" of the table ByEmail".to_owned();
        let partition = Some(("ByEmail".to_owned(), "jun@contoso.com".to_owned()));
        let hold = LimitedScope {
            account: "main".to_owned(),
            scope: what,
            partition,
            remaining_seconds: 1.0,
            per_second: None,
        };
        assert_eq!(hold.clone().named(PartitionNames::Whole, &catalog()), hold);
        let withheld = hold.named(PartitionNames::OfPrimaries, &catalog());
        assert!(
            withheld.scope.starts_with("the partition #")
                && withheld.scope.ends_with(" of the table ByEmail"),
            "{withheld:?}"
        );
        assert_eq!(withheld.partition, None);
    }
}
