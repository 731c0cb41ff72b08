//! Followers: dated tables that follow the tables of a retention. There are two kinds: the tables
//! to which views of the retention's tables write, and the tables with the footprints of the
//! retention's primaries.
//!
//! ```text
//!   LoginAttempts20261120                          a table of [retention.logins]
//!     ├─ LoginsByUser20261120                      what a view derives from it
//!     └─ EvenkeelFootprintsLoginAttempts20261120   the footprints of its primaries
//! ```
//!
//! Followers are created before the table that they follow, and dropped before it, so that no
//! follower outlives its table.

use std::collections::BTreeSet;

use super::clause::{Clause, Clauses, Declaration, Fact, Tables};
use super::{Catalog, DatedRef, Retention, View};
use crate::ViewName;

/// The dated tables that follow the tables of a retention.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Followers {
    /// The targets of current views.
    pub targets: BTreeSet<DatedRef>,
    /// The targets of retired views, and the former targets of changed views. They are dropped
    /// together with their table, but no longer created.
    pub former: BTreeSet<DatedRef>,
    /// The tables of footprints; `None` if the tables of the retention never had a view.
    pub footprints: Option<DatedRef>,
}

impl Followers {
    /// The followers that must exist as long as the table that they follow.
    pub fn required(&self) -> impl Iterator<Item = &DatedRef> {
        self.targets.iter().chain(&self.footprints)
    }

    /// All followers in the order in which they are dropped. The footprints are dropped last,
    /// because they list the items in the other tables.
    pub fn all(&self) -> impl Iterator<Item = &DatedRef> {
        self.targets
            .iter()
            .chain(&self.former)
            .chain(&self.footprints)
    }
}

impl Catalog {
    /// The dated tables that follow the tables of a retention.
    pub fn followers(&self, retention: &Retention) -> Followers {
        let source = retention.source();
        let targets: BTreeSet<DatedRef> = self
            .targets_of(&source)
            .map(|(_, target)| target.clone())
            .collect();
        let recorded = self
            .generations
            .followed
            .iter()
            .filter(|(of, _)| *of == source)
            .flat_map(|(_, followed)| followed);
        // A table that the catalog now uses for something else is not dropped with this retention.
        let former = recorded
            .filter(|former| !targets.contains(former) && !self.is_of_another(former, &source))
            .cloned()
            .collect();
        let sample = source.at(jiff::Timestamp::UNIX_EPOCH);
        let footprints = if self.has_views(&sample) {
            retention.footprints()
        } else {
            None
        };
        Followers {
            targets,
            former,
            footprints,
        }
    }

    /// The views whose source is `source`, each with its target. Views that write to `source`
    /// itself are left out.
    fn targets_of<'a>(
        &'a self,
        source: &'a DatedRef,
    ) -> impl Iterator<Item = (&'a ViewName, &'a DatedRef)> {
        let views = self
            .dated_views
            .values()
            .filter(move |view| view.source == *source);
        views
            .filter_map(move |view| Some((&view.name, target(view)?)))
            .filter(move |(_, target)| *target != source)
    }

    fn is_of_another(&self, tables: &DatedRef, source: &DatedRef) -> bool {
        let kept = self
            .retentions
            .values()
            .any(|retention| retention.tables == tables.tables);
        let followed = self.dated_views.values().any(|view| {
            view.source != *source && target(view).is_some_and(|target| target == tables)
        });
        let named = self
            .tables
            .keys()
            .chain(self.spread.keys())
            .any(|name| tables.tables.period(name).is_some());
        kept || followed || named
    }
}

impl View<DatedRef> {
    /// The clauses about the dated target of a view: the target has no other source and no
    /// retention, and all views spell it alike.
    pub(super) fn follows(&self) -> Vec<Clause<'_>> {
        let mut clauses = Clauses::of(Declaration::View(&self.name));
        let source = &self.source.tables;
        if let Some(DatedRef { account, tables }) = target(self)
            && tables != source
        {
            let (view, key) = (clauses.by, self.kind.kind().target_key());
            let why = format!(
                ", but is derived from {source} and dropped with it; expected tables without a [retention]"
            );
            clauses.bars(key, &Tables::Dated(tables.clone()), Fact::Dropped, why);
            let mut share_as = |key, what, shared_as, message| {
                let thing = format!("the {what} of {}", tables.canonical());
                clauses.owns(key, thing, message).share_as(shared_as);
            };
            let message = format!(
                "{view} already derives {tables} from {source}; dated tables can have one source only"
            );
            share_as(key, "source", source.canonical(), message);
            let message =
                format!("{view} spells these tables \"{tables}\"; expected the same spelling");
            share_as(key, "spelling", tables.to_string(), message);
            let message =
                format!("{view} writes to {tables} in another account; expected the same account");
            share_as("account", "account", account.to_string(), message);
        }
        clauses.all
    }
}

fn target(view: &View<DatedRef>) -> Option<&DatedRef> {
    view.rows().map(|rows| rows.target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{OnConflict, SecondaryIndex, TableRef, ViewKind};
    use crate::dated::DatedTables;
    use crate::template::Template;
    use crate::{AccountName, TableName};
    use std::sync::Arc;
    use std::time::Duration;

    fn dated(pattern: &str) -> DatedRef {
        DatedRef {
            account: AccountName::main(),
            tables: DatedTables::parse(pattern).unwrap(),
        }
    }

    /// A catalog with retentions of these tables and with these views (name, source, target).
    fn catalog(retentions: &[&str], views: &[(&str, &str, &str)]) -> Catalog {
        let mut catalog = Catalog::default();
        for tables in retentions {
            let DatedRef { account, tables } = dated(tables);
            let name = ViewName::new(tables.prefix().to_ascii_lowercase()).unwrap();
            let retention = Retention {
                name: name.clone(),
                account,
                tables,
                keep: Duration::from_hours(24),
                ahead: 1,
                archive_to: None,
            };
            catalog.retentions.insert(name, Arc::new(retention));
        }
        for (name, source, target) in views {
            let template = |text| Template::parse(text).unwrap();
            let kind = ViewKind::SecondaryIndex(SecondaryIndex {
                target: dated(target),
                partition_key: template("{User}"),
                row_key: template("{PartitionKey}_{RowKey}"),
                select: None,
            });
            let name = ViewName::new(*name).unwrap();
            let view = View {
                name: name.clone(),
                source: dated(source),
                when: None,
                kind,
                on_conflict: OnConflict::Reject,
            };
            catalog.dated_views.insert(name, Arc::new(view));
        }
        catalog
    }

    fn followers(catalog: &Catalog) -> Vec<String> {
        let retention = catalog.retentions.values().next().unwrap();
        catalog
            .followers(retention)
            .all()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn targets_of_views_follow_but_the_source_itself_does_not() {
        let views = [
            ("a", "Logins%Y%m%d", "ByUser%Y%m%d"),
            ("b", "Logins%Y%m%d", "Logins%Y%m%d"),
            ("c", "Logins%Y%m%d", "ByUser%Y%m%d"),
        ];
        assert_eq!(
            followers(&catalog(&["Logins%Y%m%d"], &views)),
            ["ByUser%Y%m%d", "EvenkeelFootprintsLogins%Y%m%d"]
        );
        assert_eq!(
            followers(&catalog(&["Logins%Y%m%d"], &views[1..2])),
            ["EvenkeelFootprintsLogins%Y%m%d"]
        );
        assert!(followers(&catalog(&["Logins%Y%m%d"], &[])).is_empty());
    }

    #[test]
    fn former_targets_are_dropped_unless_the_catalog_uses_them_otherwise() {
        let once = |catalog: &mut Catalog| {
            let former = ["Old%Y%m%d", "Kept%Y%m%d", "Named%Y%m%d", "Other%Y%m%d"]
                .map(dated)
                .into();
            catalog
                .generations
                .followed
                .push((dated("Logins%Y%m%d"), former));
        };
        let mut alone = catalog(&["Logins%Y%m%d"], &[]);
        once(&mut alone);
        assert_eq!(
            followers(&alone),
            ["Kept%Y%m%d", "Named%Y%m%d", "Old%Y%m%d", "Other%Y%m%d"]
        );
        let mut taken = catalog(
            &["Logins%Y%m%d", "Kept%Y%m%d", "Visits%Y%m%d"],
            &[("v", "Visits%Y%m%d", "Other%Y%m%d")],
        );
        let named = TableName::new("Named20261120").unwrap();
        taken.tables.insert(
            named.clone(),
            TableRef {
                account: AccountName::main(),
                table: named,
            },
        );
        once(&mut taken);
        let logins = taken.retentions[&ViewName::new("logins").unwrap()].clone();
        assert_eq!(
            taken
                .followers(&logins)
                .all()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
            ["Old%Y%m%d"]
        );
        assert!(
            taken.followers(&logins).required().next().is_none(),
            "nobody writes there any more"
        );
    }
}
